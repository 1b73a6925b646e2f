#pragma once

// The table of counted steps: printed, and held to the limits of limits.json. Pure but for its
// files.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::gpu_graph {

// A row is a model, a place and a shape of step, "llama-32 alone decode-8"; a column is a number.
using Row = std::map<std::string, double>;
using Table = std::map<std::string, Row>;

// limits.json: "goals", written by people, which the large models have to reach; "limits", measured
// and written by --update, which no row may exceed. A goal "mlx_lm_ratio" is held against mlx-lm's
// operations for the same step.
class Limits {
 public:
  explicit Limits(const std::string& path);
  // One sentence for each number that is above its goal or limit, or that has no limit.
  std::vector<std::string> Faults(const Table& table, const Table& mlx_lm) const;
  // One for each row whose operations are far below their limit, so that it can be lowered.
  std::vector<std::string> Gains(const Table& table) const;
  // Writes what was measured as the new limits.
  void Update(const Table& table) const;

 private:
  const std::string path_;
  nlohmann::json file_;
};

// {"row": {"operations": …}}; an empty table where there is no such file.
Table ReadTable(const std::string& path);
// The rows whose names begin with one of these, with mlx-lm's operations beside ours.
std::string Printed(const Table& table, const Table& mlx_lm,
                    const std::vector<std::string>& models);

}  // namespace macrame::gpu_graph
