#include "runtime/model/weights/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/packed_weights.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// As a rank holds it.
mx::Dtype TypeOf(const StoredTensor& tensor) {
  if (IsFp8(tensor)) return mx::bfloat16;
  if (tensor.dtype == "F32") return mx::float32;
  if (tensor.dtype == "BF16") return mx::bfloat16;
  if (tensor.dtype == "F16") return mx::float16;
  if (tensor.dtype == "U8") return mx::uint8;
  MACRAME_CHECK(tensor.dtype == "U32" || tensor.dtype == "I32")
      << tensor.name << " of " << tensor.dtype;
  return mx::uint32;
}

kernels::Scalar ScalarOf(const StoredTensor& tensor) {
  if (tensor.dtype == "BF16" || IsFp8(tensor)) return kernels::Scalar::kBfloat16;
  return tensor.dtype == "F16" ? kernels::Scalar::kFloat16 : kernels::Scalar::kFloat32;
}

// A copy of stored bytes as an array. Stored data need not be aligned, hence memcpy.
mx::array CopyArray(const std::byte* data, size_t bytes, mx::Shape shape, mx::Dtype type) {
  mx::array out(mx::allocator::malloc(bytes), std::move(shape), type);
  std::memcpy(out.data<std::byte>(), data, bytes);
  return out;
}

template <typename Scalar>
void Multiply(const std::byte* from, size_t count, float by, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    Scalar number{};
    std::memcpy(&number, from + i * sizeof(Scalar), sizeof(Scalar));
    const auto product = static_cast<Scalar>(static_cast<float>(number) * by);
    std::memcpy(out + i * sizeof(Scalar), &product, sizeof(Scalar));
  }
}

void MultiplyAs(mx::Dtype type, const std::byte* from, size_t count, float by, std::byte* out) {
  if (type == mx::bfloat16) {
    Multiply<mx::bfloat16_t>(from, count, by, out);
  } else if (type == mx::float16) {
    Multiply<mx::float16_t>(from, count, by, out);
  } else {
    Multiply<float>(from, count, by, out);
  }
}

kernels::Packing PackingOf(QuantizationMode mode) {
  switch (mode) {
    case QuantizationMode::kAffine:
      return kernels::Packing::kAffine;
    case QuantizationMode::kMxfp4:
      return kernels::Packing::kMxfp4;
    case QuantizationMode::kMxfp8:
      return kernels::Packing::kMxfp8;
    case QuantizationMode::kNvfp4:
      return kernels::Packing::kNvfp4;
  }
  return kernels::Packing::kAffine;
}

// By expert, each one's gate and what goes up follow each other.
std::vector<const LinearNeed*> InOrder(std::vector<const LinearNeed*> maps, bool by_expert) {
  if (!by_expert) return maps;
  const auto is_first = [](const LinearNeed* map) {
    return map->experts > 0 && map->split == Split::kRows;
  };
  const auto begin = std::find_if(maps.begin(), maps.end(), is_first);
  std::stable_sort(begin, std::find_if_not(begin, maps.end(), is_first),
                   [](const LinearNeed* a, const LinearNeed* b) { return a->expert < b->expert; });
  return maps;
}

}  // namespace

WeightLoader::WeightLoader(std::shared_ptr<const WeightFiles> files, const ModelConfig& config,
                           const ShardPlace& place, EngineDevice device,
                           std::function<void(uint64_t)> on_progress)
    : files_(std::move(files)),
      config_(config),
      place_(place),
      device_(device),
      reader_(OrderOfReading(), std::move(on_progress)),
      model_type_(mx::float32),
      activation_type_(mx::float32) {
  const LayerNeeds first = NeedsOfLayer(config_, place_, place_.layer_begin);
  const StoredTensor* norm = nullptr;
  for (const VectorNeed* need :
       {&first.attention_norm, &first.attention_out_norm, &first.feed_norm}) {
    if (norm == nullptr && !need->name.empty()) norm = files_->Find(need->name);
  }
  if (norm == nullptr) return;
  model_type_ = TypeOf(*norm);
  activation_type_ = ActivationType(model_type_, device_);
}

WeightLoader::StoredPart WeightLoader::WholeOf(const StoredTensor& tensor) {
  return {1, 0, tensor.bytes, 0, tensor.bytes};
}

