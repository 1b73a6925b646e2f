// Every family over ranks of a tensor split, and as MLX's graph, against one rank with our kernels.

#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

class FamilySplitTest : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<float> WholeBy(const Model& model, auto run) {
    NoRankSums alone;
    return run(model, PlacesOf({1}, model.config.layer_count)[0], alone);
  }
};

TEST_P(FamilySplitTest, RanksTogetherGiveWhatOneGives) {
  for (const int bits : {0, 4}) {
    ExpectModelSplits<CpuModel>(Model(FamilyModel({GetParam(), bits})),
                                {{1, 1}, {5, 2, 1}, {1, 30}});
  }
}

// The layers as they run on a GPU, computed by MLX on a CPU.
TEST_P(FamilySplitTest, GraphsGiveTheSame) {
  const Model model(FamilyModel({GetParam()}));
  const auto ours = WholeBy(model, RunRank<CpuModel>), graph = WholeBy(model, RunRank<Decoder>);
  float largest = 0;
  for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(graph[i], ours[i], 2e-5 * largest) << i;
  ExpectModelSplits<Decoder>(model, {{2, 1}, {1, 30}});
}

// Whether layers stand on one rank or on two.
TEST_P(FamilySplitTest, StagesOneAfterTheOtherGiveTheSameBits) {
  const Model model(FamilyModel({GetParam(), 4}));
  NoRankSums alone;
  const LayerStackOptions options{.blocks_total = 4, .context_length = 128};
  const std::vector<int32_t> ids{1, 5, 9, 2, 6, 5};
  const std::vector<int32_t> rows{0, 1, 2, 3, 4, 5};
  const ForwardStep step{{}, {Segment{.begin = 0, .tokens = ids, .new_blocks = {0}}}};
  const auto load = [&](int begin, int end) {
    ShardPlace place{begin, end};
    place.embeds = begin == 0;
    place.has_head = end == model.config.layer_count;
    EXPECT_TRUE(CheckWeights(model.config, place, *model.files).ok());
    WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
    return std::make_unique<CpuModel>(model.config, place, loader, alone, options);
  };
  const int layers = model.config.layer_count;
  const auto whole = load(0, layers);
  ASSERT_TRUE(whole->Begin(step).ok());
  const mx::array one = whole->Logits(whole->Run(whole->Embed(ids), step), rows);
  for (int cut = 1; cut < layers; ++cut) {
    const auto first = load(0, cut), second = load(cut, layers);
    for (const auto& stack : {&first, &second}) ASSERT_TRUE((*stack)->Begin(step).ok());
    const mx::array two =
        second->Logits(second->Run(first->Run(first->Embed(ids), step), step), rows);
    for (size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(one.data<float>()[i], two.data<float>()[i]) << "cut before layer " << cut;
    }
  }
}

// The same of MLX's graphs, and of a stage whose ranks share its layers.
TEST(FamilySplitsTest, WhatLaterStagesReadIsHandedOn) {
  const Model model(FamilyModel({"gemma4"}));
  const std::vector<int32_t> ids{1, 5, 9, 2, 6, 5};
  const std::vector<int32_t> rows{0, 1, 2, 3, 4, 5};
  const ForwardStep step{{},
                         {Segment{.begin = 0, .tokens = {1, 5, 9, 2}, .new_blocks = {0}},
                          Segment{.slot = 1, .begin = 0, .tokens = {6, 5}, .new_blocks = {1}}}};
  const int layers = model.config.layer_count;
  const auto run = [&]<typename Stack>(ShardPlace place, RankSums& sums,
                                       const std::optional<mx::array>& given) {
    place.embeds = place.layer_begin == 0;
    place.has_head = place.layer_end == layers;
    WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
    Stack stack(model.config, place, loader, sums, {.blocks_total = 4, .context_length = 128});
    EXPECT_TRUE(stack.Begin(step).ok());
    mx::array out = stack.Run(given.has_value() ? *given : stack.Embed(ids), step);
    if (place.has_head && place.tp == 1) out = stack.Logits(out, rows);
    out = mx::contiguous(out);
    out.eval();
    return out;
  };
  NoRankSums alone;
  const mx::array whole = run.operator()<CpuModel>({0, layers}, alone, std::nullopt);
  const auto check = [&]<typename Stack>(int cut) {
    Meeting meeting(3);
    std::vector<std::optional<mx::array>> handed(3);
    std::vector<std::thread> threads;
    for (const ShardPlace& place : PlacesOf({5, 2, 1}, cut)) {
      threads.emplace_back([&, place] {
        MeetingSums sums(meeting, static_cast<size_t>(place.tp_rank));
        handed[place.tp_rank] = run.operator()<Stack>(place, sums, std::nullopt);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& each : handed) {  // whole on each rank
      const mx::array logits = run.operator()<Stack>({cut, layers}, alone, each);
      for (size_t i = 0; i < whole.size(); ++i) {
        ASSERT_NEAR(logits.data<float>()[i], whole.data<float>()[i], 2e-3) << cut;
      }
    }
  };
  for (int cut = 1; cut < layers; ++cut) {
    check.operator()<CpuModel>(cut);
    check.operator()<Decoder>(cut);
  }
}

// Read one by one and widened; for MLX, one after the other into one array.
TEST(FamilySplitsTest, ExpertsInEightBitFloats) {
  nlohmann::json config = FamilyConfig({"glm4_moe"});
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {40, 48}}};
  const Model model(ModelOfConfig(config));
  ExpectModelSplits<CpuModel>(model, {{1, 1}, {5, 2, 1}, {1, 30}});
  NoRankSums alone;
  const ShardPlace whole = PlacesOf({1}, model.config.layer_count)[0];
  const auto ours = RunRank<CpuModel>(model, whole, alone);
  const auto graph = RunRank<Decoder>(model, whole, alone);
  float largest = 0;
  for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(graph[i], ours[i], 2e-5 * largest) << i;
  ExpectModelSplits<Decoder>(model, {{2, 1}, {1, 30}});
}

