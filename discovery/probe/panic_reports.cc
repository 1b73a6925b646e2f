#include "discovery/probe/panic_reports.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/regular_file.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr int kEntriesMax = 4096;
// Two panics of one machine have a restart between them, and reports are written after it.
constexpr uint64_t kOnePanicMs = 60'000;

constexpr uint64_t KeptMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(kPanicsKept).count();
}

// "panic-full-2026-11-20-101112.0002.panic", "panic-base+socd-…", "Kernel-…". Files of a
// machine that was forced off by its button begin otherwise.
bool IsPanicName(const std::string& name) {
  return absl::EndsWithIgnoreCase(name, ".panic") &&
         (absl::StartsWithIgnoreCase(name, "panic") || absl::StartsWithIgnoreCase(name, "kernel"));
}

// What reports are ordered by, whatever kind they are of.
std::string DateIn(const std::string& name) {
  const size_t at = name.find_first_of("0123456789");
  return at == name.npos ? "" : name.substr(at);
}

bool AreClose(uint64_t a, uint64_t b) { return (a > b ? a - b : b - a) < kOnePanicMs; }

bool IsSamePanic(const PanicReportText& a, const PanicReportText& b) {
  if (!a.incident_id.empty() && a.incident_id == b.incident_id) return true;
  return AreClose(a.unix_ms, b.unix_ms) || AreClose(a.written_unix_ms, b.written_unix_ms);
}

std::string WhyUnreadable(const std::string& folder, int code) {
  if (code != EACCES && code != EPERM) {
    return absl::StrCat("panics: ", folder, " can't be read: ", std::strerror(code));
  }
  return absl::StrCat("panics: ", folder,
                      " can be read by administrators alone. Look there yourself after a restart, "
                      "or let the user of agentd read it: 'sudo dseditgroup -o edit -a USER -t "
                      "user _analyticsusers'");
}

}  // namespace

int PanicReports::List(const std::string& folder, uint64_t now_unix_ms,
                       std::map<std::string, Known>& found) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error) return error == std::errc::no_such_file_or_directory ? 0 : error.value();
  std::vector<std::pair<std::string, std::string>> files;  // date and path
  for (int seen = 0; seen < kEntriesMax && entry != fs::directory_iterator(); ++seen) {
    const std::string name = entry->path().filename().string();
    if (IsPanicName(name)) files.emplace_back(DateIn(name), entry->path().string());
    entry.increment(error);
    if (error) return error.value();
  }
  std::sort(files.rbegin(), files.rend());
  if (files.size() > kPanicFilesMax) files.resize(kPanicFilesMax);
  for (const auto& [date, path] : files) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    // Written after the panic: an old file holds no new one.
    if (static_cast<uint64_t>(info.st_mtime) * 1000 + KeptMs() < now_unix_ms) continue;
    Known& file = found[path];
    if (const auto known = known_.find(path); known != known_.end()) file = known->second;
    const auto size = static_cast<uint64_t>(info.st_size);
    const auto changed = static_cast<int64_t>(info.st_mtime);
    if (file.size == size && file.changed == changed && file.is_readable) continue;
    const auto text = transport::ReadBeginning(path, kPanicFileBytesMax);
    file = {size, changed, text.ok(), text.ok() ? ParsePanicReport(*text) : std::nullopt};
  }
  return 0;
}

void PanicReports::Read(uint64_t now_unix_ms, v1::LinkFacts& facts) {
  std::map<std::string, Known> found;
  int trouble = List(folder_, now_unix_ms, found);
  if (trouble == 0) trouble = List(absl::StrCat(folder_, "/Retired"), now_unix_ms, found);
  known_ = std::move(found);
  std::vector<std::pair<const std::string*, const PanicReportText*>> recent;
  for (const auto& [path, file] : known_) {
    if (!file.is_readable) trouble = EACCES;
    if (!file.report || file.report->unix_ms + KeptMs() < now_unix_ms) continue;
    if (file.report->unix_ms > now_unix_ms + KeptMs()) continue;  // of a clock that was wrong
    recent.emplace_back(&path, &*file.report);
  }
  if (trouble != 0) {
    *facts.add_unknown() =
        MakeReason(reasons::kFactUnknown, WhyUnreadable(folder_, trouble), facts.node_id());
  }
  std::sort(recent.begin(), recent.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->unix_ms, *a.first) < std::tie(b.second->unix_ms, *b.first);
  });
  const PanicReportText* before = nullptr;
  for (const auto& [path, report] : recent) {
    const bool is_same = before != nullptr && IsSamePanic(*before, *report);
    v1::PanicReport& panic =
        is_same ? *facts.mutable_panics(facts.panics_size() - 1) : *facts.add_panics();
    before = report;
    if (!is_same) panic.set_unix_ms(report->unix_ms);
    if (is_same && !panic.text().empty()) continue;
    panic.set_file(*path);
    panic.set_text(report->text);
  }
  const int beyond = facts.panics_size() - static_cast<int>(kPanicsMax);
  if (beyond > 0) facts.mutable_panics()->DeleteSubrange(0, beyond);
}

}  // namespace macrame::discovery
