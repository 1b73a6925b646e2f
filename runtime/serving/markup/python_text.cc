#include "runtime/serving/markup/python_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/serving/markup/json_text.h"

namespace macrame::runtime::markup {
namespace {

using json = nlohmann::ordered_json;

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

constexpr int kPythonDepthMax = 64;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<std::string> Whole() {
    std::string out;
    if (!Value(0, out)) return std::nullopt;
    SkipSpace();
    if (at_ != text_.size()) return std::nullopt;
    return out;
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  char Now() const { return AtEnd() ? '\0' : text_[at_]; }
  void SkipSpace() {
    while (!AtEnd() && IsSpace(text_[at_])) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (Now() != c) return false;
    ++at_;
    return true;
  }

  bool Value(int depth, std::string& out) {
    if (depth > kPythonDepthMax) return false;
    SkipSpace();
    const char c = Now();
    if (c == '\'' || c == '"') return String(out);
    if (c == '[') return List(']', depth, out);
    if (c == '(') return List(')', depth, out);
    if (c == '{') return Dict(depth, out);
    if (IsDigit(c) || c == '-' || c == '+' || c == '.') return Number(out);
    return Word(out);
  }

  bool Word(std::string& out) {
    const size_t begin = at_;
    while (!AtEnd() && IsNameByte(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "None" || word == "null") return Put("null", out);
    if (word == "True" || word == "true") return Put("true", out);
    if (word == "False" || word == "false") return Put("false", out);
    return false;
  }
  static bool Put(const char* word, std::string& out) {
    out += word;
    return true;
  }

  void Digits(std::string& out) {
    while (IsDigit(Now())) out += text_[at_++];
  }

  // As JSON wants it: no plus, digits on both sides of the point, no zeros in front.
  bool Number(std::string& out) {
    if (Now() == '-') out += '-';
    if (Now() == '-' || Now() == '+') ++at_;
    std::string whole;
    Digits(whole);
    const size_t first = whole.find_first_not_of('0');
    if (!whole.empty()) whole.erase(0, first == std::string::npos ? whole.size() - 1 : first);
    std::string fraction;
    const bool has_point = Now() == '.';
    if (has_point) {
      ++at_;
      Digits(fraction);
    }
    if (whole.empty() && fraction.empty()) return false;
    out += whole.empty() ? "0" : whole;
    if (has_point) out += "." + (fraction.empty() ? std::string("0") : fraction);
    if (Now() != 'e' && Now() != 'E') return !IsNameByte(Now());
    ++at_;
    out += 'e';
    if (Now() == '-' || Now() == '+') out += text_[at_++];
    std::string exponent;
    Digits(exponent);
    out += exponent;
    return !exponent.empty() && !IsNameByte(Now());
  }

  bool List(char close, int depth, std::string& out) {
    ++at_;
    out += '[';
    for (bool first = true;; first = false) {
      if (Take(close)) break;
      if (!first && !Take(',')) return false;
      if (!first && Take(close)) break;
      if (!first) out += ", ";
      if (!Value(depth + 1, out)) return false;
    }
    out += ']';
    return true;
  }

  bool Dict(int depth, std::string& out) {
    ++at_;
    out += '{';
    for (bool first = true;; first = false) {
      if (Take('}')) break;
      if (!first && !Take(',')) return false;
      if (!first && Take('}')) break;
      if (!first) out += ", ";
      std::string key;
      if (!Value(depth + 1, key)) return false;
      out += key[0] == '"' ? key : QuotedJson(key);
      if (!Take(':')) return false;
      out += ": ";
      if (!Value(depth + 1, out)) return false;
    }
    out += '}';
    return true;
  }

  bool String(std::string& out) {
    const char quote = text_[at_];
    const bool triple = text_.substr(at_, 3) == std::string(3, quote);
    const std::string close(triple ? 3 : 1, quote);
    at_ += close.size();
    std::string decoded;
    while (text_.substr(at_, close.size()) != close) {
      if (AtEnd()) return false;
      if (Now() == '\\') {
        if (!Escape(decoded)) return false;
      } else {
        decoded += text_[at_++];
      }
    }
    at_ += close.size();
    out += QuotedJson(decoded);
    return true;
  }

  bool Escape(std::string& decoded) {
    ++at_;
    if (AtEnd()) return false;
    const char c = text_[at_++];
    constexpr std::string_view kNames = "ntr0abfv\\'\"";
    constexpr std::string_view kBytes("\n\t\r\0\a\b\f\v\\'\"", 11);
    const size_t named = kNames.find(c);
    if (named != std::string_view::npos) {
      decoded += kBytes[named];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return CodePoint(c == 'x' ? 2 : (c == 'u' ? 4 : 8), decoded);
    } else if (c != '\n') {
      decoded += '\\';
      decoded += c;
    }
    return true;
  }

  bool CodePoint(size_t digits, std::string& decoded) {
    uint32_t code = 0;
    if (!Hex(digits, code)) return false;
    // A pair of surrogates, as JSON writes it; half a pair stands alone.
    const size_t behind = at_;
    uint32_t low = 0;
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      if (Hex(4, low) && low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = behind;
      }
    }
    AppendUtf8(code, decoded);
    return true;
  }

  bool Hex(size_t digits, uint32_t& code) {
    if (text_.size() - at_ < digits) return false;
    for (size_t i = 0; i < digits; ++i) {
      const char c = text_[at_++];
      uint32_t digit = 0;
      if (IsDigit(c)) {
        digit = static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<uint32_t>((c | 32) - 'a') + 10;
      } else {
        return false;
      }
      code = (code << 4) | digit;
    }
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> PythonAsJson(std::string_view text) {
  return LiteralReader(text).Whole();
}

void PythonSpan::ReadString(char c) {
  if (is_escaped_) {
    is_escaped_ = false;
    return;
  }
  if (c == '\\' &&
      (state_ == Quote::kSingle || state_ == Quote::kTriple || state_ == Quote::kOpened)) {
    is_escaped_ = true;
    closing_ = 0;
    if (state_ == Quote::kOpened) state_ = Quote::kSingle;
    return;
  }
  if (state_ == Quote::kOpened) {
    state_ = c == quote_ ? Quote::kOpenedTwice : Quote::kSingle;
  } else if (state_ == Quote::kSingle) {
    if (c == quote_) state_ = Quote::kNone;
  } else {
    closing_ = c == quote_ ? closing_ + 1 : 0;
    if (closing_ == 3) state_ = Quote::kNone;
  }
}

// Whether the byte is the value's.
bool PythonSpan::ReadOutside(char c) {
  if (c == '\'' || c == '"') {
    state_ = Quote::kOpened;
    quote_ = c;
    closing_ = 0;
  } else if (c == '(' || c == '[' || c == '{') {
    open_ += c;
  } else if (c == ')' || c == ']' || c == '}') {
    if (open_.empty()) return false;
    open_.pop_back();
  } else if (c == ',' && open_.empty()) {
    return false;
  }
  return true;
}

size_t PythonSpan::Read(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (state_ == Quote::kOpenedTwice) {
      // Either the third quote, or what follows an empty string.
      state_ = c == quote_ ? Quote::kTriple : Quote::kNone;
      if (state_ == Quote::kTriple) continue;
    }
    if (state_ != Quote::kNone) {
      ReadString(c);
    } else if (!ReadOutside(c)) {
      is_over_ = true;
      return i;
    }
  }
  return text.size();
}

std::string PythonText(const json& value, PythonWords words) {
  std::vector<std::string> items;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      items.push_back(absl::StrCat(Dump(key), ": ", PythonText(member, words)));
    }
    return absl::StrCat("{", absl::StrJoin(items, ", "), "}");
  }
  if (value.is_array()) {
    for (const json& member : value) items.push_back(PythonText(member, words));
    return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
  }
  if (words == PythonWords::kLiteral) {
    if (value.is_null()) return "None";
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  }
  return Dump(value);
}

}  // namespace macrame::runtime::markup
