// The edge of a rank over its own socket, with an engine that is the test: who is served and who is
// told why not, what watchers hear, and how it ends.

#include "runtime/serving/rank_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/rank_methods.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/gang/gang_link.h"
#include "tests/unit/fresh_folder.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_channel.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kModel[] = "deploy/models/knot-5m-4bit";  // as the repository's root knows it
constexpr int kVocabulary = 4096;

// One stream as a caller hears it.
struct Heard {
  std::vector<v1::GenerateChunk> chunks;
  std::optional<absl::Status> end;
  transport::CallHandle call;
};
struct Watched {
  std::vector<v1::RankStatus> statuses;
  std::optional<absl::Status> end;
};

class RankServiceTest : public ::testing::Test {
 protected:
  RankServiceTest() : folder_(FreshFolder()) {
    spec_.set_deployment("knot");
    spec_.set_epoch(4);
    spec_.set_socket_path((folder_ / "r.sock").string());
    spec_.mutable_assignment()->set_node_id("0000000000000000000000000000000a");
  }
  ~RankServiceTest() override {
    if (service_ != nullptr) service_->Stop(Duration::zero());
    channel_.reset();
    service_.reset();
  }

  void Start() {
    service_ = std::make_unique<RankService>(
        dispatcher_, spec_,
        [this](std::shared_ptr<PendingRequest> request) {
          submitted_.push_back(std::move(request));
        },
        [this] { is_stopped_ = true; });
    service_->SetTrace([this] { return !std::exchange(is_tracing_, true); },
                       [this] {
                         is_tracing_ = false;
                         return v1::RankTrace();
                       });
    const absl::Status started = service_->Start();
    ASSERT_TRUE(started.ok()) << started;
    channel_ = std::make_unique<transport::GrpcChannel>(
        dispatcher_, transport::PlainChannelCredentials(), "", NodeId());
    channel_->SetAddresses({transport::SocketTarget(spec_.socket_path())});
  }
  // As after loading.
  void StartReady() {
    Start();
    if (HasFatalFailure()) return;
    static const auto text = *LoadModelText(kModel);
    service_->SetModel(text, kVocabulary, 512);
    service_->SetPhase(v1::RANK_PHASE_READY);
  }

  // Runs the owner thread until `done`.
  void Await(const std::function<bool()>& done) {
    const MonotonicTime limit = dispatcher_.Now() + seconds(60);
    std::function<void()> look = [&] {
      if (done() || dispatcher_.Now() > limit) return dispatcher_.Stop();
      dispatcher_.PostAfter(milliseconds(2), look);
    };
    dispatcher_.Post(look);
    dispatcher_.Run();
    ASSERT_TRUE(done()) << "it did not come";
  }
  std::shared_ptr<Heard> Ask(const v1::GenerateRequest& request) {
    auto heard = std::make_shared<Heard>();
    heard->call = channel_->Stream(
        kRankGenerate, request, seconds(60),
        [heard](v1::GenerateChunk chunk) { heard->chunks.push_back(std::move(chunk)); },
        [heard](absl::Status status) { heard->end = std::move(status); });
    return heard;
  }
  absl::Status EndOf(const v1::GenerateRequest& request) {
    const auto heard = Ask(request);
    Await([&] { return heard->end.has_value(); });
    return heard->end.value_or(absl::UnknownError("no end"));
  }
  std::shared_ptr<Watched> Watch() {
    auto watched = std::make_shared<Watched>();
    channel_->Stream(
        kRankWatch, v1::WatchRequest(), seconds(60),
        [watched](v1::RankStatus status) { watched->statuses.push_back(std::move(status)); },
        [watched](absl::Status status) { watched->end = std::move(status); });
    return watched;
  }
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(const Method<Request, Response>& method, const Request& request) {
    std::optional<absl::StatusOr<Response>> result;
    channel_->Call(method, request, seconds(60),
                   [&](absl::StatusOr<Response> response) { result = std::move(response); });
    Await([&] { return result.has_value(); });
    return result.value_or(absl::UnknownError("no answer"));
  }
  static v1::GenerateRequest Plain() {
    v1::GenerateRequest request;
    request.set_prompt("One two three");
    request.set_max_tokens(5);
    return request;
  }

