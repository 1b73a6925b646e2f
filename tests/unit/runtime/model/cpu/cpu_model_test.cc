// The layers on a CPU against MLX's graph of them, and against themselves: together or alone, cut
// in other ways, with a prefix from another sequence, a token's logits keep every bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/model/cpu/cpu_model.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/mlx/decoder.h"
#include "runtime/model/weights/weight_files.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using kernels::KvType;

struct Folder {
  explicit Folder(const std::string& path) : config(*LoadModelConfig(path)), files(Open(path)) {}
  static std::shared_ptr<const WeightFiles> Open(const std::string& path) {
    mx::set_default_device(mx::Device::cpu);
    return *WeightFiles::Open(path);
  }
  ShardPlace Whole() const { return {0, config.layer_count}; }

  template <typename Stack>
  std::unique_ptr<Stack> Load(const LayerStackOptions& options, const ShardPlace& place,
                              RankSums& sums) const {
    const absl::Status good = CheckWeights(config, place, *files);
    EXPECT_TRUE(good.ok()) << good.ToString();
    WeightLoader loader(files, config, place, EngineDevice::kCpu, [](uint64_t) {});
    return std::make_unique<Stack>(config, place, loader, sums, options);
  }
  template <typename Stack>
  std::unique_ptr<Stack> Load(const LayerStackOptions& options) const {
    static NoRankSums alone;
    return Load<Stack>(options, Whole(), alone);
  }

  const ModelConfig config;
  const std::shared_ptr<const WeightFiles> files;
};

LayerStackOptions Options(std::optional<KvType> kv_type = KvType::kFloat32, int threads = 1) {
  return {.blocks_total = 32, .context_length = 512, .threads = threads, .kv_type = kv_type};
}

// The logits of all tokens of a step, one vector a segment.
std::vector<std::vector<float>> RunStep(LayerStack& stack, const ForwardStep& step) {
  const absl::Status good = stack.Begin(step);
  EXPECT_TRUE(good.ok()) << good.ToString();
  std::vector<int32_t> tokens, rows;
  for (const Segment& segment : step.segments) {
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
  }
  for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<int32_t>(i));
  const mx::array logits = stack.Logits(stack.Run(stack.Embed(tokens), step), rows);
  std::vector<mx::array> outputs{logits};
  stack.AppendState(outputs);
  mx::eval(outputs);
  std::vector<std::vector<float>> out;
  const float* next = logits.data<float>();
  for (const Segment& segment : step.segments) {
    const size_t size = segment.tokens.size() * static_cast<size_t>(logits.shape(1));
    out.emplace_back(next, next + size);
    next += size;
  }
  return out;
}

// A sequence that takes its blocks from `first_block` on.
class Sequence {
 public:
  Sequence(uint32_t slot, int first_block, std::vector<int32_t> tokens)
      : slot_(slot), next_block_(first_block), tokens_(std::move(tokens)) {}

  Segment Next(size_t count) {
    Segment segment;
    segment.slot = slot_;
    segment.begin = static_cast<uint32_t>(done_);
    segment.tokens.assign(tokens_.begin() + done_,
                          tokens_.begin() + done_ + static_cast<int64_t>(count));
    const int blocks_before = BlocksFor(done_);
    done_ += static_cast<int>(count);
    for (int i = blocks_before; i < BlocksFor(done_); ++i) {
      segment.new_blocks.push_back(next_block_++);
    }
    return segment;
  }
  void Append(int32_t token) { tokens_.push_back(token); }

 private:
  const uint32_t slot_;
  int next_block_;
  int done_ = 0;
  std::vector<int32_t> tokens_;
};

std::vector<int32_t> Tokens(int count, int seed, int vocab) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * 7 + i * 13 + seed * 31) % vocab);
  return tokens;
}

// The logits of one sequence that runs alone, in steps of these sizes.
std::vector<float> Alone(LayerStack& stack, Sequence sequence, const std::vector<size_t>& steps) {
  std::vector<float> out;
  for (const size_t count : steps) {
    const auto part = RunStep(stack, {{}, {sequence.Next(count)}})[0];
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(double{a[i]} - b[i]));
  }
  return largest;
}

class CpuModelKindTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuModelKindTest, AgreesWithTheGraph) {
  const Folder folder(TinyFolder(GetParam()));
  const auto graph = folder.Load<Decoder>(Options());
  const auto tokens = Tokens(100, 1, 96);
  const auto exact = Alone(*graph, Sequence(0, 3, tokens), {40, 50, 9, 1});
  const auto largest = *std::max_element(
      exact.begin(), exact.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  for (const auto& [type, bound] : std::vector<std::pair<KvType, double>>{{KvType::kFloat32, 2e-5},
                                                                          {KvType::kFloat16, 2e-3},
                                                                          {KvType::kBfloat16, 2e-2},
                                                                          {KvType::kInt8, 5e-2}}) {
    const auto stack = folder.Load<CpuModel>(Options(type));
    const auto ours = Alone(*stack, Sequence(0, 3, tokens), {33, 1, 1, 64, 1});
    EXPECT_LT(LargestDifference(ours, exact), bound * std::fabs(largest));
  }
}

void ExpectTogetherIsAsAlone(const Folder& folder) {
  for (const KvType type : {KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16, KvType::kInt8}) {
    const auto alone = [&](int seed, const std::vector<size_t>& steps) {
      return Alone(*folder.Load<CpuModel>(Options(type)), Sequence(0, 0, Tokens(100, seed, 96)),
                   steps);
    };
    const auto a = alone(1, {100}), b = alone(2, {7, 1, 1, 41}), c = alone(3, {1, 64});
    for (const int threads : {1, 2, 3}) {
      const auto stack = folder.Load<CpuModel>(Options(type, threads));
      Sequence first(4, 10, Tokens(100, 1, 96)), second(0, 0, Tokens(100, 2, 96)),
          third(7, 20, Tokens(100, 3, 96));
      std::vector<float> got[3];
      const auto step = [&](size_t of_first, size_t of_second, size_t of_third) {
        ForwardStep step;
        std::vector<size_t> who;
        const auto add = [&](Sequence& sequence, size_t count, size_t index) {
          if (count == 0) return;
          step.segments.push_back(sequence.Next(count));
          who.push_back(index);
        };
        add(third, of_third, 2), add(first, of_first, 0), add(second, of_second, 1);
        const auto logits = RunStep(*stack, step);
        for (size_t i = 0; i < who.size(); ++i) {
          got[who[i]].insert(got[who[i]].end(), logits[i].begin(), logits[i].end());
        }
      };
      step(30, 0, 0), step(1, 20, 0), step(1, 1, 1), step(0, 1, 60), step(68, 28, 4);
      EXPECT_EQ(got[0], a);
      EXPECT_EQ(got[1], b);
      EXPECT_EQ(got[2], c);
    }
  }
}

TEST_P(CpuModelKindTest, TogetherIsAsAlone) {
  ExpectTogetherIsAsAlone(Folder(TinyFolder(GetParam())));
}

TEST(CpuModelTest, RowsThatChooseTheirPositionsAreTogetherAsAlone) {
  ExpectTogetherIsAsAlone(Folder(TinyFolder("sparse")));
}

INSTANTIATE_TEST_SUITE_P(All, CpuModelKindTest,
                         ::testing::Values("llama", "llama-bias", "llama3", "linear", "qwen2",
                                           "qwen3", "mistral", "latent"));

// Which positions are chosen, a rounding of narrower keys may decide.
TEST(CpuModelTest, ChosenPositionsAreThoseOfTheGraph) {
  const Folder folder(TinyFolder("sparse"));
  const auto tokens = Tokens(100, 1, 96);
  const auto exact =
      Alone(*folder.Load<Decoder>(Options()), Sequence(0, 3, tokens), {40, 50, 9, 1});
  const auto ours =
      Alone(*folder.Load<CpuModel>(Options()), Sequence(0, 3, tokens), {33, 1, 1, 64, 1});
  float largest = 0;
  for (const float logit : exact) largest = std::max(largest, std::fabs(logit));
  EXPECT_LT(LargestDifference(ours, exact), 2e-5 * largest);
  // With room for all positions there is another answer, from the first that makes a choice.
  const Folder dense(TinyFolder("sparse wide"));
  const auto all = Alone(*dense.Load<CpuModel>(Options()), Sequence(0, 3, tokens), {100});
  const auto begin = ours.begin() + 24 * 96;
  EXPECT_TRUE(std::equal(ours.begin(), begin, all.begin()));
  EXPECT_GT(LargestDifference({begin, ours.end()}, {all.begin() + 24 * 96, all.end()}),
            1e-2 * largest);
}

// Else AgreesWithTheGraph would not notice a trait that is left out.
TEST(CpuModelTest, ArchitecturesDiffer) {
  const auto logits = [](const std::string& kind) {
    return Alone(*Folder(TinyFolder(kind)).Load<CpuModel>(Options()),
                 Sequence(0, 0, Tokens(100, 1, 96)), {100});
  };
  const auto plain = logits("llama");
  for (const char* kind : {"llama-bias", "llama3", "linear", "qwen2", "qwen3", "mistral"}) {
    EXPECT_GT(LargestDifference(logits(kind), plain), 0.1) << kind;
  }
}

void ExpectSharedPrefixIsAsGood(const Folder& folder) {
  for (const KvType type : {KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16, KvType::kInt8}) {
    const auto tokens = Tokens(90, 5, 96);
    const auto whole = Alone(*folder.Load<CpuModel>(Options(type)), Sequence(0, 0, tokens), {90});
    const auto stack = folder.Load<CpuModel>(Options(type));
    const std::vector<int32_t> prefix(tokens.begin(), tokens.begin() + 64);
    // Another sequence that goes on in another way after 64 tokens, and is still there.
    auto other = prefix;
    other.insert(other.end(), {1, 2, 3});
    Alone(*stack, Sequence(3, 11, other), {50, 17});
    Segment rest;
    rest.slot = 5;
    rest.begin = 64;
    rest.tokens.assign(tokens.begin() + 64, tokens.end());
    rest.new_blocks = {11, 12, 20};
    const auto got = RunStep(*stack, {{}, {rest}})[0];
    EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + 64 * 96));
    EXPECT_EQ(got.size(), 26u * 96);
  }
}

