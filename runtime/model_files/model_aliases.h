#pragma once

// Names by which people call models, and the hub ids that they mean. Spelling mistakes that were
// seen in the wild are in it on purpose.

#include <span>
#include <string_view>

namespace macrame::runtime {

struct ModelAlias {
  std::string_view name;    // lower case
  std::string_view hub_id;  // "ORG/NAME"
};

std::span<const ModelAlias> ModelAliases();

}  // namespace macrame::runtime