WeightLoader::StoredPart WeightLoader::PartOf(const StoredTensor& tensor,
                                              const LinearNeed& need) const {
  const StoredNames names = StoredNamesOf(need, *files_);
  // A bias has nothing to turn over.
  if (names.turned && tensor.name == names.weight) return TurnedPartOf(tensor, need, names);
  const bool joined = names.fused && names.turns == 1;
  const int own_rows = joined ? need.fused_rows : need.all_stored_rows();
  const size_t rows = static_cast<size_t>(own_rows) *
                      static_cast<size_t>(names.stacked ? need.experts : 1);  // of the whole tensor
  const auto turns = static_cast<size_t>(names.turns);
  StoredPart part;
  part.rows = static_cast<size_t>(need.part_rows());
  // Maps whose rows stand in turn are taken as columns of rows that are as long as all of them.
  part.row_bytes = rows == 0 ? 0 : tensor.bytes / rows;
  part.bytes = part.row_bytes / turns;
  part.begin = part.bytes * static_cast<size_t>(names.turn);
  if (names.stacked) {
    const int expert_rows = joined ? need.fused_rows : need.rows;
    part.first_row = static_cast<size_t>(need.expert) * static_cast<size_t>(expert_rows);
  }
  part.first_row += static_cast<size_t>(names.fused ? need.fused_row : need.first_row);
  if (need.split == Split::kRows) part.first_row += static_cast<size_t>(need.part.begin);
  if (need.split == Split::kColumns) {
    const auto columns = static_cast<size_t>(need.columns);
    part.begin = part.row_bytes * static_cast<size_t>(need.part.begin) / columns;
    part.bytes = part.row_bytes * static_cast<size_t>(need.part.size()) / columns;
  }
  return part;
}

// The map's columns are the stored rows.
WeightLoader::StoredPart WeightLoader::TurnedPartOf(const StoredTensor& tensor,
                                                    const LinearNeed& need,
                                                    const StoredNames& names) {
  const auto columns = static_cast<size_t>(need.columns);
  StoredPart part;
  part.turned = mx::size_of(TypeOf(tensor));
  part.rows = static_cast<size_t>(need.part_columns());
  part.first_row = static_cast<size_t>(need.expert) * columns;
  part.row_bytes = static_cast<size_t>(need.fused_rows) * part.turned;
  part.begin = static_cast<size_t>(need.fused_row + names.turn) * part.turned;
  part.turns = static_cast<size_t>(names.turns);
  part.bytes = static_cast<size_t>(need.part_rows()) * part.turned;
  const auto begin = static_cast<size_t>(need.part.begin);
  if (need.split == Split::kColumns) part.first_row += begin;
  if (need.split == Split::kRows) part.begin += begin * part.turned * part.turns;
  return part;
}

// What is read of the tensor for a part of it: whole rows.
StoredBytes WeightLoader::SourceOf(const StoredTensor& tensor, const StoredPart& part) {
  if (part.all_bytes() == 0) return {tensor.data, 0};
  return {tensor.data + part.first_row * part.row_bytes, part.rows * part.row_bytes};
}

bool WeightLoader::IsStoredAsHeld(const StoredTensor& tensor, const StoredPart& part) {
  return part.all_bytes() > 0 && !IsFp8(tensor) && part.turned == 0 && part.bytes == part.row_bytes;
}

WeightLoader::Part WeightLoader::TakePart(const StoredTensor& tensor, const StoredPart& part) {
  const StoredBytes source = SourceOf(tensor, part);
  if (!source.empty() && IsFp8(tensor)) return WidenPart(tensor, part, source);
  if (!source.empty() && part.turned > 0) {
    const std::shared_ptr<std::byte[]> copy = reader_.CopyTurnedOver(
        source, {part.rows, part.row_bytes, part.begin, part.bytes}, part.turned, part.turns);
    return {copy.get(), part.all_bytes(), copy};
  }
  if (!source.empty() && part.bytes < part.row_bytes) {
    const std::shared_ptr<std::byte[]> copy =
        reader_.CopyColumns(source, {part.rows, part.row_bytes, part.begin, part.bytes});
    return {copy.get(), part.all_bytes(), copy};
  }
  reader_.Read(source);
  return {source.data(), source.size(), files_};
}

