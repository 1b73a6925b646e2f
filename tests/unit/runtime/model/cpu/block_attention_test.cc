// Blocks of positions that each key-value head chooses, on a CPU: whatever else is in a step,
// however a prompt is cut, behind a cached prefix, after drafts that were wrong and over any
// stages, a token's logits keep every bit. That they are the model's, tests/conformance/engine
// shows.

#include <gmock/gmock.h>

#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/sequence_runs.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Four layers, of which the last three choose two blocks of 32 positions: the last one, and one of
// the others.
json ConfigWith(const json& changes) {
  json config = FamilyConfig({"minimax_m3_vl"});
  json& text = config["text_config"];
  text["num_hidden_layers"] = 4;
  text["moe_layer_freq"] = {0, 0, 1, 1};
  json& sparse = text["sparse_attention_config"];
  sparse["sparse_topk_blocks"] = 2;
  sparse["sparse_local_block"] = 1;
  sparse["sparse_attention_freq"] = {0, 1, 1, 1};
  sparse.update(changes);
  return config;
}

const Model& Small() {
  static const Model model(ModelOfConfig(ConfigWith(json::object())));
  return model;
}
std::unique_ptr<CpuModel> Load() { return Load(Small(), 0, Small().config.layer_count); }

constexpr int kEnd = 170;

TEST(BlockAttentionTest, ChunksKeepEveryBit) {
  const auto whole = Load(), parts = Load(), single = Load();
  const Logits expected = InParts({whole.get()}, {kEnd}, 1);
  EXPECT_EQ(InParts({parts.get()}, {1, 4, 63, 64, 65, 97, 128, 140, kEnd}, 1), expected);
  std::vector<int> ends;
  for (int end = 1; end <= kEnd; ++end) ends.push_back(end);
  EXPECT_EQ(InParts({single.get()}, ends, 1), expected);
}

TEST(BlockAttentionTest, ChunksOfAQuantisedModelKeepEveryBit) {
  json config = ConfigWith(json::object());
  config["quantization"] = {{"bits", 4}, {"group_size", 32}};
  const Model model(ModelOfConfig(config));
  const auto whole = Load(model, 0, 4), first = Load(model, 0, 2), last = Load(model, 2, 4);
  EXPECT_EQ(InParts({first.get(), last.get()}, {1, 4, 65, 97, 140, kEnd}, 1),
            InParts({whole.get()}, {kEnd}, 1));
}

TEST(BlockAttentionTest, TogetherIsAsAlone) {
  const auto one = Load(), other = Load(), both = Load();
  const Logits first = InParts({one.get()}, {110}, 1), second = InParts({other.get()}, {120}, 2);
  const Logits a = Compute({both.get()}, {{}, {Part(3, 0, 80, 1, 0, 0), Part(7, 0, 100, 2, 8, 0)}});
  const Logits b =
      Compute({both.get()}, {{}, {Part(7, 100, 120, 2, 8, 4), Part(3, 80, 110, 1, 0, 3)}});
  EXPECT_EQ(Rows(a, 0, 80), Rows(first, 0, 80));
  EXPECT_EQ(Rows(a, 80, 180), Rows(second, 0, 100));
  EXPECT_EQ(Rows(b, 0, 20), Rows(second, 100, 120));
  EXPECT_EQ(Rows(b, 20, 50), Rows(first, 80, 110));
}

TEST(BlockAttentionTest, ASharedPrefixIsAsGoodAsARecomputedOne) {
  const auto whole = Load(), shared = Load();
  const Logits expected = InParts({whole.get()}, {kEnd}, 1);
  InParts({shared.get()}, {130}, 1);
  // Another sequence takes the first four blocks as they are.
  Segment next = Part(1, 128, kEnd, 1, 4, 4);
  next.new_blocks.insert(next.new_blocks.begin(), {0, 1, 2, 3});
  EXPECT_EQ(Compute({shared.get()}, {{0}, {next}}), Rows(expected, 128, kEnd));
}

