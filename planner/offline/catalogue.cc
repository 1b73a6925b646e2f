#include "planner/offline/catalogue.h"

#include <utility>

namespace macrame::planner {

absl::StatusOr<std::vector<CatalogueEntry>> CatalogueWith(const std::string& further) {
  auto own = ReadCatalogue(CatalogueText());
  if (!own.ok() || further.empty()) return own;
  auto entries = ReadCatalogue(further);
  if (!entries.ok()) return entries;
  for (CatalogueEntry& entry : *own) entries->push_back(std::move(entry));
  return entries;
}

}  // namespace macrame::planner