  transport::AsioDispatcher dispatcher_;
  v1::LaunchSpec spec_;
  std::filesystem::path folder_;
  std::vector<std::shared_ptr<PendingRequest>> submitted_;
  bool is_stopped_ = false;
  bool is_tracing_ = false;
  std::unique_ptr<RankService> service_;
  std::unique_ptr<transport::GrpcChannel> channel_;
};

TEST_F(RankServiceTest, WhoCannotBeServedHereIsToldWhy) {
  StartReady();
  const auto refused = [this](const v1::GenerateRequest& request, std::string_view code,
                              const char* words) {
    const absl::Status status = EndOf(request);
    EXPECT_EQ(ReasonOf(status).code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  v1::GenerateRequest other = Plain();
  other.set_deployment("another");
  refused(other, reasons::kModelNotLoaded, "this rank serves knot, not another");
  v1::GenerateRequest earlier = Plain();
  earlier.set_epoch(3);
  refused(earlier, reasons::kNotReady, "this is epoch 4 of knot, not 3");
  service_->SetPhase(v1::RANK_PHASE_LOADING);
  refused(Plain(), reasons::kNotReady, "model knot is not ready");
  EXPECT_THAT(submitted_, IsEmpty());
}

TEST_F(RankServiceTest, ARankOfTheMiddleSendsRequestsToTheFirst) {
  spec_.set_rank(1);
  StartReady();
  const absl::Status status = EndOf(Plain());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 takes no requests; rank 0 does"));
}

TEST_F(RankServiceTest, ARequestIsPreparedForTheEngineAndItsAnswerHeard) {
  StartReady();
  v1::GenerateRequest request = Plain();
  request.set_epoch(4);
  request.set_deployment("knot");
  const auto heard = Ask(request);
  Await([&] { return submitted_.size() == 1; });
  PendingRequest& pending = *submitted_.at(0);
  EXPECT_FALSE(pending.job.prompt.empty());
  EXPECT_EQ(pending.job.limits.max_tokens, 5u);
  EXPECT_EQ(pending.job.limits.context_length, 512u);
  EXPECT_LE(pending.job.received, pending.job.prepared);
  v1::GenerateChunk chunk;
  chunk.set_text("four");
  EXPECT_TRUE(pending.stream.Write(chunk));
  service_->OnRequestDone(submitted_[0], absl::OkStatus());
  Await([&] { return heard->end.has_value(); });
  EXPECT_TRUE(heard->end->ok()) << *heard->end;
  ASSERT_THAT(heard->chunks, SizeIs(1));
  EXPECT_EQ(heard->chunks[0].text(), "four");
}

TEST_F(RankServiceTest, WhatCannotBePreparedNeverReachesTheEngine) {
  StartReady();
  v1::GenerateRequest hot = Plain();
  hot.mutable_sampling()->set_temperature(1000);
  EXPECT_EQ(ReasonOf(EndOf(hot)).code(), reasons::kBadRequest);
  v1::GenerateRequest lengthy = Plain();
  for (int i = 0; i < 2000; ++i) lengthy.mutable_prompt()->append(" word");
  EXPECT_EQ(ReasonOf(EndOf(lengthy)).code(), reasons::kPromptTooLong);
  v1::GenerateRequest held = Plain();
  held.mutable_structure()->set_regex("(");
  EXPECT_EQ(ReasonOf(EndOf(held)).code(), reasons::kStructureRefused);
  EXPECT_THAT(submitted_, IsEmpty());
  EXPECT_EQ(service_->status().requests_queued(), 0u) << "none of them waits any more";
}

TEST_F(RankServiceTest, TokensAreToldWithoutTheEngine) {
  StartReady();
  v1::GenerateRequest request = Plain();
  request.mutable_tokenize()->set_add_special_tokens(false);
  const auto heard = Ask(request);
  Await([&] { return heard->end.has_value(); });
  EXPECT_TRUE(heard->end->ok()) << *heard->end;
  ASSERT_THAT(heard->chunks, SizeIs(1));
  EXPECT_EQ(heard->chunks[0].prompt_tokens(),
            static_cast<uint32_t>(heard->chunks[0].token_ids_size()));
  EXPECT_GT(heard->chunks[0].token_ids_size(), 0);
  EXPECT_THAT(submitted_, IsEmpty());
}

TEST_F(RankServiceTest, WhoGoesAwayIsToldToTheEngine) {
  StartReady();
  const auto heard = Ask(Plain());
  Await([&] { return submitted_.size() == 1; });
  EXPECT_FALSE(submitted_[0]->cancelled);
  heard->call.Cancel();
  Await([&] { return submitted_[0]->cancelled.load(); });
  EXPECT_FALSE(submitted_[0]->stream.Write(v1::GenerateChunk())) << "nobody reads any more";
  service_->OnRequestDone(submitted_[0], absl::OkStatus());
  Await([&] { return heard->end.has_value(); });
  EXPECT_EQ(heard->end->code(), absl::StatusCode::kCancelled);
}

// What waits here is bounded; a place is free as soon as one is done.
TEST_F(RankServiceTest, BeyondItsPlacesRequestsAreRefused) {
  spec_.set_queued_requests_max(2);
  StartReady();
  const size_t places = 2 + kAnsweredAtOnceMax;
  std::vector<std::shared_ptr<Heard>> all;
  for (size_t i = 0; i < places; ++i) all.push_back(Ask(Plain()));
  Await([&] { return submitted_.size() == places; });
  const absl::Status full = EndOf(Plain());
  EXPECT_EQ(ReasonOf(full).code(), reasons::kQueueFull);
  EXPECT_THAT(std::string(full.message()), HasSubstr("2 requests wait for model knot"));
  service_->OnRequestDone(submitted_[0], absl::OkStatus());
  const auto next = Ask(Plain());
  Await([&] { return submitted_.size() == places + 1; });
  EXPECT_FALSE(next->end.has_value());
  EXPECT_EQ(QueuedRequestsMax(spec_), 2u);
  EXPECT_EQ(QueuedRequestsMax(v1::LaunchSpec()), kQueuedRequestsDefault);
}

TEST_F(RankServiceTest, WatchersHearEachPhaseAndTheFirstFailureStays) {
  Start();
  const auto watched = Watch();
  Await([&] { return watched->statuses.size() == 1; });
  EXPECT_EQ(watched->statuses[0].phase(), v1::RANK_PHASE_STAGING);
  EXPECT_EQ(watched->statuses[0].deployment(), "knot");
  EXPECT_EQ(watched->statuses[0].epoch(), 4u);
  EXPECT_EQ(watched->statuses[0].node_id(), spec_.assignment().node_id());
  service_->SetPhase(v1::RANK_PHASE_CONNECTING);
  service_->SetConnecting("rendezvous");
  service_->SetPhase(v1::RANK_PHASE_LOADING);
  Await([&] { return watched->statuses.back().phase() == v1::RANK_PHASE_LOADING; });
  EXPECT_EQ(watched->statuses.back().phase_detail(), "") << "it belongs to the phase before";
  service_->SetFailure(MakeReason(reasons::kRankStalled, "rank 2 makes no progress"), 2);
  service_->SetFailure(MakeReason(reasons::kRankExited, "and rank 3 is gone"), 3);
  service_->SetPhase(v1::RANK_PHASE_READY);
  service_->SetCounts(0, 0);
  Await([&] { return watched->statuses.back().phase() == v1::RANK_PHASE_FAILED; });
  const v1::RankStatus& last = watched->statuses.back();
  EXPECT_EQ(last.failure().message(), "rank 2 makes no progress");
  EXPECT_EQ(last.stalled().rank(), 2u);
  EXPECT_EQ(service_->status().phase(), v1::RANK_PHASE_FAILED);
}

TEST_F(RankServiceTest, ProgressIsToldAHundredTimesAndItsEnd) {
  Start();
  const auto watched = Watch();
  Await([&] { return watched->statuses.size() == 1; });
  service_->SetPhase(v1::RANK_PHASE_LOADING);
  constexpr uint64_t kBytes = 1'000'000;
  for (uint64_t bytes = 0; bytes <= kBytes; bytes += 100) {
    service_->SetProgress(bytes, kBytes, bytes);
    if (bytes % 50'000 != 0) continue;
    const double told = static_cast<double>(bytes) / kBytes - 0.011;
    Await([&] { return watched->statuses.back().progress() >= told; });
  }
  Await([&] { return watched->statuses.back().bytes_loaded() == kBytes; });
  EXPECT_GE(watched->statuses.size(), 90u);
  EXPECT_LE(watched->statuses.size(), 150u) << "with those of each second";
  for (size_t i = 1; i < watched->statuses.size(); ++i) {
    EXPECT_GE(watched->statuses[i].progress(), watched->statuses[i - 1].progress());
  }
  service_->SetProgress(0, 0, 0);
  EXPECT_EQ(service_->status().progress(), 0.0) << "nothing to load is no number";
}

TEST_F(RankServiceTest, FiguresAreReadWhenSomebodyLooks) {
  StartReady();
  service_->SetMemory([] { return uint64_t{77}; });
  service_->SetColdFigures([](v1::KvCacheDisk& disk) { disk.set_blocks(5); });
  service_->SetTimings([](v1::RankStatus& status) { status.mutable_timings(); });
  service_->OnDrafted(4, 3);
  service_->OnDrafted(2, 0);
  service_->OnModelDrafted(2, 1);
  service_->SetDraftModelOff("it failed");
  service_->OnDecodeTimed(1500.0);
  service_->SetPreempted({2, 300});
  service_->OnTokens(20);
  service_->SetCounts(3, 2);
  const auto watched = Watch();
  Await([&] { return !watched->statuses.empty(); });
  const v1::RankStatus& status = watched->statuses[0];
  EXPECT_EQ(status.memory_bytes(), 77u);
  EXPECT_EQ(status.kv_cache_disk().blocks(), 5u);
  EXPECT_TRUE(status.has_timings());
  EXPECT_EQ(status.draft_tokens_total(), 6u);
  EXPECT_EQ(status.accepted_tokens_total(), 3u);
  EXPECT_EQ(status.draft_model().accepted_tokens_total(), 1u);
  EXPECT_EQ(status.draft_model().off_reason(), "it failed");
  EXPECT_EQ(status.decode_step_us(), 1500.0);
  EXPECT_EQ(status.decode_answers(), 1u);
  EXPECT_EQ(status.preemptions_total(), 2u);
  EXPECT_EQ(status.recomputed_tokens_total(), 300u);
  EXPECT_EQ(status.tokens_generated_total(), 20u);
  EXPECT_EQ(status.requests_running(), 3u);
  EXPECT_EQ(status.requests_queued(), 2u);
  Await([&] { return watched->statuses.back().tokens_per_second() > 0; });
  EXPECT_DOUBLE_EQ(watched->statuses.back().tokens_per_second(), 2.0) << "in ten seconds";
}

TEST_F(RankServiceTest, WhoIsUnderWayWhenItStopsIsToldSo) {
  StartReady();
  const auto heard = Ask(Plain());
  const auto watched = Watch();
  Await([&] { return submitted_.size() == 1 && !watched->statuses.empty(); });
  EXPECT_TRUE(Call(kRankStop, v1::StopRequest()).ok());
  EXPECT_TRUE(is_stopped_);
  service_->Stop(seconds(1));
  Await([&] { return heard->end.has_value() && watched->end.has_value(); });
  EXPECT_EQ(ReasonOf(*heard->end).code(), reasons::kNotReady) << *heard->end;
  EXPECT_THAT(std::string(heard->end->message()), HasSubstr("model knot is stopping"));
  EXPECT_TRUE(watched->end->ok()) << *watched->end;
  EXPECT_TRUE(submitted_[0]->cancelled) << "the engine leaves it";
}

// A request may be what the model failed of: its caller is told that it failed, not to come again.
TEST_F(RankServiceTest, WhoIsUnderWayWhenItFailedIsToldOfTheFailure) {
  StartReady();
  const auto heard = Ask(Plain());
  Await([&] { return submitted_.size() == 1; });
  service_->SetFailure(MakeReason(reasons::kRankExited, "rank 1 on ada is gone"));
  service_->Stop(seconds(1));
  Await([&] { return heard->end.has_value(); });
  EXPECT_EQ(ReasonOf(*heard->end).code(), reasons::kRankExited) << *heard->end;
  EXPECT_THAT(std::string(heard->end->message()),
              HasSubstr("model knot failed: rank 1 on ada is gone"));
}

TEST_F(RankServiceTest, WhoVerifiesWhenItFailedIsToldOfTheFailure) {
  StartReady();
  std::optional<absl::Status> end;
  v1::VerifyGroupRequest request;
  request.add_sizes_bytes(8);
  request.set_rounds(1);
  channel_->Call(kRankVerifyGroup, request, seconds(60),
                 [&](const absl::StatusOr<v1::VerifyGroupResponse>& got) { end = got.status(); });
  Await([&] { return submitted_.size() == 1; });
  EXPECT_THAT(ReasonOf(Call(kRankVerifyGroup, request).status()).message(),
              HasSubstr("is being verified already"));
  service_->SetFailure(MakeReason(reasons::kRankStalled, "timed sums took longer than 60000 ms"));
  service_->Stop(seconds(1));
  Await([&] { return end.has_value(); });
  EXPECT_EQ(ReasonOf(*end).code(), reasons::kRankExited) << *end;
  EXPECT_THAT(ReasonOf(*end).message(), HasSubstr("timed sums took longer than 60000 ms"));
  service_->OnVerified(submitted_[0], v1::VerifyGroupResponse());  // too late: nobody waits
}

TEST_F(RankServiceTest, ARoundOfCollectivesHasBounds) {
  StartReady();
  std::vector<v1::VerifyGroupRequest> beyond(3);
  for (int i = 0; i <= kVerifySizesMax; ++i) beyond[0].add_sizes_bytes(8);
  beyond[1].add_sizes_bytes(kVerifyBytesMax + 1);
  beyond[2].set_rounds(kVerifyRoundsMax + 1);
  for (const v1::VerifyGroupRequest& request : beyond) {
    EXPECT_EQ(ReasonOf(Call(kRankVerifyGroup, request).status()).code(), reasons::kBadRequest);
  }
  EXPECT_THAT(submitted_, IsEmpty());
  v1::VerifyGroupRequest within;
  within.add_sizes_bytes(kVerifyBytesMax);
  within.set_rounds(kVerifyRoundsMax);
  std::optional<absl::StatusOr<v1::VerifyGroupResponse>> result;
  channel_->Call(
      kRankVerifyGroup, within, seconds(60),
      [&](absl::StatusOr<v1::VerifyGroupResponse> response) { result = std::move(response); });
  Await([&] { return submitted_.size() == 1; });
  ASSERT_TRUE(submitted_[0]->verify.has_value());
  v1::VerifyGroupResponse response;
  response.set_group_size(2);
  service_->OnVerified(submitted_[0], response);
  Await([&] { return result.has_value(); });
  EXPECT_EQ((*result)->group_size(), 2u);
}

TEST_F(RankServiceTest, OneTraceIsTakenAtATimeAndNamesItsRank) {
  spec_.set_rank(1);
  Start();
  v1::TraceRankRequest request;
  for (const uint32_t ms : {0u, 60'001u}) {
    request.set_duration_ms(ms);
    EXPECT_EQ(ReasonOf(Call(kRankTrace, request).status()).code(), reasons::kBadRequest);
  }
  request.set_duration_ms(300);
  std::optional<absl::StatusOr<v1::TraceRankResponse>> first;
  channel_->Call(
      kRankTrace, request, seconds(60),
      [&](absl::StatusOr<v1::TraceRankResponse> response) { first = std::move(response); });
  Await([&] { return is_tracing_; });
  const absl::Status second = Call(kRankTrace, request).status();
  EXPECT_EQ(ReasonOf(second).code(), reasons::kNotReady) << second;
  Await([&] { return first.has_value(); });
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_EQ((*first)->ranks_size(), 1);
  EXPECT_EQ((*first)->ranks(0).rank(), 1u);
  EXPECT_EQ((*first)->ranks(0).node_id(), spec_.assignment().node_id());
  EXPECT_FALSE(is_tracing_);
}

TEST_F(RankServiceTest, WhyAPromptWasNotCachedIsNamedForTheEngine) {
  StartReady();
  v1::GenerateRequest request;
  for (const char* text : {"One two three four five six seven", "eight nine ten"}) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role("user");
    message.set_content(text);
  }
  const auto heard = Ask(request);
  Await([&] { return submitted_.size() == 1 || heard->end.has_value(); });
  ASSERT_FALSE(heard->end.has_value()) << *heard->end;
  service_->Explain(submitted_[0], {PrefixMiss::Kind::kDiffers, 3});
  std::optional<v1::PrefixMiss> explained;
  Await([&] {
    if (!explained.has_value())
      explained = submitted_[0]->explained.TakeWithin(absl::ZeroDuration());
    return explained.has_value();
  });
  EXPECT_EQ(explained->kind(), "differs");
  EXPECT_EQ(explained->position(), 3u);
  EXPECT_THAT(explained->text(), HasSubstr("differs at token 3: message 1 (user)"));
}

}  // namespace
}  // namespace macrame::runtime::engine
