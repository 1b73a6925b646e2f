#include "runtime/gang/rank_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(ReasonOf(status).message());
}

transport::Element ElementOf(mx::Dtype wire_type) {
  if (wire_type == mx::bfloat16) return transport::Element::kBfloat16;
  return wire_type == mx::float16 ? transport::Element::kFloat16 : transport::Element::kFloat32;
}

// As MLX rounds, so that a GPU's ranks and a CPU's agree.
template <typename Half>
void Narrow(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = std::bit_cast<uint16_t>(static_cast<Half>(from[i]));
}

template <typename Half>
void Widen(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(std::bit_cast<Half>(from[i]));
}

mx::array Evaluated(const mx::array& x, mx::Dtype type) {
  mx::array plain = mx::contiguous(mx::astype(x, type));
  plain.eval();
  return plain;
}

std::span<const std::byte> BytesOf(const mx::array& array) {
  return {reinterpret_cast<const std::byte*>(array.data<char>()), array.nbytes()};
}

}  // namespace

RankExchange::RankExchange(GangLink& link, const ModelConfig& config, const ShardPlace& place,
                           mx::Dtype activation_type)
    : link_(link), config_(config), place_(place), activation_type_(activation_type) {}

Range RankExchange::VocabularyAt(int rank) const {
  return VocabularyOf(config_, link_.slices()[static_cast<size_t>(rank)]);
}

void RankExchange::SumDirectly(void* values, size_t count, transport::Element element) {
  Must(link_.own_stage_group()->SumInRankOrder(values, count, element));
}

void RankExchange::AddOverRanks(float* values, size_t count) {
  if (place_.tp == 1) return;
  const mx::Dtype wire = link_.wire_type();
  if (!direct()) {
    const mx::array own(values, {static_cast<int>(count)});
    const mx::array sum = Evaluated(SumOverRanks(own), mx::float32);
    std::copy_n(sum.data<float>(), count, values);
    return;
  }
  if (wire == mx::float32) return SumDirectly(values, count, transport::Element::kFloat32);
  halves_.resize(std::max(halves_.size(), count));
  const bool brain = wire == mx::bfloat16;
  brain ? Narrow<mx::bfloat16_t>(values, count, halves_.data())
        : Narrow<mx::float16_t>(values, count, halves_.data());
  SumDirectly(halves_.data(), count, ElementOf(wire));
  brain ? Widen<mx::bfloat16_t>(halves_.data(), count, values)
        : Widen<mx::float16_t>(halves_.data(), count, values);
}

void RankExchange::AddExactlyOverRanks(float* values, size_t count) {
  if (place_.tp == 1) return;
  if (direct()) return SumDirectly(values, count, transport::Element::kFloat32);
  const mx::array own(values, {static_cast<int>(count)});
  const mx::array sum = Evaluated(SumExactlyOverRanks(own), mx::float32);
  std::copy_n(sum.data<float>(), count, values);
}

mx::array RankExchange::SumAs(mx::Dtype type, const mx::array& partial) {
  if (place_.tp == 1) return partial;
  const mx::array sum = mx::distributed::all_sum(mx::astype(partial, type), link_.stage_group());
  return mx::astype(sum, partial.dtype());
}

mx::array RankExchange::SumOverRanks(const mx::array& partial) {
  return SumAs(link_.wire_type(), partial);
}

mx::array RankExchange::SumExactlyOverRanks(const mx::array& partial) {
  return SumAs(mx::float32, partial);
}

mx::array RankExchange::GatherOverRanks(const mx::array& own) {
  if (place_.tp == 1) return own;
  return mx::distributed::all_gather(own, link_.stage_group());
}

mx::Dtype RankExchange::TypeOf(const CarriedRow& row) const {
  return row.as_float32 ? mx::float32 : link_.wire_type();
}

mx::array RankExchange::AsSent(const mx::array& states) const {
  return mx::contiguous(mx::astype(states, TypeOf(CarriedInto(config_, place_.layer_end))));
}

void RankExchange::SendStates(const mx::array& hidden) {
  const int to = rank() + place_.tp;
  mx::array states = AsSent(hidden);
  if (!direct()) {
    mx::distributed::send(states, to, link_.group()).eval();
    return;
  }
  states.eval();
  Must(link_.own_group()->group().SendTo(BytesOf(states), to));
}

mx::array RankExchange::ReceiveStates(int rows) {
  const int from = rank() - place_.tp;
  const CarriedRow row = CarriedInto(config_, place_.layer_begin);
  const mx::Dtype type = TypeOf(row);
  // What is float32 on its way stays so: numbers of entries have no place in 16 bits.
  const mx::Dtype taken = row.as_float32 ? mx::float32 : activation_type_;
  const mx::Shape shape{rows, row.width};
  if (!direct()) {
    return mx::astype(mx::distributed::recv(shape, type, from, link_.group()), taken);
  }
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(row.width) * type.size();
  mx::array states(mx::allocator::malloc(bytes), shape, type);
  auto* data = reinterpret_cast<std::byte*>(states.data<char>());
  Must(link_.own_group()->group().ReceiveFrom({data, bytes}, from));
  return mx::astype(states, taken);
}

void RankExchange::ConfirmStep() {
  const float done[] = {0.0F};
  Must(link_.own_group()->group().SendTo(std::as_bytes(std::span(done)), 0));
}

