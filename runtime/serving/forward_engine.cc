#include "runtime/serving/forward_engine.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/model/load_layer_stack.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

ForwardEngine::ForwardEngine(const ModelConfig& config, const ShardPlace& place,
                             WeightLoader& loader, GangLink& link, Watchdog& watchdog,
                             ForwardLimits limits)
    : config_(config),
      place_(place),
      device_(loader.device()),
      link_(link),
      watchdog_(watchdog),
      limits_(limits),
      stages_(link.single() ? 1 : link.group().size() / place.tp),
      confirms_steps_(stages_ > 1 && place.tp == 1 && link.own_group() != nullptr),
      exchange_(link, config_, place, loader.activation_type()) {
  if (confirms_steps_ && link.leader() != nullptr) {
    pipeline_.emplace(link.own_group()->group(), /*next=*/1, link.group().size() - 1, stages_);
  }
  LayerStackOptions options;
  options.blocks_total = limits.blocks_total;
  options.context_length = limits.context_length;
  options.threads = limits.threads;
  options.sequences_max = static_cast<int>(kAnsweredAtOnceMax);
  options.state_snapshots = limits.state_snapshots;
  options.kv_type = limits.kv_type;
  options.observer = limits.observer;
  layers_ = LoadLayerStack(config, place, loader, exchange_, options);
}

ForwardEngine::ForwardEngine(const ModelConfig& config, std::unique_ptr<LayerStack> layers,
                             GangLink& link, Watchdog& watchdog, ForwardLimits limits)
    : config_(config),
      place_(ShardPlace()),
      device_(EngineDevice::kCpu),
      link_(link),
      watchdog_(watchdog),
      limits_(std::move(limits)),
      stages_(1),
      confirms_steps_(false),
      exchange_(link, config_, place_, layers->activation_type()),
      layers_(std::move(layers)) {
  MACRAME_CHECK(link.single()) << "layers of their own making stand beside a group";
}

absl::Status ForwardEngine::SendStep(Step step) {
  if (link_.leader() == nullptr) return absl::OkStatus();
  step.number = next_step_++;
  return link_.leader()->Send(step);
}

absl::Status ForwardEngine::Announce(StepKind kind) {
  Step step;
  step.kind = kind;
  return SendStep(std::move(step));
}

absl::Status ForwardEngine::AnnounceVerify(const v1::VerifyGroupRequest& request) {
  return SendStep(VerifyStepOf(request));
}

size_t ForwardEngine::steps_in_flight_max() const {
  // On a GPU a step's work may still be going on when it is handed on.
  const bool may_overlap = pipeline_.has_value() && device_ == EngineDevice::kCpu;
  return may_overlap ? pipeline_->steps_max() : 1;
}

bool ForwardEngine::bits_are_fixed() const { return layers_->bits_are_fixed(); }

absl::Status ForwardEngine::Submit(const ForwardStep& forward) {
  MACRAME_CHECK(in_flight_.size() < steps_in_flight_max())
      << in_flight_.size() << " steps are in flight";
  Step step;
  step.forward = forward;
  absl::Status status = SendStep(std::move(step));
  if (!status.ok()) return status;
  InFlight own;
  status = RunStep(forward, &own);
  if (status.ok()) in_flight_.push_back(std::move(own));
  return status;
}

absl::StatusOr<std::vector<float>> ForwardEngine::Await() {
  MACRAME_CHECK(!in_flight_.empty()) << "no step is in flight";
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!oldest.is_in_pipeline) return std::move(oldest.rows);
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  const absl::Status status = Guarded([&] {
    auto result = pipeline_->Await();
    if (!result.ok()) throw std::runtime_error(std::string(result.status().message()));
    if (oldest.has_rows) oldest.rows = *std::move(result);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::move(oldest.rows);
}

absl::StatusOr<std::vector<float>> ForwardEngine::Run(const ForwardStep& step) {
  MACRAME_CHECK(in_flight_.empty()) << in_flight_.size() << " steps are in flight";
  const absl::Status status = Submit(step);
  if (!status.ok()) return status;
  return Await();
}

absl::Status ForwardEngine::Follow(const Step& step) { return RunStep(step.forward, nullptr); }

absl::Status ForwardEngine::RunCold(const ColdOrders& orders) {
  Step step;
  step.kind = StepKind::kCold;
  step.cold = orders;
  const absl::Status status = SendStep(std::move(step));
  return status.ok() ? CarryOut(orders) : status;
}

absl::StatusOr<bool> ForwardEngine::FollowCold(const ColdOrders& orders) {
  if (cold_worker_ == nullptr) return false;
  const absl::Status status = CarryOut(orders);
  if (!status.ok()) return status;
  return true;
}

absl::Status ForwardEngine::Fill(const ColdFill& fill) {
  const auto contents = cold_worker_->TakeLoaded(fill.id);
  if (fill.blocks.empty()) return absl::OkStatus();
  if (!contents.has_value() || contents->size() < fill.blocks.size()) {
    return absl::InternalError(absl::StrCat("rank 0 takes ", fill.blocks.size(), " blocks of load ",
                                            fill.id, ", which has fewer"));
  }
  for (size_t i = 0; i < fill.blocks.size(); ++i) {
    const int32_t block = fill.blocks[i];
    if (block < 0 || block >= limits_.blocks_total) {
      return absl::InternalError(absl::StrCat("rank 0 fills block ", block));
    }
    layers_->WriteBlock(block, std::as_bytes(std::span((*contents)[i])));
    NoteBlock(block);
  }
  return absl::OkStatus();
}

absl::Status ForwardEngine::CarryOut(const ColdOrders& orders) {
  for (const ColdFill& fill : orders.fills) {
    const absl::Status filled = Fill(fill);
    if (!filled.ok()) return filled;
  }
  for (const ColdStore& store : orders.stores) {
    if (store.block < 0 || store.block >= limits_.blocks_total) {
      return absl::InternalError(absl::StrCat("rank 0 stores block ", store.block));
    }
    std::vector<std::byte> content(cold_worker_->layout().content_bytes);
    layers_->ReadBlock(store.block, content);
    cold_worker_->Store(store.content, std::move(content));
  }
  if (!orders.drops.empty()) cold_worker_->Drop(orders.drops);
  if (!orders.touches.empty()) cold_worker_->Touch(orders.touches);
  for (const ColdLoad& load : orders.loads) cold_worker_->Load(load);
  return absl::OkStatus();
}

void ForwardEngine::NoteBlock(int32_t block) {
  blocks_used_ = std::max(blocks_used_.load(), static_cast<uint64_t>(block) + 1);
}

void ForwardEngine::NoteBlocks(const ForwardStep& step) {
  for (const Segment& segment : step.segments) {
    for (const int32_t block : segment.new_blocks) NoteBlock(block);
  }
}

absl::Status ForwardEngine::RunStep(const ForwardStep& step, InFlight* own) {
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  const StepScope scope(limits_.observer, step);
  return Guarded([&] {
    const absl::Status good = layers_->Begin(step);
    if (!good.ok() || step.segments.empty()) return good;
    NoteBlocks(step);
    RunStages(step, own);
    buffer_bytes_ = layers_->buffer_bytes();
    return absl::OkStatus();
  });
}

absl::Status ForwardEngine::Guarded(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the system refused memory for a forward step");
  } catch (const std::exception& error) {
    if (link_.single()) return absl::InternalError(error.what());
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited,
                        absl::StrCat("the link to a neighbouring rank failed: ", error.what()));
  }
}

