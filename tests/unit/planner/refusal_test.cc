// Refusals: each names what refuses, and says what to do next in words that fit it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/constraints.h"
#include "planner/planner.h"
#include "planner/rdma_advice.h"
#include "proto/reasons.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::PlanRequest OnTwo() {
  return Request(SmallModel(), {Node("aaaa", 8 * kGiB), Node("bbbb", 8 * kGiB)});
}

struct Spoiling {
  const char* name;
  std::function<void(v1::PlanRequest*, v1::PlannerNode*)> spoil;  // of each node
  const char* code;
  const char* message;
  const char* remedy;
};

// Where one cause keeps all nodes out, it is the failure, with its own way out.
TEST(Refusal, OfAllNodesForOneCauseKeepsItsRemedy) {
  const Spoiling cases[] = {
      {"engine",
       [](v1::PlanRequest* request, v1::PlannerNode*) {
         request->mutable_model()->set_engine("mlx-lm");
       },
       "ENGINE_MISSING", "has no mlx-lm, which serves llama models", "pip install mlx-lm"},
      {"pressure",
       [](v1::PlanRequest*, v1::PlannerNode* node) {
         node->set_memory_pressure(v1::MEMORY_PRESSURE_CRITICAL);
       },
       "MEMORY_SHORT", "memory pressure on host-", "close programs on that node"},
      {"files", [](v1::PlanRequest*, v1::PlannerNode* node) { node->set_has_model_files(false); },
       "MODEL_NOT_ON_NODE", "does not have the files of small", "copy the model's folder"},
      {"kv bits",
       [](v1::PlanRequest* request, v1::PlannerNode*) {
         request->mutable_placement()->set_kv_bits(8);
       },
       "KV_BITS_UNSUPPORTED", "a KV cache of 8 bits", "--kv-bits 16"},
      {"tenant", [](v1::PlanRequest*, v1::PlannerNode* node) { node->set_tenant("law"); },
       "NODE_DEDICATED", "is dedicated to a tenant that this model is not loaded for", ""},
      {"cordon",
       [](v1::PlanRequest*, v1::PlannerNode* node) {
         node->set_schedulable(false);
         node->set_unschedulable_reason("cordoned: new disk");
       },
       "NODE_NOT_ALIVE", "takes no ranks: cordoned: new disk", ""},
  };
  for (const Spoiling& each : cases) {
    SCOPED_TRACE(each.name);
    v1::PlanRequest request = OnTwo();
    for (v1::PlannerNode& node : *request.mutable_nodes()) each.spoil(&request, &node);
    const v1::PlanResult result = PlanModel(request);
    ASSERT_FALSE(result.has_plan());
    EXPECT_EQ(result.failure().code(), each.code);
    EXPECT_THAT(result.failure().message(), HasSubstr(each.message));
    EXPECT_THAT(result.failure().remedy(), HasSubstr(each.remedy));
    ASSERT_EQ(result.rejections_size(), 2) << "each node for itself";
    EXPECT_THAT(result.rejections(0).subject(), HasSubstr("host-aaaa"));
    EXPECT_EQ(result.rejections(1).reason().code(), each.code);
  }
}

TEST(Refusal, OfNodesForDifferentCausesNamesEachOfThem) {
  v1::PlanRequest request = OnTwo();
  request.mutable_nodes(0)->set_schedulable(false);
  request.mutable_nodes(1)->set_has_model_files(false);
  const v1::Reason failure = PlanModel(request).failure();
  EXPECT_EQ(failure.code(), reasons::kTooFewNodes);
  EXPECT_THAT(failure.message(), HasSubstr("host-aaaa (aaaa) takes no ranks: not alive"));
  EXPECT_THAT(failure.message(), HasSubstr("host-bbbb (bbbb) does not have the files of small"));
  request.clear_nodes();
  EXPECT_EQ(PlanModel(request).failure().message(), "the cluster has no nodes");
}

