#include "agentd/services/routed_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agentd/cores/gang_reconciler.h"
#include "macrame/v1/agent.pb.h"
#include "proto/reasons.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const NodeId kHere("11111111111111111111111111111111");
const NodeId kFirst("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
const NodeId kSecond("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");

absl::Status Gone() {
  return ReasonStatus(absl::StatusCode::kNotFound, "MODEL_NOT_LOADED", "no entry rank is here");
}

// A node's desired state, requests as they go out, and what the client hears.
class RoutedCallTest : public ::testing::Test {
 protected:
  RoutedCallTest() : table_(kHere), entries_(dispatcher_, desired_) {
    table_.BeginLeading(FencePair{});
    v1::Deployment wanted;
    wanted.set_name("m");
    Put(DeploymentKey("m"), wanted.SerializeAsString());
  }

  void Put(const std::string& key, std::string value) {
    ASSERT_TRUE(table_.Propose(key, std::move(value)).ok());
  }

  void Place(const NodeId& entry, uint64_t epoch) {
    v1::GangRecord record;
    record.set_deployment("m");
    record.set_epoch(epoch);
    record.set_entry_node_id(entry.value());
    Put(GangKey("m"), record.SerializeAsString());
  }

  void Ask(const std::string& model = "m", const v1::ModelProfile* profile = nullptr,
           bool is_traced = false, bool is_whole = false) {
    v1::GenerateRequest request;
    request.set_timings(is_traced);
    request.set_deployment(model);
    const std::function<void()> begin_again = [this] {
      text_.clear();
      ++begun_again_;
    };
    call_ = std::make_shared<RoutedCall>(
        dispatcher_, entries_,
        [this](const NodeId& node, const v1::GenerateRequest& sent, RoutedCall::ChunkCallback chunk,
               RoutedCall::DoneCallback done) {
          sent_.push_back({node, std::move(chunk), std::move(done), sent.max_tokens()});
          return transport::CallHandle([this] { ++cancelled_; });
        },
        request,
        ChunkCallback([this](const v1::GenerateChunk& chunk) { text_ += chunk.text(); },
                      is_whole ? begin_again : nullptr),
        [this](const absl::Status& status) {
          ASSERT_FALSE(ended_.has_value()) << "told twice";
          ended_ = status;
        });
    call_->Start(profile);
  }

  // By a client that does not stream: it is sent nothing before the end.
  void AskWhole() { Ask("m", nullptr, /*is_traced=*/false, /*is_whole=*/true); }

  void Answer(size_t attempt, const std::string& text) {
    v1::GenerateChunk chunk;
    chunk.set_text(text);
    sent_.at(attempt).chunk(chunk);
  }

  std::vector<NodeId> Asked() const {
    std::vector<NodeId> nodes;
    for (const Sent& sent : sent_) nodes.push_back(sent.node);
    return nodes;
  }

  struct Sent {
    NodeId node;
    RoutedCall::ChunkCallback chunk;
    RoutedCall::DoneCallback done;
    uint32_t max_tokens = 0;
  };
  transport::FakeDispatcher dispatcher_;
  StateTable table_;
  DesiredState desired_{table_};
  EntryTable entries_;
  std::shared_ptr<RoutedCall> call_;
  std::vector<Sent> sent_;
  int cancelled_ = 0;
  std::string text_;
  int begun_again_ = 0;
  std::optional<absl::Status> ended_;
};

absl::Status Killed() {
  return ReasonStatus(absl::StatusCode::kUnavailable, "RANK_KILLED", "rank 0 was killed");
}

TEST_F(RoutedCallTest, AModelThatNobodyWantsIsNotFoundAtOnce) {
  Ask("other");
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "MODEL_NOT_LOADED");
  EXPECT_THAT(std::string(ended_->message()), HasSubstr("loaded: m"));
}

// The node that was said to hold the entry rank knows nothing of it, for as long as is waited.
TEST_F(RoutedCallTest, AWantedModelIsNeverNotFound) {
  Place(kFirst, 1);
  Ask();
  for (size_t i = 0; !ended_.has_value() && i < 1000; ++i) {
    if (sent_.size() > i) sent_[i].done(Gone());
    dispatcher_.AdvanceBy(kEntryRetryPause);
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*ended_)) << *ended_;
  EXPECT_EQ(ReasonOf(*ended_).code(), "NOT_READY");
}

