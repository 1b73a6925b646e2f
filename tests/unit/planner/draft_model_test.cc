// A draft model is a part of what the entry rank holds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/memory_model.h"
#include "planner/planner.h"
#include "proto/memory_need.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;

v1::PlannerNode Processor(const std::string& id, uint64_t bytes, bool has_draft_files = true) {
  v1::PlannerNode node = Node(id, bytes);
  node.set_gpu_cores(0);
  node.set_has_draft_files(has_draft_files);
  node.mutable_traits()->set_uneven_tensor(true);
  node.mutable_traits()->set_tensor_in_pipeline(true);
  return node;
}

v1::PlanRequest WithDraft(std::vector<v1::PlannerNode> nodes, uint32_t ranks = 1) {
  v1::PlanRequest request = Request(LargeModel("big", 12 * kGiB, 24), std::move(nodes));
  request.mutable_placement()->set_world_size(ranks);
  *request.mutable_draft_model() = SmallModel();
  request.mutable_draft_model()->set_name("small");
  request.mutable_draft_model()->set_fingerprint("print");
  return request;
}

TEST(DraftModel, IsCountedOnTheEntryNodeAlone) {
  for (const v1::Parallelism way : {v1::PARALLELISM_PIPELINE, v1::PARALLELISM_TENSOR}) {
    v1::PlanRequest request =
        WithDraft({Processor("aaaa", 64 * kGiB), Processor("bbbb", 64 * kGiB)}, 2);
    request.mutable_placement()->set_parallelism(way);
    const v1::PlanResult result = PlanModel(request);
    ASSERT_TRUE(result.has_plan()) << result.failure().message();
    EXPECT_EQ(result.plan().draft_model().name(), "small");
    EXPECT_EQ(result.plan().draft_model().fingerprint(), "print");
    EXPECT_EQ(result.plan().draft_model().layer_bytes_size(), 0) << "a plan is kept small";
    const v1::MemoryNeed& entry = result.plan().assignments(0).need();
    EXPECT_GT(entry.draft_bytes(), SmallModel().embedding_bytes());
    EXPECT_EQ(entry.total_bytes(), entry.weights_bytes() + entry.embedding_bytes() +
                                       entry.head_bytes() + entry.kv_cache_bytes() +
                                       entry.activation_bytes() + entry.runtime_bytes() +
                                       entry.headroom_bytes() + entry.draft_bytes());
    EXPECT_EQ(result.plan().assignments(1).need().draft_bytes(), 0u);
  }
}

TEST(DraftModel, RequestsComeInWhereItsFilesAre) {
  for (const uint32_t ranks : {1u, 2u, 3u}) {
    for (const v1::Parallelism way : {v1::PARALLELISM_PIPELINE, v1::PARALLELISM_TENSOR}) {
      v1::PlanRequest request =
          WithDraft({Processor("aaaa", 64 * kGiB, false), Processor("bbbb", 64 * kGiB, false),
                     Processor("cccc", 64 * kGiB, true)},
                    ranks);
      request.mutable_placement()->set_parallelism(way);
      const v1::PlanResult result = PlanModel(request);
      ASSERT_TRUE(result.has_plan()) << result.failure().message();
      EXPECT_EQ(result.plan().assignments(0).node_id(), "cccc") << ranks << " ranks";
    }
  }
}

TEST(DraftModel, InALongPipelineRequestsComeInWhereItsFilesAre) {
  std::vector<v1::PlannerNode> nodes;
  for (char letter = 'a'; letter < 'i'; ++letter) {
    nodes.push_back(Processor(std::string(4, letter), 64 * kGiB, false));
  }
  nodes.push_back(Processor("zzzz", 32 * kGiB, true));
  for (const uint32_t ranks : {0u, 1u, 7u}) {
    v1::PlanRequest request = WithDraft(nodes, ranks);
    if (ranks == 7) request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
    const v1::PlanResult result = PlanModel(request);
    ASSERT_TRUE(result.has_plan()) << ranks << " ranks: " << result.failure().message();
    EXPECT_EQ(result.plan().assignments(0).node_id(), "zzzz") << ranks << " ranks";
  }
}

TEST(DraftModel, WithoutItsFilesTheNodeAndWhatToDoAreNamed) {
  v1::PlanRequest request = WithDraft({Processor("aaaa", 64 * kGiB, false)});
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "MODEL_NOT_ON_NODE");
  EXPECT_EQ(result.failure().node_id(), "aaaa");
  EXPECT_THAT(result.failure().message(), HasSubstr("the files of its draft model small"));
  EXPECT_THAT(result.failure().remedy(), HasSubstr("copy the folder of small to that node"));

  request.set_recovering(true);
  const v1::PlanResult recovered = PlanModel(request);
  ASSERT_TRUE(recovered.has_plan()) << "answers without drafts are better than none";
  EXPECT_FALSE(recovered.plan().has_draft_model());
  EXPECT_EQ(recovered.plan().assignments(0).need().draft_bytes(), 0u);
  EXPECT_EQ(recovered.plan().reasons().rbegin()->code(), "MODEL_NOT_ON_NODE");
}

TEST(DraftModel, OnAGpuItIsCountedWithWhatIsWired) {
  v1::PlannerNode gpu = Node("aaaa", 64 * kGiB);
  gpu.set_has_draft_files(true);
  v1::PlanRequest request = WithDraft({gpu});
  const v1::PlanResult with = PlanModel(request);
  request.clear_draft_model();
  const v1::PlanResult without = PlanModel(request);
  ASSERT_TRUE(with.has_plan()) << with.failure().message();
  ASSERT_TRUE(without.has_plan());
  const v1::MemoryNeed& need = with.plan().assignments(0).need();
  EXPECT_GT(need.draft_bytes(), SmallModel().embedding_bytes());
  EXPECT_EQ(WiredBytes(need).count() - WiredBytes(without.plan().assignments(0).need()).count(),
            need.draft_bytes());
}

TEST(DraftModel, WhereItAloneIsTooMuchThatIsSaid) {
  v1::PlanRequest alone = WithDraft({Processor("aaaa", 64 * kGiB)});
  alone.clear_draft_model();
  const uint64_t needed = PlanModel(alone).plan().assignments(0).need().total_bytes();
  v1::PlanRequest request = WithDraft({Processor("aaaa", needed + (1 << 20))});
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "MEMORY_SHORT");
  EXPECT_THAT(result.failure().message(),
              HasSubstr("with the draft model small; without it there"));
}

}  // namespace
}  // namespace macrame::planner