TEST(CpuModelTest, ASharedPrefixIsAsGoodAsARecomputedOne) {
  for (const char* kind : {"llama", "latent", "sparse"}) {
    SCOPED_TRACE(kind);
    ExpectSharedPrefixIsAsGood(Folder(TinyFolder(kind)));
  }
}

TEST(CpuModelTest, BlocksOfALatentCacheAreTheSameInAnotherProcess) {
  const Folder folder(TinyFolder("latent"));
  for (const KvType type : {KvType::kFloat16, KvType::kInt8}) {
    const auto first = folder.Load<CpuModel>(Options(type));
    const auto second = folder.Load<CpuModel>(Options(type));
    Sequence sequence(0, 0, Tokens(100, 1, 96));
    RunStep(*first, {{}, {sequence.Next(64)}});
    std::vector<std::byte> bytes(first->stored_block_bytes());
    const size_t number_bits = type == KvType::kInt8 ? 17 : 32;  // of two numbers
    EXPECT_EQ(bytes.size(), 2 * kBlockTokens * 64 * number_bits / 16) << "48 + 16 numbers";
    for (const int32_t block : {0, 1}) {
      first->ReadBlock(block, bytes);
      second->WriteBlock(block, bytes);
    }
    Segment rest = sequence.Next(36);
    const auto expected = RunStep(*first, {{}, {rest}});
    rest.new_blocks.insert(rest.new_blocks.begin(), {0, 1});
    EXPECT_EQ(RunStep(*second, {{}, {rest}}), expected);
  }
}

TEST(CpuModelTest, AMalformedStepIsRefusedAndChangesNothing) {
  const Folder folder(TinyFolder("llama"));
  const auto stack = folder.Load<CpuModel>(Options());
  Sequence sequence(0, 0, Tokens(90, 5, 96));
  RunStep(*stack, {{}, {sequence.Next(40)}});
  const auto refused = [&](auto change) {
    Sequence copy = sequence;
    ForwardStep step{{}, {copy.Next(30)}};
    change(step);
    EXPECT_EQ(stack->Begin(step).code(), absl::StatusCode::kInternal);
  };
  refused([](ForwardStep& step) { step.segments[0].new_blocks[0] = 32; });
  refused([](ForwardStep& step) { step.segments[0].new_blocks[0] = -1; });
  refused([](ForwardStep& step) { step.segments[0].new_blocks.clear(); });
  refused([](ForwardStep& step) { step.segments[0].begin = 4'000'000'000; });
  refused([](ForwardStep& step) { step.segments[0].tokens[7] = 96; });
  refused([](ForwardStep& step) { step.segments.push_back(step.segments[0]); });
  refused([](ForwardStep& step) { step.closed_slots = {0}; });
  const auto rest = RunStep(*stack, {{}, {sequence.Next(30)}})[0];
  const auto whole =
      Alone(*folder.Load<CpuModel>(Options()), Sequence(0, 0, Tokens(90, 5, 96)), {70});
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 40 * 96));
}