WeightLoader::Part WeightLoader::BiasesFrom(const Part& scales, const StoredTensor& tensor,
                                            int bits) {
  std::shared_ptr<std::byte[]> biases(new std::byte[scales.bytes]);
  const mx::Dtype type = TypeOf(tensor);
  MultiplyAs(type, scales.data, scales.bytes / mx::size_of(type), PackedBias(bits), biases.get());
  reader_.TellOf(scales.bytes);
  return {biases.get(), scales.bytes, biases};
}

size_t WeightLoader::HeldBytes(const StoredTensor& tensor, const StoredPart& part) {
  if (part.looked_at) return 0;
  return part.all_bytes() * (IsFp8(tensor) ? sizeof(uint16_t) : part.makes_biases ? 2 : 1);
}

WeightLoader::Part WeightLoader::WidenPart(const StoredTensor& tensor, const StoredPart& part,
                                           StoredBytes source) {
  const StoredTensor& scale = *FindFp8Scale(tensor, *files_);
  reader_.LookAt({scale.data, scale.bytes});
  const Fp8Scales scales = ReadFp8Scales(config_, tensor, scale);
  const size_t row_bytes = part.bytes * sizeof(uint16_t);
  std::shared_ptr<std::byte[]> wide(new std::byte[part.rows * row_bytes]);
  reader_.ForRows(source, part.row_bytes, row_bytes, [&](StoredBytes piece, size_t row) {
    const Fp8Part rows{part.first_row + row, piece.size() / part.row_bytes, part.row_bytes,
                       part.begin, part.bytes};
    WidenFp8(scales, rows, piece.data(), wide.get() + row * row_bytes);
  });
  return {wide.get(), part.rows * row_bytes, wide};
}

// A part's bytes as an array of its own.
mx::array WeightLoader::TakeCopy(const Part& part, mx::Shape shape, mx::Dtype type) const {
  mx::array out = CopyArray(part.data, part.bytes, std::move(shape), type);
  if (part.owner == files_) reader_.Release({part.data, part.bytes});
  return out;
}

bool WeightLoader::LoadsByExpert(const LayerNeeds& needs) const {
  return !UsesMlxGraph(device_) && AreExpertsFused(needs, *files_);
}

std::optional<WeightLoader::StoredPart> WeightLoader::BiasPartOf(const StoredTensor& tensor,
                                                                 const LinearNeed& need) const {
  // What a column split yields is summed over the ranks: one of them adds the bias.
  if (need.split == Split::kColumns && place_.tp_rank != 0) return std::nullopt;
  LinearNeed whole = need;
  if (need.split == Split::kColumns) whole.split = Split::kNone;
  return PartOf(tensor, whole);
}

std::optional<mx::array> WeightLoader::LoadBias(const LinearNeed& need) {
  if (!need.bias) return std::nullopt;
  const StoredTensor& stored = *files_->Find(StoredNamesOf(need, *files_).bias);
  const auto place = BiasPartOf(stored, need);
  if (!place.has_value()) return std::nullopt;
  const Part part = TakePart(stored, *place);
  const mx::Dtype type = TypeOf(stored);
  const int size = static_cast<int>(part.bytes / mx::size_of(type));
  return mx::astype(TakeCopy(part, {size}, type), activation_type_);
}

Linear WeightLoader::LoadForKernels(const LinearNeed& need) {
  struct Owners {
    Part weight, scales, biases;
  };
  const StoredNames names = StoredNamesOf(need, *files_);
  const StoredTensor& weight = *files_->Find(names.weight);
  const StoredTensor* scales = files_->Find(names.scales);
  kernels::MatrixView view;
  view.rows = static_cast<size_t>(need.part_rows());
  view.columns = static_cast<size_t>(need.part_columns());
  auto owners = std::make_shared<Owners>();
  owners->weight = TakePart(weight, PartOf(weight, need));
  view.weights = owners->weight.data;
  view.type = ScalarOf(scales != nullptr ? *scales : weight);
  if (scales != nullptr) {
    const QuantizationTraits traits = config_.QuantizationOf(names.module);
    view.bits = traits.bits;
    view.group_size = traits.group_size;
    owners->scales = TakePart(*scales, PartOf(*scales, need));
    view.scales = owners->scales.data;
    view.packing = PackingOf(traits.mode);
    if (names.packed) {
      owners->biases = BiasesFrom(owners->scales, *scales, traits.bits);
      view.biases = owners->biases.data;
    } else if (traits.has_biases()) {
      const StoredTensor& biases = *files_->Find(names.biases);
      owners->biases = TakePart(biases, PartOf(biases, need));
      view.biases = owners->biases.data;
    }
  }
  return Linear(view, owners, LoadBias(need));
}

