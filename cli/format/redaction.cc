#include "cli/format/redaction.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macrame::cli {
namespace {

constexpr char kRedacted[] = "[redacted]";
// Shorter values are numbers, switches and words.
constexpr size_t kSecretMin = 8;

constexpr std::array<absl::string_view, 9> kSecretWords = {
    "secret",  "password", "passphrase", "authorization", "bearer",
    "api_key", "_key",     "token",      "webhook"};
// What our own secrets begin with, wherever they stand.
constexpr std::array<absl::string_view, 3> kSecretBeginnings = {"macrame1.", "mk-", "sk-"};

bool EndsWord(char c) {
  return absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '"' || c == '\'' || c == ',' ||
         c == '}' || c == ']' || c == ';';
}

size_t EndOfValue(absl::string_view line, size_t at) {
  const size_t begin = at;
  while (at < line.size() && !EndsWord(line[at])) ++at;
  // Of a quote inside of a quoted text the backslash stays with it.
  if (at > begin && at < line.size() && line[at] == '"' && line[at - 1] == '\\') --at;
  return at;
}

// Of a whole header: up to the quote that closes it, or to the line's end.
size_t EndOfHeader(absl::string_view line, size_t begin) {
  const size_t end = std::min(line.find('"', begin), line.size());
  return end > begin && end < line.size() && line[end - 1] == '\\' ? end - 1 : end;
}

// Where a value begins behind "key": "…", key=…, key: …; npos: nothing is assigned there.
size_t BeginOfValue(absl::string_view line, size_t at) {
  const auto skip = [&](absl::string_view what) {
    while (at < line.size() && absl::StrContains(what, line.substr(at, 1))) ++at;
  };
  skip("\"'\\");
  const size_t before = at;
  skip(" :=");
  if (at == before) return absl::string_view::npos;
  skip("\"'\\");
  return at;
}

std::string RedactedLine(absl::string_view line) {
  std::string out(line);
  for (const absl::string_view word : kSecretWords) {
    size_t at = 0;
    while ((at = absl::AsciiStrToLower(out).find(std::string(word), at)) != std::string::npos) {
      at += word.size();
      size_t begin = BeginOfValue(out, at);
      if (begin == absl::string_view::npos) continue;
      if (absl::StartsWithIgnoreCase(absl::string_view(out).substr(begin), "bearer ")) begin += 7;
      // "Basic …", "Token …": scheme and secret alike.
      const size_t end = word == "authorization" ? EndOfHeader(out, begin) : EndOfValue(out, begin);
      const absl::string_view value = absl::string_view(out).substr(begin, end - begin);
      const bool is_path = absl::StartsWith(value, "/") || absl::StartsWith(value, "~");
      if (value.size() < kSecretMin || is_path || absl::StartsWith(value, "[redacted")) continue;
      out.replace(begin, end - begin, kRedacted);
    }
  }
  for (const absl::string_view beginning : kSecretBeginnings) {
    size_t at = 0;
    while ((at = out.find(std::string(beginning), at)) != std::string::npos) {
      const bool begins = at == 0 || EndsWord(out[at - 1]) || out[at - 1] == '=';
      const size_t end = EndOfValue(out, at);
      if (begins && end - at >= beginning.size() + kSecretMin) out.replace(at, end - at, kRedacted);
      ++at;
    }
  }
  return out;
}

}  // namespace

std::string Redacted(std::string_view text) {
  std::string out;
  bool in_block = false;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool begins = absl::StrContains(lines[i], "-----BEGIN ");
    const bool ends = absl::StrContains(lines[i], "-----END ");
    if (begins || in_block) {
      if (begins) absl::StrAppend(&out, kRedacted, "\n");
      in_block = !ends;
      continue;
    }
    absl::StrAppend(&out, RedactedLine(lines[i]), i + 1 < lines.size() ? "\n" : "");
  }
  return out;
}

}  // namespace macrame::cli
