#pragma once

// Python's literals, as some models write the arguments of their calls, and JSON as Python writes
// it.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace macrame::runtime::markup {

// The JSON of a literal (None, True, numbers, strings, lists, tuples, dicts); none when `text` is
// anything else.
std::optional<std::string> PythonAsJson(std::string_view text);

// Where an argument's value ends: before the first `,` or closing bracket that is not its own.
class PythonSpan {
 public:
  // How many bytes of `text` are the value's; all of them while `is_over` is false.
  size_t Read(std::string_view text);
  bool is_over() const { return is_over_; }

 private:
  enum class Quote { kNone, kOpened, kOpenedTwice, kSingle, kTriple };
  void ReadString(char c);
  bool ReadOutside(char c);

  Quote state_ = Quote::kNone;
  char quote_ = 0;
  int closing_ = 0;  // quotes of a triple's end so far
  bool is_escaped_ = false;
  bool is_over_ = false;
  std::string open_;
};

enum class PythonWords {
  kJson,     // null, true, false: as json.dumps does
  kLiteral,  // None, True, False: as in Python's own code
};
// A blank stands behind commas and colons.
std::string PythonText(const nlohmann::ordered_json& value, PythonWords words);

}  // namespace macrame::runtime::markup
