#include "runtime/serving/markup/json_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace macrame::runtime::markup {
namespace {

constexpr char kHex[] = "0123456789abcdef";
// Brackets within brackets.
constexpr size_t kJsonDepthMax = 256;

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20; }

bool IsWordByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

}  // namespace

void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (IsControl(c)) {
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[static_cast<unsigned char>(c) & 15];
        } else {
          out += c;
        }
    }
  }
}

std::string QuotedJson(std::string_view text) {
  std::string out = "\"";
  AppendEscaped(text, out);
  return out + '"';
}

void AppendUtf8(uint32_t code, std::string& out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Whether the byte is the value's.
bool JsonSpan::ReadOutside(char c) {
  if (in_word_ && IsWordByte(c)) return true;
  if (in_word_ && open_.empty()) {
    state_ = State::kOver;
    return false;
  }
  in_word_ = false;
  if (c == '{' || c == '[') {
    if (open_.size() >= kJsonDepthMax) {
      state_ = State::kBroken;
      return false;
    }
    open_ += c == '{' ? '}' : ']';
    return true;
  }
  if (c == '}' || c == ']') {
    if (open_.empty() || open_.back() != c) {
      state_ = State::kBroken;
      return false;
    }
    open_.pop_back();
    if (open_.empty()) state_ = State::kOver;
    return true;
  }
  if (c == '"') {
    in_string_ = true;
    return true;
  }
  if (IsWordByte(c)) {
    in_word_ = true;
    return true;
  }
  if (!open_.empty() && (c == ',' || c == ':' || IsSpace(c))) return true;
  state_ = State::kBroken;
  return false;
}

bool JsonSpan::ReadByte(char c, std::string& out) {
  if (!in_string_) {
    if (!ReadOutside(c)) return false;
    out += c;
    return true;
  }
  if (is_escaped_) {
    // A backslash before a line's end is the model's slip for \n; it has been given out already.
    is_escaped_ = false;
    if (IsControl(c)) {
      std::string escaped;
      AppendEscaped(std::string_view(&c, 1), escaped);
      out += escaped.substr(1);
    } else {
      out += c;
    }
    return true;
  }
  if (IsControl(c)) {
    AppendEscaped(std::string_view(&c, 1), out);
    return true;
  }
  out += c;
  if (c == '\\') is_escaped_ = true;
  if (c == '"') {
    in_string_ = false;
    if (open_.empty()) state_ = State::kOver;
  }
  return true;
}

size_t JsonSpan::Read(std::string_view text, std::string& out) {
  size_t read = 0;
  while (read < text.size() && state_ == State::kInside) {
    if (ReadByte(text[read], out)) ++read;
  }
  return read;
}

void JsonSpan::End() {
  if (state_ == State::kInside) {
    state_ = in_word_ && open_.empty() ? State::kOver : State::kBroken;
  }
}

Reading<bool> CopyJson(TextSource& source, TextSource::Take take) {
  JsonSpan span;
  for (;;) {
    std::string piece;
    const size_t read = span.Read(source.rest(), piece);
    source.Skip(read);
    if (!piece.empty()) take(piece);
    if (span.state() != JsonSpan::State::kInside) break;
    if (source.has_ended()) {
      span.End();
      break;
    }
    co_await source.More();
  }
  co_return span.state() == JsonSpan::State::kOver;
}

std::optional<std::string> DecodeJsonString(std::string_view quoted) {
  const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

Reading<std::optional<std::string>> ReadJsonString(TextSource& source, size_t bytes_max) {
  const std::optional<char> first = co_await source.Peek();
  if (first != '"') co_return std::optional<std::string>();
  JsonSpan span;
  std::string quoted;
  for (;;) {
    const size_t read = span.Read(source.rest(), quoted);
    source.Skip(read);
    if (span.state() != JsonSpan::State::kInside) break;
    if (source.has_ended() || quoted.size() > bytes_max + 2) {
      co_return std::optional<std::string>();
    }
    co_await source.More();
  }
  co_return quoted.size() > bytes_max + 2 ? std::optional<std::string>() : DecodeJsonString(quoted);
}

}  // namespace macrame::runtime::markup
