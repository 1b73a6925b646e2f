#pragma once

// JSON as models write it: read while it comes, repaired where a model forgets to escape a line's
// end.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/serving/markup/text_source.h"

namespace macrame::runtime::markup {

// Text as it stands within a JSON string. Bytes above 127 are taken as UTF-8 and left alone, so
// that a character may come in two pieces.
void AppendEscaped(std::string_view text, std::string& out);
std::string QuotedJson(std::string_view text);
void AppendUtf8(uint32_t code, std::string& out);

// Where a JSON value ends, told byte by byte.
class JsonSpan {
 public:
  enum class State { kInside, kOver, kBroken };

  // How many bytes of `text` belong to the value; the rest may be read otherwise when `state` is
  // no longer kInside. What belongs to it is added to `out`, with control characters in strings
  // escaped. Numbers and words end before the first byte that can't be theirs.
  size_t Read(std::string_view text, std::string& out);
  // No more will come: a number or word ends here.
  void End();
  State state() const { return state_; }

 private:
  bool ReadByte(char c, std::string& out);
  bool ReadOutside(char c);

  State state_ = State::kInside;
  std::string open_;  // the closing brackets that are owed
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool in_word_ = false;
};

// Hands on the value that stands next, as it comes. False when it is broken or the text ended
// within it; what was handed on till then is the text that stood there.
Reading<bool> CopyJson(TextSource& source, TextSource::Take take);
// The string that stands next, decoded; none when none does, it is cut off, or it would have more
// than `bytes_max` bytes.
Reading<std::optional<std::string>> ReadJsonString(TextSource& source, size_t bytes_max);

// The text of a JSON string, quotes included; none when it is none.
std::optional<std::string> DecodeJsonString(std::string_view quoted);

}  // namespace macrame::runtime::markup