// The first rule that refuses is the one that is said: who may use a node goes before what it
// lacks.
TEST(Refusal, RulesAreAskedInTheirOrder) {
  struct Rule {
    std::string_view name;
    std::function<void(v1::PlanRequest*)> mend;
  };
  v1::PlanRequest request = Request(SmallModel(), {Node("aaaa", 8 * kGiB)});
  v1::PlannerNode* node = request.mutable_nodes(0);
  request.mutable_placement()->add_excluded_node_ids("aaaa");
  request.mutable_placement()->set_kv_bits(8);
  *request.mutable_draft_model() = SmallModel();
  request.mutable_draft_model()->set_fixed_state_bytes(1);  // it takes no drafts
  node->set_tenant("law");
  node->set_schedulable(false);
  node->clear_engine_names();
  node->set_has_model_files(false);
  node->set_memory_pressure(v1::MEMORY_PRESSURE_CRITICAL);
  const Rule rules[] = {
      {"placement", [](auto* r) { r->mutable_placement()->clear_excluded_node_ids(); }},
      {"tenant", [](auto* r) { r->mutable_placement()->set_tenant("law"); }},
      {"alive", [](auto* r) { r->mutable_nodes(0)->set_schedulable(true); }},
      {"engine", [](auto* r) { r->mutable_nodes(0)->add_engine_names("mlx"); }},
      {"files", [](auto* r) { r->set_files_may_be_fetched(true); }},
      {"kv_bits", [](auto* r) { r->mutable_placement()->clear_kv_bits(); }},
      {"pressure",
       [](auto* r) { r->mutable_nodes(0)->set_memory_pressure(v1::MEMORY_PRESSURE_NORMAL); }},
      {"draft", [](auto* r) { r->clear_draft_model(); }},
  };
  const auto refuser = [&]() -> std::string {
    for (const NodeConstraint& constraint : NodeConstraints()) {
      if (constraint.refuse(request.nodes(0), request).has_value()) {
        return std::string(constraint.name);
      }
    }
    return "";
  };
  for (const Rule& rule : rules) {
    EXPECT_EQ(refuser(), rule.name);
    rule.mend(&request);
  }
  EXPECT_EQ(refuser(), "") << "nothing is left that refuses it";
  EXPECT_TRUE(PlanModel(request).has_plan());
}

TEST(Refusal, ANameThatOneNodeBearsWholeMeansNoOther) {
  // The host name of one is how the other's id begins.
  std::vector<v1::PlannerNode> nodes = {Node("1111111111", 8 * kGiB), Node("beef222222", 8 * kGiB)};
  nodes[0].set_hostname("beef");
  v1::PlanRequest request = Request(SmallModel(), nodes);
  request.mutable_placement()->add_node_ids("beef");
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().assignments(0).node_id(), "1111111111");
  request.mutable_placement()->set_node_ids(0, "beef2");
  EXPECT_EQ(PlanModel(request).plan().assignments(0).node_id(), "beef222222");
  request.mutable_nodes(1)->set_hostname("beef");
  request.mutable_placement()->set_node_ids(0, "beef");
  const v1::Reason failure = PlanModel(request).failure();
  EXPECT_EQ(failure.code(), reasons::kBadRequest);
  EXPECT_THAT(failure.message(), HasSubstr("beef (11111111), beef (beef2222)"));
  EXPECT_THAT(failure.remedy(), HasSubstr("name nodes by their id"));
}

