#include "agentd/services/coordinator_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/idle_machine.h"
#include "tests/unit/agentd/lone_node.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::IdOf;

using Response = v1::ForgetNodeResponse;

class CoordinatorWayTest : public ::testing::Test {
 protected:
  struct Outcome {
    int here = 0;
    std::optional<absl::StatusOr<Response>> answer;
  };
  std::shared_ptr<Outcome> Ask(const transport::Caller& caller) {
    auto outcome = std::make_shared<Outcome>();
    v1::ForgetNodeRequest request;
    request.set_node_id("m");
    way_.Unary(
        kForgetNode, caller, request, seconds(2),
        [outcome](absl::StatusOr<Response> answer) {
          EXPECT_FALSE(outcome->answer.has_value()) << "answered twice";
          outcome->answer = std::move(answer);
        },
        [outcome] { ++outcome->here; });
    return outcome;
  }
  static transport::Caller Person() { return {NodeId(), /*local=*/true, ""}; }
  static transport::Caller KeyHolder() { return {NodeId(), false, "10.0.0.7", "0123456789ab"}; }
  static transport::Caller Member() { return {IdOf('b'), false, "10.0.0.1"}; }
  static std::string CodeOf(const Outcome& outcome) {
    return outcome.answer.has_value() ? ReasonOf(outcome.answer->status()).code() : "no answer";
  }

  tests::LoneNode node_;
  tests::CountingProber prober_;
  tests::ListedRanks supervisor_;
  const OwnNode own_{node_.dispatcher, tests::IdentityOf(node_.self), prober_, supervisor_};
  CoordinatorWay way_{{node_.dispatcher, node_.election, node_.channels, own_}};
};

TEST_F(CoordinatorWayTest, WhereThisNodeLeadsItIsDoneHereWhoeverAsks) {
  node_.Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  for (const transport::Caller& caller : {Person(), KeyHolder(), Member()}) {
    const auto outcome = Ask(caller);
    EXPECT_EQ(outcome->here, 1);
    EXPECT_FALSE(outcome->answer.has_value());
  }
  EXPECT_THAT(node_.peers.calls(), IsEmpty());
}

TEST_F(CoordinatorWayTest, WhatAPersonAsksGoesToTheCoordinatorWithItsAnswer) {
  node_.Obey(IdOf('b'), 3);
  for (const transport::Caller& caller : {Person(), KeyHolder()}) {
    const auto outcome = Ask(caller);
    ASSERT_THAT(node_.peers.Open(), SizeIs(1));
    EXPECT_EQ(node_.peers.last().node, IdOf('b'));
    EXPECT_EQ(node_.peers.last().As<v1::ForgetNodeRequest>().node_id(), "m");
    EXPECT_FALSE(outcome->answer.has_value());
    node_.peers.last().Answer(Response());
    ASSERT_TRUE(outcome->answer.has_value());
    EXPECT_TRUE(outcome->answer->ok());
    EXPECT_EQ(outcome->here, 0);
  }
}

// Else two nodes that take each other for the coordinator would pass it to and fro.
TEST_F(CoordinatorWayTest, WhatAnotherNodeAsksIsNeverPassedOnNorWaitedFor) {
  node_.Obey(IdOf('c'), 3);
  const auto outcome = Ask(Member());
  EXPECT_EQ(CodeOf(*outcome), reasons::kNoCoordinator);
  EXPECT_THAT(node_.peers.calls(), IsEmpty());
}

TEST_F(CoordinatorWayTest, APersonWaitsForACoordinatorAMomentAndNoLonger) {
  const auto outcome = Ask(Person());
  node_.dispatcher.AdvanceBy(kCoordinatorWait - milliseconds(200));
  EXPECT_FALSE(outcome->answer.has_value());
  node_.dispatcher.AdvanceBy(milliseconds(500));
  EXPECT_EQ(CodeOf(*outcome), reasons::kNoCoordinator);
  EXPECT_EQ(node_.dispatcher.pending_timers(), 0) << "nothing goes on in its name";
}

