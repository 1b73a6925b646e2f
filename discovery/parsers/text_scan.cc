#include "discovery/parsers/text_scan.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"

namespace macrame::discovery {
namespace {

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

}  // namespace

std::vector<std::string_view> WholeLines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end = text.find('\n'); end != text.npos && lines.size() < kScannedLinesMax;
       end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  size_t i = 0;
  while (i < line.size()) {
    while (i < line.size() && IsSpace(line[i])) ++i;
    const size_t begin = i;
    while (i < line.size() && !IsSpace(line[i])) ++i;
    if (i > begin) words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

bool SplitOnce(std::string_view line, std::string_view separator, std::string_view& before,
               std::string_view& after) {
  const size_t at = line.find(separator);
  if (at == line.npos) return false;
  before = Trim(line.substr(0, at));
  after = Trim(line.substr(at + separator.size()));
  return true;
}

std::optional<uint64_t> ParseUnsigned(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

std::optional<double> ParseReal(std::string_view text) {
  double number = 0;
  if (!absl::SimpleAtod(std::string(text), &number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<uint64_t> Multiply(uint64_t a, uint64_t b) {
  if (a != 0 && b > std::numeric_limits<uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

}  // namespace macrame::discovery
