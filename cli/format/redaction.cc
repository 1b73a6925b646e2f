#include "cli/format/redaction.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace macrame::cli {
namespace {

constexpr char kRedacted[] = "[redacted]";
constexpr absl::string_view kRedactedStart = "[redacted";
// Shorter words are words, where nothing but a blank assigns them.
constexpr size_t kSecretMin = 8;
// A longer one takes too long to look through, and nobody reads it.
constexpr size_t kLineBytesMax = 256 * 1024;
constexpr size_t kNone = absl::string_view::npos;

// A key's last word. "key" is one only behind another word.
constexpr absl::string_view kSecretWords[] = {
    "secret", "password", "passwd", "pwd",        "passphrase", "authorization", "bearer",
    "token",  "webhook",  "apikey", "credential", "cookie",     "signature"};
// Their values are what they are: no file holds them, and no path begins them.
constexpr absl::string_view kNeverPaths[] = {"password",      "passwd", "pwd",    "passphrase",
                                             "authorization", "bearer", "cookie", "webhook"};
constexpr absl::string_view kHeaderWords[] = {"authorization", "cookie"};
// Behind a secret's word: what form it has.
constexpr absl::string_view kFormWords[] = {"pem",    "hex", "text",  "value",
                                            "base64", "url", "header"};
// Of a model's tokens, not of a cluster's.
constexpr absl::string_view kWordsBeforeToken[] = {
    "first", "next", "last", "per",  "output", "input", "prompt",  "eos",
    "bos",   "pad",  "end",  "stop", "unk",    "image", "special", "draft"};
constexpr absl::string_view kSwitches[] = {"true", "false", "yes",  "no", "on",
                                           "off",  "null",  "none", "~",  "-"};
// What our own secrets and Hugging Face's begin with, wherever they stand.
constexpr absl::string_view kSecretBeginnings[] = {"macrame1.", "mk-", "sk-", "hf_"};
constexpr absl::string_view kRoots[] = {
    "/Applications/", "/Library/", "/System/", "/Users/",   "/Volumes/", "/etc/",
    "/home/",         "/mnt/",     "/opt/",    "/private/", "/root/",    "/run/",
    "/srv/",          "/tmp/",     "/usr/",    "/var/",     "~/."};
constexpr absl::string_view kFileEndings[] = {".cert", ".conf", ".crt",  ".env",   ".json",
                                              ".key",  ".p12",  ".pem",  ".pub",   ".txt",
                                              ".yaml", ".yml",  ".sock", ".secret"};
// Of our own gateway; all other paths of URLs may be secrets.
constexpr absl::string_view kKnownTargets[] = {
    "/",        "/v1",        "/v1/",       "/v1/models", "/v1/chat/completions",
    "/metrics", "/dashboard", "/dashboard/"};

template <size_t N>
bool IsOneOf(absl::string_view word, const absl::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }
bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }
bool IsQuote(char c) { return c == '"' || c == '\''; }
bool IsKeyCharacter(char c) { return IsAlnum(c) || c == '_' || c == '-' || c == '.'; }
bool IsOf(absl::string_view which, char c) { return which.find(c) != kNone; }

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

size_t WithoutClosing(absl::string_view line, size_t begin, size_t end) {
  while (end > begin && end < line.size() && line[end - 1] == '\\' && IsQuote(line[end])) --end;
  while (end > begin && (IsOf(",;]})", line[end - 1]) || IsSpace(line[end - 1]))) --end;
  return end;
}

// Whether a word goes on at `at`: a quote before it closes nothing.
bool WordGoesOn(absl::string_view text, size_t at) {
  while (at < text.size() && IsOf(".-!", text[at])) ++at;
  return at < text.size() && (IsAlnum(text[at]) || IsOf("/%_~@&=+$*", text[at]));
}

// EndOfQuoted, where a quote before more of a word closes nothing.
size_t EndOfQuotedWords(absl::string_view line, size_t open) {
  for (;;) {
    const size_t end = EndOfQuoted(line, open);
    open = end;
    while (open < line.size() && line[open] == '\\') ++open;
    if (!WordGoesOn(line, open + 1)) return end;
  }
}

// Whether the quote at `at` ends a value or URL without quotes of its own, before which `opened`
// stands. Paths of URLs may have quotes: it does where it closes what it opened, or ends a word.
bool QuoteEnds(absl::string_view text, size_t at, char opened) {
  size_t behind = at + 1;
  if (text[at] == opened && behind < text.size() && !IsQuote(text[behind])) {
    return !WordGoesOn(text, behind);
  }
  while (behind < text.size() && (IsQuote(text[behind]) || IsOf(".,:;!?)]}>", text[behind]))) {
    ++behind;
  }
  if (behind == text.size() || IsSpace(text[behind])) return true;
  const absl::string_view rest = text.substr(behind);
  return rest.size() > 1 && rest[0] == '\\' && IsOf("nrt\"'\\", rest[1]);
}

