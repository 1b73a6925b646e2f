#include "transport/log_tail.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace macrame::transport {

std::string DefaultStateFolder() {
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.macrame/state");
}

std::string DefaultLogFile(const std::string& state_folder) {
  return absl::StrCat(state_folder, "/agentd.log");
}

std::string LogTail::ReadFrom(uint64_t offset, uint64_t size) {
  std::ifstream in(path_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  std::string text(std::min(size - offset, kLogTailBytesMax), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  // A line that is still being written is left for the next time, but for one that never fits.
  const size_t whole = text.rfind('\n') + 1;
  offset_ = offset + (whole == 0 && text.size() == kLogTailBytesMax ? text.size() : whole);
  text.resize(whole);
  return text;
}

absl::StatusOr<std::string> LogTail::Last(uint32_t lines) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path_, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("the log ", path_, " can't be read: ", error.message()));
  }
  const uint64_t begin = size > kLogTailBytesMax ? size - kLogTailBytesMax : 0;
  std::string text = ReadFrom(begin, size);
  // The first line of a cut piece is not whole.
  if (begin > 0) text.erase(0, text.find('\n') + 1);
  size_t start = text.size();
  for (uint32_t found = 0; start > 0; --start) {
    if (text[start - 1] == '\n' && ++found > lines) break;
  }
  return text.substr(start);
}

std::string LogTail::New() {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path_, error);
  if (error) return "";
  if (size < offset_) offset_ = 0;
  return size == offset_ ? "" : ReadFrom(offset_, size);
}

}  // namespace macrame::transport
