// What a plan counts for the cache of a model that chooses blocks of positions by an indexer's keys
// is what the engine keeps.

#include <gtest/gtest.h>

#include <numeric>

#include "planner/memory_model.h"
#include "planner/offline/catalogue.h"
#include "runtime/kernels/kv_view.h"
#include "runtime/model/cpu/kv_blocks.h"
#include "runtime/model_files/model_description.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/sequence_runs.h"
#include "tests/unit/runtime/model_files/model_writer.h"

namespace macrame::runtime {
namespace {

// Of one block of positions, in all layers of a rank.
uint64_t PlannedBytes(const v1::ModelDescription& model, planner::Slice slice) {
  planner::ServingLoad load;
  load.context_tokens = kernels::kBlockTokens;
  const planner::MemoryModel memory(model, load, slice);
  return memory.Need(planner::ComputeKind::kCpu, 0, model.layer_count(), false, false)
      .kv_cache_bytes();
}

TEST(KvBytes, ThePlanCountsWhatTheEngineKeepsOfASmallModel) {
  nlohmann::json config = engine::FamilyConfig({"minimax_m3_vl"});
  const engine::Model model(engine::ModelOfConfig(config));
  const std::string folder = MakeFolder("kv_bytes");
  for (const auto& [name, content] : engine::ModelOfConfig(config)) {
    WriteFile(folder + "/" + name, content);
  }
  WriteFile(folder + "/tokenizer.json", "{}");
  const auto described = DescribeModel(folder);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->kv_index_width(), 16u) << "32 numbers in one of two layers";
  const auto layers = static_cast<int>(described->layer_count());
  EXPECT_EQ(PlannedBytes(*described, {}), engine::Load(model, 0, layers)->stored_block_bytes());
}

// MiniMax M3, of whose 60 layers 57 have an indexer, on one of four ranks: one key-value head.
TEST(KvBytes, ThePlanCountsWhatTheEngineKeepsOfMiniMaxM3) {
  const auto entries = planner::CatalogueWith("");
  ASSERT_TRUE(entries.ok()) << entries.status();
  const auto entry = planner::FindEntry(*entries, "MiniMax-M3");
  ASSERT_TRUE(entry.ok()) << entry.status();
  const v1::ModelDescription model = planner::DescribeForPlan(**entry, 4);
  std::vector<kernels::KvShape> shapes(60, {1, 128, kernels::KvType::kBfloat16});
  const kernels::KvShape index{1, 0, kernels::KvType::kBfloat16, 128, 128};
  shapes.insert(shapes.end(), 57, index);
  const auto kept = static_cast<double>(engine::CpuKvBlocks(1, shapes).block_bytes());
  const auto planned = static_cast<double>(PlannedBytes(model, {1, 4}));
  EXPECT_GE(planned, kept);
  EXPECT_LT(planned, kept * 1.002) << "an average of all layers, rounded up";
}

}  // namespace
}  // namespace macrame::runtime
