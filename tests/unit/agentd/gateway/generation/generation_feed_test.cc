// The feed between a backend's callbacks and the coroutine that writes: order, bounds, and what
// follows a failure or a client that leaves. Everything runs on the test's own thread.

#include "agentd/gateway/generation/generation_feed.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

namespace net = boost::asio;
using EventKind = GenerationFeed::EventKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps each call until the test says how it goes on.
class HeldBackend : public InferenceBackend {
 public:
  struct Held : GenerateCall {
    void Cancel() override { ++cancels; }
    std::string id;
    ChunkCallback on_chunk;
    DoneCallback on_done;
    int cancels = 0;
    bool is_over = false;

    void Say(const std::string& text) {
      v1::GenerateChunk chunk;
      chunk.set_text(text);
      on_chunk(chunk);
    }
    void Tell(bool is_queued) {
      v1::GenerateChunk chunk;
      chunk.mutable_progress()->set_is_queued(is_queued);
      on_chunk(chunk);
    }
    void End(const absl::Status& status = absl::OkStatus()) {
      is_over = true;
      on_done(status);
    }
  };

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override {
    auto call = std::make_shared<Held>();
    call->id = request.request_id();
    call->on_chunk = std::move(on_chunk);
    call->on_done = std::move(on_done);
    calls.push_back(call);
    return call;
  }
  std::vector<ServedModel> ListModels() override { return {}; }

  size_t UnderWay() const {
    return static_cast<size_t>(
        std::count_if(calls.begin(), calls.end(), [](const auto& call) { return !call->is_over; }));
  }
  std::vector<std::shared_ptr<Held>> calls{};
};

absl::Status QueueFull() {
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull, "64 wait already");
}

class GenerationFeedTest : public ::testing::Test {
 protected:
  void Start(size_t answers, GenerationFeed::Bounds bounds = {}) {
    if (bounds.buffered_bytes == 0) bounds.buffered_bytes = 1 << 20;
    std::vector<v1::GenerateRequest> requests(answers);
    for (size_t i = 0; i < answers; ++i) requests[i].set_request_id(absl::StrCat("r", i));
    feed_ = GenerationFeed::Start(io_, backend_, std::move(requests), bounds);
  }
  // What was posted reaches the feed.
  void Settle() {
    io_->restart();
    io_->poll();
  }
  GenerationFeed::Event Next(milliseconds patience = seconds(5)) {
    std::optional<GenerationFeed::Event> event;
    net::co_spawn(
        *io_, [&]() -> net::awaitable<void> { event = co_await feed_->Next(patience); },
        net::detached);
    io_->restart();
    while (!event.has_value() && io_->run_one() > 0) {
    }
    EXPECT_TRUE(event.has_value());
    return event.value_or(GenerationFeed::Event());
  }
  void TearDown() override {
    if (feed_ != nullptr) feed_->Close();
    for (const auto& call : backend_.calls) {
      if (!call->is_over) call->End(absl::CancelledError("the test is over"));
    }
    Settle();
    for (const auto& call : backend_.calls) {
      call->on_chunk = nullptr;
      call->on_done = nullptr;
    }
  }

  std::shared_ptr<net::io_context> io_ = std::make_shared<net::io_context>();
  HeldBackend backend_;
  std::shared_ptr<GenerationFeed> feed_;
};

TEST_F(GenerationFeedTest, PiecesComeInTheirOrderAndThenTheEnd) {
  Start(1);
  backend_.calls[0]->Tell(true);
  backend_.calls[0]->Say("a");
  backend_.calls[0]->Say("b");
  backend_.calls[0]->End();
  EXPECT_EQ(Next().kind, EventKind::kProgress);
  EXPECT_EQ(Next().chunk.text(), "a");
  EXPECT_EQ(Next().chunk.text(), "b");
  const GenerationFeed::Event end = Next();
  EXPECT_EQ(end.kind, EventKind::kDone);
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(Next().kind, EventKind::kDone) << "who asks again is told the same";
  EXPECT_TRUE(feed_->first_piece_at().has_value());
}

