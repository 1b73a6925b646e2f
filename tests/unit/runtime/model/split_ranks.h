#pragma once

// Ranks of a tensor split in one process, a thread each, against one rank with the whole model.

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/model/cpu/cpu_model.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/mlx/decoder.h"
#include "runtime/model/weights/weight_files.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace mx = mlx::core;

// Where the ranks' threads meet to add up.
class Meeting {
 public:
  explicit Meeting(size_t ranks)
      : barrier_(static_cast<ptrdiff_t>(ranks)), values_(ranks), gathered_(ranks) {}

  mx::array Gather(size_t rank, const mx::array& own) {
    gathered_[rank] = own.data<char>();
    barrier_.arrive_and_wait();
    const int ranks = static_cast<int>(gathered_.size());
    mx::array all(mx::allocator::malloc(own.nbytes() * gathered_.size()),
                  {ranks * own.shape(0), own.shape(1)}, own.dtype());
    char* to = all.data<char>();
    for (const char* part : gathered_) to = std::copy_n(part, own.nbytes(), to);
    barrier_.arrive_and_wait();
    return all;
  }
  void Add(size_t rank, float* values, size_t count) {
    values_[rank] = values;
    barrier_.arrive_and_wait();
    std::vector<float> sum(count, 0.0F);
    for (const float* part : values_) {
      for (size_t i = 0; i < count; ++i) sum[i] += part[i];
    }
    barrier_.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), values);
  }

 private:
  std::barrier<> barrier_;
  std::vector<float*> values_;
  std::vector<const char*> gathered_;
};

class MeetingSums : public RankSums {
 public:
  MeetingSums(Meeting& meeting, size_t rank) : meeting_(meeting), rank_(rank) {}
  void AddOverRanks(float* values, size_t count) override { meeting_.Add(rank_, values, count); }
  void AddExactlyOverRanks(float* values, size_t count) override {
    meeting_.Add(rank_, values, count);
  }
  mx::array SumOverRanks(const mx::array& partial) override {
    mx::array sum = mx::contiguous(partial);
    sum.eval();
    std::vector<float> values(sum.data<float>(), sum.data<float>() + sum.size());
    AddOverRanks(values.data(), values.size());
    return mx::array(values.begin(), sum.shape());
  }
  mx::array SumExactlyOverRanks(const mx::array& partial) override { return SumOverRanks(partial); }
  mx::array GatherOverRanks(const mx::array& own) override {
    mx::array plain = mx::contiguous(own);
    plain.eval();
    return meeting_.Gather(rank_, plain);
  }

 private:
  Meeting& meeting_;
  const size_t rank_;
};

struct Model {
  explicit Model(const ModelShape& shape) : Model(RandomModel(shape)) {}
  explicit Model(const std::map<std::string, std::string>& files_of_it)
      : folder(WriteFolder(files_of_it)) {
    mx::set_default_device(mx::Device::cpu);
    config = *LoadModelConfig(folder);
    files = *WeightFiles::Open(folder);
  }
  std::string folder;
  ModelConfig config;
  std::shared_ptr<const WeightFiles> files;
};

inline std::vector<ShardPlace> PlacesOf(const std::vector<int>& widths, int layers,
                                        bool whole_experts = false) {
  int count = 0;
  for (const int width : widths) count += width;
  std::vector<ShardPlace> places;
  int begin = 0;
  for (const int width : widths) {
    places.push_back({0, layers, static_cast<int>(widths.size()), static_cast<int>(places.size()),
                      begin, begin + width, count});
    places.back().whole_experts = whole_experts;
    begin += width;
  }
  return places;
}

inline constexpr int kTokens = 45;
inline const std::vector<int> kSteps{20, 23, 1, 1};