void RankExchange::Place(const float* from, size_t stride, const Range& part, int rows,
                         std::vector<float>& all) const {
  for (int row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    std::copy_n(from + at * stride, part.size(),
                all.data() + at * static_cast<size_t>(config_.vocab_size) + part.begin);
  }
}

// Where a rank has neighbours only: everybody gets all parts, filled up to the widest.
void RankExchange::GatherEqualParts(const mx::array& own, int rows, std::vector<float>* all) {
  int widest = 0;
  for (int r = 0; r < place_.tp; ++r) widest = std::max(widest, VocabularyAt(r).size());
  const mx::array filled =
      Evaluated(mx::pad(own, std::vector<int>{1}, {0}, {widest - own.shape(1)}, mx::array(0.0F)),
                mx::float32);
  const size_t part_numbers = filled.size();
  std::vector<float> parts(part_numbers * static_cast<size_t>(place_.tp));
  if (direct()) {
    const std::span<float> into(parts);
    Must(link_.own_group()->group().AllGather(BytesOf(filled), std::as_writable_bytes(into)));
  } else {
    const mx::array gathered =
        Evaluated(mx::distributed::all_gather(filled, link_.group()), mx::float32);
    std::copy_n(gathered.data<float>(), parts.size(), parts.data());
  }
  if (rank() != 0) return;
  for (int r = 0; r < place_.tp; ++r) {
    Place(parts.data() + static_cast<size_t>(r) * part_numbers, static_cast<size_t>(widest),
          VocabularyAt(r), rows, *all);
  }
}

size_t RankExchange::NumbersOf(const Rows& rows) const {
  return static_cast<size_t>(rows.logits) * static_cast<size_t>(config_.vocab_size) +
         static_cast<size_t>(rows.hidden) * static_cast<size_t>(config_.hidden_size);
}

void RankExchange::SendToFirst(const mx::array& own) {
  if (direct()) return Must(link_.own_group()->group().SendTo(BytesOf(own), 0));
  mx::distributed::send(own, 0, link_.group()).eval();
}

void RankExchange::ReceiveBehind(size_t count, int from, std::vector<float>& all) {
  const size_t held = all.size();
  all.resize(held + count);
  const std::span<float> into(all.data() + held, count);
  if (direct()) {
    return Must(link_.own_group()->group().ReceiveFrom(std::as_writable_bytes(into), from));
  }
  mx::array came =
      mx::distributed::recv({static_cast<int>(count)}, mx::float32, from, link_.group());
  came.eval();
  std::copy_n(came.data<float>(), count, into.data());
}

void RankExchange::GatherWhole(const OwnRows& own, const Rows& rows, std::vector<float>* all) {
  const int last = static_cast<int>(link_.group_size()) - 1;
  if (rank() != last) return ReceiveBehind(NumbersOf(rows), last, *all);
  if (!own.logits.has_value() || !own.hidden.has_value()) {
    return SendToFirst(own.logits.has_value() ? *own.logits : *own.hidden);
  }
  SendToFirst(Evaluated(mx::concatenate({mx::flatten(*own.logits), mx::flatten(*own.hidden)}),
                        mx::float32));
}

void RankExchange::GatherRows(const OwnRows& own, const Rows& rows, std::vector<float>* all) {
  if (link_.single()) {
    if (all == nullptr) return;  // a rank of an engine with a group of its own
    for (const auto* part : {&own.logits, &own.hidden}) {
      if (!part->has_value()) continue;
      all->insert(all->end(), (*part)->data<float>(), (*part)->data<float>() + (*part)->size());
    }
    return;
  }
  if (place_.tp == 1) return GatherWhole(own, rows, all);
  if (rows.logits > 0) GatherLogits(own.logits, rows.logits, all);
  if (rows.hidden == 0) return;
  const int sender = static_cast<int>(link_.group_size()) - place_.tp;  // the stage's first
  const size_t numbers = NumbersOf({0, rows.hidden});
  if (rank() == 0 && sender == 0) {
    const float* whole = own.hidden->data<float>();
    all->insert(all->end(), whole, whole + numbers);
  } else if (rank() == 0) {
    ReceiveBehind(numbers, sender, *all);
  } else if (rank() == sender) {
    SendToFirst(*own.hidden);
  }
}

void RankExchange::GatherLogits(const std::optional<mx::array>& own, int rows,
                                std::vector<float>* all) {
  const auto world = static_cast<int>(link_.group_size());
  const auto vocabulary = static_cast<size_t>(config_.vocab_size);
  if (rank() == 0) all->assign(static_cast<size_t>(rows) * vocabulary, 0.0F);
  const bool whole = place_.tp == world;  // one stage
  if (whole && (!direct() || link_.neighbours_only())) return GatherEqualParts(*own, rows, all);
  if (rank() != 0) {
    if (own->size() > 0) SendToFirst(*own);
    return;
  }
  std::vector<float> received;
  for (int from = world - place_.tp; from < world; ++from) {
    const Range part = VocabularyAt(from);
    const auto width = static_cast<size_t>(part.size());
    if (width == 0) continue;
    if (from == 0) {
      Place(own->data<float>(), width, part, rows, *all);
      continue;
    }
    received.clear();
    ReceiveBehind(static_cast<size_t>(rows) * width, from, received);
    Place(received.data(), width, part, rows, *all);
  }
}

}  // namespace macrame::runtime::engine