// The other answers of the request go on; of this one nothing of before is told or counted.
TEST_F(GenerationFeedTest, AnAnswerThatBeginsAgainLosesWhatCameOfIt) {
  GenerationFeed::Bounds bounds;
  bounds.is_whole = true;
  bounds.keeps_facts = true;
  bounds.buffered_bytes = 10;
  Start(2, bounds);
  backend_.calls[0]->Say("taken");
  Settle();
  EXPECT_EQ(Next().chunk.text(), "taken");
  backend_.calls[0]->Say("12345");
  backend_.calls[1]->Say("other");
  backend_.calls[0]->on_chunk.BeginAgain();
  backend_.calls[0]->Say("anew");  // more than the bound, were the first still held
  backend_.calls[0]->End();
  backend_.calls[1]->End();
  Settle();
  EXPECT_EQ(Next().chunk.text(), "other");
  const GenerationFeed::Event again = Next();
  EXPECT_EQ(again.kind, EventKind::kAgain);
  EXPECT_EQ(again.choice, 0u);
  EXPECT_EQ(Next().chunk.text(), "anew");
  EXPECT_EQ(Next().kind, EventKind::kDone);
  EXPECT_EQ(Next().kind, EventKind::kDone);
  EXPECT_EQ(backend_.calls[0]->cancels, 0);
}

TEST_F(GenerationFeedTest, OnlyWhereNothingWasSentAnAnswerMayBeginAgain) {
  Start(1);
  EXPECT_FALSE(backend_.calls[0]->on_chunk.can_begin_again());
}

TEST_F(GenerationFeedTest, ProgressIsNoFirstPiece) {
  Start(1);
  backend_.calls[0]->Tell(false);
  EXPECT_EQ(Next().kind, EventKind::kProgress);
  EXPECT_FALSE(feed_->first_piece_at().has_value());
}

TEST_F(GenerationFeedTest, SilenceIsToldAndTheAnswerMayStillCome) {
  Start(1);
  EXPECT_EQ(Next(milliseconds(1)).kind, EventKind::kSilence);
  backend_.calls[0]->Say("late");
  EXPECT_EQ(Next().chunk.text(), "late");
}

// Any number of answers, any bound, any order of the backend's callbacks.
TEST_F(GenerationFeedTest, SoManyAtOnceAndEachIsWhole) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    backend_.calls.clear();
    const size_t answers = 1 + random() % 9;
    GenerationFeed::Bounds bounds;
    bounds.under_way = 1 + random() % 5;
    Start(answers, bounds);
    std::map<std::string, std::string> said, heard;
    std::set<std::string> ended;
    const auto take = [&] {
      const GenerationFeed::Event event = Next();
      const std::string id = absl::StrCat("r", event.choice);
      EXPECT_FALSE(ended.contains(id)) << "nothing follows the end of " << id;
      heard[id] += event.chunk.text();
      if (event.kind == EventKind::kDone) ended.insert(id);
    };
    for (size_t over = 0; over < answers;) {
      EXPECT_LE(backend_.UnderWay(), bounds.under_way);
      ASSERT_GT(backend_.UnderWay(), 0u) << "nothing is under way and some are left";
      auto& call = *backend_.calls[random() % backend_.calls.size()];
      if (!call.is_over && random() % 4 == 0) {
        call.End();
        ++over;
      } else if (!call.is_over) {
        const std::string text = absl::StrCat(random() % 100, ",");
        said[call.id] += text;
        call.Say(text);
      }
      Settle();
      while (ended.size() < answers && feed_->HasMore() && random() % 2 == 0) take();
    }
    while (ended.size() < answers && !HasFailure()) take();
    for (const auto& [id, text] : said) EXPECT_EQ(heard[id], text) << id;
    for (size_t i = 0; i < answers; ++i) {
      EXPECT_EQ(backend_.calls[i]->id, absl::StrCat("r", i)) << "they begin in their order";
      EXPECT_EQ(backend_.calls[i]->cancels, 0);
    }
    EXPECT_EQ(backend_.calls.size(), answers) << "each is asked for once";
    if (HasFailure()) return;
  }
}