// The machine is frozen, so its connections take what is sent, and nobody has room for a new gang.
TEST_F(RoutedCallTest, ADeadEntryNodeIsNotAskedAndNotWaitedFor) {
  Place(kFirst, 1);
  entries_.SetIsDead([](const NodeId& node) { return node == kFirst; });
  Ask();
  dispatcher_.AdvanceBy(kEntryWaitMax + seconds(1));
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "ENTRY_UNREACHABLE");
}

TEST_F(RoutedCallTest, ATracedCallTellsItsWay) {
  Place(kFirst, 1);
  Ask("m", nullptr, /*is_traced=*/true);
  dispatcher_.AdvanceBy(seconds(1));
  Place(kSecond, 2);
  sent_.at(0).done(
      ReasonStatus(absl::StatusCode::kUnavailable, "GANG_LOST_NODE", "lost", kFirst.value()));
  dispatcher_.AdvanceBy(kEntryRetryPause);
  ASSERT_EQ(sent_.size(), 2u);
  for (int i = 0; i < 3; ++i) {
    sent_.back().done(Gone());
    dispatcher_.AdvanceBy(kEntryRetryPause);
  }
  const std::vector<CallRoute::Step> steps = call_->Route().steps;
  ASSERT_GE(steps.size(), 4u);
  EXPECT_TRUE(steps[0].is_sent);
  EXPECT_EQ(steps[0].node_id, kFirst.value());
  EXPECT_EQ(steps[0].epoch, 1u);
  EXPECT_FALSE(steps[1].is_sent);
  EXPECT_EQ(steps[1].code, "GANG_LOST_NODE");
  EXPECT_EQ(steps[1].node_id, kFirst.value());
  EXPECT_GE(steps[1].at - steps[0].at, seconds(1));
  EXPECT_EQ(steps[2].node_id, kSecond.value());
  EXPECT_EQ(steps[2].epoch, 2u);
}

TEST_F(RoutedCallTest, ATracedCallKeepsABoundedPartOfALongWay) {
  Place(kFirst, 1);
  Ask("m", nullptr, /*is_traced=*/true);
  for (size_t i = 0; !ended_.has_value() && i < 1000; ++i) {
    if (sent_.size() > i) sent_[i].done(Gone());
    dispatcher_.AdvanceBy(kEntryRetryPause);
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(call_->Route().steps.size(), kRouteStepsMax);
  EXPECT_GT(call_->Route().steps[1].at - call_->Route().steps[0].at, seconds(1));
  EXPECT_LT(dispatcher_.Now() - call_->Route().steps.back().at, seconds(1));
  EXPECT_GT(call_->Route().dropped, 0u);
}

TEST_F(RoutedCallTest, OneThatNobodyTracesKeepsNothing) {
  Place(kFirst, 1);
  Ask();
  EXPECT_TRUE(call_->Route().steps.empty());
}

TEST_F(RoutedCallTest, ARecordWithoutAnEntryEndsWhatWasSentToIt) {
  Place(kFirst, 1);
  Ask();
  v1::GangRecord evicted;
  evicted.set_deployment("m");
  evicted.set_epoch(1);
  Put(GangKey("m"), evicted.SerializeAsString());
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnLook);
  EXPECT_EQ(cancelled_, 1);
}

// One of its nodes is about to stop: the old gang still answers, also what it has not begun.
TEST_F(RoutedCallTest, AGangThatMovesInOrderHasTimeForWhatItWasAsked) {
  Place(kFirst, 1);
  Ask();
  v1::GangRecord moved;
  moved.set_deployment("m");
  moved.set_epoch(2);
  moved.set_entry_node_id(kSecond.value());
  moved.mutable_last_failure()->set_code("NODE_LEFT");
  Put(GangKey("m"), moved.SerializeAsString());
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnGrace - std::chrono::milliseconds(100));
  EXPECT_EQ(cancelled_, 0);
  Answer(0, "late");
  sent_.at(0).done(absl::OkStatus());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(text_, "late");
}

// While a coordinator raises its term, a merge may show the other half's record for a moment.
TEST_F(RoutedCallTest, ARecordThatComesBackEndsNothing) {
  Place(kFirst, 1);
  Ask();
  Place(kSecond, 2);
  call_->NoteStateChanged();
  Place(kFirst, 1);
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnGrace + seconds(1));
  EXPECT_EQ(cancelled_, 0);
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(RoutedCallTest, AWantedModelWithoutAPlaceIsNotReady) {
  Ask();
  dispatcher_.AdvanceBy(kEntryWaitMax + seconds(1));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "NOT_READY");
}