// Of a text without quotes of its own: up to the quote that closes the text which it stands in, or
// to the line's end.
size_t EndOfHeader(absl::string_view line, size_t begin) {
  size_t open = kNone;
  for (size_t at = 0; at < begin; ++at) {
    if (line[at] != '"') continue;
    if (open == kNone) {
      open = at;
    } else if (Escapes(line, at) <= Escapes(line, open)) {
      open = kNone;
    }
  }
  return open == kNone ? line.size() : std::max(begin, EndOfQuoted(line, open));
}

// The end of a value without quotes. Commas, semicolons, brackets and quotes are part of it, as in
// the path of a URL, unless nothing of it stands behind them.
size_t EndOfBare(absl::string_view line, size_t begin, char opened = '\0') {
  const absl::string_view text = line.substr(0, EndOfHeader(line, begin));
  size_t end = begin;
  while (end < text.size() && !IsSpace(text[end])) {
    if (IsQuote(text[end]) && QuoteEnds(text, end, opened)) break;
    ++end;
  }
  return WithoutClosing(line, begin, end);
}

// `, name: ` or `,"name":` at `at`, which no text without quotes has in YAML.
bool BeginsNextKey(absl::string_view line, size_t at) {
  if (!IsOf(",;", line[at])) return false;
  const auto skip = [&](auto fits) {
    while (++at < line.size() && fits(line[at])) {
    }
    --at;
  };
  skip([](char c) { return IsSpace(c) || IsQuote(c) || c == '\\'; });
  const bool is_quoted = IsQuote(line[at]);
  const size_t begin = at;
  skip(IsKeyCharacter);
  if (at == begin) return false;
  skip([](char c) { return IsQuote(c) || c == '\\' || c == ' '; });
  const absl::string_view rest = line.substr(at + 1);
  return absl::StartsWith(rest, ":") && (is_quoted || rest.size() == 1 || IsSpace(rest[1]));
}

// Of a text behind a colon without quotes: words and blanks up to what ends the text around it, or
// to the next key.
size_t EndOfPlain(absl::string_view line, size_t begin) {
  const size_t most = EndOfHeader(line, begin);
  size_t end = begin;
  while (end < most) {
    const size_t behind = line.find_first_not_of("\"'", end);
    const bool closes = IsQuote(line[end]) && (behind == kNone || EndsWord(line[behind]));
    if (closes || BeginsNextKey(line, end)) break;
    ++end;
  }
  return WithoutClosing(line, begin, end);
}

// Behind the bracket that closes the one at `open`; npos: another line has it.
size_t EndOfBrackets(absl::string_view line, size_t open) {
  int depth = 0;
  for (size_t at = open; at < line.size(); ++at) {
    if (IsQuote(line[at])) {
      at = EndOfQuoted(line, at);
      while (at < line.size() && line[at] == '\\') ++at;
    } else if (IsOf("[{", line[at])) {
      ++depth;
    } else if (IsOf("]}", line[at]) && --depth == 0) {
      return at + 1;
    }
  }
  return kNone;
}

