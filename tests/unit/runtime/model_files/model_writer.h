#pragma once

// Writes small model folders for tests: right ones, and ones with a fault.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::runtime {

struct TestTensor {
  std::string dtype;
  std::vector<int64_t> shape;
};

using TestTensors = std::map<std::string, TestTensor>;

// A fresh empty folder below the tests' temporary one.
std::string MakeFolder(const std::string& name);

// Two layers, hidden 64, four heads, two of them key-value.
nlohmann::json SmallConfig();
// What SmallConfig implies, in BF16.
TestTensors SmallTensors();
// The same with all matrices affine quantised.
TestTensors QuantizedTensors(int bits, int group_size);

void WriteConfig(const std::string& folder, const nlohmann::json& config);
// `fill`: the byte that all tensors are made of.
void WriteSafetensors(const std::string& path, const TestTensors& tensors, char fill = 1);
// config.json and model.safetensors.
void WriteModel(const std::string& folder, const nlohmann::json& config, const TestTensors& tensors,
                char fill = 1);
void WriteFile(const std::string& path, const std::string& text);

}  // namespace macrame::runtime