TEST(Refusal, OptionsOutOfBoundsSayWhichBoundAndName) {
  using Options = v1::PlacementOptions;
  struct Case {
    std::function<void(Options*)> ask;
    const char* message;
  };
  const Case cases[] = {
      {[](Options* o) { o->set_context_length(1); }, "need at least 2"},
      {[](Options* o) { o->set_context_length(1025); }, "small was made for at most 1024"},
      {[](Options* o) { o->set_context_length(~0u); }, "small was made for at most 1024"},
      {[](Options* o) { o->set_concurrent_sequences(4097); }, "4097 sequences at once"},
      {[](Options* o) { o->set_users(~0u); }, "4294967295 sequences at once"},
      {[](Options* o) { o->set_parallelism(static_cast<v1::Parallelism>(77)); }, "not known"},
      {[](Options* o) {
         o->add_node_ids("aaaa");
         o->set_world_size(2);
       },
       "2 ranks were asked for on 1 node"},
      {[](Options* o) {
         o->add_node_ids("aaaa");
         o->add_node_ids("host-aaaa");
         o->set_world_size(2);
       },
       "2 ranks were asked for on 1 node"},
      {[](Options* o) {
         o->add_node_ids("aaaa");
         o->add_excluded_node_ids("host-aaaa");
       },
       "the nodes asked for are all excluded"},
  };
  for (const Case& each : cases) {
    v1::PlanRequest request = OnTwo();
    each.ask(request.mutable_placement());
    const v1::Reason failure = PlanModel(request).failure();
    EXPECT_EQ(failure.code(), reasons::kBadRequest) << each.message;
    EXPECT_THAT(failure.message(), HasSubstr(each.message));
  }
  v1::PlanRequest request = OnTwo();
  request.mutable_placement()->add_node_ids("host-aaab");
  EXPECT_EQ(PlanModel(request).failure().code(), reasons::kNodeNotFound);
  EXPECT_THAT(PlanModel(request).failure().message(), HasSubstr("did you mean 'host-aaaa'"));
  request.mutable_placement()->set_node_ids(0, "");
  EXPECT_EQ(PlanModel(request).failure().code(), reasons::kNodeNotFound) << "of an unset variable";
}

TEST(Refusal, DescriptionsOfHostileFilesAreRefusedAndNeverCalculatedWith) {
  using Model = v1::ModelDescription;
  const std::pair<const char*, std::function<void(Model*)>> cases[] = {
      {"0 layers", [](Model* m) { m->set_layer_count(0); }},
      {"4294967295 layers", [](Model* m) { m->set_layer_count(~0u); }},
      {"sizes of 5", [](Model* m) { m->mutable_layer_bytes()->RemoveLast(); }},
      {"sizes of", [](Model* m) { m->mutable_layer_divisible_bytes()->RemoveLast(); }},
      {"layer 3 with more divisible", [](Model* m) { m->set_layer_divisible_bytes(3, ~0ULL); }},
      {"a dimension of 0", [](Model* m) { m->set_kv_heads(0); }},
      {"a dimension of 4294967295", [](Model* m) { m->set_vocab_size(~0u); }},
      {"a dimension of 16777217", [](Model* m) { m->set_head_dim((1u << 24) + 1); }},
      {"more weights than any disk", [](Model* m) { m->set_embedding_bytes(~0ULL); }},
      {"more weights than any disk",
       [](Model* m) {
         for (int i = 0; i < 6; ++i) m->set_layer_bytes(i, 1ULL << 63);
       }},
  };
  for (const auto& [what, spoil] : cases) {
    SCOPED_TRACE(what);
    for (const bool of_draft : {false, true}) {
      v1::PlanRequest request = OnTwo();
      if (of_draft) *request.mutable_draft_model() = SmallModel();
      Model* spoilt = of_draft ? request.mutable_draft_model() : request.mutable_model();
      spoilt->set_name("spoilt");
      spoil(spoilt);
      const v1::Reason failure = PlanModel(request).failure();
      EXPECT_EQ(failure.code(), reasons::kModelConfigInvalid);
      EXPECT_THAT(failure.message(), HasSubstr("the description of spoilt has "));
      EXPECT_THAT(failure.message(), HasSubstr(what));
    }
  }
}