TEST_F(GenerationFeedTest, AFailureEndsTheOthersAndIsTheLastEvent) {
  GenerationFeed::Bounds bounds;
  bounds.under_way = 3;
  Start(5, bounds);
  backend_.calls[0]->Say("a");
  backend_.calls[1]->End(absl::UnavailableError("node studio-2 left"));
  backend_.calls[2]->Say("too late");
  EXPECT_EQ(Next().chunk.text(), "a") << "what came before is told";
  const GenerationFeed::Event end = Next();
  EXPECT_EQ(end.kind, EventKind::kDone);
  EXPECT_EQ(end.choice, 1u);
  EXPECT_EQ(end.status.message(), "node studio-2 left");
  EXPECT_EQ(backend_.calls[0]->cancels, 1);
  EXPECT_EQ(backend_.calls[2]->cancels, 1);
  EXPECT_EQ(backend_.calls.size(), 3u) << "no more are begun";
  backend_.calls[0]->End();
  backend_.calls[2]->End(absl::CancelledError("cancelled"));
  Settle();
  EXPECT_EQ(backend_.calls.size(), 3u);
  EXPECT_FALSE(Next().status.ok()) << "the failure stays what is told";
}

TEST_F(GenerationFeedTest, AReaderWhoTakesNothingIsCancelledAtTheBound) {
  GenerationFeed::Bounds bounds;
  bounds.buffered_bytes = 1'000;
  Start(2, bounds);
  backend_.calls[0]->Say(std::string(500, 'a'));
  backend_.calls[1]->Say(std::string(500, 'b'));
  Settle();
  EXPECT_EQ(backend_.calls[0]->cancels, 0) << "the bound itself may be held";
  EXPECT_EQ(Next().chunk.text().size(), 500u);
  backend_.calls[0]->Say(std::string(500, 'a'));
  Settle();
  EXPECT_EQ(backend_.calls[0]->cancels, 0) << "what was taken counts no more";
  backend_.calls[0]->Say("x");
  Settle();
  EXPECT_EQ(backend_.calls[0]->cancels, 1);
  EXPECT_EQ(backend_.calls[1]->cancels, 1);
  const GenerationFeed::Event gone = Next();
  EXPECT_EQ(gone.kind, EventKind::kGone);
  EXPECT_NE(gone.status.message().find("too slowly"), std::string::npos);
}

TEST_F(GenerationFeedTest, AClientThatLeavesCancelsOnceAndHearsNoMore) {
  Start(2);
  backend_.calls[0]->Say("a");
  Settle();
  feed_->ClientGone();
  feed_->ClientGone();
  for (const auto& call : backend_.calls) EXPECT_EQ(call->cancels, 1);
  EXPECT_EQ(Next().kind, EventKind::kGone);
  backend_.calls[0]->Say("b");
  backend_.calls[0]->End();
  backend_.calls[1]->End(absl::CancelledError("cancelled"));
  Settle();
  EXPECT_EQ(Next().kind, EventKind::kGone);
}

// A callback may come when the connection is long gone: the feed lives as long as they do.
TEST_F(GenerationFeedTest, LateCallbacksFindAFeedThatIsClosed) {
  Start(2);
  feed_->Close();
  feed_.reset();
  backend_.calls[0]->Say("late");
  backend_.calls[0]->End();
  Settle();
  EXPECT_EQ(backend_.calls[0]->cancels, 1);
  EXPECT_EQ(backend_.calls.size(), 2u);
}

// --- a queue that is full ------------------------------------------------------------------------

GenerationFeed::Bounds Patient(size_t under_way) {
  GenerationFeed::Bounds bounds;
  bounds.under_way = under_way;
  bounds.queue_patience = seconds(20);
  return bounds;
}

TEST_F(GenerationFeedTest, WhereNoneFindsAPlaceTheRequestIsRefused) {
  Start(3, Patient(1));
  backend_.calls[0]->End(QueueFull());
  const GenerationFeed::Event end = Next();
  EXPECT_EQ(end.kind, EventKind::kDone);
  EXPECT_EQ(ReasonOf(end.status).code(), reasons::kQueueFull);
  EXPECT_EQ(backend_.calls.size(), 1u);
}

