#include "runtime/model/config/python_json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

constexpr std::string_view kInfinity = "Infinity";
constexpr std::string_view kNaN = "NaN";
constexpr std::string_view kReplacement = "\\ufffd";

// A number that JSON has no form for stands as one of these texts until the value is built. They
// begin with a character that no file of a model has in a text.
constexpr std::string_view kMark = "\\u0000macrame:";
const std::string kMarked("\0macrame:", 9);

std::string Marked(std::string_view word) {
  return "\"" + std::string(kMark) + std::string(word) + "\"";
}

bool IsNumberPart(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// How many digits `text` has from `at` on.
size_t DigitsAt(std::string_view text, size_t at) {
  const size_t end = text.find_first_not_of("0123456789", at);
  return at >= text.size() ? 0 : std::min(end, text.size()) - at;
}

bool IsJsonNumber(std::string_view text) {
  size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  const size_t whole = DigitsAt(text, at);
  if (whole == 0 || (text[at] == '0' && whole > 1)) return false;
  at += whole;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = DigitsAt(text, at + 1);
    if (fraction == 0) return false;
    at += 1 + fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const size_t exponent = DigitsAt(text, at);
    if (exponent == 0) return false;
    at += exponent;
  }
  return at == text.size();
}

// The 16 bits of "\uXXXX" at `at`; -1: there is no such escape.
int EscapedUnit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int unit = 0;
  for (size_t i = at + 2; i < at + 6; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// Makes JSON of what Python accepts beside it. Whether the rest is JSON, the parser judges.
class Rewriter {
 public:
  explicit Rewriter(std::string_view text) : text_(text) { out_.reserve(text.size() + 16); }

  std::string Run() && {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') {
        CopyText();
      } else if (!TakeWord("-Infinity") && !TakeWord(kInfinity) && !TakeWord(kNaN)) {
        CopyNumberOrByte();
      }
    }
    return std::move(out_);
  }

 private:
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    // A number is no key; the parser refuses the bare word.
    const size_t next = text_.find_first_not_of(" \t\r\n", at_ + word.size());
    if (next != std::string_view::npos && text_[next] == ':') return false;
    out_ += Marked(word);
    at_ += word.size();
    return true;
  }

  void CopyNumberOrByte() {
    const size_t begin = at_;
    // "-Infinity" is a word, so a sign alone is left to the parser.
    while (at_ < text_.size() && IsNumberPart(text_[at_])) ++at_;
    if (at_ == begin) {
      out_ += text_[at_++];
      return;
    }
    const std::string number(text_.substr(begin, at_ - begin));
    // Short ones without an exponent can't be too large.
    const bool may_be_large =
        number.size() > 300 || number.find_first_of("eE") != std::string::npos;
    if (may_be_large && IsJsonNumber(number) && std::isinf(std::strtod(number.c_str(), nullptr))) {
      out_ += Marked(number[0] == '-' ? "-Infinity" : kInfinity);
    } else {
      out_ += number;
    }
  }

  void CopyText() {
    out_ += text_[at_++];
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        out_ += text_[at_++];
      } else if (const int unit = EscapedUnit(text_, at_); unit >= 0xD800 && unit <= 0xDFFF) {
        CopySurrogate(unit);
      } else {
        const size_t count = std::min<size_t>(2, text_.size() - at_);
        out_ += text_.substr(at_, count);
        at_ += count;
      }
    }
    if (at_ < text_.size()) out_ += text_[at_++];
  }

  void CopySurrogate(int unit) {
    const int next = EscapedUnit(text_, at_ + 6);
    const bool is_pair = unit < 0xDC00 && next >= 0xDC00 && next <= 0xDFFF;
    out_ += is_pair ? text_.substr(at_, 12) : kReplacement;
    at_ += is_pair ? 12 : 6;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

// Puts the numbers where their marks stand.
void PutNumbers(json& value) {
  if (value.is_structured()) {
    for (json& member : value) PutNumbers(member);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.compare(0, kMarked.size(), kMarked) != 0) return;
    const std::string_view word = std::string_view(text).substr(kMarked.size());
    constexpr double kLargest = std::numeric_limits<double>::infinity();
    if (word == kInfinity) {
      value = kLargest;
    } else if (word == kNaN) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else {
      value = -kLargest;
    }
  }
}

}  // namespace

json ParsePythonJson(std::string_view text, int depth_max, bool* is_too_deep) {
  bool too_deep = false;
  const auto is_shallow = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || (depth_max > 0 && depth > depth_max);
    return !too_deep;
  };
  json parsed = json::parse(Rewriter(text).Run(), is_shallow, /*allow_exceptions=*/false);
  if (is_too_deep != nullptr) *is_too_deep = too_deep;
  if (too_deep || parsed.is_discarded()) return json(json::value_t::discarded);
  PutNumbers(parsed);
  return parsed;
}

bool IsPythonJson(std::string_view text) { return json::accept(Rewriter(text).Run()); }

}  // namespace macrame::runtime::engine