TEST_F(RoutedCallTest, WithoutATokenItGoesToTheNewGangWhenItsNodeIsDead) {
  Place(kFirst, 1);
  Ask();
  dispatcher_.AdvanceBy(seconds(60));  // a long prompt
  call_->NoteDead(kSecond);
  EXPECT_EQ(cancelled_, 0);
  call_->NoteDead(kFirst);
  EXPECT_EQ(cancelled_, 1);
  dispatcher_.AdvanceBy(milliseconds(500));
  Place(kSecond, 2);
  for (size_t i = 1; i < 100 && Asked().back() != kSecond; ++i) {
    if (sent_.size() > i) sent_[i].done(Gone());
    dispatcher_.AdvanceBy(kEntryRetryPause);
  }
  ASSERT_EQ(Asked().back(), kSecond);
  // What the frozen node says when it wakes is nobody's.
  Answer(0, "old");
  sent_[0].done(absl::CancelledError("cancelled"));
  Answer(sent_.size() - 1, "new");
  sent_.back().done(absl::OkStatus());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(text_, "new");
}

TEST_F(RoutedCallTest, TheModelsProfileGoesAlong) {
  Place(kFirst, 1);
  v1::ModelProfile profile;
  profile.set_max_tokens(9);
  Ask("m", &profile);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].max_tokens, 9u);
}

// How far a prompt is, is no part of an answer: the new gang is asked all the same.
TEST_F(RoutedCallTest, ToldOfItsPromptItStillGoesToTheNewGang) {
  Place(kFirst, 1);
  Ask();
  v1::GenerateChunk told;
  told.mutable_progress()->set_computed_tokens(512);
  sent_[0].chunk(told);
  call_->NoteDead(kFirst);
  Place(kSecond, 2);
  dispatcher_.AdvanceBy(kEntryRetryPause);
  EXPECT_THAT(Asked(), ElementsAre(kFirst, kSecond));
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(RoutedCallTest, AnAnswerThatHasBegunEndsWithItsNode) {
  Place(kFirst, 1);
  Ask();
  Answer(0, "half");
  call_->NoteDead(kFirst);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*ended_));
  EXPECT_EQ(ReasonOf(*ended_).code(), "GANG_LOST_NODE");
  EXPECT_EQ(cancelled_, 1);
}

// --- clients that don't stream -------------------------------------------------------------------