mx::array WeightLoader::AsActivations(mx::array stored, bool exact) const {
  const mx::Dtype type = exact ? mx::float32 : activation_type_;
  if (stored.dtype() == type) return stored;
  mx::array out = mx::astype(stored, type);
  out.eval();  // what was stored is let go before more of it is read
  return out;
}

mx::array WeightLoader::BiasesOf(const mx::array& scales, int bits) {
  mx::array biases(mx::allocator::malloc(scales.nbytes()), scales.shape(), scales.dtype());
  MultiplyAs(scales.dtype(), scales.data<std::byte>(), scales.size(), PackedBias(bits),
             biases.data<std::byte>());
  reader_.TellOf(scales.nbytes());
  return biases;
}

// Each part is copied to where it stands, so that no more than one copy of them is ever there.
mx::array WeightLoader::TakeMaps(const Maps& maps, const Find& find, bool has_columns) {
  const StoredTensor& first = *find(*maps.each[0][0]).stored;
  // OpenAI's blocks are MLX's words, byte for byte.
  const mx::Dtype type = first.shape.size() == 4 ? mx::uint32 : TypeOf(first);
  const size_t experts = maps.each[0].size();
  size_t rows = 0, bytes = 0;  // of one expert
  for (const auto& map : maps.each) {
    const Found found = find(*map[0]);
    rows += static_cast<size_t>(map[0]->part_rows());
    bytes += HeldBytes(*found.stored, found.part);
  }
  const size_t row_bytes = rows == 0 ? 0 : bytes / rows;
  mx::Shape shape;
  if (maps.stacked) shape.push_back(static_cast<int>(experts));
  shape.push_back(static_cast<int>(rows));
  if (has_columns) shape.push_back(static_cast<int>(row_bytes / mx::size_of(type)));
  mx::array out(mx::allocator::malloc(bytes * experts), std::move(shape), type);
  std::byte* begin = out.data<std::byte>();
  std::vector<StoredCopy> copies;
  for (const auto& map : maps.each) {
    const size_t map_bytes = static_cast<size_t>(map[0]->part_rows()) * row_bytes;
    for (size_t expert = 0; expert < experts; ++expert) {
      const Found found = find(*map[expert]);
      if (IsStoredAsHeld(*found.stored, found.part)) {
        const StoredBytes source = SourceOf(*found.stored, found.part);
        MACRAME_CHECK(source.size() == map_bytes) << found.stored->name;
        const auto inside = static_cast<uint64_t>(source.data() - found.stored->data);
        copies.push_back(
            {source, &found.stored->file, found.stored->begin + inside, begin + expert * bytes});
        continue;
      }
      const Part part = TakePart(*found.stored, found.part);
      MACRAME_CHECK(part.bytes == map_bytes) << found.stored->name;
      if (part.bytes > 0) std::memcpy(begin + expert * bytes, part.data, part.bytes);
      if (part.owner == files_) reader_.Release({part.data, part.bytes});
    }
    begin += map_bytes;
  }
  reader_.CopyAll(copies);
  return out;
}

std::optional<mx::array> WeightLoader::TakeBias(const Maps& maps) {
  const auto find = [&](const LinearNeed& need) -> std::optional<Found> {
    if (!need.bias) return std::nullopt;
    const StoredTensor& stored = *files_->Find(StoredNamesOf(need, *files_).bias);
    const auto part = BiasPartOf(stored, need);
    return part.has_value() ? std::optional(Found{&stored, *part}) : std::nullopt;
  };
  if (!find(*maps.each[0][0]).has_value()) return std::nullopt;
  mx::array bias = TakeMaps(
      maps, [&](const LinearNeed& need) { return *find(need); }, /*has_columns=*/false);
  return AsActivations(std::move(bias), maps.each[0][0]->exact);
}