TEST(CpuModelTest, ChunksOfAQuantisedModelKeepEveryBit) {
  const Folder folder("deploy/models/knot-5m-4bit");
  const Sequence sequence(0, 0, Tokens(120, 3, folder.config.vocab_size));
  for (const std::optional<KvType> type :
       {std::optional<KvType>(), std::optional<KvType>(KvType::kInt8)}) {
    const auto whole = Alone(*folder.Load<CpuModel>(Options(type, 1)), sequence, {120});
    EXPECT_EQ(Alone(*folder.Load<CpuModel>(Options(type, 2)), sequence, {1, 2, 16, 33, 67, 1}),
              whole);
  }
}

// The logits' difference from those with keys and values in 16 bits, by root mean square, as a part
// of the logits' own.
double EightBitError(const Folder& folder, int seed) {
  const Sequence sequence(0, 0, Tokens(500, seed, folder.config.vocab_size));
  const auto exact = Alone(*folder.Load<CpuModel>(Options(KvType::kFloat16)), sequence, {500});
  const auto ours = Alone(*folder.Load<CpuModel>(Options(KvType::kInt8)), sequence, {500});
  double squares = 0.0, errors = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    squares += double{exact[i]} * exact[i];
    errors += (double{ours[i]} - exact[i]) * (double{ours[i]} - exact[i]);
  }
  return std::sqrt(errors / squares);
}

// The bounds that kv_view.h states.
constexpr double kInt8LogitErrorMax = 0.02;
constexpr double kInt8UnevenLogitErrorMax = 0.1;

TEST(CpuModelTest, EightBitsOfKeysAndValuesMoveLogitsLittle) {
  struct Case {
    std::string name, folder;
    double bound;
  };
  std::vector<Case> cases = {{"bundled", "deploy/models/knot-5m-4bit", kInt8LogitErrorMax}};
  for (const int head_dim : {64, 80, 128}) {
    for (const float key_bias : {0.0F, 30.0F}) {
      ModelShape shape;
      shape.architecture = "qwen2";
      shape.head_dim = head_dim;
      shape.biases = true;
      shape.key_bias = key_bias;
      cases.push_back({absl::StrCat("heads of ", head_dim, ", key bias ", key_bias),
                       WriteFolder(RandomModel(shape)),
                       key_bias > 0.0F ? kInt8UnevenLogitErrorMax : kInt8LogitErrorMax});
    }
  }
  // Without experts: a small error can make a router choose another one.
  for (const int latent : {64, 128}) {
    ModelShape shape;
    shape.architecture = "deepseek_v3";
    shape.latent = latent;
    cases.push_back({absl::StrCat("latent vectors of ", latent), WriteFolder(RandomModel(shape)),
                     kInt8LogitErrorMax});
  }
  for (const auto& [name, path, bound] : cases) {
    const Folder folder(path);
    double error = 0.0;
    for (const int seed : {1, 2}) error = std::max(error, EightBitError(folder, seed));
    std::printf("%s: %.5f\n", name.c_str(), error);
    EXPECT_LT(error, bound) << name;
    EXPECT_GT(error, 0.0) << name << ": the cache was not of 8 bits";
  }
}

TEST(CpuModelTest, TheBundledModelAnswersAsTheGraphDoes) {
  const Folder folder("deploy/models/knot-5m-4bit");
  const auto prompt = Tokens(50, 3, folder.config.vocab_size);
  const auto answer = [&](LayerStack& stack, std::vector<float>& logits) {
    Sequence sequence(0, 0, prompt);
    logits = RunStep(stack, {{}, {sequence.Next(prompt.size())}})[0];
    std::vector<int32_t> tokens;
    auto last = std::vector<float>(logits.end() - folder.config.vocab_size, logits.end());
    for (int i = 0; i < 64; ++i) {
      tokens.push_back(
          static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
      sequence.Append(tokens.back());
      last = RunStep(stack, {{}, {sequence.Next(1)}})[0];
      logits.insert(logits.end(), last.begin(), last.end());
    }
    return tokens;
  };
  std::vector<float> theirs;
  const auto expected = answer(*folder.Load<Decoder>(Options()), theirs);
  const auto largest = std::fabs(*std::max_element(theirs.begin(), theirs.end()));
  for (const auto& [type, bound] :
       std::vector<std::pair<KvType, double>>{{KvType::kFloat32, 1e-3}, {KvType::kFloat16, 3e-3}}) {
    std::vector<float> ours;
    EXPECT_EQ(answer(*folder.Load<CpuModel>(Options(type, 2)), ours), expected);
    EXPECT_LT(LargestDifference(ours, theirs), bound * largest);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
