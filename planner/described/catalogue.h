#pragma once

// deploy/catalogue/models.yaml, as it was when this was built.

#include <string>
#include <vector>

#include "planner/described/model_card.h"

namespace macrame::planner {

const std::string& CatalogueText();

// The cards of `further` (YAML; may be empty) before the catalogue's own.
absl::StatusOr<std::vector<ModelCard>> CatalogueWith(const std::string& further);

}  // namespace macrame::planner
