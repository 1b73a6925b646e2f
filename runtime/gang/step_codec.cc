#include "runtime/gang/step_codec.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/utf8.h"

namespace macrame::runtime::engine {
namespace {

template <typename T>
void Put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
}

// Reads from the front; `ok` stays false after the first value that is not there.
class Reader {
 public:
  explicit Reader(std::string_view data) : data_(data) {}

  template <typename T>
  T Take() {
    uint64_t value = 0;
    const std::string_view bytes = TakeBytes(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }
  std::string_view TakeBytes(size_t count) {
    if (data_.size() < count) {
      ok_ = false;
      data_ = {};
      return {};
    }
    const std::string_view bytes = data_.substr(0, count);
    data_.remove_prefix(count);
    return bytes;
  }
  size_t left() const { return data_.size(); }
  bool Complete() const { return ok_ && data_.empty(); }

 private:
  std::string_view data_;
  bool ok_ = true;
};

absl::Status Malformed(const char* what) {
  return absl::DataLossError(absl::StrCat("step channel: malformed ", what));
}

template <typename T>
void PutList(std::string& out, const std::vector<T>& list) {
  Put(out, static_cast<uint32_t>(list.size()));
  for (const T value : list) Put(out, static_cast<uint32_t>(value));
}

// False when it is longer than `count_max` or than what is there.
template <typename T>
bool TakeList(Reader& reader, size_t count_max, std::vector<T>& list) {
  const auto count = reader.Take<uint32_t>();
  if (count > count_max || reader.left() < size_t{count} * 4) return false;
  list.reserve(count);
  for (uint32_t i = 0; i < count; ++i) list.push_back(static_cast<T>(reader.Take<uint32_t>()));
  return true;
}

void PutChoice(std::string& out, const RowChoice& choice) {
  for (const double number : {choice.temperature, choice.top_p, choice.min_p}) {
    Put(out, std::bit_cast<uint64_t>(number));
  }
  Put(out, choice.top_k);
  Put(out, choice.seed);
  Put(out, choice.position);
}

RowChoice TakeChoice(Reader& reader) {
  RowChoice choice;
  for (double* number : {&choice.temperature, &choice.top_p, &choice.min_p}) {
    *number = std::bit_cast<double>(reader.Take<uint64_t>());
  }
  choice.top_k = reader.Take<uint32_t>();
  choice.seed = reader.Take<uint64_t>();
  choice.position = reader.Take<uint64_t>();
  return choice;
}

void PutForward(std::string& out, const ForwardStep& step) {
  size_t tokens = 0;
  for (const Segment& segment : step.segments) tokens += segment.tokens.size();
  MACRAME_CHECK(tokens <= kStepTokensMax && step.segments.size() <= kStepSegmentsMax)
      << tokens << " tokens in " << step.segments.size() << " segments of a step";
  PutList(out, step.closed_slots);
  std::vector<int32_t> copies;
  for (const BlockCopy& copy : step.copies) copies.insert(copies.end(), {copy.from, copy.to});
  PutList(out, copies);
  Put(out, static_cast<uint32_t>(step.segments.size()));
  for (const Segment& segment : step.segments) {
    Put(out, segment.slot);
    Put(out, segment.begin);
    Put(out, static_cast<uint8_t>(segment.logit_rows));
    PutList(out, segment.tokens);
    PutList(out, segment.new_blocks);
    Put(out, static_cast<uint32_t>(segment.state_from));
    Put(out, static_cast<uint32_t>(segment.state_to));
    Put(out, segment.salt);
    if (segment.logit_rows == LogitRows::kChosen) PutChoice(out, segment.choice);
  }
}

bool TakeForward(Reader& reader, ForwardStep& step) {
  std::vector<int32_t> copies;
  if (!TakeList(reader, kStepSlotsMax, step.closed_slots) ||
      !TakeList(reader, 2 * kStepBlocksMax, copies) || copies.size() % 2 != 0) {
    return false;
  }
  for (size_t i = 0; i < copies.size(); i += 2) step.copies.push_back({copies[i], copies[i + 1]});
  const auto count = reader.Take<uint32_t>();
  if (count > kStepSegmentsMax) return false;
  size_t tokens_left = kStepTokensMax, blocks_left = kStepBlocksMax;
  for (uint32_t i = 0; i < count; ++i) {
    Segment segment;
    segment.slot = reader.Take<uint32_t>();
    segment.begin = reader.Take<uint32_t>();
    const auto rows = reader.Take<uint8_t>();
    if (rows > static_cast<uint8_t>(LogitRows::kChosen) ||
        !TakeList(reader, tokens_left, segment.tokens) ||
        !TakeList(reader, blocks_left, segment.new_blocks)) {
      return false;
    }
    segment.state_from = static_cast<SnapshotId>(reader.Take<uint32_t>());
    segment.state_to = static_cast<SnapshotId>(reader.Take<uint32_t>());
    segment.salt = reader.Take<uint64_t>();
    segment.logit_rows = static_cast<LogitRows>(rows);
    if (segment.logit_rows == LogitRows::kChosen) segment.choice = TakeChoice(reader);
    tokens_left -= segment.tokens.size();
    blocks_left -= segment.new_blocks.size();
    step.segments.push_back(std::move(segment));
  }
  return true;
}

void PutName(std::string& out, const BlockName& name) {
  out.append(reinterpret_cast<const char*>(name.data()), name.size());
}

BlockName TakeName(Reader& reader) {
  BlockName name{};
  const std::string_view bytes = reader.TakeBytes(name.size());
  std::copy(bytes.begin(), bytes.end(), name.begin());
  return name;
}

void PutCold(std::string& out, const ColdOrders& cold) {
  const size_t most = std::max({cold.fills.size(), cold.stores.size(), cold.drops.size(),
                                cold.touches.size(), cold.loads.size()});
  MACRAME_CHECK(most <= kColdOrdersMax) << most << " orders of a kind for the cold tier";
  Put(out, static_cast<uint32_t>(cold.fills.size()));
  for (const ColdFill& fill : cold.fills) {
    Put(out, fill.id);
    PutList(out, fill.blocks);
  }
  Put(out, static_cast<uint32_t>(cold.stores.size()));
  for (const ColdStore& store : cold.stores) {
    Put(out, static_cast<uint32_t>(store.block));
    PutName(out, store.content.parent);
    Put(out, store.content.depth);
    for (const int32_t token : store.content.tokens) Put(out, static_cast<uint32_t>(token));
  }
  for (const std::vector<BlockName>* names : {&cold.drops, &cold.touches}) {
    Put(out, static_cast<uint32_t>(names->size()));
    for (const BlockName& name : *names) PutName(out, name);
  }
  Put(out, static_cast<uint32_t>(cold.loads.size()));
  for (const ColdLoad& load : cold.loads) {
    Put(out, load.id);
    PutName(out, load.parent);
    Put(out, load.depth);
    PutList(out, load.tokens);
  }
}

bool TakeCount(Reader& reader, uint32_t& count) {
  count = reader.Take<uint32_t>();
  return count <= kColdOrdersMax;
}

bool TakeStores(Reader& reader, ColdOrders& cold) {
  uint32_t count = 0;
  if (!TakeCount(reader, count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    ColdStore& store = cold.stores.emplace_back();
    store.block = static_cast<BlockId>(reader.Take<uint32_t>());
    store.content.parent = TakeName(reader);
    store.content.depth = reader.Take<uint32_t>();
    for (int32_t& token : store.content.tokens) {
      token = static_cast<int32_t>(reader.Take<uint32_t>());
    }
  }
  return true;
}

bool TakeCold(Reader& reader, ColdOrders& cold) {
  uint32_t count = 0;
  if (!TakeCount(reader, count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    ColdFill& fill = cold.fills.emplace_back();
    fill.id = reader.Take<uint64_t>();
    if (!TakeList(reader, kColdLoadTokensMax / kBlockTokens, fill.blocks)) return false;
  }
  if (!TakeStores(reader, cold)) return false;
  for (std::vector<BlockName>* names : {&cold.drops, &cold.touches}) {
    if (!TakeCount(reader, count)) return false;
    for (uint32_t i = 0; i < count; ++i) names->push_back(TakeName(reader));
  }
  if (!TakeCount(reader, count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    ColdLoad& load = cold.loads.emplace_back();
    load.id = reader.Take<uint64_t>();
    load.parent = TakeName(reader);
    load.depth = reader.Take<uint32_t>();
    if (!TakeList(reader, kColdLoadTokensMax, load.tokens)) return false;
    if (load.tokens.empty() || load.tokens.size() % kBlockTokens != 0) return false;
  }
  return true;
}

}  // namespace

std::string EncodeStep(const Step& step) {
  std::string out;
  Put(out, static_cast<uint8_t>(step.kind));
  Put(out, step.number);
  Put(out, static_cast<uint8_t>(step.wire_type));
  if (step.kind == StepKind::kForward) PutForward(out, step.forward);
  if (step.kind == StepKind::kVerify) {
    Put(out, step.verify_rounds);
    PutList(out, step.verify_kib);
  }
  if (step.kind == StepKind::kCold) PutCold(out, step.cold);
  return out;
}

absl::StatusOr<Step> DecodeStep(std::string_view payload) {
  Reader reader(payload);
  Step step;
  const auto kind = reader.Take<uint8_t>();
  step.number = reader.Take<uint64_t>();
  const auto wire = reader.Take<uint8_t>();
  if (kind < 1 || kind > 7 || wire > 2) return Malformed("step");
  step.kind = static_cast<StepKind>(kind);
  step.wire_type = static_cast<WireType>(wire);
  bool good = true;
  if (step.kind == StepKind::kForward) good = TakeForward(reader, step.forward);
  if (step.kind == StepKind::kVerify) {
    step.verify_rounds = reader.Take<uint32_t>();
    good = TakeList(reader, kVerifySizesInStepMax, step.verify_kib);
  }
  if (step.kind == StepKind::kCold) good = TakeCold(reader, step.cold);
  if (!good || !reader.Complete()) return Malformed("step");
  return step;
}

std::string EncodeReport(const Report& report) {
  std::string out;
  Put(out, static_cast<uint8_t>(report.kind));
  if (report.kind == ReportKind::kColdLoaded) {
    Put(out, report.cold_load);
    Put(out, report.cold_blocks);
    return out;
  }
  out += CutToBytes(report.text, kReportTextBytesMax);
  return out;
}

absl::StatusOr<Report> DecodeReport(std::string_view payload) {
  Reader reader(payload);
  const auto kind = reader.Take<uint8_t>();
  if (kind < 1 || kind > 4 || reader.left() > kReportTextBytesMax) return Malformed("report");
  Report report;
  report.kind = static_cast<ReportKind>(kind);
  if (report.kind == ReportKind::kColdLoaded) {
    report.cold_load = reader.Take<uint64_t>();
    report.cold_blocks = reader.Take<uint32_t>();
  } else {
    report.text = std::string(reader.TakeBytes(reader.left()));
  }
  if (!reader.Complete()) return Malformed("report");
  return report;
}

}  // namespace macrame::runtime::engine
