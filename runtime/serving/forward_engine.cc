#include "runtime/serving/forward_engine.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/rank_words.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/model/load_layer_stack.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

// Steps that may be started before the oldest one's results are read: the one that is computed, and
// the one behind it.
constexpr size_t kStepsStartedMax = 2;

// Of blocks that are copied between the KV cache and the cold tier with one wait for the device.
constexpr size_t kColdBytesAtOnce = size_t{64} << 20;

std::chrono::microseconds Since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               begun);
}

}  // namespace

ForwardEngine::ForwardEngine(const ModelConfig& config, const ShardPlace& place,
                             WeightLoader& loader, GangLink& link, Watchdog& watchdog,
                             ForwardLimits limits)
    : config_(config),
      place_(place),
      link_(link),
      watchdog_(watchdog),
      limits_(limits),
      stages_(link.single() ? 1 : link.group().size() / place.tp),
      confirms_steps_(stages_ > 1 && place.tp == 1 && link.own_group() != nullptr),
      exchange_(link, config_, place, loader.activation_type()),
      layers_(LoadLayers(config, place, loader, exchange_, link, limits)),
      chooses_tokens_((link.single() || (stages_ == 1 && link.all_choose())) &&
                      layers_->chooses_tokens()),
      cache_clearing_(UsesMlxGraph(loader.device()) ? limits_.device_memory : nullptr) {
  if (confirms_steps_ && link.leader() != nullptr) {
    pipeline_.emplace(link.own_group()->group(), /*next=*/1, link.group().size() - 1, stages_);
  }
}

std::unique_ptr<LayerStack> ForwardEngine::LoadLayers(const ModelConfig& config,
                                                      const ShardPlace& place, WeightLoader& loader,
                                                      RankExchange& exchange, const GangLink& link,
                                                      const ForwardLimits& limits) {
  LayerStackOptions options;
  options.blocks_total = limits.blocks_total;
  options.context_length = limits.context_length;
  options.threads = limits.threads;
  options.sequences_max = static_cast<int>(kAnsweredAtOnceMax);
  options.state_snapshots = limits.state_snapshots;
  options.kv_type = limits.kv_type;
  options.kv_bits = limits.kv_bits;
  options.observer = limits.observer;
  const bool chooses = link.all_choose() && link.group_size() == static_cast<uint32_t>(place.tp);
  return LoadLayerStack(config, place, loader, exchange, options,
                        chooses ? std::span(link.slices()) : std::span<const SliceRange>());
}

ForwardEngine::ForwardEngine(const ModelConfig& config, std::unique_ptr<LayerStack> layers,
                             GangLink& link, Watchdog& watchdog, ForwardLimits limits)
    : config_(config),
      place_(ShardPlace()),
      link_(link),
      watchdog_(watchdog),
      limits_(std::move(limits)),
      stages_(1),
      confirms_steps_(false),
      exchange_(link, config_, place_, layers->activation_type()),
      layers_(std::move(layers)),
      chooses_tokens_(link.leader() == nullptr && layers_->chooses_tokens()),
      cache_clearing_(nullptr) {
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
  if (pipeline_.has_value()) return pipeline_->steps_max();
  return chooses_tokens() ? kStepsStartedMax : 1;
}

bool ForwardEngine::bits_are_fixed() const { return layers_->bits_are_fixed(); }

absl::Status ForwardEngine::Submit(const ForwardStep& forward) {
  MACRAME_CHECK(in_flight_.size() < steps_in_flight_max())
      << in_flight_.size() << " steps are in flight";
  MACRAME_CHECK(chooses_tokens_ || CountChosenRows(forward) == 0)
      << "this gang's steps choose no tokens";
  Step step;
  step.forward = forward;
  absl::Status status = SendStep(std::move(step));
  if (!status.ok()) return status;
  if (chooses_tokens_) return StartNext(forward);
  InFlight own;
  status = RunStep(forward, &own);
  if (status.ok()) in_flight_.push_back(std::move(own));
  return status;
}

