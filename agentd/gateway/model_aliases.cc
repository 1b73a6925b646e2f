#include "agentd/gateway/model_aliases.h"

#include <utility>

#include "proto/replicas.h"

namespace macrame::agentd {

ModelAliases::ModelAliases(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const size_t sign = entry.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == entry.size()) continue;
    std::string name = entry.substr(0, sign);
    const bool is_beginning = name.back() == '*';
    if (is_beginning) name.pop_back();
    (is_beginning ? beginnings_ : exact_)[std::move(name)] = entry.substr(sign + 1);
  }
}

std::string ModelAliases::Resolve(const std::string& name,
                                  const std::vector<ServedModel>& models) const {
  if (FindModel(models, DeploymentOfReplica(name)) != nullptr) return name;
  const auto exact = exact_.find(name);
  if (exact != exact_.end()) return exact->second;
  // Of two beginnings of one name the longer one comes later in the map.
  for (auto it = beginnings_.rbegin(); it != beginnings_.rend(); ++it) {
    if (name.starts_with(it->first)) return it->second;
  }
  return name;
}

std::vector<ServedModel> ModelAliases::WithAliases(std::vector<ServedModel> models) const {
  const std::vector<ServedModel> own = models;
  for (const auto& [name, meant] : exact_) {
    const ServedModel* model = FindModel(own, meant);
    if (model == nullptr || FindModel(own, name) != nullptr) continue;
    models.push_back(*model);
    models.back().id = name;
  }
  return models;
}

}  // namespace macrame::agentd
