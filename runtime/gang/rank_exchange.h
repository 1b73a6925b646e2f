#pragma once

// What the ranks of a gang hand each other within a step: sums over the ranks of a stage, hidden
// states from stage to stage, the last stage's logits to rank 0.
//
// Over our own groups (tcp, verbs) all of it goes straight from the buffers that the step computed,
// on the engine thread: MLX's graph would cost more than a small sum does. MLX's own groups (jaccl)
// are reached through MLX's graph alone. Which of the two it is, is decided here.
//
// Every rank calls the same functions in the same order. They throw std::runtime_error when a rank
// is lost. Engine thread only.

#include <cstddef>
#include <optional>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/gang/gang_link.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

class RankExchange : public RankSums {
 public:
  // `link` and `config` must live as long. `activation_type`: of hidden states on this rank; they
  // travel in the link's wire type, or in float32 (CarriedRow::as_float32).
  RankExchange(GangLink& link, const ModelConfig& config, const ShardPlace& place,
               mlx::core::Dtype activation_type);

  void AddOverRanks(float* values, size_t count) override;
  void AddExactlyOverRanks(float* values, size_t count) override;
  mlx::core::array SumOverRanks(const mlx::core::array& partial) override;
  mlx::core::array SumExactlyOverRanks(const mlx::core::array& partial) override;
  mlx::core::array GatherOverRanks(const mlx::core::array& own) override;

  // To the rank with the same tp_rank in the next stage; and from that of the one before: hidden
  // states and what goes with them (model/cuts/carried.h).
  void SendStates(const mlx::core::array& hidden);
  mlx::core::array ReceiveStates(int rows);
  // As they travel, not evaluated yet.
  mlx::core::array AsSent(const mlx::core::array& states) const;

  // The last stage's ranks give what a step's rows are, evaluated: logits [rows, own part of the
  // vocabulary] and hidden states [rows, hidden_size], which are whole on each. Rank 0 gets all in
  // `all`: the logits whole, row after row, and behind them the hidden states. Called by these
  // ranks alone.
  struct Rows {
    int logits = 0, hidden = 0;
    bool empty() const { return logits + hidden == 0; }
  };
  struct OwnRows {
    std::optional<mlx::core::array> logits{}, hidden{};
  };
  void GatherRows(const OwnRows& own, const Rows& rows, std::vector<float>* all);
  // Numbers that rank 0 gets.
  size_t NumbersOf(const Rows& rows) const;

  // The last stage of a pipeline over a group of ours tells rank 0 that a step without logits is
  // done: with one number, as StepPipeline expects.
  void ConfirmStep();

 private:
  // Of the last stage's ranks together, each with a part.
  void GatherLogits(const std::optional<mlx::core::array>& own, int rows, std::vector<float>* all);
  // A last stage of one rank sends all in one message.
  void GatherWhole(const OwnRows& own, const Rows& rows, std::vector<float>* all);
  void SendToFirst(const mlx::core::array& own);
  // So many numbers of `from`, behind what is in `all`.
  void ReceiveBehind(size_t count, int from, std::vector<float>& all);
  mlx::core::Dtype TypeOf(const CarriedRow& row) const;  // on its way
  bool direct() const { return link_.own_group() != nullptr; }
  int rank() const { return static_cast<int>(link_.rank()); }
  Range VocabularyAt(int rank) const;
  // Puts [rows, part.size()] numbers, `stride` apart, where they belong.
  void Place(const float* from, size_t stride, const Range& part, int rows,
             std::vector<float>& all) const;
  void GatherEqualParts(const mlx::core::array& own, int rows, std::vector<float>* all);
  mlx::core::array SumAs(mlx::core::Dtype type, const mlx::core::array& partial);
  void SumDirectly(void* values, size_t count, transport::Element element);

  GangLink& link_;
  const ModelConfig& config_;
  const ShardPlace place_;
  const mlx::core::Dtype activation_type_;
  std::vector<uint16_t> halves_;  // what travels, where that is 16 bits wide
};

}  // namespace macrame::runtime::engine
