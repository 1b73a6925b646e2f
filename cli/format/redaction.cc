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

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }
bool IsQuote(char c) { return c == '"' || c == '\''; }

bool EndsWord(char c) {
  return IsSpace(c) || IsQuote(c) || c == ',' || c == '}' || c == ']' || c == ';';
}

// How many backslashes stand right before `at`: of a quote, how deep it is escaped.
size_t Escapes(absl::string_view line, size_t at) {
  size_t count = 0;
  while (count < at && line[at - count - 1] == '\\') ++count;
  return count;
}

// Where the text ends whose opening quote stands at `open`: before the next such quote that is
// escaped no deeper, else at the end of the line.
size_t EndOfQuoted(absl::string_view line, size_t open) {
  const size_t depth = Escapes(line, open);
  for (size_t at = open + 1; at < line.size(); ++at) {
    if (line[at] != line[open]) continue;
    // An even number of backslashes is backslashes of the text, and escapes nothing.
    const size_t escapes = line[open] == '\'' ? depth : Escapes(line, at);
    const bool is_twice = line[open] == '\'' && at + 1 < line.size() && line[at + 1] == '\'';
    if (is_twice) {
      ++at;
    } else if (escapes <= depth || (depth == 0 && escapes % 2 == 0)) {
      return at - std::min(escapes, depth);
    }
  }
  return line.size();
}

// The end of a value without quotes. Commas, semicolons and brackets are part of it, as in the path
// of a URL, unless nothing of it stands behind them.
size_t EndOfBare(absl::string_view line, size_t begin) {
  size_t end = begin;
  while (end < line.size() && !IsSpace(line[end]) && !IsQuote(line[end])) ++end;
  while (end > begin && end < line.size() && line[end - 1] == '\\' && IsQuote(line[end])) --end;
  while (end > begin && absl::StrContains(",;]})", line.substr(end - 1, 1))) --end;
  return end;
}

// Of a whole header without quotes of its own: up to the quote that closes the text which it stands
// in, or to the line's end.
size_t EndOfHeader(absl::string_view line, size_t begin) {
  size_t open = absl::string_view::npos;
  for (size_t at = 0; at < begin; ++at) {
    if (line[at] != '"') continue;
    if (open == absl::string_view::npos) {
      open = at;
    } else if (Escapes(line, at) <= Escapes(line, open)) {
      open = absl::string_view::npos;
    }
  }
  return open == absl::string_view::npos ? line.size() : std::max(begin, EndOfQuoted(line, open));
}

struct Value {
  size_t begin = absl::string_view::npos;  // npos: nothing is assigned there
  size_t end = 0;
  size_t first_word_end = 0;  // up to which it is one word
};

// What stands behind "key": "…", key=…, key: …, where the key's last word ends at `at`.
Value ValueBehind(absl::string_view line, size_t at, bool is_header) {
  Value value;
  const auto skip = [&](absl::string_view what) {
    while (at < line.size() && absl::StrContains(what, line.substr(at, 1))) ++at;
  };
  skip("\"'\\");
  const size_t before = at;
  skip(" :=");
  if (at == before) return value;
  skip("\\");
  const bool is_quoted = at < line.size() && IsQuote(line[at]);
  const size_t open = at;
  if (is_quoted) ++at;
  if (absl::StartsWithIgnoreCase(line.substr(at), "bearer ")) at += 7;
  value.begin = at;
  if (is_quoted) {
    value.end = std::max(at, EndOfQuoted(line, open));
  } else {
    // "Basic …", "Token …": scheme and secret alike.
    value.end = is_header ? EndOfHeader(line, at) : EndOfBare(line, at);
  }
  value.first_word_end = at;
  while (value.first_word_end < value.end && (is_header || !IsSpace(line[value.first_word_end]))) {
    ++value.first_word_end;
  }
  return value;
}

std::string RedactedLine(absl::string_view line) {
  std::string out(line);
  for (const absl::string_view word : kSecretWords) {
    size_t at = 0;
    while ((at = absl::AsciiStrToLower(out).find(std::string(word), at)) != std::string::npos) {
      at += word.size();
      const Value found = ValueBehind(out, at, word == "authorization");
      if (found.begin == absl::string_view::npos) continue;
      const absl::string_view value =
          absl::string_view(out).substr(found.begin, found.end - found.begin);
      const bool is_path = absl::StartsWith(value, "/") || absl::StartsWith(value, "~");
      const bool is_short = found.first_word_end - found.begin < kSecretMin;
      if (is_short || is_path || absl::StartsWith(value, "[redacted")) continue;
      out.replace(found.begin, found.end - found.begin, kRedacted);
    }
  }
  for (const absl::string_view beginning : kSecretBeginnings) {
    size_t at = 0;
    while ((at = out.find(std::string(beginning), at)) != std::string::npos) {
      const bool begins = at == 0 || EndsWord(out[at - 1]) || out[at - 1] == '=';
      const size_t end = EndOfBare(out, at);
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
