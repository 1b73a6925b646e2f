#include "cli/answer.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/coordinator_change.h"
#include "cli/exit_codes.h"
#include "proto/reasons.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::GenerateChunk CallPiece(uint32_t index, const std::string& name, const std::string& arguments) {
  v1::GenerateChunk chunk;
  v1::ToolCallDelta& delta = *chunk.add_tool_calls();
  delta.set_index(index);
  delta.set_name(name);
  delta.set_arguments(arguments);
  return chunk;
}

TEST(Answer, PiecesOfTwoCallsGoToTheirOwn) {
  Answer answer;
  answer.Add(CallPiece(0, "first", "{\"a\""), 1);
  answer.Add(CallPiece(1, "second", "{\"b\""), 2);
  answer.Add(CallPiece(0, "", ": 1}"), 3);
  answer.Add(CallPiece(1, "", ": 2}"), 4);
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].name, "first");
  EXPECT_EQ(answer.calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(answer.calls[1].arguments, "{\"b\": 2}");
  answer.Add(CallPiece(4'000'000'000, "far", "{}"), 5);
  ASSERT_EQ(answer.calls.size(), 3u) << "an index of nonsense makes one call, not four billion";
  EXPECT_EQ(answer.calls[2].name, "far");
}

TEST(Answer, CountsAreTheLastThatWereSaidAndNeverFallBack) {
  Answer answer;
  v1::GenerateChunk first, last;
  first.set_prompt_tokens(12);
  first.set_prefill_ms(80);
  last.set_text("x");
  last.set_completion_tokens(4);
  last.set_finish_reason(v1::FINISH_REASON_LENGTH);
  answer.Add(first, 10);
  EXPECT_LT(answer.first_text_ms, 0) << "no text came yet";
  answer.Add(last, 90);
  answer.Add(v1::GenerateChunk(), 200);
  EXPECT_EQ(answer.prompt_tokens, 12u);
  EXPECT_EQ(answer.prefill_ms, 80);
  EXPECT_EQ(answer.first_text_ms, 90);
  EXPECT_EQ(answer.finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(AnswerStatistics(answer),
            "prompt 12 tokens in 80 ms (150.0 tokens/s), answer 4 tokens, first text after 90 ms, "
            "finish: length\n");
}

TEST(AnswerStatistics, SaysWhatTheCacheHadAndWhyNoMore) {
  Answer answer;
  EXPECT_FALSE(Has(AnswerStatistics(answer), "cached"));
  answer.miss.set_kind("empty");
  EXPECT_FALSE(Has(AnswerStatistics(answer), "cached")) << "nothing was there yet";
  answer.cached_tokens = 64;
  answer.cold_tokens = 32;
  EXPECT_TRUE(Has(AnswerStatistics(answer), "\n64 tokens of the prompt cached, 32 from disk\n"));
  answer.miss.set_kind("differs");
  answer.miss.set_text("it differs from token 64 on\x1b[2J");
  EXPECT_TRUE(Has(AnswerStatistics(answer), "from disk; it differs from token 64 on?[2J\n"));
}

TEST(ProgressText, IsAShareAlsoOfNothing) {
  v1::PromptProgress progress;
  EXPECT_EQ(ProgressText(progress), "reading the prompt: 0 % of 0 tokens");
  progress.set_prompt_tokens(3);
  progress.set_computed_tokens(3);
  EXPECT_EQ(ProgressText(progress), "reading the prompt: 100 % of 3 tokens");
}

TEST(ReadQuestion, TakesTextAndRefusesTheRest) {
  struct Case {
    std::string in, question;
  };
  const Case cases[] = {{"", ""}, {"\n", ""}, {"a\n", "a"}, {"a\n\n", "a\n"}, {"a", "a"}};
  for (const Case& one : cases) {
    std::istringstream in(one.in);
    EXPECT_EQ(*ReadQuestion(in), one.question);
  }
  std::istringstream broken("ab\xFF");
  const auto refused = ReadQuestion(broken);
  EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kBadRequest);
  EXPECT_TRUE(Has(std::string(refused.status().message()), "byte 3 of it")) << refused.status();
  EXPECT_TRUE(Has(ReasonOf(refused.status()).remedy(), "iconv"));
  const size_t most = 4 * 1024 * 1024;
  std::istringstream whole(std::string(most, 'x')), long_one(std::string(most + 1, 'x'));
  EXPECT_TRUE(ReadQuestion(whole).ok());
  EXPECT_EQ(ReasonOf(ReadQuestion(long_one).status()).code(), reasons::kPromptTooLong);
}

TEST(ExitCodeOf, GoesByTheReasonBeforeTheStatus) {
  struct Case {
    absl::StatusCode status;
    std::string_view reason;
    ExitCode exit_code;
  };
  const Case cases[] = {{absl::StatusCode::kUnavailable, reasons::kNotReady, kExitConflict},
                        {absl::StatusCode::kDeadlineExceeded, reasons::kNotReady, kExitTimedOut},
                        {absl::StatusCode::kUnavailable, reasons::kClusterPaused, kExitConflict},
                        {absl::StatusCode::kInternal, reasons::kNodeNotFound, kExitNotFound},
                        {absl::StatusCode::kInternal, reasons::kNodeAmbiguous, kExitNotFound},
                        {absl::StatusCode::kInternal, reasons::kBadRequest, kExitUsage},
                        {absl::StatusCode::kInternal, reasons::kNoCoordinator, kExitUnreachable},
                        {absl::StatusCode::kInternal, reasons::kAgentUnreachable, kExitUnreachable},
                        {absl::StatusCode::kInternal, reasons::kRankExited, kExitFailure}};
  for (const Case& one : cases) {
    const absl::Status status = ReasonStatus(one.status, one.reason, "what happened");
    EXPECT_EQ(ExitCodeOf(status), one.exit_code) << status;
  }
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
}

TEST(GiveOrder, IsGivenAgainOnlyWhereTheCoordinatorWentAway) {
  const auto lost = ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator, "gone");
  int given = 0;
  EXPECT_TRUE(GiveOrder([&] { return ++given == 2 ? absl::OkStatus() : lost; }).ok());
  EXPECT_EQ(given, 2);
  given = 0;
  EXPECT_FALSE(GiveOrder([&] {
                 ++given;
                 return absl::InternalError("no");
               }).ok());
  EXPECT_EQ(given, 1) << "another failure is one";
  given = 0;
  EXPECT_FALSE(GiveOrder(
                   [&] {
                     ++given;
                     return lost;
                   },
                   std::chrono::milliseconds(0))
                   .ok());
  EXPECT_EQ(given, 1) << "the limit passed";
  given = 0;
  EXPECT_FALSE(GiveOrder(
                   [&] {
                     ++given;
                     return lost;
                   },
                   kCoordinatorChangeMax, [] { return true; })
                   .ok());
  EXPECT_EQ(given, 1) << "who asked went away";
}

// ---- names of nodes

TEST(ResolveNode, TakesHostnamesAndTheBeginOfIds) {
  const v1::ClusterStatus status = HealthyCluster();
  const std::string id = status.nodes(1).identity().node_id();
  for (const std::string& name :
       {std::string("mini-2"), std::string("MINI-2"), id, id.substr(0, 8)}) {
    const auto found = ResolveNode(status, name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, id) << name;
  }
}

TEST(ResolveNode, AWholeNameIsMeantBeforeTheBeginOfAnotherNodesId) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes(0)->mutable_identity()->set_hostname("cafe");
  status.mutable_nodes(1)->mutable_identity()->set_node_id("cafe0000000000000000000000000001");
  const auto found = ResolveNode(status, "cafe");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, status.nodes(0).identity().node_id());
  EXPECT_EQ(*ResolveNode(status, "cafe00"), status.nodes(1).identity().node_id());
}