TEST(BlockAttentionTest, DraftsThatWereWrongLeaveNothing) {
  const auto whole = Load(), drafted = Load();
  const Logits expected = InParts({whole.get()}, {kEnd}, 1);
  InParts({drafted.get()}, {125}, 1);
  // Twelve tokens of another text run over the end of a block.
  Compute({drafted.get()}, {{}, {Part(0, 125, 137, 5, 0, 4)}});
  EXPECT_EQ(Compute({drafted.get()}, {{}, {Part(0, 125, kEnd, 1, 0, 5)}}),
            Rows(expected, 125, kEnd));
}

TEST(BlockAttentionTest, StagesKeepEveryBit) {
  const auto whole = Load();
  const Logits expected = InParts({whole.get()}, {90, 150, 151}, 1);
  for (const int cut : {1, 2, 3}) {
    const auto first = Load(Small(), 0, cut), second = Load(Small(), cut, 4);
    EXPECT_EQ(InParts({first.get(), second.get()}, {90, 150, 151}, 1), expected) << cut;
  }
}

TEST(BlockAttentionTest, BlocksAreTheSameInAnotherProcess) {
  const auto whole = Load(), from = Load(), to = Load();
  const Logits expected = InParts({whole.get()}, {kEnd}, 1);
  InParts({from.get()}, {128}, 1);
  for (const int32_t block : {0, 1, 2, 3}) {
    std::vector<std::byte> bytes(from->stored_block_bytes());
    from->ReadBlock(block, bytes);
    to->WriteBlock(block + 6, bytes);
  }
  Segment next = Part(1, 128, kEnd, 1, 10, 4);
  next.new_blocks = {6, 7, 8, 9, 14, 15};
  EXPECT_EQ(Compute({to.get()}, {{}, {next}}), Rows(expected, 128, kEnd));
  EXPECT_THAT(from->kv_layout(), HasSubstr("1 x 0 + 32"));
}

// Splits where ranks have one, two or none of the heads that choose; one index head may serve all.
TEST(BlockAttentionTest, RanksOfATensorSplitGiveWhatOneGives) {
  for (const int heads : {3, 1}) {
    json config = ConfigWith(
        {{"sparse_num_index_heads", heads}, {"sparse_topk_blocks", 1}, {"sparse_local_block", 0}});
    const Model model(ModelOfConfig(config));
    const std::vector<std::vector<int>> splits = {{1, 1}, {2, 1}, {1, 30}, {1, 1, 1, 1, 1}};
    ExpectModelSplits<CpuModel>(model, splits);
    ExpectModelSplits<Decoder>(model, splits);
  }
}

// What is not chosen has no part in a row, and what is has: with one layer that attends, a token
// that lies in another block changes nothing.
TEST(BlockAttentionTest, OnlyChosenBlocksAreSeen) {
  json config = FamilyConfig({"minimax_m3_vl"});
  json& text = config["text_config"];
  text["num_hidden_layers"] = 1;
  text["moe_layer_freq"] = {0};
  text["sparse_attention_config"].update(
      {{"sparse_local_block", 1}, {"sparse_attention_freq", {1}}});
  const Model model(ModelOfConfig(config));
  const auto one = Load(model, 0, 1), other = Load(model, 0, 1);
  const Logits a = InParts({one.get()}, {70}, 1);
  Segment changed = Part(0, 0, 70, 1, 0, 0);
  changed.tokens[40] = (changed.tokens[40] + 1) % 101;
  const Logits b = Compute({other.get()}, {{}, {changed}});
  EXPECT_EQ(Rows(a, 0, 40), Rows(b, 0, 40));
  EXPECT_NE(Rows(a, 63, 64), Rows(b, 63, 64)) << "of its own block";
  EXPECT_EQ(Rows(a, 64, 70), Rows(b, 64, 70)) << "the last block alone is chosen there";
}

}  // namespace
}  // namespace macrame::runtime::engine
