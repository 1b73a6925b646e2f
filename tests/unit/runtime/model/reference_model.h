#pragma once

// Small decoders in double precision, a loop for each sum: what the engine's layers are held
// against. Written from the definitions, with transformers' names of fields; of config.json and of
// the stored bytes it reads what it needs by itself. Llama and what differs from it by biases,
// norms of heads, a window, sinks or experts; and DeepSeek's latent attention with its indexer.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

class ReferenceModel {
 public:
  ReferenceModel(nlohmann::json config, const WeightFiles& files);

  // Of each position, [tokens.size()][vocab_size].
  std::vector<double> Logits(const std::vector<int32_t>& tokens) const;

 private:
  using Vector = std::vector<double>;
  using Rows = std::vector<Vector>;  // by position
  struct Matrix {
    size_t rows = 0, columns = 0;
    Vector numbers;
    const double* Row(size_t row) const { return numbers.data() + row * columns; }
  };

  int Field(const char* key, int fallback = 0) const;
  double Number(const char* key, double fallback) const;
  bool Has(const std::string& tensor) const { return files_.Find(tensor) != nullptr; }
  Vector Numbers(const std::string& tensor) const;
  // "MODULE.weight" as floats; of a stack the matrix `index`.
  Matrix Map(const std::string& module, int index = 0) const;
  bool HasBias(const std::string& module) const;
  // With "MODULE.bias" where that is.
  Vector Apply(const std::string& module, const Vector& x, int index = 0) const;
  Rows ApplyAll(const std::string& module, const Rows& x) const;

  Vector Norm(const std::string& tensor, const Vector& x, double epsilon) const;
  Rows NormAll(const std::string& tensor, const Rows& x) const;
  double Frequency(int pair, int dims) const;
  // The first `dims` numbers from x on, at a position.
  void Turn(double* x, int dims, size_t position, bool interleaved) const;
  static void TakeShares(Vector& scores);

  Rows Attend(const std::string& prefix, int layer, const Rows& x) const;
  Vector Head(const Vector& query, const Rows& keys, const Rows& values, size_t offset,
              size_t value_offset, const std::vector<size_t>& seen, double scale,
              const double* sink) const;
  Rows AttendLatent(const std::string& prefix, const Rows& x) const;
  std::vector<std::vector<size_t>> ChosenPositions(const std::string& prefix, const Rows& x,
                                                   const Rows& query_latents) const;
  Vector Feed(const std::string& gate, const std::string& up, const std::string& down,
              const Vector& x, int index = 0) const;
  struct Choice {
    int expert;
    double weight;
  };
  std::vector<Choice> Choose(const std::string& prefix, const Vector& x) const;
  Vector Experts(const std::string& prefix, const Vector& x) const;
  Vector FeedOf(const std::string& prefix, const Vector& x) const;

  const nlohmann::json config_;
  const WeightFiles& files_;
  const std::string architecture_;
  const double epsilon_;
};

}  // namespace macrame::runtime::engine
