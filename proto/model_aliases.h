#pragma once

// Names by which people call models, and the hub ids that they mean: of those on nodes' disks and
// of those in descriptions alike. Spelling mistakes that were seen in the wild are in it on
// purpose.

#include <span>
#include <string_view>

namespace macrame {

struct ModelAlias {
  std::string_view name;    // lower case
  std::string_view hub_id;  // "ORG/NAME"
};

std::span<const ModelAlias> ModelAliases();

// The hub id that the name means, whatever its case; empty: it is no alias.
std::string_view HubIdOfAlias(std::string_view name);

}  // namespace macrame