// This rank's part of every position's logits, row after row.
template <typename Stack>
std::vector<float> RunRank(const Model& model, const ShardPlace& place, RankSums& sums) {
  const absl::Status good = CheckWeights(model.config, place, *model.files);
  EXPECT_TRUE(good.ok()) << good.ToString();
  uint64_t read = 0;
  const EngineDevice device =
      std::is_same_v<Stack, Decoder> ? EngineDevice::kMlxCpu : EngineDevice::kCpu;
  WeightLoader loader(model.files, model.config, place, device,
                      [&](uint64_t bytes) { read += bytes; });
  const LayerStackOptions options{
      .blocks_total = 4, .context_length = 128, .threads = 1, .kv_type = kernels::KvType::kFloat32};
  Stack stack(model.config, place, loader, sums, options);
  EXPECT_EQ(read, loader.BytesNeeded());
  std::vector<float> out;
  int done = 0;
  for (const int count : kSteps) {
    Segment segment;
    segment.begin = static_cast<uint32_t>(done);
    std::vector<int32_t> rows;
    for (int i = 0; i < count; ++i, ++done) {
      segment.tokens.push_back(done * done * 7 % model.config.vocab_size);
      rows.push_back(i);
      if (done % static_cast<int>(kBlockTokens) == 0) {
        segment.new_blocks.push_back(done / static_cast<int>(kBlockTokens));
      }
    }
    const ForwardStep step{{}, {segment}};
    EXPECT_TRUE(stack.Begin(step).ok());
    mx::array logits = stack.Logits(stack.Run(stack.Embed(segment.tokens), step), rows);
    logits.eval();
    out.insert(out.end(), logits.data<float>(), logits.data<float>() + logits.size());
  }
  return out;
}

// The logits that ranks with these widths make together.
template <typename Stack>
std::vector<float> RunSplit(const Model& model, const std::vector<int>& widths,
                            bool whole_experts = false) {
  const std::vector<ShardPlace> places = PlacesOf(widths, model.config.layer_count, whole_experts);
  Meeting meeting(places.size());
  std::vector<std::vector<float>> parts(places.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeetingSums sums(meeting, rank);
      parts[rank] = RunRank<Stack>(model, places[rank], sums);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> logits(static_cast<size_t>(kTokens * model.config.vocab_size));
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const Range part = VocabularyOf(model.config, places[rank].slices());
    EXPECT_EQ(parts[rank].size(), static_cast<size_t>(kTokens * part.size()));
    for (int row = 0; row < kTokens; ++row) {
      std::copy_n(parts[rank].begin() + row * part.size(), part.size(),
                  logits.begin() + row * model.config.vocab_size + part.begin);
    }
  }
  return logits;
}

// A router's choice, or what a key is rounded to, may turn on the last bit of a sum, and with it a
// row; a wrong part of a model shows in all of them.
inline constexpr size_t kRowsOffMax = 6;

// How many rows differ by more than a fiftieth of the largest logit.
inline size_t RowsOff(const std::vector<float>& ours, const std::vector<float>& other) {
  if (ours.size() != other.size()) return kTokens;
  float largest = 0;
  for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
  const size_t width = ours.size() / kTokens;
  std::set<size_t> off;
  for (size_t i = 0; i < ours.size(); ++i) {
    // What is not a number is not near.
    const bool is_near = std::fabs(other[i] - ours[i]) <= 2e-2F * (largest + 1e-3F);
    if (!is_near) off.insert(i / width);
  }
  return off.size();
}

// Of ranks with these widths, against one with the whole model: experts cut by their width, and
// dealt out whole.
template <typename Stack>
void ExpectModelSplits(const Model& model, const std::vector<std::vector<int>>& splits) {
  NoRankSums alone;
  const std::vector<float> whole =
      RunRank<Stack>(model, PlacesOf({1}, model.config.layer_count)[0], alone);
  float largest = 0;
  for (const float logit : whole) largest = std::max(largest, std::fabs(logit));
  ASSERT_GT(largest, 1.0F);
  // Sums of other orders differ in their last bits. Before a product with quantised weights a last
  // bit can become one of the 16 that activations are rounded to: by which kernels is a matter of
  // the processor (seen: up to 1.03e-4 with AVX2, below 1e-4 with AVX-512).
  const double bound = (model.config.quantization.bits == 0 ? 1e-5 : 2e-4) * largest;
  const auto expect = [&](const std::vector<int>& widths, bool whole_experts) {
    const std::vector<float> split = RunSplit<Stack>(model, widths, whole_experts);
    double difference = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference = std::max(difference, std::fabs(double{split[i]} - whole[i]));
    }
    if (model.config.has_compression()) {
      EXPECT_LE(RowsOff(whole, split), kRowsOffMax)
          << widths.size() << " ranks" << (whole_experts ? ", whole experts" : "");
      return;
    }
    EXPECT_LT(difference, bound) << model.config.architecture << ", "
                                 << model.config.quantization.bits << " bits over " << widths.size()
                                 << (whole_experts ? ", whole experts" : "");
  };
  for (const std::vector<int>& widths : splits) {
    expect(widths, /*whole_experts=*/false);
    if (model.config.experts.count > 0) expect(widths, /*whole_experts=*/true);
  }
}

}  // namespace macrame::runtime::engine
