#pragma once

// Other names under which requests may ask for a model. Programs have names built in ("gpt-4o",
// "claude-…", and a second one for small tasks); an alias says which model of this cluster they
// mean. Pure; immutable, so any thread.

#include <map>
#include <string>
#include <vector>

#include "agentd/gateway/base/inference_backend.h"

namespace macrame::agentd {

class ModelAliases {
 public:
  ModelAliases() = default;
  // Each entry is "NAME=MODEL". A NAME that ends in '*' stands for every name that begins so; a
  // '*' alone for all. Entries of another form are left out (the configuration refuses them).
  explicit ModelAliases(const std::vector<std::string>& entries);

  // The model that is meant by `name`: itself where the backend has it, so a model's own name
  // always comes first; then the alias of just this name, of this gateway before the whole
  // cluster's; then the one with the longest beginning. Where none fits, `name`.
  std::string Resolve(const std::string& name, InferenceBackend& backend) const;

  // The backend's models, and behind them the aliases without '*' of each, as models of that name.
  std::vector<ServedModel> WithAliases(InferenceBackend& backend) const;

 private:
  std::map<std::string, std::string> exact_;
  std::map<std::string, std::string> beginnings_;  // without the '*'
};

}  // namespace macrame::agentd
