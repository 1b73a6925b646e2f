#include "proto/ids.h"

#include <algorithm>

namespace macrame {
namespace {

constexpr size_t kIdDigitsMin = 4;

}  // namespace

bool IsValidNodeId(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string ShortId(const NodeId& id) { return id.value().substr(0, 8); }

bool IsBeginningOfId(std::string_view name, std::string_view id) {
  return name.size() >= kIdDigitsMin && id.starts_with(name);
}

}  // namespace macrame