TEST_F(GenerationFeedTest, WhoFoundNoPlaceBeginsWhenAnotherIsOver) {
  Start(3, Patient(3));
  backend_.calls[1]->End(QueueFull());
  Settle();
  EXPECT_FALSE(feed_->HasMore()) << "it waits, and nobody is told of it";
  EXPECT_EQ(backend_.calls.size(), 3u);
  backend_.calls[0]->End();
  EXPECT_EQ(Next().kind, EventKind::kDone);
  ASSERT_EQ(backend_.calls.size(), 4u);
  EXPECT_EQ(backend_.calls[3]->id, "r1") << "with the whole of its request";
  backend_.calls[3]->Say("b");
  const GenerationFeed::Event piece = Next();
  EXPECT_EQ(piece.choice, 1u);
  EXPECT_EQ(piece.chunk.text(), "b");
}

TEST_F(GenerationFeedTest, WhereAllWaitThereIsAnotherTryInAWhile) {
  Start(2, Patient(2));
  backend_.calls[0]->End();
  EXPECT_EQ(Next().kind, EventKind::kDone);
  backend_.calls[1]->End(QueueFull());
  Settle();
  EXPECT_EQ(backend_.calls.size(), 2u) << "not at once";
  // The feed's own timer runs while somebody waits for the next event.
  std::optional<GenerationFeed::Event> event;
  net::co_spawn(
      *io_, [&]() -> net::awaitable<void> { event = co_await feed_->Next(seconds(20)); },
      net::detached);
  io_->restart();
  while (backend_.calls.size() < 3 && io_->run_one() > 0) {
  }
  ASSERT_EQ(backend_.calls.size(), 3u);
  EXPECT_EQ(backend_.calls[2]->id, "r1");
  backend_.calls[2]->End();
  while (!event.has_value() && io_->run_one() > 0) {
  }
  EXPECT_EQ(event.value().kind, EventKind::kDone);
}

TEST_F(GenerationFeedTest, AnAnswerThatHasBegunIsNotTriedAgain) {
  Start(2, Patient(2));
  backend_.calls[0]->Say("a");
  backend_.calls[0]->End(QueueFull());
  EXPECT_EQ(Next().chunk.text(), "a");
  EXPECT_EQ(ReasonOf(Next().status).code(), reasons::kQueueFull)
      << "its client has a part of it already";
  EXPECT_EQ(backend_.calls.size(), 2u);
}

TEST_F(GenerationFeedTest, AClientThatLeavesWhileItsAnswersWaitBeginsNoMore) {
  Start(3, Patient(2));
  backend_.calls[1]->End(QueueFull());
  Settle();
  feed_->ClientGone();
  backend_.calls[0]->End(absl::CancelledError("cancelled"));
  Settle();
  EXPECT_EQ(backend_.calls.size(), 2u);
  EXPECT_EQ(Next().kind, EventKind::kGone);
}

// --- what a trace is told ------------------------------------------------------------------------

TEST_F(GenerationFeedTest, FactsAreKeptOfWhatWasBegunAndOnlyWhereTheyAreWanted) {
  GenerationFeed::Bounds bounds;
  bounds.under_way = 1;
  bounds.keeps_facts = true;
  Start(3, bounds);
  EXPECT_EQ(feed_->Facts().size(), 1u);
  backend_.calls[0]->Say("a");
  backend_.calls[0]->End();
  Settle();
  ASSERT_EQ(feed_->Facts().size(), 2u) << "the second one has begun";
  EXPECT_EQ(feed_->Facts()[0].failure_code, "");
  backend_.calls[1]->End(
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited, "rank 1 of tiny exited"));
  Settle();
  ASSERT_EQ(feed_->Facts().size(), 2u);
  EXPECT_EQ(feed_->Facts()[1].failure_code, reasons::kRankExited);
  EXPECT_GE(feed_->Facts()[1].ended, feed_->Facts()[1].begun);
}

TEST_F(GenerationFeedTest, WithoutATraceNoFactsAreKept) {
  Start(2);
  backend_.calls[0]->Say("a");
  Settle();
  EXPECT_TRUE(feed_->Facts().empty());
}

}  // namespace
}  // namespace macrame::agentd