// The largest numbers that are let through give a refusal or a plan, and no overflow between.
TEST(Refusal, TheLargestDescriptionsThatAreAllowedFitNowhere) {
  v1::PlanRequest request = OnTwo();
  v1::ModelDescription& model = *request.mutable_model();
  constexpr uint32_t kMost = 1u << 24;
  model.set_hidden_size(kMost);
  model.set_intermediate_size(kMost);
  model.set_attention_heads(kMost);
  model.set_kv_heads(kMost);
  model.set_head_dim(kMost);
  model.set_vocab_size(kMost);
  model.set_context_length_max(0);
  request.mutable_placement()->set_context_length(~0u);
  request.mutable_placement()->set_concurrent_sequences(4096);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), reasons::kMemoryShort) << result.failure().message();
  EXPECT_THAT(result.failure().message(), HasSubstr("small does not fit with a context of 42949"));
}

// ---- Shapes.

std::string WhyNot(const v1::PlanResult& result, const std::string& subject) {
  for (const v1::Rejection& rejection : result.rejections()) {
    if (rejection.subject() == subject) return rejection.reason().message();
  }
  return "";
}

TEST(Refusal, OfAShapeSaysTheRuleThatRefusesIt) {
  v1::PlanRequest request = OnTwo();
  request.mutable_model()->set_kv_heads(3);
  request.mutable_model()->set_attention_heads(9);
  EXPECT_THAT(WhyNot(PlanModel(request), "tensor parallel over 2"),
              HasSubstr("9 attention heads and 3 key-value heads can't be divided by 2, and the "
                        "engine cuts layers into equal slices only"));
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.mutable_traits()->set_no_tensor(true);
  request.mutable_model()->set_kv_heads(4);
  request.mutable_model()->set_attention_heads(8);
  EXPECT_THAT(WhyNot(PlanModel(request), "tensor parallel over 2"),
              HasSubstr("the engines of 0 of 2 nodes can share a layer between ranks, and 2 are"));
  request.mutable_nodes(0)->mutable_traits()->set_no_pipeline(true);
  EXPECT_THAT(WhyNot(PlanModel(request), "pipeline parallel over 2"),
              HasSubstr("the engines of 1 of 2 nodes can be stages of a pipeline"));
}

TEST(Refusal, OfMoreStagesThanLayersCountsThem) {
  v1::PlanRequest request = OnTwo();
  v1::ModelDescription& model = *request.mutable_model();
  model.set_layer_count(1);
  model.clear_layer_bytes();
  model.clear_layer_divisible_bytes();
  model.add_layer_bytes(450'000);
  model.add_layer_divisible_bytes(448'000);
  const std::string why = WhyNot(PlanModel(request), "pipeline parallel over 2");
  EXPECT_EQ(why, "1 layer can't be laid on 2 stages");
  EXPECT_TRUE(PlanModel(request).has_plan());
}

TEST(Refusal, OfWhatIsShortSaysHowMuchTogether) {
  const v1::PlanRequest request = Request(LargeModel("big", 100 * kGiB, 40),
                                          {Node("aaaa", 40 * kGiB), Node("bbbb", 20 * kGiB)});
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), reasons::kMemoryShort);
  EXPECT_THAT(result.failure().message(), HasSubstr("the 2 largest nodes can give 60.0 GiB"));
  EXPECT_THAT(result.failure().message(), HasSubstr("too little"));
  EXPECT_THAT(result.failure().message(),
              HasSubstr("Nodes can give: host-aaaa (aaaa) 40.0 GiB, host-bbbb (bbbb) 20.0 GiB"));
}

TEST(Refusal, OfLayersThatAreTooLargeSaysThatNoDivisionFits) {
  // Together they hold it, but a layer is larger than either has left.
  v1::PlanRequest request =
      Request(LargeModel("big", 30 * kGiB, 2), {Node("aaaa", 19 * kGiB), Node("bbbb", 15 * kGiB)});
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_THAT(result.failure().message(),
              HasSubstr("no division into whole layers keeps each of them within its own"));
}

// ---- RDMA.

