#include "planner/described/catalogue.h"

#include <utility>

namespace macrame::planner {

absl::StatusOr<std::vector<ModelCard>> CatalogueWith(const std::string& further) {
  auto own = ReadModelCards(CatalogueText());
  if (!own.ok() || further.empty()) return own;
  auto cards = ReadModelCards(further);
  if (!cards.ok()) return cards;
  for (ModelCard& card : *own) cards->push_back(std::move(card));
  return cards;
}

}  // namespace macrame::planner
