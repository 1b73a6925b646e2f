#pragma once

// The models whose graphs are counted: the large ones of models.json, and small ones of each
// family. Weights are random, of 4 bits, and bfloat16 where they are not packed, as published
// models are.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::gpu_graph {

struct GraphModel {
  std::string name;
  nlohmann::json config;  // config.json
  int context = 0;        // that sequences have when steps are counted
  int chunk_at = 0;       // where the counted chunk of a prompt begins
  int chunk = 0;          // its tokens
  bool is_large = false;
  std::map<std::string, std::string> files{};  // unless empty: instead of what the config asks for
};

std::vector<GraphModel> LargeModels(const std::string& models_file);
std::vector<GraphModel> FamilyModels();

// A fresh folder with the model.
std::string WriteModel(const GraphModel& model);

}  // namespace macrame::gpu_graph