StackedLinear WeightLoader::LoadMaps(const Maps& maps) {
  const auto take = [&](std::string StoredNames::*name) {
    const auto find = [&](const LinearNeed& need) -> Found {
      const StoredTensor& stored = *files_->Find(StoredNamesOf(need, *files_).*name);
      return {&stored, PartOf(stored, need)};
    };
    return TakeMaps(maps, find, /*has_columns=*/true);
  };
  const StoredNames names = StoredNamesOf(*maps.each[0][0], *files_);
  const bool exact = maps.each[0][0]->exact;
  mx::array weight = take(&StoredNames::weight);
  if (files_->Find(names.scales) == nullptr) {
    return {
        AsActivations(std::move(weight), exact), std::nullopt, std::nullopt, {}, TakeBias(maps)};
  }
  const QuantizationTraits traits = config_.QuantizationOf(names.module);
  mx::array scales = take(&StoredNames::scales);
  if (!traits.has_biases()) {
    return {std::move(weight), std::move(scales), std::nullopt, traits, TakeBias(maps)};
  }
  mx::array biases = names.packed ? BiasesOf(scales, traits.bits) : take(&StoredNames::biases);
  return {std::move(weight), AsActivations(std::move(scales), exact),
          AsActivations(std::move(biases), exact), traits, TakeBias(maps)};
}

Linear WeightLoader::LoadForMlx(const Maps& maps) {
  StackedLinear map = LoadMaps(maps);
  return Linear(std::move(map.weight), std::move(map.scales), std::move(map.biases), map.traits,
                std::move(map.bias));
}

StackedLinear WeightLoader::LoadStacked(const std::vector<const LinearNeed*>& needs) {
  return LoadMaps({{needs}, /*stacked=*/true});
}

bool WeightLoader::CanJoin(const std::vector<const LinearNeed*>& needs) const {
  if (!UsesMlxGraph(device_)) return false;
  struct Format {
    mx::Dtype weight, scales;
    bool is_quantized, packed, bias;
    QuantizationTraits traits;
    int columns;
    bool operator==(const Format&) const = default;
  };
  std::optional<Format> first;
  for (const LinearNeed* need : needs) {
    if (need->module.empty() || need->part_rows() == 0 || need->heads > 0) return false;
    if (need->split == Split::kColumns) return false;
    const StoredNames names = StoredNamesOf(*need, *files_);
    const StoredTensor* scales = files_->Find(names.scales);
    const bool is_quantized = scales != nullptr;
    const Format format{TypeOf(*files_->Find(names.weight)),
                        is_quantized ? TypeOf(*scales) : mx::uint8,
                        is_quantized,
                        names.packed,
                        need->bias,
                        is_quantized ? config_.QuantizationOf(names.module) : QuantizationTraits{},
                        need->columns};
    if (first.has_value() && *first != format) return false;
    first = format;
  }
  return first.has_value();
}

std::optional<Linear> WeightLoader::LoadJoined(const std::vector<const LinearNeed*>& needs) {
  if (!CanJoin(needs)) return std::nullopt;
  Maps maps;
  for (const LinearNeed* need : needs) maps.each.push_back({need});
  return LoadForMlx(maps);
}

std::optional<StackedLinear> WeightLoader::LoadStackedJoined(
    const std::vector<std::vector<const LinearNeed*>>& maps) {
  std::vector<const LinearNeed*> needs;
  for (size_t expert = 0; expert < maps[0].size(); ++expert) {
    for (const auto& map : maps) needs.push_back(map[expert]);
  }
  if (!CanJoin(needs)) return std::nullopt;
  return LoadMaps({maps, /*stacked=*/true});
}

StackedLinear WeightLoader::LoadHeads(const LinearNeed& need) {
  const QuantizationTraits traits = config_.QuantizationOf(need.module);
  const int rows = need.rows / need.heads;
  const auto take = [&](const char* suffix) {
    const StoredTensor& stored = *files_->Find(absl::StrCat(need.module, suffix));
    const Part part = TakePart(stored, PartOf(stored, need));
    const int columns =
        static_cast<int>(part.bytes / mx::size_of(TypeOf(stored))) / std::max(1, need.part_rows());
    return TakeCopy(part, {need.part_rows() / rows, rows, columns}, TypeOf(stored));
  };
  mx::array weight = take(".weight");
  if (files_->Find(absl::StrCat(need.module, ".scales")) == nullptr) {
    return {mx::astype(weight, activation_type_), std::nullopt, std::nullopt, {}, std::nullopt};
  }
  if (!traits.has_biases()) {
    return {std::move(weight), take(".scales"), std::nullopt, traits, std::nullopt};
  }
  return {std::move(weight), mx::astype(take(".scales"), activation_type_),
          mx::astype(take(".biases"), activation_type_), traits, std::nullopt};
}