TEST(ResolveNode, SaysWhichOnesItFitsAndWhichThereAre) {
  v1::ClusterStatus status = HealthyCluster();
  const auto both = ResolveNode(status, "a1b2");
  EXPECT_EQ(ReasonOf(both.status()).code(), reasons::kNodeAmbiguous);
  for (const v1::NodeStatus& node : status.nodes()) {
    EXPECT_TRUE(Has(std::string(both.status().message()), node.identity().node_id()))
        << both.status();
  }
  const auto none = ResolveNode(status, "mini-4");
  EXPECT_EQ(ReasonOf(none.status()).code(), reasons::kNodeNotFound);
  EXPECT_TRUE(Has(std::string(none.status().message()), "mini-1, mini-2")) << none.status();
  EXPECT_EQ(ReasonOf(ResolveNode(status, "a1b").status()).code(), reasons::kNodeNotFound)
      << "three digits are too few";
  EXPECT_TRUE(Has(std::string(ResolveNode({}, "mini-1").status().message()), "knows none"));
}

// Of `clusterctl nodes forget "$NODE"` with a variable that is not set.
TEST(ResolveNode, AnEmptyNameMeansNoNodeAlsoWhereOneHasNone) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes(2)->mutable_identity()->clear_hostname();
  const auto found = ResolveNode(status, "");
  EXPECT_EQ(ReasonOf(found.status()).code(), reasons::kBadRequest) << found.status();
  EXPECT_EQ(ExitCodeOf(found.status()), kExitUsage);
}

TEST(ResolveEach, TakesLabelsOfNodesThatAreThere) {
  v1::ClusterStatus status = HealthyCluster();
  for (const int node : {0, 2}) {
    v1::NodeLabel& label = *status.mutable_nodes(node)->mutable_marks()->add_labels();
    label.set_key("rack");
    label.set_value("a=b");
  }
  const auto both = ResolveEach(status, "rack=a=b");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->size(), 2u);
  status.mutable_nodes(2)->set_state(v1::NODE_STATE_LEFT);
  EXPECT_EQ(ResolveEach(status, "rack=a=b")->size(), 1u);
  for (const char* nothing : {"rack=a", "rack=", "=a", "Rack=a=b"}) {
    EXPECT_TRUE(Has(std::string(ResolveEach(status, nothing).status().message()),
                    "'clusterctl nodes label'"))
        << nothing;
  }
  EXPECT_EQ(ResolveEach(status, "mini-1")->size(), 1u);
}

TEST(NamesIn, AreListsAndFlagsAlike) {
  EXPECT_EQ(NamesIn({"a,b", "c"}), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_NE(NamesSomething(""), "");
  EXPECT_NE(NamesSomething(","), "");
  EXPECT_EQ(NamesSomething("a"), "");
}

}  // namespace
}  // namespace macrame::cli
