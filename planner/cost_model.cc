#include "planner/cost_model.h"

#include <algorithm>
#include <cmath>

namespace macrame::planner {
namespace {

constexpr double kFloat32Bytes = 4;
constexpr double kKibibyte = 1024;
constexpr double kOperationsPerWeight = 2;  // a multiplication and an addition

constexpr double kUnquantisedBits = 16;
constexpr double kScaleAndBiasBits = 32;

double Between(const std::vector<double>& before, uint32_t begin, uint32_t end) {
  return before[end] - before[begin];
}

}  // namespace

double BytesPerWeight(double bits, double group) {
  return bits >= kUnquantisedBits ? bits / 8 : (bits + kScaleAndBiasBits / group) / 8;
}

double BytesPerWeightOf(const v1::ModelDescription& model) {
  const v1::Quantization& quantization = model.quantization();
  if (quantization.bits() == 0) return model.dtype() == "float32" ? 4 : 2;
  return BytesPerWeight(quantization.bits(), std::max(1u, quantization.group_size()));
}

double SmallMessageUs(double bytes, size_t ranks, const CostParameters& parameters) {
  if (ranks <= 2) return 0;
  const double kib = std::min(bytes, kSmallMessageBytes) / kKibibyte;
  return parameters.small_message_us * kib * static_cast<double>(ranks - 2);
}

double ExpertShareRead(uint32_t experts, uint32_t active, double tokens) {
  if (experts == 0) return 1;
  const double chosen = std::min(1.0, static_cast<double>(active) / experts);
  return 1 - std::pow(1 - chosen, tokens);
}

StepModel::StepModel(const v1::ModelDescription& model, const StepLoad& load,
                     const CostParameters& parameters)
    : model_(&model),
      load_(load),
      parameters_(parameters),
      bytes_per_weight_(BytesPerWeightOf(model)) {
  const uint32_t layers = model.layer_count();
  const auto all_sums = {&whole_before_,   &divisible_before_, &attention_before_,
                         &experts_before_, &positions_before_, &fixed_before_,
                         &weights_before_, &chosen_before_,    &overhead_before_};
  for (auto* sums : all_sums) sums->assign(layers + 1, 0);
  const double tokens = static_cast<double>(load.sequences) * load.tokens_each;
  const double read = ExpertShareRead(model.experts(), model.experts_active(), tokens);
  const double chosen = ExpertShareRead(model.experts(), model.experts_active(), 1);
  for (uint32_t i = 0; i < layers; ++i) {
    const double all = static_cast<double>(model.layer_bytes(static_cast<int>(i)));
    const double divisible = static_cast<double>(model.layer_divisible_bytes(static_cast<int>(i)));
    const double experts = std::min(divisible, static_cast<double>(LayerExpertBytes(model, i)));
    const bool windowed = model.sliding_window() > 0;
    double positions = load.positions;
    const bool reads = i >= FirstKvReader(model);  // all positions, of another layer
    if (!AttendsToAll(model, i) && !reads) {
      positions = windowed ? std::min<double>(positions, model.sliding_window()) : 0;
      if (!windowed) fixed_before_[i + 1] += static_cast<double>(model.fixed_state_bytes());
    }
    whole_before_[i + 1] = all - divisible;
    divisible_before_[i + 1] = divisible - experts + experts * read;
    attention_before_[i + 1] = AttentionPart(model, i) * divisible;
    experts_before_[i + 1] = experts * read;
    positions_before_[i + 1] = positions;
    weights_before_[i + 1] = (all - experts + experts * chosen) / bytes_per_weight_;
    chosen_before_[i + 1] = experts * chosen / bytes_per_weight_;
    const double alone =
        parameters.layer_overhead_us +
        (model.kv_latent_width() > 0 ? parameters.latent_attention_overhead_us : 0) +
        (model.residual_streams() > 1 ? parameters.streams_overhead_us : 0);
    overhead_before_[i + 1] =
        alone * (1 + parameters.sequence_part * (std::max(1u, load.sequences) - 1)) +
        (experts > 0 ? parameters.expert_overhead_us : 0);
  }
  for (auto* sums : all_sums) {
    for (uint32_t i = 0; i < layers; ++i) (*sums)[i + 1] += (*sums)[i];
  }
}

double StepModel::ReadUs(const RankSpeed& rank, double bytes) const {
  const double reached = parameters_.bandwidth_efficiency * rank.bandwidth_reached;
  return bytes / (rank.bandwidth * reached) * kMicrosecondsPerSecond;
}

double StepModel::ReadKvUs(const RankSpeed& rank, double bytes) const {
  if (rank.kind == ComputeKind::kCpu) return ReadUs(rank, bytes);
  const bool latent = model_->kv_latent_width() > 0;
  const double reached = latent ? parameters_.latent_kv_efficiency : parameters_.kv_efficiency;
  return ReadUs(rank, bytes) * parameters_.bandwidth_efficiency / reached;
}

double StepModel::ArithmeticUs(const RankSpeed& rank, double operations,
                               double gpu_efficiency) const {
  if (rank.flops <= 0) return 0;
  const double reached =
      rank.compute_reached *
      (rank.kind == ComputeKind::kCpu ? parameters_.cpu_efficiency : gpu_efficiency);
  return operations / (rank.flops * reached) * kMicrosecondsPerSecond;
}

// A GPU computes while it reads. A CPU's kernels do for one token; for more they unpack weights
// first (tests/bench/README.md, steps).
double StepModel::WorkUs(const RankSpeed& rank, double read_us, double arithmetic_us) const {
  const bool in_turn = rank.kind == ComputeKind::kCpu && Tokens() > 1;
  return in_turn ? read_us + arithmetic_us : std::max(read_us, arithmetic_us);
}

ExpertSkew StepModel::SkewOf(std::span<const ExpertHolder> holders) const {
  return planner::SkewOf(holders, model_->experts_active(), Tokens());
}

StepModel::Parts StepModel::WholeExperts(const RankSpeed& rank, uint32_t begin, uint32_t end,
                                         Slice slice, ExpertSkew skew) const {
  const double share = static_cast<double>(slice.width) / slice.of;
  const Cut cut = CutOf(*model_, slice);
  const double heads =
      cut.even ? share : static_cast<double>(cut.kv_heads) / std::max(1u, model_->kv_heads());
  const double own = InnerPart(*model_, cut, slice);
  const bool is_gpu = rank.kind == ComputeKind::kGpu;
  const bool reads_all = is_gpu && Tokens() * model_->experts_active() < kSortedChoices;
  const double read = reads_all ? 1.0 : std::min(1.0, own * skew.read);
  const double worked = is_gpu ? 1.0 : std::min(1.0, own * skew.work);
  const double experts = Between(experts_before_, begin, end);
  const double chosen = Between(chosen_before_, begin, end);
  const double others = Between(divisible_before_, begin, end) - experts;
  const double attention = Between(attention_before_, begin, end);
  const double read_of_others = attention * heads + (others - attention) * share;
  const double others_share = others > 0 ? read_of_others / others : share;
  return {read_of_others + experts * read,
          (Between(weights_before_, begin, end) - chosen) * others_share + chosen * worked,
          chosen * worked};
}

RankTime StepModel::TimeOf(const RankSpeed& rank, uint32_t begin, uint32_t end, Slice slice,
                           ExpertSkew skew) const {
  const double share = static_cast<double>(slice.width) / slice.of;
  const double tokens = static_cast<double>(load_.sequences) * load_.tokens_each;
  const double divisible = Between(divisible_before_, begin, end);
  const Cut cut = CutOf(*model_, slice);
  double heads_share = share;  // of attention's weights, and of its work
  double read = divisible * share;
  if (!cut.even) {
    const double attention_bytes = Between(attention_before_, begin, end);
    heads_share = static_cast<double>(cut.kv_heads) / model_->kv_heads();
    read = attention_bytes * heads_share +
           (divisible - attention_bytes) * InnerPart(*model_, cut, slice);
  }
  double multiplied =
      Between(weights_before_, begin, end) * (divisible > 0 ? read / divisible : share);
  double experts =
      Between(weights_before_, begin, end) > 0
          ? multiplied * Between(chosen_before_, begin, end) / Between(weights_before_, begin, end)
          : 0;
  if (slice.whole_experts) {
    const Parts parts = WholeExperts(rank, begin, end, slice, skew);
    read = parts.read;
    multiplied = parts.multiplied;
    experts = parts.experts;
  }
  if (rank.kind == ComputeKind::kGpu) {
    const double undivided = parameters_.undivided_part * (1 - share);
    multiplied += undivided * Between(weights_before_, begin, end);
    experts += undivided * Between(chosen_before_, begin, end);
  }
  const double bytes = Between(whole_before_, begin, end) + read;
  const double positions = Between(positions_before_, begin, end);
  double position = KvPositionBytes(*model_, slice, load_.kv_bits, rank.kind);
  // Latent vectors are unpacked where a GPU keeps them in few bits: written, and read again.
  const double whole = KvPositionBytes(*model_, slice, 0, rank.kind);
  if (model_->kv_latent_width() > 0 && rank.kind == ComputeKind::kGpu && position < whole) {
    position += 2 * whole;
  }
  const double kv =
      (positions * position + Between(fixed_before_, begin, end) * share) * load_.sequences;
  // Each query is multiplied with each key, each weight with each value.
  const double attention =
      2 * positions * heads_share * model_->attention_heads() * model_->head_dim();
  RankTime time;
  const double arithmetic_us =
      ArithmeticUs(rank, kOperationsPerWeight * (multiplied - experts) * tokens,
                   parameters_.dense_efficiency) +
      ArithmeticUs(rank, kOperationsPerWeight * experts * tokens, parameters_.expert_efficiency);
  time.weights_us = WorkUs(rank, ReadUs(rank, bytes), arithmetic_us);
  time.kv_us =
      std::max(ReadKvUs(rank, kv), ArithmeticUs(rank, kOperationsPerWeight * attention * tokens,
                                                parameters_.attention_efficiency));
  return time;
}

double StepModel::HeadUs(const RankSpeed& rank, Slice slice) const {
  const double bytes = static_cast<double>(HeadBytes(*model_, false, slice));
  const double operations = kOperationsPerWeight * bytes / bytes_per_weight_ * load_.sequences;
  return WorkUs(rank, ReadUs(rank, bytes),
                ArithmeticUs(rank, operations, parameters_.dense_efficiency));
}

double StepModel::OverheadUs(const RankSpeed& rank, uint32_t begin, uint32_t end) const {
  return Between(overhead_before_, begin, end) * rank.overhead;
}

double StepModel::EmbeddingMessageBytes() const {
  return kFloat32Bytes * model_->hidden_size() * load_.sequences * load_.tokens_each;
}

double StepModel::LogitsMessageBytes() const {
  return kFloat32Bytes * model_->vocab_size() * load_.sequences;
}

double StepModel::HopBytes() const {
  const uint32_t streams = model_->residual_streams();
  if (streams <= 1) return MessageBytes();
  return kFloat32Bytes * streams * model_->hidden_size() * load_.sequences * load_.tokens_each;
}

double StepModel::MessageBytes() const {
  return static_cast<double>(ComputeElementBytes(*model_, ComputeKind::kGpu)) *
         model_->hidden_size() * load_.sequences * load_.tokens_each;
}

}  // namespace macrame::planner
