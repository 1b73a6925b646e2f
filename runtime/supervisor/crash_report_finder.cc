#include "runtime/supervisor/crash_report_finder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::runtime {
namespace {

constexpr int kFolderEntriesMax = 4096;
constexpr size_t kReportsReadMax = 8;  // in one look, the newest first

// Empty where it is no regular file, larger than a report, or can't be read.
std::string ReadReport(const std::string& path) {
  // A pipe must not hold the reader up, and a link could lead anywhere.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return "";
  struct stat info {};
  std::string text;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
      static_cast<uint64_t>(info.st_size) <= kCrashReportBytesMax) {
    text.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t got = read(fd, text.data() + done, text.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
  }
  close(fd);
  return text;
}

}  // namespace

CrashReportFinder::CrashReportFinder(std::vector<std::string> folders, std::string program,
                                     uint64_t pid, uint64_t started_unix_ms)
    : folders_(std::move(folders)),
      program_(std::move(program)),
      pid_(pid),
      started_unix_ms_(started_unix_ms) {}

bool CrashReportFinder::IsNamedRight(const std::string& name) const {
  return name.size() > program_.size() && absl::StartsWith(name, program_) &&
         (name[program_.size()] == '-' || name[program_.size()] == '_') &&
         (absl::EndsWith(name, ".ips") || absl::EndsWith(name, ".crash"));
}

void CrashReportFinder::List(const std::string& folder, std::vector<Candidate>& candidates) const {
  std::error_code error;
  int entries = 0;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end && ++entries <= kFolderEntriesMax; it.increment(error)) {
    if (!IsNamedRight(it->path().filename().string())) continue;
    const std::string path = it->path().string();
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) continue;
    const auto modified = static_cast<int64_t>(info.st_mtime);
    if (modified < static_cast<int64_t>(started_unix_ms_ / 1000)) continue;
    const auto bytes = static_cast<uint64_t>(info.st_size);
    const auto known = passed_over_.find(path);
    if (known != passed_over_.end() && known->second == std::pair(modified, bytes)) continue;
    if (bytes <= kCrashReportBytesMax) candidates.push_back({path, modified, bytes});
  }
}

std::optional<FoundCrashReport> CrashReportFinder::Look() {
  std::vector<Candidate> candidates;
  for (const std::string& folder : folders_) List(folder, candidates);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.modified_s > b.modified_s; });
  if (candidates.size() > kReportsReadMax) candidates.resize(kReportsReadMax);
  for (const Candidate& candidate : candidates) {
    std::optional<CrashReport> report = ParseCrashReport(ReadReport(candidate.path));
    if (report.has_value() && report->pid == pid_) {
      return FoundCrashReport{candidate.path, *std::move(report)};
    }
    passed_over_[candidate.path] = {candidate.modified_s, candidate.bytes};
  }
  return std::nullopt;
}

}  // namespace macrame::runtime