absl::StatusOr<StepResult> ForwardEngine::Await() {
  MACRAME_CHECK(!in_flight_.empty()) << "no step is in flight";
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (chooses_tokens_) {
    auto result = oldest.goes_on() ? AwaitStarted(std::move(oldest)) : std::move(oldest.result);
    ObserveOldest();
    return result;
  }
  if (!oldest.is_in_pipeline) return std::move(oldest.result);
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  const absl::Status status = Guarded([&] {
    auto result = pipeline_->Await();
    if (!result.ok()) throw std::runtime_error(std::string(result.status().message()));
    if (oldest.has_rows) oldest.result.numbers = *std::move(result);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::move(oldest.result);
}

absl::StatusOr<StepResult> ForwardEngine::Run(const ForwardStep& step) {
  MACRAME_CHECK(in_flight_.empty()) << in_flight_.size() << " steps are in flight";
  const absl::Status status = Submit(step);
  if (!status.ok()) return status;
  return Await();
}

absl::Status ForwardEngine::Follow(const Step& step) {
  if (!chooses_tokens_) {
    if (CountChosenRows(step.forward) == 0) return RunStep(step.forward, nullptr);
    return absl::InternalError(
        "rank 0 sent a step that chooses tokens; this gang's steps choose none");
  }
  absl::Status status = StartNext(step.forward);
  while (status.ok() && in_flight_.size() >= kStepsStartedMax) status = Await().status();
  return status;
}

absl::Status ForwardEngine::FinishFollowed() {
  while (!in_flight_.empty()) {
    const absl::Status done = Await().status();
    if (!done.ok()) return done;
  }
  return absl::OkStatus();
}

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
  std::vector<std::span<const std::byte>> bytes;
  for (size_t i = 0; i < fill.blocks.size(); ++i) {
    const int32_t block = fill.blocks[i];
    if (block < 0 || block >= limits_.blocks_total) {
      return absl::InternalError(absl::StrCat("rank 0 fills block ", block));
    }
    bytes.push_back(std::as_bytes(std::span((*contents)[i])));
    NoteBlock(block);
  }
  const size_t at_once = BlocksAtOnce();
  for (size_t i = 0; i < bytes.size(); i += at_once) {
    const size_t count = std::min(at_once, bytes.size() - i);
    layers_->WriteBlocks({fill.blocks.data() + i, count}, {bytes.data() + i, count});
  }
  return absl::OkStatus();
}

size_t ForwardEngine::BlocksAtOnce() const {
  const size_t bytes = std::max<size_t>(1, cold_worker_->layout().content_bytes);
  return std::max<size_t>(1, kColdBytesAtOnce / bytes);
}

absl::Status ForwardEngine::StoreBlocks(std::span<const ColdStore> stores) {
  std::vector<int32_t> blocks;
  std::vector<std::vector<std::byte>> contents;
  for (const ColdStore& store : stores) {
    if (store.block < 0 || store.block >= limits_.blocks_total) {
      return absl::InternalError(absl::StrCat("rank 0 stores block ", store.block));
    }
    blocks.push_back(store.block);
    contents.emplace_back(cold_worker_->layout().content_bytes);
  }
  const std::vector<std::span<std::byte>> out(contents.begin(), contents.end());
  layers_->ReadBlocks(blocks, out);
  for (size_t i = 0; i < stores.size(); ++i) {
    cold_worker_->Store(stores[i].content, std::move(contents[i]));
  }
  return absl::OkStatus();
}

// What is read may still be on its way from the step before.
absl::Status ForwardEngine::CarryOut(const ColdOrders& orders) {
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  return Guarded([&] { return CarryOutInOrder(orders); });
}

absl::Status ForwardEngine::CarryOutInOrder(const ColdOrders& orders) {
  for (const ColdFill& fill : orders.fills) {
    const absl::Status filled = Fill(fill);
    if (!filled.ok()) return filled;
  }
  const std::span stores(orders.stores);
  const size_t at_once = stores.empty() ? 1 : BlocksAtOnce();
  for (size_t i = 0; i < stores.size(); i += at_once) {
    const absl::Status stored =
        StoreBlocks(stores.subspan(i, std::min(at_once, stores.size() - i)));
    if (!stored.ok()) return stored;
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
    const absl::Status good = BeginLayers(step);
    if (!good.ok() || step.segments.empty()) return good;
    RunStages(step, own);
    buffer_bytes_ = layers_->buffer_bytes();
    cache_clearing_.AfterStep(step);
    return absl::OkStatus();
  });
}

