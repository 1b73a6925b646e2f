#pragma once

// Which mlx_lm this machine has: asked of the interpreters that may have it, once. Blocks for as
// long as Python takes to import it: seconds.

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"

namespace macrame::runtime {

struct MlxLm {
  std::string python;   // the interpreter's path
  std::string version;  // "0.32.2"
  std::string device;   // "metal", "cpu", "cuda"
  // config.json's model_type → in which ways mlx_lm can share such a model out.
  std::map<std::string, v1::ServedSplits> architectures;
};

// What a node knows of its second engine.
struct SecondEngine {
  std::optional<MlxLm> mlx_lm;
  std::string why_not = "it was not looked for";  // where there is none
};

// ENGINE_MISSING says what `python` lacks.
absl::StatusOr<MlxLm> AskMlxLm(const std::string& python, std::chrono::milliseconds limit,
                               const std::atomic<bool>* stop = nullptr);

// `configured` alone when it is not empty; else the first of a few usual places that has one:
// those of a PATH ("/a:/b"), ~/.macrame/mlx-lm, Homebrew's and the system's.
std::vector<std::string> PythonCandidates(const std::string& configured, const std::string& path,
                                          const std::string& home);
// Of the environment's PATH and HOME. Ends soon after `stop` is set.
SecondEngine FindMlxLm(const std::string& configured, const std::atomic<bool>* stop = nullptr);

}  // namespace macrame::runtime