void ForwardEngine::SendOn(const mx::array& hidden, const RankExchange::Rows& rows, InFlight& own) {
  const mx::array message = exchange_.AsSent(hidden);
  std::vector<mx::array> outputs{message};
  layers_->AppendState(outputs);
  mx::eval(outputs);
  const std::span bytes(reinterpret_cast<const std::byte*>(message.data<char>()), message.nbytes());
  const size_t floats = std::max<size_t>(exchange_.NumbersOf(rows), 1);
  const absl::Status sent = pipeline_->Send(bytes, floats);
  if (!sent.ok()) throw std::runtime_error(std::string(sent.message()));
  own.is_in_pipeline = true;
  own.has_rows = !rows.empty();
}

mx::array ForwardEngine::Embed(std::span<const int32_t> tokens) {
  const PartScope part(limits_.observer, StepPart::kEmbed);
  return layers_->Embed(tokens);
}

namespace {

// The rows of a step's buffers that are asked for.
struct AskedRows {
  explicit AskedRows(const ForwardStep& step) {
    for (const Segment& segment : step.segments) {
      const auto begin = static_cast<int32_t>(tokens.size());
      tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
      const auto end = static_cast<int32_t>(tokens.size());
      const LogitRows asked = segment.logit_rows;
      if (asked == LogitRows::kNone) continue;
      const bool is_all = asked == LogitRows::kAll || asked == LogitRows::kHiddenAll;
      const bool is_hidden = asked == LogitRows::kHiddenLast || asked == LogitRows::kHiddenAll;
      for (int32_t row = is_all ? begin : end - 1; row < end; ++row) {
        (is_hidden ? hidden : logits).push_back(row);
      }
    }
  }
  RankExchange::Rows counts() const {
    return {static_cast<int>(logits.size()), static_cast<int>(hidden.size())};
  }

  std::vector<int32_t> tokens{}, logits{}, hidden{};
};

}  // namespace

void ForwardEngine::RunStages(const ForwardStep& step, InFlight* own) {
  const AskedRows asked(step);
  const RankExchange::Rows rows = asked.counts();
  mx::array result = place_.embeds ? Embed(asked.tokens)
                                   : exchange_.ReceiveStates(static_cast<int>(asked.tokens.size()));
  const auto begun = std::chrono::steady_clock::now();
  result = layers_->Run(result, step);
  own_part_ = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - begun);
  if (pipeline_.has_value()) return SendOn(result, rows, *own);
  RankExchange::OwnRows mine;
  std::vector<mx::array> outputs;
  if (place_.has_head && !rows.empty()) {
    const PartScope part(limits_.observer, StepPart::kLogits);
    if (rows.logits > 0)
      outputs.push_back(mine.logits.emplace(layers_->Logits(result, asked.logits)));
    if (rows.hidden > 0)
      outputs.push_back(mine.hidden.emplace(layers_->Hidden(result, asked.hidden)));
  } else {
    outputs.push_back(result);
  }
  layers_->AppendState(outputs);
  {
    const PartScope part(limits_.observer, StepPart::kEvaluate);
    mx::eval(outputs);
  }

  if (!place_.has_head) exchange_.SendStates(result);
  if (rows.empty()) {
    if (place_.has_head && confirms_steps_) exchange_.ConfirmStep();
    return;
  }
  if (place_.has_head || link_.rank() == 0) {
    exchange_.GatherRows(mine, rows, own == nullptr ? nullptr : &own->rows);
  }
}

}  // namespace macrame::runtime::engine