absl::Status ForwardEngine::BeginLayers(const ForwardStep& step) {
  const absl::Status good = layers_->Begin(step);
  if (good.ok()) NoteBlocks(step);
  return good;
}

absl::Status ForwardEngine::StartNext(const ForwardStep& step) {
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  const bool is_first = in_flight_.empty();
  if (is_first) observed_.emplace(limits_.observer, step);
  InFlight own;
  const absl::Status status = Guarded([&] {
    const absl::Status good = BeginLayers(step);
    if (good.ok() && !step.segments.empty()) Start(step, own);
    return good;
  });
  own_part_ = {};
  if (is_first && !own.goes_on()) observed_.reset();
  if (!status.ok()) return status;
  own.clears = cache_clearing_.IsDueAfter(step);
  buffer_bytes_ = layers_->buffer_bytes();
  if (!is_first && limits_.observer != nullptr) own.observed = step;
  in_flight_.push_back(std::move(own));
  return absl::OkStatus();
}

// For the observer, steps follow one another: each from the results of the one before. Every step
// is told of, on every rank.
void ForwardEngine::ObserveOldest() {
  observed_.reset();
  if (in_flight_.empty()) return;
  const InFlight& oldest = in_flight_.front();
  observed_.emplace(limits_.observer, oldest.observed);
  if (!oldest.goes_on()) observed_.reset();
}