TEST_F(RoutedCallTest, AWholeAnswerIsAskedForAgainWhenItsGangIsLostUnderWay) {
  for (const char* code : {"RANK_EXITED", "RANK_KILLED", "RANK_STALLED", "ENGINE_FAILED",
                           "GANG_LOST_NODE", "PEER_LOST", "NOT_READY", "ENTRY_UNREACHABLE"}) {
    SCOPED_TRACE(code);
    sent_.clear();
    ended_.reset();
    text_.clear();
    begun_again_ = 0;
    Place(kFirst, 1);
    AskWhole();
    dispatcher_.AdvanceBy(seconds(60));
    Answer(0, "half ");
    sent_.at(0).done(ReasonStatus(absl::StatusCode::kUnavailable, code, "it is gone"));
    EXPECT_FALSE(ended_.has_value());
    Place(kSecond, 2);
    for (size_t i = 1; i < 30; ++i) {  // for three seconds it is being brought up again
      dispatcher_.AdvanceBy(kEntryRetryPause);
      ASSERT_EQ(sent_.size(), i + 1);
      sent_[i].done(ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY", "loading"));
    }
    dispatcher_.AdvanceBy(kEntryRetryPause);
    EXPECT_EQ(Asked().back(), kSecond);
    Answer(0, "late ");  // of the first one
    Answer(sent_.size() - 1, "all of ");
    Answer(sent_.size() - 1, "it");
    sent_.back().done(absl::OkStatus());
    ASSERT_TRUE(ended_.has_value());
    EXPECT_TRUE(ended_->ok()) << *ended_;
    EXPECT_EQ(text_, "all of it");
    EXPECT_EQ(begun_again_, 1);
  }
}

TEST_F(RoutedCallTest, AWholeAnswerGoesToTheNewGangWhenItsNodeIsDeadOrTheEpochMovedOn) {
  for (const bool is_dead : {true, false}) {
    sent_.clear();
    ended_.reset();
    Place(kFirst, 1);
    AskWhole();
    Answer(0, "half");
    Place(kSecond, 2);
    if (is_dead) {
      call_->NoteDead(kFirst);
    } else {
      call_->NoteStateChanged();
      dispatcher_.AdvanceBy(kMovedOnGrace - milliseconds(10));
      EXPECT_EQ(sent_.size(), 1u) << "it has time to come to its end";
      dispatcher_.AdvanceBy(milliseconds(20));
    }
    dispatcher_.AdvanceBy(kEntryRetryPause);
    EXPECT_THAT(Asked(), ElementsAre(kFirst, kSecond));
    Answer(1, "whole");
    sent_[1].done(absl::OkStatus());
    ASSERT_TRUE(ended_.has_value());
    EXPECT_TRUE(ended_->ok()) << *ended_;
    EXPECT_EQ(text_, "whole");
  }
}

TEST_F(RoutedCallTest, AWholeAnswerThatEndsItsGangsIsAskedForTwiceAtTheMost) {
  for (const absl::Status& lost :
       {Killed(), ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY", "stopping")}) {
    sent_.clear();
    ended_.reset();
    Place(kFirst, 1);
    AskWhole();
    Answer(0, "x");
    sent_[0].done(lost);
    Place(kSecond, 2);
    dispatcher_.AdvanceBy(kEntryRetryPause);
    ASSERT_EQ(sent_.size(), 2u);
    Answer(1, "x");
    sent_[1].done(lost);
    ASSERT_TRUE(ended_.has_value());
    EXPECT_EQ(ReasonOf(*ended_).code(), ReasonOf(lost).code());
    dispatcher_.AdvanceBy(kEntryWaitMax);
    EXPECT_EQ(sent_.size(), 2u);
  }
}

TEST_F(RoutedCallTest, AWholeAnswerIsNotAskedForAgainAfterARefusalOrByWhoLeft) {
  Place(kFirst, 1);
  AskWhole();
  Answer(0, "x");
  sent_[0].done(
      ReasonStatus(absl::StatusCode::kInvalidArgument, "STRUCTURE_REFUSED", "no such schema"));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "STRUCTURE_REFUSED");
  EXPECT_EQ(begun_again_, 0);

  ended_.reset();
  AskWhole();
  Answer(1, "x");
  call_->Cancel();
  dispatcher_.RunPosted();
  sent_[1].done(Killed());
  dispatcher_.AdvanceBy(kEntryWaitMax);
  EXPECT_EQ(sent_.size(), 2u);
  EXPECT_TRUE(ended_.has_value());
}

TEST_F(RoutedCallTest, AWholeAnswerWaitsNoLongerForANewGangThanAnyOther) {
  Place(kFirst, 1);
  AskWhole();
  Answer(0, "x");
  v1::GangRecord none;
  none.set_deployment("m");
  none.set_epoch(1);
  Put(GangKey("m"), none.SerializeAsString());
  sent_[0].done(Killed());
  dispatcher_.AdvanceBy(kEntryWaitMax - milliseconds(200));
  EXPECT_FALSE(ended_.has_value());
  dispatcher_.AdvanceBy(milliseconds(400));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*ended_)) << *ended_;
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(RoutedCallTest, TheLimitOfAnAnswerHoldsOverAllItsTries) {
  Place(kFirst, 1);
  AskWhole();
  Answer(0, "x");
  dispatcher_.AdvanceBy(kGenerateLimit);
  sent_[0].done(ReasonStatus(absl::StatusCode::kUnavailable, "ENTRY_UNREACHABLE", "too long"));
  EXPECT_TRUE(ended_.has_value()) << "no second two hours";

  ended_.reset();
  AskWhole();
  Answer(1, "x");
  dispatcher_.AdvanceBy(kGenerateLimit - seconds(60));
  sent_[1].done(Killed());
  Place(kSecond, 2);
  dispatcher_.AdvanceBy(kEntryRetryPause);
  ASSERT_EQ(sent_.size(), 3u);
  Answer(2, "y");
  dispatcher_.AdvanceBy(seconds(61));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*ended_)) << *ended_;
  EXPECT_EQ(cancelled_, 1);
}

TEST_F(RoutedCallTest, WhenTheEpochMovedOnItIsSentAnew) {
  Place(kFirst, 1);
  Ask();
  call_->NoteStateChanged();
  EXPECT_EQ(sent_.size(), 1u);
  Place(kFirst, 2);
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnLook);
  EXPECT_EQ(cancelled_, 1);
  dispatcher_.AdvanceBy(kEntryRetryPause);
  EXPECT_THAT(Asked(), ElementsAre(kFirst, kFirst));
}

TEST_F(RoutedCallTest, AnAnswerUnderWayHasAMomentToEndWhenTheEpochMovedOn) {
  Place(kFirst, 1);
  Ask();
  Answer(0, "half");
  Place(kSecond, 2);
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnGrace - milliseconds(10));
  Answer(0, " and");
  EXPECT_FALSE(ended_.has_value());
  dispatcher_.AdvanceBy(milliseconds(20));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "GANG_LOST_NODE");
  EXPECT_EQ(text_, "half and");
}

