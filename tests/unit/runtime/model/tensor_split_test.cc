// Ranks of a tensor split, one thread each, against one rank with the whole model: any heads,
// widths and vocabularies over any slices, and each rank reads its own part alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>

#include "runtime/model/cpu_model.h"
#include "runtime/model/decoder.h"
#include "runtime/model/weight_files.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// Where the ranks' threads meet to add up.
class Meeting {
 public:
  explicit Meeting(size_t ranks) : barrier_(static_cast<ptrdiff_t>(ranks)), values_(ranks) {}

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

 private:
  Meeting& meeting_;
  const size_t rank_;
};

struct Model {
  explicit Model(const ModelShape& shape) : folder(WriteFolder(RandomModel(shape))) {
    mx::set_default_device(mx::Device::cpu);
    config = *LoadModelConfig(folder);
    files = *WeightFiles::Open(folder);
  }
  std::string folder;
  ModelConfig config;
  std::shared_ptr<const WeightFiles> files;
};

std::vector<ShardPlace> PlacesOf(const std::vector<int>& widths, int layers) {
  int count = 0;
  for (const int width : widths) count += width;
  std::vector<ShardPlace> places;
  int begin = 0;
  for (const int width : widths) {
    places.push_back({0, layers, static_cast<int>(widths.size()), static_cast<int>(places.size()),
                      begin, begin + width, count});
    begin += width;
  }
  return places;
}

constexpr int kTokens = 45;
const std::vector<int> kSteps{20, 23, 1, 1};

// This rank's part of every position's logits, row after row.
template <typename Stack>
std::vector<float> RunRank(const Model& model, const ShardPlace& place, RankSums& sums) {
  const absl::Status good = CheckWeights(model.config, place, *model.files);
  EXPECT_TRUE(good.ok()) << good.ToString();
  uint64_t read = 0;
  WeightLoader loader(model.files, model.config, place, [&](uint64_t bytes) { read += bytes; });
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
std::vector<float> RunSplit(const Model& model, const std::vector<int>& widths) {
  const std::vector<ShardPlace> places = PlacesOf(widths, model.config.layer_count);
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

template <typename Stack = CpuModel>
void ExpectSplitsAgree(const ModelShape& shape) {
  const Model model(shape);
  NoRankSums alone;
  const std::vector<float> whole =
      RunRank<Stack>(model, PlacesOf({1}, model.config.layer_count)[0], alone);
  float largest = 0;
  for (const float logit : whole) largest = std::max(largest, std::fabs(logit));
  ASSERT_GT(largest, 1.0F);
  // Sums of other orders differ in their last bits. Before a product with quantised weights a last
  // bit can become one of the 16 that activations are rounded to.
  const double bound = (shape.bits == 0 ? 1e-5 : 1e-4) * largest;
  for (const std::vector<int>& widths :
       std::vector<std::vector<int>>{{1, 1}, {1, 1, 1}, {5, 2, 1}, {2, 1}, {1, 1, 1, 1}, {1, 30}}) {
    const std::vector<float> split = RunSplit<Stack>(model, widths);
    double difference = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference = std::max(difference, std::fabs(double{split[i]} - whole[i]));
    }
    EXPECT_LT(difference, bound) << shape.bits << " bits over " << widths.size();
  }
}

TEST(TensorSplitTest, HeadsAndWidthsThatDoNotDivide) { ExpectSplitsAgree({}); }

TEST(TensorSplitTest, GroupsStayWholeInEveryWidthOfQuantisation) {
  for (const int bits : {4, 6, 8}) {
    ModelShape shape;
    shape.bits = bits;
    ExpectSplitsAgree(shape);
  }
}

TEST(TensorSplitTest, HeadsNarrowerThanAGroupStayTogether) {
  ModelShape shape;
  shape.bits = 4;
  shape.group = 64;
  shape.heads = shape.kv_heads = 6;
  shape.inner = 5 * 64;
  ExpectSplitsAgree(shape);
}

TEST(TensorSplitTest, SomeRanksHaveNoHeadsOrNoWidthAtAll) {
  ModelShape shape;
  shape.heads = shape.kv_heads = 1;
  shape.bits = 4;
  shape.inner = 64;  // two groups
  shape.vocab = 2;
  shape.biases = true;
  ExpectSplitsAgree(shape);
}

TEST(TensorSplitTest, BiasesAreAddedOnce) {
  ModelShape shape;
  shape.biases = true;
  ExpectSplitsAgree(shape);
}

TEST(TensorSplitTest, TiedEmbeddingsAndNormsOfHeads) {
  ModelShape shape;
  shape.architecture = "qwen3";
  shape.tied = true;
  ExpectSplitsAgree(shape);
}

ModelShape WithExperts(const std::string& architecture, int bits) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.bits = bits;
  shape.experts = 5;
  shape.inner = 96;  // three groups
  shape.shared_inner = architecture == "qwen2_moe" ? 160 : 0;
  shape.biases = architecture == "qwen2_moe";
  return shape;
}

