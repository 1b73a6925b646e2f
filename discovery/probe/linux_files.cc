#include "discovery/probe/linux_files.h"

#include <fcntl.h>
#include <unistd.h>

#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {

std::string ReadFile(const std::string& path) {
  // Read in one go where it fits: files of /proc may change between two reads.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string text;
  char buffer[16384];
  while (text.size() < kProcFileBytesMax) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

std::string ReadLine(const std::string& path) {
  const std::string text = ReadFile(path);
  return std::string(Trim(std::string_view(text).substr(0, text.find('\n'))));
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  return ParseUnsigned(ReadLine(path));
}

}  // namespace macrame::discovery