absl::StatusOr<StepResult> ForwardEngine::AwaitStarted(InFlight step) {
  const auto guard = watchdog_.Watch(limits_.step_name, limits_.step_limit);
  StepResult result;
  const absl::Status status = Guarded([&] {
    const PartScope part(limits_.observer, StepPart::kEvaluate);
    std::vector<mx::array> awaited;
    for (const auto* one : {&step.chosen, &step.logits, &step.hidden, &step.last}) {
      if (one->has_value()) awaited.push_back(**one);
    }
    mx::eval(awaited);
    link_.ThrowIfBroken();
    if (link_.rank() != 0) return absl::OkStatus();
    if (step.chosen.has_value()) {
      const auto* tokens = step.chosen->data<int32_t>();
      result.chosen.assign(tokens, tokens + step.chosen->size());
    }
    for (const auto* rows : {&step.logits, &step.hidden}) {
      if (!rows->has_value()) continue;
      const auto* numbers = (*rows)->data<float>();
      result.numbers.insert(result.numbers.end(), numbers, numbers + (*rows)->size());
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (step.clears) cache_clearing_.Clear();
  return result;
}

absl::Status ForwardEngine::Guarded(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the system refused memory for a forward step");
  } catch (const std::exception& error) {
    if (link_.single()) return absl::InternalError(error.what());
    return LinkFailed(error.what());
  }
}

void ForwardEngine::SendOn(const mx::array& hidden, const RankExchange::Rows& rows,
                           std::chrono::steady_clock::time_point begun, InFlight& own) {
  const mx::array message = exchange_.AsSent(hidden);
  std::vector<mx::array> outputs{message};
  layers_->AppendState(outputs);
  mx::eval(outputs);
  own_part_ = Since(begun);  // with what a graph left to do
  const std::span bytes(reinterpret_cast<const std::byte*>(message.data<char>()), message.nbytes());
  const size_t floats = std::max<size_t>(exchange_.NumbersOf(rows), 1);
  const absl::Status sent = pipeline_->Send(bytes, floats);
  if (!sent.ok()) throw std::runtime_error(ReasonOf(sent).message());
  own.is_in_pipeline = true;
  own.has_rows = !rows.empty();
}

mx::array ForwardEngine::Embed(std::span<const int32_t> tokens) {
  const PartScope part(limits_.observer, StepPart::kEmbed);
  if (std::any_of(tokens.begin(), tokens.end(), IsChosenRow)) {
    MACRAME_CHECK(chosen_before_.has_value()) << "the step before chose no tokens";
    return layers_->EmbedChosen(tokens, *chosen_before_);
  }
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
      if (asked == LogitRows::kChosen) {
        chosen.push_back(end - 1);
        how.push_back(segment.choice);
        continue;
      }
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

  std::vector<int32_t> tokens{}, logits{}, hidden{}, chosen{};
  std::vector<RowChoice> how{};  // of the chosen ones
};

// Rows [begin, end) of a step's logits.
mx::array RowRange(const mx::array& logits, int begin, int end) {
  if (begin == 0 && end == logits.shape(0)) return logits;
  return mx::contiguous(mx::slice(logits, {begin, 0}, {end, logits.shape(1)}));
}

}  // namespace

// Whole rows, of this rank's part of them. The ranks exchange these behind what they exchange for
// `before`.
mx::array ForwardEngine::WholeOf(const mx::array& part, const std::optional<mx::array>& before) {
  if (place_.tp == 1) return part;
  return mx::contiguous(
      layers_->WholeLogits(before.has_value() ? mx::depends({part}, {*before})[0] : part));
}

void ForwardEngine::Start(const ForwardStep& step, InFlight& own) {
  const AskedRows asked(step);
  const mx::array hidden = layers_->Run(Embed(asked.tokens), step);
  std::vector<mx::array> outputs;
  {
    const PartScope part(limits_.observer, StepPart::kLogits);
    // All through the head at once.
    std::vector<int32_t> rows = asked.chosen;
    rows.insert(rows.end(), asked.logits.begin(), asked.logits.end());
    const auto chosen = static_cast<int>(asked.chosen.size()), all = static_cast<int>(rows.size());
    if (all > 0) {
      const mx::array logits = layers_->Logits(hidden, rows);
      if (chosen > 0) own.chosen = layers_->Choose(RowRange(logits, 0, chosen), asked.how);
      if (chosen < all) own.logits = WholeOf(RowRange(logits, chosen, all), own.chosen);
    }
    if (!asked.hidden.empty()) own.hidden = layers_->Hidden(hidden, asked.hidden);
  }
  for (const auto* one : {&own.chosen, &own.logits, &own.hidden}) {
    if (one->has_value()) outputs.push_back(**one);
  }
  if (outputs.empty()) outputs.push_back(own.last.emplace(hidden));
  layers_->AppendState(outputs);
  mx::async_eval(outputs);
  chosen_before_ = own.chosen;
}

void ForwardEngine::RunStages(const ForwardStep& step, InFlight* own) {
  const AskedRows asked(step);
  const RankExchange::Rows rows = asked.counts();
  mx::array result = place_.embeds ? Embed(asked.tokens)
                                   : exchange_.ReceiveStates(static_cast<int>(asked.tokens.size()));
  const auto begun = std::chrono::steady_clock::now();
  result = layers_->Run(result, step);
  own_part_ = Since(begun);
  if (pipeline_.has_value()) return SendOn(result, rows, begun, *own);
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
    exchange_.GatherRows(mine, rows, own == nullptr ? nullptr : &own->result.numbers);
  }
}

}  // namespace macrame::runtime::engine