TEST(TensorSplitTest, EveryExpertIsCutByWidth) {
  for (const char* architecture : {"qwen3_moe", "mixtral"}) {
    for (const int bits : {0, 4, 8}) ExpectSplitsAgree(WithExperts(architecture, bits));
  }
}

TEST(TensorSplitTest, ExpertsThatAreStoredOneByOne) {
  for (const char* architecture : {"qwen3_moe", "mixtral"}) {
    ModelShape shape = WithExperts(architecture, 0);
    const Model together(shape);
    shape.stacked = false;
    const Model apart(shape);
    NoRankSums alone;
    const ShardPlace whole = PlacesOf({1}, 2)[0];
    EXPECT_EQ(RunRank<CpuModel>(apart, whole, alone), RunRank<CpuModel>(together, whole, alone));
    ExpectSplitsAgree(shape);
  }
}

// The layers as they run on a GPU, computed by MLX on a CPU, against ours.
TEST(TensorSplitTest, GraphsOfExpertsGiveTheSame) {
  for (const char* architecture : {"qwen3_moe", "mixtral"}) {
    for (const int bits : {0, 4}) {
      const ModelShape shape = WithExperts(architecture, bits);
      const Model model(shape);
      NoRankSums alone;
      const ShardPlace whole = PlacesOf({1}, 2)[0];
      const std::vector<float> ours = RunRank<CpuModel>(model, whole, alone);
      const std::vector<float> graph = RunRank<Decoder>(model, whole, alone);
      float largest = 0;
      for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(graph[i], ours[i], (bits == 0 ? 1e-5 : 5e-4) * largest) << architecture << i;
      }
      ExpectSplitsAgree<Decoder>(shape);
    }
  }
}

// The layers as they run on a GPU, computed by MLX on a CPU.
TEST(TensorSplitTest, GraphsAreCutAlike) {
  ModelShape shape;
  ExpectSplitsAgree<Decoder>(shape);
  shape.heads = shape.kv_heads = 1;
  shape.vocab = 2;
  shape.biases = true;
  ExpectSplitsAgree<Decoder>(shape);
}

// The embedding of a token is one row of one rank: no bit of it changes.
TEST(TensorSplitTest, EmbeddingsKeepEveryBit) {
  ModelShape shape;
  shape.bits = 6;
  const Model model(shape);
  const std::vector<ShardPlace> places = PlacesOf({1, 1, 2}, 2);
  const LayerStackOptions options{.blocks_total = 4, .context_length = 128};
  const auto load = [&](const ShardPlace& place, RankSums& sums) {
    WeightLoader loader(model.files, model.config, place, [](uint64_t) {});
    return CpuModel(model.config, place, loader, sums, options);
  };
  std::vector<int32_t> ids;
  for (int id = 0; id < model.config.vocab_size; ++id) ids.push_back(id);
  NoRankSums alone;
  const mx::array whole = load(PlacesOf({1}, 2)[0], alone).Embed(ids);
  Meeting meeting(places.size());
  std::vector<std::vector<float>> parts(places.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeetingSums sums(meeting, rank);
      const mx::array rows = load(places[rank], sums).Embed(ids);
      parts[rank].assign(rows.data<float>(), rows.data<float>() + rows.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> expected(whole.data<float>(), whole.data<float>() + whole.size());
  for (const std::vector<float>& part : parts) EXPECT_EQ(part, expected);
}

// What is read when everything is loaded: each rank's half, and of the norms all.
TEST(TensorSplitTest, EachOfTwoRanksReadsHalfOfTheWeights) {
  for (const bool tied : {false, true}) {
    ModelShape shape;
    shape.bits = 4;
    shape.heads = shape.kv_heads = 4;
    shape.vocab = 4096;
    shape.tied = tied;
    const Model model(shape);
    const auto needed = [&](const ShardPlace& place) {
      return WeightLoader(model.files, model.config, place, [](uint64_t) {}).BytesNeeded();
    };
    uint64_t vectors = 0;
    for (const auto& [name, tensor] : model.files->tensors()) {
      if (tensor.shape.size() == 1) vectors += tensor.bytes;
    }
    const std::vector<ShardPlace> places = PlacesOf({1, 1}, 2);
    const uint64_t whole = needed(PlacesOf({1}, 2)[0]);
    const uint64_t first = needed(places[0]), second = needed(places[1]);
    EXPECT_EQ(first + second, whole + vectors);
    EXPECT_NEAR(static_cast<double>(first), static_cast<double>(whole) / 2,
                static_cast<double>(whole) / 50);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