// All experts in two tensors, as Qwen publishes them: the same numbers give the same bits, on one
// rank and on several.
TEST(FamilySplitsTest, ExpertsInOneTensor) {
  for (const char* name : {"qwen3_5_moe", "qwen3_vl_moe", "gemma4_text experts"}) {
    NoRankSums alone;
    nlohmann::json config = FamilyConfig({name});
    const Model stacked(ModelOfConfig(config));
    const ShardPlace whole = PlacesOf({1}, stacked.config.layer_count)[0];
    for (const char* layout : {"fused", "turned"}) {
      config["test_experts"] = layout;
      const Model model(ModelOfConfig(config));
      const std::string prefix = "model.layers.1.";
      ASSERT_EQ(model.files->Find(prefix + "mlp.switch_mlp.up_proj.weight"), nullptr);
      ASSERT_EQ(model.files->Find(prefix + "experts.switch_glu.up_proj.weight"), nullptr);
      EXPECT_EQ(RunRank<CpuModel>(model, whole, alone), RunRank<CpuModel>(stacked, whole, alone));
      EXPECT_EQ(RunRank<Decoder>(model, whole, alone), RunRank<Decoder>(stacked, whole, alone));
      for (const std::vector<int>& widths : {std::vector<int>{5, 2, 1}, {1, 30}}) {
        for (const bool dealt : {false, true}) {
          EXPECT_EQ(RunSplit<CpuModel>(model, widths, dealt),
                    RunSplit<CpuModel>(stacked, widths, dealt));
          EXPECT_EQ(RunSplit<Decoder>(model, widths, dealt),
                    RunSplit<Decoder>(stacked, widths, dealt));
        }
      }
    }
  }
}

// Whole numbers that compressed-tensors packs are MLX's: the same bits on one rank and on several.
TEST(FamilySplitsTest, PackedNumbers) {
  for (const char* name : {"glm4_moe", "phi3", "qwen3_5"}) {
    NoRankSums alone;
    const Model affine(SymmetricModel(name, /*packed=*/false));
    const Model packed(SymmetricModel(name, /*packed=*/true));
    for (const auto& [stored, tensor] : packed.files->tensors()) {
      ASSERT_FALSE(stored.find(".layers.") != std::string::npos && tensor.dtype == "U32") << stored;
    }
    const ShardPlace whole = PlacesOf({1}, affine.config.layer_count)[0];
    EXPECT_EQ(RunRank<CpuModel>(packed, whole, alone), RunRank<CpuModel>(affine, whole, alone));
    EXPECT_EQ(RunRank<Decoder>(packed, whole, alone), RunRank<Decoder>(affine, whole, alone));
    for (const std::vector<int>& widths : {std::vector<int>{5, 2, 1}, {1, 30}}) {
      EXPECT_EQ(RunSplit<CpuModel>(packed, widths), RunSplit<CpuModel>(affine, widths)) << name;
      EXPECT_EQ(RunSplit<Decoder>(packed, widths), RunSplit<Decoder>(affine, widths)) << name;
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilySplitTest, ::testing::ValuesIn(FamilyNames()), NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
