// Ranks of a tensor split, one thread each, against one rank with the whole model: any heads,
// widths and vocabularies over any slices, and each rank reads its own part alone.

#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

template <typename Stack = CpuModel>
void ExpectSplitsAgree(const ModelShape& shape) {
  ExpectModelSplits<Stack>(Model(shape),
                           {{1, 1}, {1, 1, 1}, {5, 2, 1}, {2, 1}, {1, 1, 1, 1}, {1, 30}});
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

// Windows and sinks by heads, experts with biases, in float32, affine and MXFP4.
ModelShape GptOss(int bits, bool mxfp4) {
  ModelShape shape;
  shape.architecture = "gpt_oss";
  shape.bits = bits;
  shape.mxfp4 = mxfp4;
  shape.experts = 5;
  shape.inner = 96;
  shape.biases = true;
  return shape;
}

TEST(TensorSplitTest, GptOssIsCutByHeadsAndGroups) {
  for (const int bits : {0, 4, 8}) ExpectSplitsAgree(GptOss(bits, /*mxfp4=*/false));
  ExpectSplitsAgree(GptOss(0, /*mxfp4=*/true));
}

TEST(TensorSplitTest, OpenAisBlocksAreTheSameWeights) {
  ModelShape shape = GptOss(0, /*mxfp4=*/true);
  const Model ours(shape);
  shape.blocks = true;
  const Model blocks(shape);
  NoRankSums alone;
  const ShardPlace whole = PlacesOf({1}, 2)[0];
  EXPECT_EQ(RunRank<CpuModel>(blocks, whole, alone), RunRank<CpuModel>(ours, whole, alone));
  EXPECT_EQ(RunRank<Decoder>(blocks, whole, alone), RunRank<Decoder>(ours, whole, alone));
  ExpectSplitsAgree(shape);
}

// The layers as they run on a GPU, computed by MLX on a CPU, against ours.
void ExpectGraphIsTheSame(const ModelShape& shape) {
  const Model model(shape);
  NoRankSums alone;
  const ShardPlace whole = PlacesOf({1}, 2)[0];
  const std::vector<float> ours = RunRank<CpuModel>(model, whole, alone);
  const std::vector<float> graph = RunRank<Decoder>(model, whole, alone);
  float largest = 0;
  for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
  // Packed floats are rounded more in sums, and how depends on the processor.
  const bool is_rounded = shape.bits != 0 || shape.mxfp4;
  const float part = is_rounded ? 5e-4f : shape.mode.empty() ? 1e-5f : 5e-5f;
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(graph[i], ours[i], part * largest) << shape.architecture << i;
  }
}

// MLX's modes with a byte for a scale, by all maps: also embeddings and heads, tied or not.
TEST(TensorSplitTest, PackedFloatsAreCutByGroupsOfTheirOwn) {
  for (const char* mode : {"mxfp8", "nvfp4"}) {
    for (const char* architecture : {"llama", "qwen3", "qwen3_moe", "gpt_oss", "deepseek_v3"}) {
      ModelShape shape;
      shape.architecture = architecture;
      shape.mode = mode;
      shape.tied = shape.architecture == "qwen3";
      if (shape.architecture == "llama") shape.head_dim = 16;  // half a group of MXFP8
      if (shape.architecture.find('_') != std::string::npos) shape.experts = 5, shape.inner = 96;
      if (shape.architecture == "gpt_oss") shape.biases = true;
      if (shape.architecture == "deepseek_v3") shape.experts = 6, shape.latent = 32;
      SCOPED_TRACE(std::string(architecture) + " " + mode);
      ExpectGraphIsTheSame(shape);
      ExpectSplitsAgree<CpuModel>(shape);
      ExpectSplitsAgree<Decoder>(shape);
    }
  }
}

TEST(TensorSplitTest, GraphsOfGptOssGiveTheSame) {
  for (const bool mxfp4 : {false, true}) {
    const ModelShape shape = GptOss(0, mxfp4);
    ExpectGraphIsTheSame(shape);
    ExpectSplitsAgree<Decoder>(shape);
  }
}

ModelShape WithLatent(int bits) {
  ModelShape shape;
  shape.architecture = "deepseek_v3";
  shape.bits = bits;
  shape.heads = 5;
  shape.latent = 64;
  shape.query_latent = 96;
  shape.experts = 6;
  shape.inner = 96;  // three groups
  return shape;
}

// Each stage has its own layers' latent cache; no bit differs.
TEST(TensorSplitTest, StagesOfALatentModelAreTheWholeModel) {
  ModelShape shape = WithLatent(4);
  shape.layers = 3;
  const Model model(shape);
  NoRankSums alone;
  const std::vector<float> whole = RunRank<CpuModel>(model, PlacesOf({1}, 3)[0], alone);
  const LayerStackOptions options{
      .blocks_total = 4, .context_length = 128, .threads = 1, .kv_type = kernels::KvType::kFloat32};
  const auto load = [&](const ShardPlace& place) {
    EXPECT_TRUE(CheckWeights(model.config, place, *model.files).ok());
    WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
    return std::make_unique<CpuModel>(model.config, place, loader, alone, options);
  };
  ShardPlace front{0, 2}, back{2, 3};
  front.has_head = back.embeds = false;
  const auto first = load(front), second = load(back);
  Segment segment;
  std::vector<int32_t> rows;
  for (int i = 0; i < kSteps[0]; ++i) {
    segment.tokens.push_back(i * i * 7 % model.config.vocab_size);
    rows.push_back(i);
  }
  segment.new_blocks = {0};
  const ForwardStep step{{}, {segment}};
  EXPECT_TRUE(first->Begin(step).ok() && second->Begin(step).ok());
  const mx::array logits =
      second->Logits(second->Run(first->Run(first->Embed(segment.tokens), step), step), rows);
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(logits.data<float>()[i], whole[i]) << i;
}

TEST(TensorSplitTest, GraphsOfExpertsGiveTheSame) {
  for (const char* architecture : {"qwen3_moe", "mixtral"}) {
    for (const int bits : {0, 4}) {
      const ModelShape shape = WithExperts(architecture, bits);
      ExpectGraphIsTheSame(shape);
      ExpectSplitsAgree<Decoder>(shape);
    }
  }
}

TEST(TensorSplitTest, HeadsShareTheLatentCache) {
  for (const int bits : {0, 4, 8}) ExpectSplitsAgree(WithLatent(bits));
  ModelShape shape = WithLatent(4);
  shape.by_head = false;
  ExpectSplitsAgree(shape);
  shape = WithLatent(0);
  shape.architecture = "deepseek_v32";
  shape.index_top = 3;
  ExpectSplitsAgree(shape);
  ExpectSplitsAgree<Decoder>(shape);
  shape = WithLatent(0);
  shape.heads = 1;  // some ranks have none
  shape.query_latent = 0;
  shape.biases = true;
  ExpectSplitsAgree(shape);
}

TEST(TensorSplitTest, GraphsOfLatentAttentionGiveTheSame) {
  for (const int bits : {0, 4}) {
    for (const bool by_head : {true, false}) {
      ModelShape shape = WithLatent(bits);
      shape.by_head = by_head;
      ExpectGraphIsTheSame(shape);
    }
    ExpectSplitsAgree<Decoder>(WithLatent(bits));
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
    WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
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
      return WeightLoader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {})
          .BytesNeeded();
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
