#include "proto/ids.h"

#include <algorithm>

namespace macrame {

bool IsValidNodeId(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string ShortId(const NodeId& id) { return id.value().substr(0, 8); }

}  // namespace macrame