StackedLinear WeightLoader::LoadHeadsFrom(const LinearNeed& need, int heads) {
  const Linear whole = LoadForMlx(Maps{{{&need}}});
  const int rows = need.part_rows() / std::max(1, heads);
  const mx::array floats = mx::astype(whole.Floats(), activation_type_);
  return {mx::reshape(floats, {heads, rows, need.columns}),
          std::nullopt,
          std::nullopt,
          {},
          std::nullopt};
}

Linear WeightLoader::LoadLinear(const LinearNeed& need) {
  return UsesMlxGraph(device_) ? LoadForMlx(Maps{{{&need}}}) : LoadForKernels(need);
}

std::optional<mx::array> WeightLoader::LoadVector(const VectorNeed& need) {
  if (need.name.empty()) return std::nullopt;
  const StoredTensor& stored = *files_->Find(need.name);
  const Part part = TakePart(stored, WholeOf(stored));
  mx::array vector = TakeCopy(part, {need.size}, TypeOf(stored));
  if (IsStoredAsDifference(need, *files_)) {
    vector = mx::add(mx::astype(vector, mx::float32), mx::array(1.0F));
  }
  if (need.part.size() > 0) vector = mx::slice(vector, {need.part.begin}, {need.part.end});
  return mx::astype(vector, need.exact ? mx::float32 : activation_type_);
}

// Every stored tensor that this rank reads something of, in the order in which it loads them.
void WeightLoader::ForEachTensor(const Visit& visit) const {
  const auto see_vector = [&](const VectorNeed& need) {
    const StoredTensor* stored = need.name.empty() ? nullptr : files_->Find(need.name);
    if (stored != nullptr) visit(*stored, WholeOf(*stored));
  };
  const auto see_matrix = [&](const LinearNeed& need) {
    const StoredNames names = StoredNamesOf(need, *files_);
    for (const std::string& name : {names.weight, names.scales, names.biases}) {
      const StoredTensor* stored = files_->Find(name);
      if (stored == nullptr) continue;
      if (IsFp8(*stored)) {
        StoredPart looked_at = WholeOf(*FindFp8Scale(*stored, *files_));
        looked_at.looked_at = true;
        visit(*FindFp8Scale(*stored, *files_), looked_at);
      }
      StoredPart part = PartOf(*stored, need);
      part.makes_biases = names.packed && name == names.scales;
      visit(*stored, part);
    }
    const StoredTensor* bias = need.bias ? files_->Find(names.bias) : nullptr;
    if (bias == nullptr) return;
    if (const auto part = BiasPartOf(*bias, need)) visit(*bias, *part);
  };
  if (place_.embeds) {
    see_matrix(EmbeddingNeed(config_, place_));
    if (const auto inputs = InputNeedsOf(config_, place_); inputs.has_value()) {
      see_matrix(inputs->embedding);
      see_matrix(inputs->projection);
      see_vector(inputs->norm);
    }
  }
  for (int layer = place_.layer_begin; layer < place_.layer_end; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(config_, place_, layer);
    for (const LinearNeed* need : InOrder(LinearsOf(needs, *files_), LoadsByExpert(needs))) {
      see_matrix(*need);
    }
    for (const VectorNeed* need : VectorsOf(needs)) see_vector(*need);
  }
  if (place_.has_head) see_vector(FinalNormNeed(config_));
  if (LoadsHead(config_, place_)) see_matrix(HeadNeed(config_, place_));
}

std::vector<StoredBytes> WeightLoader::OrderOfReading() const {
  std::vector<StoredBytes> order;
  ForEachTensor([&](const StoredTensor& tensor, const StoredPart& part) {
    const StoredBytes source = SourceOf(tensor, part);
    if (!source.empty()) order.push_back(source);
  });
  return order;
}

uint64_t WeightLoader::BytesNeeded() const {
  uint64_t bytes = 0;
  ForEachTensor([&](const StoredTensor& tensor, const StoredPart& part) {
    bytes += HeldBytes(tensor, part);
  });
  return bytes;
}

}  // namespace macrame::runtime::engine
