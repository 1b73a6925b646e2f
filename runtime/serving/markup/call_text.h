#pragma once

// A past call in the markup that its model writes, for chat templates that show no `tool_calls`:
// such a model's own code puts them into the message's content. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/serving/markup/dialect.h"

namespace macrame::runtime::markup {

struct PastCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// Empty where the dialect's form is not one of those whose templates leave calls out: JSON between
// tags, a list of it, Python-like calls.
std::string CallText(const Dialect& dialect, const std::vector<PastCall>& calls);

}  // namespace macrame::runtime::markup
