#include "agentd/state/audit_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transport/regular_file.h"

namespace macrame::agentd {
namespace {

constexpr char kName[] = "audit.log";
constexpr size_t kAuditReadBytesMax = 16 * kAuditFileBytesMax;

std::string ReadFile(const std::string& path) {
  return transport::ReadRegularFile(path, kAuditReadBytesMax).value_or("");
}

bool WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

AuditLog::AuditLog(const transport::Clock& clock, const std::string& state_folder,
                   size_t file_bytes_max)
    : clock_(clock), folder_(state_folder), file_bytes_max_(file_bytes_max) {
  Open();
}

AuditLog::~AuditLog() {
  if (file_ >= 0) ::close(file_);
}

std::string AuditLog::PathOf(int index) const {
  return index == 0 ? absl::StrCat(folder_, "/", kName)
                    : absl::StrCat(folder_, "/", kName, ".", index);
}

void AuditLog::Open() {
  // The last whole line of the newest file that has one.
  for (int index = 0; index < kAuditFilesMax && tail_.sequence == 0; ++index) {
    const std::string text = ReadFile(PathOf(index));
    const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    for (auto line = lines.rbegin(); line != lines.rend() && tail_.sequence == 0; ++line) {
      const auto read = ReadAuditLine(*line);
      if (read.has_value()) tail_ = {read->sequence, read->hash};
    }
  }
  if (OpenNewest()) {
    RepairEnd();
  } else {
    NoteTrouble();
  }
}

bool AuditLog::OpenNewest() {
  // A pipe in its place would take a little and then hold up the agent.
  file_ = ::open(PathOf(0).c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600);
  struct stat info {};
  if (file_ < 0) return false;
  const bool is_known = ::fstat(file_, &info) == 0;
  if (!is_known || !S_ISREG(info.st_mode)) {
    const int code = is_known ? EINVAL : errno;
    ::close(std::exchange(file_, -1));
    errno = code;
    return false;
  }
  size_ = static_cast<size_t>(info.st_size);
  return true;
}

void AuditLog::NoteTrouble() {
  const int code = errno;
  struct stat info {};
  absl::Status kind;
  if (::stat(PathOf(0).c_str(), &info) == 0) kind = transport::CheckIsRegular(PathOf(0), info);
  const std::string why =
      kind.ok() ? absl::StrCat(PathOf(0), ": ", std::strerror(code)) : std::string(kind.message());
  if (trouble_.empty()) spdlog::error("the audit log can't be written: {}", why);
  trouble_ = why;
}

// A line that a crash cut off goes, and an entry says so.
void AuditLog::RepairEnd() {
  const std::string text = ReadFile(PathOf(0));
  if (text.empty() || text.back() == '\n') return;
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  const bool is_whole = ReadAuditLine(absl::string_view(text).substr(whole)).has_value();
  if (is_whole) {
    if (WriteAll(file_, "\n")) ++size_;
    return;
  }
  if (::ftruncate(file_, static_cast<off_t>(whole)) != 0) return;
  size_ = whole;
  Add({0, "local", "audit log repaired", absl::StrCat(text.size() - whole, " bytes cut off"),
       "disk", "ok", 0});
}

void AuditLog::Rotate() {
  ::close(file_);
  for (int index = kAuditFilesMax - 1; index > 0; --index) {
    std::rename(PathOf(index - 1).c_str(), PathOf(index).c_str());
  }
  OpenNewest();
}

// What a failed write left behind goes first: the next entry has the same number.
bool AuditLog::IsWritable() {
  if (file_ < 0 && !OpenNewest()) return false;
  if (is_ragged_ && ::ftruncate(file_, static_cast<off_t>(size_)) != 0) return false;
  is_ragged_ = false;
  return true;
}

bool AuditLog::Append(const AuditEntry& entry, bool sync) {
  AuditTail next = tail_;
  const std::string line = ComposeAuditLine(entry, &next);
  if (size_ > 0 && size_ + line.size() > file_bytes_max_) Rotate();
  if (!IsWritable()) return false;
  if (!WriteAll(file_, line) || (sync && ::fsync(file_) != 0)) {
    const int code = errno;
    is_ragged_ = true;
    IsWritable();
    errno = code;
    return false;
  }
  size_ += line.size();
  tail_ = next;
  return true;
}

void AuditLog::Add(AuditEntry entry, bool sync) {
  entry.unix_ms = clock_.UnixMs();
  const bool is_resumed =
      lost_ == 0 || Append({entry.unix_ms, "local", "audit log resumed",
                            absl::StrCat(lost_, " entries were not written"), "disk", "ok", 0},
                           sync);
  if (is_resumed) lost_ = 0;
  if (!is_resumed || !Append(entry, sync)) {
    ++lost_;
    return NoteTrouble();
  }
  trouble_.clear();
}

void AuditLog::AddRefused(AuditEntry entry) {
  const auto left_out = throttle_.Take(clock_.Now());
  if (!left_out.has_value()) return;
  entry.left_out = *left_out;
  Add(std::move(entry), /*sync=*/false);
}

void AuditLog::ForEachLine(
    const std::function<bool(const std::string&, size_t, absl::string_view)>& take) const {
  for (int index = kAuditFilesMax - 1; index >= 0; --index) {
    const std::string path = PathOf(index);
    const std::string text = ReadFile(path);
    const std::string name = path.substr(path.rfind('/') + 1);
    size_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      if (!line.empty() && !take(name, number, line)) return;
    }
  }
}

v1::ReadAuditResponse AuditLog::Read(const v1::ReadAuditRequest& request) const {
  const uint32_t asked = request.limit() == 0 ? kAuditLinesDefault : request.limit();
  const size_t limit = std::min(asked, kAuditLinesMax);
  std::deque<std::string> lines;
  uint64_t next = 0;
  ForEachLine([&](const std::string&, size_t, absl::string_view line) {
    const auto read = ReadAuditLine(line);
    // One that was changed is shown as well: whoever looks should see it.
    if (read.has_value() &&
        (read->unix_ms < request.since_unix_ms() || read->sequence < request.from_sequence())) {
      return true;
    }
    if (lines.size() < limit) {
      lines.emplace_back(line);
      return true;
    }
    if (request.from_sequence() == 0) {
      lines.pop_front();
      lines.emplace_back(line);
      return true;
    }
    next = read.has_value() ? read->sequence : 0;
    return next == 0;
  });
  v1::ReadAuditResponse response;
  for (std::string& line : lines) response.add_lines(std::move(line));
  response.set_next_sequence(next);
  return response;
}

v1::VerifyAuditResponse AuditLog::Verify() const {
  v1::VerifyAuditResponse response;
  AuditVerifier verifier;
  ForEachLine([&](const std::string& name, size_t number, absl::string_view line) {
    const std::string why = verifier.Take(line);
    if (why.empty()) return true;
    response.set_broken_at(absl::StrCat(name, ":", number));
    response.set_broken_why(why);
    return false;
  });
  response.set_entries(verifier.entries());
  response.set_first_sequence(verifier.first_sequence());
  response.set_last_hash(verifier.tail().hash);
  return response;
}

}  // namespace macrame::agentd