v1::PlanRequest ManyMacs(int count) {
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < count; ++i) {
    nodes.push_back(Node(absl::StrCat("mac-", i), 12 * kGiB));
    nodes.back().set_hostname(nodes.back().node_id());
  }
  return Request(LargeModel("big", 9 * kGiB * static_cast<uint64_t>(count), 40), nodes);
}

std::vector<std::string> LacksOf(const v1::PlanRequest& request) {
  std::vector<Candidate> candidates;
  std::vector<size_t> all;
  for (const v1::PlannerNode& node : request.nodes()) {
    all.push_back(candidates.size());
    candidates.push_back(CandidateOf(node));
  }
  const LinkCosts links(request, candidates);
  return RdmaLacks(request, GangJudge(request.model(), candidates, links, {}, {}), all);
}

TEST(RdmaLack, ANodeThatHasNoneIsNamedOnceWithItsReason) {
  v1::PlanRequest request = ManyMacs(4);
  EXPECT_THAT(LacksOf(request)[0], HasSubstr("no link for RDMA between mac-0 and mac-1, "));
  *request.mutable_nodes(2)->mutable_rdma_unavailable() =
      MakeReason(reasons::kTb4Controller, "its chip has Thunderbolt 4");
  const std::vector<std::string> lacks = LacksOf(request);
  ASSERT_EQ(lacks.size(), 2u);
  EXPECT_EQ(lacks[0], "mac-2: its chip has Thunderbolt 4");
  EXPECT_THAT(lacks[1], Not(HasSubstr("mac-2")));
  AddMesh({"mac-0", "mac-1", "mac-3"}, &request);
  EXPECT_EQ(LacksOf(request), (std::vector<std::string>{"mac-2: its chip has Thunderbolt 4"}));
}

TEST(RdmaLack, ALinksReasonHoldsBothWaysAndTheFirstIsSaid) {
  v1::PlanRequest request = ManyMacs(2);
  AddLink("mac-1", "mac-0", {"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  *request.mutable_links(0)->mutable_rdma_unavailable() =
      MakeReason(reasons::kRdmaUnavailable, "the cable is too old");
  EXPECT_EQ(LacksOf(request), (std::vector<std::string>{"mac-0 and mac-1: the cable is too old"}));
}

TEST(RdmaLack, LongListsEndWithHowManyMoreThereAre) {
  // Of 5 nodes there are 10 pairs, of which 3 have RDMA: one more than is named.
  v1::PlanRequest request = ManyMacs(5);
  AddMesh({"mac-0", "mac-1", "mac-2"}, &request);
  std::vector<std::string> lacks = LacksOf(request);
  ASSERT_EQ(lacks.size(), 1u);
  EXPECT_THAT(lacks[0], HasSubstr(" and 1 more pair"));
  EXPECT_THAT(lacks[0], Not(HasSubstr("pairs")));
  request = ManyMacs(9);
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    *node.mutable_rdma_unavailable() = MakeReason(reasons::kRdmaDisabledLocal, "off");
  }
  lacks = LacksOf(request);
  ASSERT_EQ(lacks.size(), 7u);
  EXPECT_EQ(lacks.back(), "and 3 more");
}

TEST(RdmaLack, AMeshThatIsTooSmallIsSaidWhereEachPairHasACable) {
  v1::PlanRequest request = ManyMacs(2);
  AddMesh({"mac-0", "mac-1"}, &request);
  request.mutable_placement()->set_transport("jaccl");
  ASSERT_TRUE(PlanModel(request).has_plan()) << PlanModel(request).failure().message();
  request.set_mesh_ranks_max(1);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), reasons::kRdmaUnavailable);
  EXPECT_THAT(result.failure().message(), HasSubstr("a mesh of at most 1"));
  EXPECT_THAT(result.failure().remedy(), HasSubstr("over TCP 2 nodes hold it"));
}

}  // namespace
}  // namespace macrame::planner