// "x-api-key" and "xApiKey": x, api, key.
std::vector<std::string> WordsOfKey(absl::string_view key) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < key.size(); ++i) {
    const auto c = static_cast<unsigned char>(key[i]);
    const bool is_hump = i > 0 && absl::ascii_isupper(c) &&
                         absl::ascii_islower(static_cast<unsigned char>(key[i - 1]));
    if (!words.back().empty() && (is_hump || !absl::ascii_isalnum(c))) words.emplace_back();
    if (absl::ascii_isalnum(c)) words.back().push_back(absl::ascii_tolower(c));
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

struct KeyTraits {
  bool is_secret = false;
  bool is_header = false;
  bool is_plural = false;
  bool may_be_path = false;
};

KeyTraits TraitsOfKey(absl::string_view key) {
  std::vector<std::string> words = WordsOfKey(key);
  while (words.size() > 1 && IsOneOf(words.back(), kFormWords)) words.pop_back();
  KeyTraits traits;
  if (words.empty()) return traits;
  absl::string_view last = words.back();
  traits.is_plural = absl::ConsumeSuffix(&last, "s");
  const absl::string_view before =
      words.size() > 1 ? absl::string_view(words[words.size() - 2]) : absl::string_view();
  const bool is_key = last == "key" && !before.empty() && before != "public";
  const bool is_model_token = last == "token" && IsOneOf(before, kWordsBeforeToken);
  traits.is_secret =
      is_key || (IsOneOf(last, kSecretWords) && (!is_model_token || traits.is_plural));
  traits.is_header = IsOneOf(last, kHeaderWords);
  traits.may_be_path = !IsOneOf(last, kNeverPaths);
  return traits;
}

bool IsPath(absl::string_view value) {
  if (!absl::StartsWith(value, "/") && !absl::StartsWith(value, "~/")) return false;
  const auto begins = [&](absl::string_view root) { return absl::StartsWith(value, root); };
  const auto ends = [&](absl::string_view ending) { return absl::EndsWith(value, ending); };
  return std::any_of(std::begin(kRoots), std::end(kRoots), begins) ||
         std::any_of(std::begin(kFileEndings), std::end(kFileEndings), ends);
}

// "12", "[72, 105]", "12 of 40".
bool IsCount(absl::string_view value) {
  const bool is_list = absl::StartsWith(value, "[");
  if (!is_list) value = value.substr(0, value.find(' '));
  return !value.empty() && std::all_of(value.begin(), value.end(),
                                       [](char c) { return IsOf("0123456789.,[]/% ", c); });
}

struct Value {
  size_t begin = kNone;  // kNone: nothing is assigned there
  size_t end = 0;
  bool is_open = false;  // lines below go on with it
  bool has_colon = false;
  bool is_assigned = false;  // by more than a blank
  bool is_bare = false;
  bool needs_quotes = false;  // JSON's, without any of its own
};

// "|", ">-", "|2": YAML's text in the lines below.
bool IsBlockMark(absl::string_view rest) {
  if (rest.empty() || !IsOf("|>", rest[0])) return false;
  rest.remove_prefix(std::min(rest.find_first_not_of("+-0123456789", 1), rest.size()));
  rest = absl::StripLeadingAsciiWhitespace(rest);
  return rest.empty() || rest[0] == '#';
}

void TakeQuoted(absl::string_view line, size_t open, Value* value) {
  size_t at = open + 1;
  if (absl::StartsWithIgnoreCase(line.substr(at), "bearer ")) at += 7;
  value->begin = at;
  value->end = std::max(at, EndOfQuotedWords(line, open));
  value->is_open = value->end == line.size();
}

void TakeBrackets(absl::string_view line, size_t open, Value* value) {
  const size_t end = EndOfBrackets(line, open);
  value->is_open = end == kNone;
  value->end = std::min(end, line.size());
  value->needs_quotes = value->needs_quotes && !value->is_open;
  if (value->is_open) value->begin = open + 1;
}

void TakeBare(absl::string_view line, size_t at, bool is_header, Value* value) {
  if (absl::StartsWithIgnoreCase(line.substr(at), "bearer ")) value->begin = at += 7;
  value->is_bare = true;
  value->end = !value->is_assigned ? EndOfBare(line, at)
               : is_header         ? EndOfHeader(line, at)
               : value->has_colon  ? EndOfPlain(line, at)
                                   : EndOfBare(line, at);
}

// What stands behind "key": "…", key=…, key: …, --key …, where the key ends at `at`.
Value ValueBehind(absl::string_view line, size_t at, const KeyTraits& traits) {
  Value value;
  const auto skip = [&](absl::string_view which) {
    while (at < line.size() && IsOf(which, line[at])) ++at;
  };
  const bool is_json = at < line.size() && line[at] == '"';
  skip("\"'\\");
  const size_t before = at;
  // Headers are listed in pairs, too.
  skip(traits.is_header && at > 0 && IsQuote(line[at - 1]) ? " \t:=," : " \t:=");
  if (at == before) return value;
  const absl::string_view between = line.substr(before, at - before);
  value.has_colon = absl::StrContains(between, ':');
  value.is_assigned = between.find_first_of(":=,") != kNone;
  skip("\\");
  value.begin = value.end = at;
  const absl::string_view rest = line.substr(at);
  if (rest.empty() || IsBlockMark(rest)) {
    value.is_open = value.has_colon;
    return value;
  }
  if (absl::StartsWith(rest, kRedactedStart)) return value;
  value.needs_quotes = is_json && value.is_assigned && !IsQuote(line[at]);
  if (IsQuote(line[at])) {
    TakeQuoted(line, at, &value);
  } else if (IsOf("[{", line[at]) && value.is_assigned) {
    TakeBrackets(line, at, &value);
  } else {
    TakeBare(line, at, traits.is_header, &value);
  }
  return value;
}

// A secret whose lines below its key are deeper than `column`, or a list's dashes in it.
struct Block {
  size_t column = 0;
  bool takes_dashes = false;
  bool is_plural = false;
};

size_t ColumnOf(absl::string_view line) {
  const size_t column = line.find_first_not_of(" \t");
  return column == kNone ? line.size() : column;
}

// Whether `value`, of a key with `traits`, is to be replaced.
bool IsSecretValue(absl::string_view text, const Value& value, const KeyTraits& traits,
                   bool is_flag) {
  if (text.empty() || absl::StartsWith(text, kRedactedStart)) return false;
  if (!value.is_assigned && !is_flag && (traits.is_plural || text.size() < kSecretMin)) {
    return false;
  }
  const bool is_empty = text.find_first_not_of("[]{} ") == kNone;
  if (is_empty || IsOneOf(absl::AsciiStrToLower(text), kSwitches)) return false;
  return !(traits.may_be_path && IsPath(text)) && !(traits.is_plural && IsCount(text));
}

// What keys that name secrets are given in `out`; lines below that go on with it are `block`.
void RedactKeyed(std::string& out, std::optional<Block>& block) {
  for (size_t at = 0; at < out.size();) {
    if (!IsKeyCharacter(out[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < out.size() && IsKeyCharacter(out[at])) ++at;
    const absl::string_view key = absl::string_view(out).substr(begin, at - begin);
    const KeyTraits traits = TraitsOfKey(key);
    if (!traits.is_secret) continue;
    const Value value = ValueBehind(out, at, traits);
    if (value.begin == kNone) continue;
    const size_t first = out.find_first_not_of(" \t-\"'");
    const bool begins_line = first != kNone && first >= begin;
    const std::string text = out.substr(value.begin, value.end - value.begin);
    const bool is_secret = IsSecretValue(text, value, traits, absl::StartsWith(key, "-"));
    if (value.is_open || (is_secret && value.is_bare && value.has_colon && begins_line)) {
      const size_t column = out.find_first_not_of(" \t-");
      block = Block{begins_line ? column : ColumnOf(out), text.empty(), traits.is_plural};
    }
    if (!is_secret) continue;
    const std::string instead =
        value.needs_quotes ? absl::StrCat("\"", kRedacted, "\"") : std::string(kRedacted);
    out.replace(value.begin, value.end - value.begin, instead);
    at = value.begin + instead.size();
  }
}

// "Basic …" and "Bearer …" by themselves. Words of a sentence have neither digits nor capitals.
void RedactCredentials(std::string& out) {
  for (const absl::string_view scheme : {"basic ", "bearer "}) {
    size_t at = 0;
    while ((at = absl::AsciiStrToLower(out).find(std::string(scheme), at)) != std::string::npos) {
      const bool begins = at == 0 || !IsAlnum(out[at - 1]);
      at += scheme.size();
      size_t end = at;
      while (end < out.size() && (IsAlnum(out[end]) || IsOf("+/=._~-", out[end]))) ++end;
      const absl::string_view value = absl::string_view(out).substr(at, end - at);
      const bool is_mixed = std::any_of(value.begin(), value.end(), [](unsigned char c) {
        return absl::ascii_isdigit(c) || absl::ascii_isupper(c) || c == '=';
      });
      if (begins && is_mixed && value.size() >= kSecretMin) out.replace(at, end - at, kRedacted);
    }
  }
}

void RedactKeys(std::string& out) {
  for (const absl::string_view beginning : kSecretBeginnings) {
    size_t at = 0;
    while ((at = out.find(std::string(beginning), at)) != std::string::npos) {
      const bool begins = at == 0 || !(IsAlnum(out[at - 1]) || IsOf("_-", out[at - 1]));
      size_t end = at;
      while (end < out.size() && (IsKeyCharacter(out[end]) || IsOf("+/=~", out[end]))) ++end;
      if (begins && end - at >= beginning.size() + kSecretMin) out.replace(at, end - at, kRedacted);
      ++at;
    }
  }
}

bool IsHostAndPort(absl::string_view text) {
  const bool is_address = absl::ConsumePrefix(&text, "[");
  const size_t host_end = std::min(text.find(is_address ? ']' : ':'), text.size());
  const absl::string_view host = text.substr(0, host_end);
  absl::string_view port = text.substr(host_end);
  if (is_address && !absl::ConsumePrefix(&port, "]")) return false;
  absl::ConsumePrefix(&port, ":");
  return !host.empty() && std::all_of(host.begin(), host.end(), [&](char c) {
    return IsKeyCharacter(c) || (is_address && IsOf(":%", c));
  }) && std::all_of(port.begin(), port.end(), [](char c) { return IsOf("0123456789", c); });
}

// What stands instead of `url`, its part behind "://"; nothing when it says no secret any more.
std::optional<std::string> RedactedUrl(absl::string_view url) {
  const absl::string_view authority = url.substr(0, url.find_first_of("/?#"));
  const absl::string_view target = url.substr(authority.size());
  const size_t user = authority.rfind('@');
  const absl::string_view host = user == kNone ? authority : authority.substr(user + 1);
  if (authority.empty() || (user == kNone && absl::StartsWith(authority, kRedactedStart)) ||
      absl::StartsWith(target, absl::StrCat("/", kRedactedStart))) {
    return std::nullopt;
  }
  if (absl::StrContains(target, '@') || !IsHostAndPort(host)) return kRedacted;
  const bool is_known = target.empty() || IsOneOf(target, kKnownTargets);
  return absl::StrCat(user == kNone ? "" : absl::StrCat(kRedacted, "@"), host,
                      is_known ? std::string(target) : absl::StrCat("/", kRedacted));
}

// Of each URL: scheme, host and port stay.
void RedactUrls(std::string& out) {
  constexpr absl::string_view kMark = "://";
  size_t at = 0;
  while ((at = out.find(std::string(kMark), at)) != std::string::npos) {
    size_t scheme = at;
    while (scheme > 0 && IsAlnum(out[scheme - 1])) --scheme;
    const std::string name = absl::AsciiStrToLower(out.substr(scheme, at - scheme));
    at += kMark.size();
    if (name.empty() || name == "file" || name == "unix") continue;
    size_t end = EndOfBare(out, at, scheme == 0 ? '\0' : out[scheme - 1]);
    const bool is_cut = absl::EndsWith(absl::string_view(out).substr(0, end), kRedactedStart);
    if (is_cut && end < out.size() && out[end] == ']') ++end;
    const std::optional<std::string> instead =
        RedactedUrl(absl::string_view(out).substr(at, end - at));
    if (!instead.has_value()) continue;
    out.replace(at, end - at, *instead);
    at += instead->size();
  }
}

std::string RedactedLine(absl::string_view line, std::optional<Block>& block) {
  std::string out(line);
  RedactKeyed(out, block);
  RedactCredentials(out);
  RedactKeys(out);
  RedactUrls(out);
  return out;
}

bool IsInBlock(absl::string_view line, const Block& block) {
  const size_t column = ColumnOf(line);
  const bool has_dash = column < line.size() && line[column] == '-';
  return column == line.size() || column > block.column ||
         (block.takes_dashes && column == block.column && has_dash);
}

// A list's dash, quotes and commas stay.
std::string RedactedInBlock(absl::string_view line, const Block& block) {
  size_t begin = ColumnOf(line);
  while (begin < line.size() && IsOf("- ", line[begin])) ++begin;
  absl::string_view text = line.substr(begin);
  const bool has_return = absl::ConsumeSuffix(&text, "\r");
  const bool has_comma = absl::ConsumeSuffix(&text, ",");
  const bool is_bracket = text.find_first_not_of("[]{}") == kNone;
  if (text.empty() || is_bracket || (block.is_plural && IsCount(text))) return std::string(line);
  const char* quote = text[0] == '"' ? "\"" : "";
  return absl::StrCat(line.substr(0, begin), quote, kRedacted, quote, has_comma ? "," : "",
                      has_return ? "\r" : "");
}

}  // namespace

std::string Redacted(std::string_view text) {
  std::string out;
  bool in_pem = false;
  std::optional<Block> block;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool begins = absl::StrContains(lines[i], "-----BEGIN ");
    const bool ends = absl::StrContains(lines[i], "-----END ");
    if (begins || in_pem) {
      if (begins) absl::StrAppend(&out, kRedacted, "\n");
      in_pem = !ends;
      continue;
    }
    if (lines[i].size() > kLineBytesMax) {
      absl::StrAppend(&out, "[a line of ", lines[i].size(), " bytes, left out]\n");
      continue;
    }
    if (block.has_value() && !IsInBlock(lines[i], *block)) block.reset();
    absl::StrAppend(
        &out, block.has_value() ? RedactedInBlock(lines[i], *block) : RedactedLine(lines[i], block),
        i + 1 < lines.size() ? "\n" : "");
  }
  return out;
}

}  // namespace macrame::cli
