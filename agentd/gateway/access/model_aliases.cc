#include "agentd/gateway/access/model_aliases.h"

#include <string_view>
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

std::string ModelAliases::Resolve(const std::string& name, InferenceBackend& backend) const {
  const std::map<std::string, std::string> shared = backend.Aliases();
  // Ollama's clients name models so, on OpenAI's paths too.
  constexpr std::string_view kLatest = ":latest";
  if (name.size() > kLatest.size() && name.ends_with(kLatest)) {
    const bool is_known = exact_.contains(name) || shared.contains(name) ||
                          FindModel(backend.ListModels(), DeploymentOfReplica(name)) != nullptr;
    if (!is_known) return Resolve(name.substr(0, name.size() - kLatest.size()), backend);
  }
  if (exact_.empty() && beginnings_.empty() && shared.empty()) return name;
  if (FindModel(backend.ListModels(), DeploymentOfReplica(name)) != nullptr) return name;
  if (const auto exact = exact_.find(name); exact != exact_.end()) return exact->second;
  if (const auto exact = shared.find(name); exact != shared.end()) return exact->second;
  // Of two beginnings of one name the longer one comes later in the map.
  for (auto it = beginnings_.rbegin(); it != beginnings_.rend(); ++it) {
    if (name.starts_with(it->first)) return it->second;
  }
  return name;
}

std::vector<ServedModel> ModelAliases::WithAliases(InferenceBackend& backend) const {
  const std::vector<ServedModel> own = backend.ListModels();
  std::map<std::string, std::string> all = exact_;
  all.merge(backend.Aliases());
  std::vector<ServedModel> models = own;
  for (const auto& [name, meant] : all) {
    const ServedModel* model = FindModel(own, meant);
    if (model == nullptr || FindModel(own, name) != nullptr) continue;
    models.push_back(*model);
    models.back().id = name;
  }
  return models;
}

}  // namespace macrame::agentd
