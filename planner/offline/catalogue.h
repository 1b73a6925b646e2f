#pragma once

// deploy/catalogue: models.yaml and the files of tiers/, as they were when this was built.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/offline/catalogue_entry.h"

namespace macrame::planner {

const std::string& CatalogueText();

// "starter" and its file, which cluster_file.h reads.
struct TierFile {
  std::string_view name;
  std::string_view yaml;
};
std::span<const TierFile> TierFiles();

// The entries of `further` (YAML; may be empty) before the catalogue's own.
absl::StatusOr<std::vector<CatalogueEntry>> CatalogueWith(const std::string& further);

}  // namespace macrame::planner