TEST_F(CoordinatorWayTest, WhoIsElectedMeanwhileGetsIt) {
  const auto there = Ask(Person());
  node_.dispatcher.AdvanceBy(seconds(1));
  node_.Obey(IdOf('b'), 3);
  node_.dispatcher.AdvanceBy(milliseconds(200));
  ASSERT_THAT(node_.peers.Open(), SizeIs(1));
  node_.peers.last().Answer(Response());
  EXPECT_TRUE(there->answer->ok());

  tests::LoneNode alone;
  CoordinatorWay way({alone.dispatcher, alone.election, alone.channels, own_});
  int here = 0;
  way.At(
      Person(), [&] { ++here; }, [](transport::PeerChannel&, const NodeId&) { FAIL(); },
      [](const absl::Status& status) { FAIL() << status; });
  EXPECT_EQ(here, 0);
  alone.Pass(seconds(4));
  EXPECT_EQ(here, 1);
}

TEST_F(CoordinatorWayTest, ACoordinatorThatCantBeCalledIsWaitedForLikeOneThatIsNotThere) {
  node_.Obey(IdOf('b'), 3);
  node_.channels.SetRevoked({IdOf('b')});
  const auto outcome = Ask(Person());
  for (int second = 0; second < 7; ++second) {
    node_.Obey(IdOf('b'), 3);
    node_.dispatcher.AdvanceBy(seconds(1));
  }
  EXPECT_EQ(CodeOf(*outcome), reasons::kNoCoordinator);
}

// What the coordinator says itself is told as it is; its silence is told with its name.
TEST_F(CoordinatorWayTest, SilenceOfTheCoordinatorIsToldWithItsNameAndItsRefusalAsItIs) {
  const absl::Status own =
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotAcknowledged, "no majority has it");
  const std::vector<std::pair<absl::Status, std::string_view>> ends = {
      {absl::UnavailableError("connection reset"), reasons::kNoCoordinator},
      {absl::DeadlineExceededError("no answer"), reasons::kNoCoordinator},
      {own, reasons::kNotAcknowledged},
      {absl::PermissionDeniedError("not for you"), reasons::kInternal},
      {absl::NotFoundError("no such model"), reasons::kInternal}};
  for (const auto& [status, code] : ends) {
    node_.Obey(IdOf('b'), 3);
    const auto outcome = Ask(Person());
    node_.peers.last().End(status);
    ASSERT_TRUE(outcome->answer.has_value());
    EXPECT_EQ(CodeOf(*outcome), code) << status;
    const v1::Reason told = ReasonOf(outcome->answer->status());
    if (code == reasons::kNoCoordinator) {
      EXPECT_EQ(told.node_id(), IdOf('b').value());
      EXPECT_THAT(told.message(), HasSubstr(ShortId(IdOf('b'))));
      EXPECT_THAT(told.message(), HasSubstr(std::string(status.message())));
      EXPECT_THAT(told.message(), HasSubstr("may have done"));
    } else {
      EXPECT_EQ(outcome->answer->status(), status);
    }
  }
}

TEST_F(CoordinatorWayTest, AnAnswerWaitsForItsWrite) {
  std::vector<absl::StatusOr<Response>> answers;
  const auto reply = [&](absl::StatusOr<Response> answer) { answers.push_back(std::move(answer)); };
  Response response;
  response.add_member_ids("m");
  AnswerWhenWritten<Response>(reply, response)(absl::OkStatus());
  AnswerWhenWritten<Response>(reply, response)(absl::UnavailableError("not acknowledged"));
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_THAT(answers[0]->member_ids(), ElementsAre("m"));
  EXPECT_TRUE(absl::IsUnavailable(answers[1].status()));
}

}  // namespace
}  // namespace macrame::agentd