// One that ends each gang which takes it up is not handed to a third.
TEST_F(RoutedCallTest, ARequestLosesTwoGangsAtTheMost) {
  Place(kFirst, 1);
  Ask();
  const absl::Status killed =
      ReasonStatus(absl::StatusCode::kUnavailable, "RANK_KILLED", "rank 0 was killed");
  sent_[0].done(killed);
  Place(kFirst, 2);
  dispatcher_.AdvanceBy(kEntryRetryPause);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_FALSE(ended_.has_value());
  sent_[1].done(killed);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "RANK_KILLED");
}

TEST_F(RoutedCallTest, AnAnswerThatBeginsJustAfterTheEpochMovedOnHasItsTime) {
  Place(kFirst, 1);
  Ask();
  Place(kSecond, 2);
  call_->NoteStateChanged();
  dispatcher_.AdvanceBy(kMovedOnLook / 2);
  Answer(0, "half");
  dispatcher_.AdvanceBy(kMovedOnGrace - milliseconds(10));
  EXPECT_EQ(cancelled_, 0);
  Answer(0, " more");
  sent_[0].done(absl::OkStatus());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(text_, "half more");
}

// However its rank died: there is time for the next gang, counted from then, and one more try.
TEST_F(RoutedCallTest, ARequestWhoseGangDiedWithoutATokenIsSentOnceMore) {
  for (const char* code : {"RANK_EXITED", "RANK_KILLED", "RANK_STALLED", "ENGINE_FAILED"}) {
    sent_.clear();
    ended_.reset();
    Place(kFirst, 1);
    Ask();
    dispatcher_.AdvanceBy(kEntryWaitMax - seconds(1));  // in the queue
    const absl::Status died = ReasonStatus(absl::StatusCode::kUnavailable, code, "it died");
    sent_.at(0).done(died);
    dispatcher_.AdvanceBy(kEntryRetryPause);
    for (size_t i = 1; i < 30; ++i) {  // for three seconds it is being brought up again
      ASSERT_EQ(sent_.size(), i + 1) << code;
      ASSERT_FALSE(ended_.has_value()) << code << " " << *ended_;
      sent_[i].done(ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY", "loading"));
      dispatcher_.AdvanceBy(kEntryRetryPause);
    }
    sent_.back().done(died);
    ASSERT_TRUE(ended_.has_value()) << code;
    EXPECT_EQ(ReasonOf(*ended_).code(), code);
  }
}

TEST_F(RoutedCallTest, OnANodeThatStopsItEndsWithTheReason) {
  Place(kFirst, 1);
  Ask();
  Answer(0, "half");
  call_->End(ReasonStatus(absl::StatusCode::kUnavailable, "NODE_LEFT", "this node stops"));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ReasonOf(*ended_).code(), "NODE_LEFT");
  EXPECT_EQ(cancelled_, 1);
  Answer(0, " more");
  sent_[0].done(absl::OkStatus());
  EXPECT_EQ(text_, "half");
}

TEST_F(RoutedCallTest, WhoGoesAwayIsNotSentAgain) {
  Place(kFirst, 1);
  Ask();
  call_->Cancel();
  dispatcher_.RunPosted();
  EXPECT_EQ(cancelled_, 1);
  call_->NoteDead(kFirst);
  dispatcher_.AdvanceBy(kEntryWaitMax);
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(ended_.has_value());
}

// Chunks come on threads of their own; the end is told on the owner thread, once, and no chunk
// comes with it or after it.
TEST_F(RoutedCallTest, ChunksThatComeMeanwhileEndWhereTheCallEnds) {
  for (int round = 0; round < 200; ++round) {
    Place(kFirst, 1);
    Ask();
    const RoutedCall::ChunkCallback chunk_callback = sent_.back().chunk;
    std::atomic<bool> stop = false;
    std::thread rank([&] {
      v1::GenerateChunk chunk;
      chunk.set_text("x");
      while (!stop) chunk_callback(chunk);
    });
    if (round % 2 == 0) std::this_thread::yield();
    call_->End(ReasonStatus(absl::StatusCode::kUnavailable, "NODE_LEFT", "this node stops"));
    ASSERT_TRUE(ended_.has_value());
    const size_t told = text_.size();
    std::this_thread::yield();
    stop = true;
    rank.join();
    EXPECT_EQ(text_.size(), told);
    ended_.reset();
    text_.clear();
  }
}

}  // namespace
}  // namespace macrame::agentd
