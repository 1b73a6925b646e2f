// What a caller learns when something is too long, too late or not there, over loopback.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/reasons.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_channel.h"
#include "transport/grpc_server.h"
#include "transport/status_codec.h"
#include "transport/tls_credentials.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Answer = absl::StatusOr<v1::DescribeModelResponse>;
constexpr Method<v1::DescribeModelRequest, v1::DescribeModelResponse> kUnary{
    "/macrame.v1.AgentService/DescribeModel", Access::kCertificate};
constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kStream{
    "/macrame.v1.AgentService/Generate", Access::kCertificate, Remote::kRead};

class GrpcLimitsTest : public ::testing::Test {
 protected:
  GrpcLimitsTest() : server_(dispatcher_) {
    server_.HandleUnary(kUnary, [this](const Caller&, v1::DescribeModelRequest request,
                                       GrpcServer::Reply<v1::DescribeModelResponse> reply) {
      requests_.push_back(request.name_or_path());
      if (on_unary_) return on_unary_(std::move(reply));
      v1::DescribeModelResponse response;
      response.mutable_model()->set_name(request.name_or_path());
      reply(response);
    });
    server_.HandleStream(kStream, [this](const Caller&, v1::GenerateRequest, ServerStream stream) {
      on_stream_(std::move(stream));
    });
    const auto port = server_.StartTcp("127.0.0.1", 0, PlainServerCredentials(), /*plain=*/true);
    EXPECT_TRUE(port.ok()) << port.status();
    channel_ = NewChannel();
    channel_->SetAddresses({absl::StrCat("127.0.0.1:", port.value_or(0))});
    // Nothing here may wait for ever.
    dispatcher_.PostAfter(seconds(60), [this] {
      ADD_FAILURE() << "the test took too long";
      dispatcher_.Stop();
    });
  }

  std::unique_ptr<GrpcChannel> NewChannel() {
    return std::make_unique<GrpcChannel>(dispatcher_, PlainChannelCredentials(), "",
                                         NodeId(std::string(32, '2')));
  }
  Answer Call(const std::string& text = "tiny", Duration timeout = seconds(20)) {
    v1::DescribeModelRequest request;
    request.set_name_or_path(text);
    Answer answer;
    channel_->Call(kUnary, request, timeout, [&](Answer came) {
      answer = std::move(came);
      dispatcher_.Stop();
    });
    dispatcher_.Run();
    return answer;
  }
  absl::Status EndOfStream() {
    absl::Status end;
    channel_->Stream(
        kStream, v1::GenerateRequest(), seconds(20), [](v1::GenerateChunk) {},
        [&](absl::Status came) {
          end = std::move(came);
          dispatcher_.Stop();
        });
    dispatcher_.Run();
    return end;
  }

  AsioDispatcher dispatcher_;
  GrpcServer server_;
  std::unique_ptr<GrpcChannel> channel_;
  std::vector<std::string> requests_;
  std::function<void(GrpcServer::Reply<v1::DescribeModelResponse>)> on_unary_;
  std::function<void(ServerStream)> on_stream_;
};

std::string Repeat(const std::string& text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

// People's names of machines and models, and what commands print, may be in any alphabet; on the
// wire each of their bytes may take three.
TEST_F(GrpcLimitsTest, LongReasonsArriveInEveryAlphabet) {
  for (const char* letter : {"a", "%", "\xc3\xa4", "\xe6\xbc\xa2", "\xf0\x9f\xa7\xb6", "\n"}) {
    v1::Reason reason = MakeReason("MEMORY_SHORT", Repeat(letter, 5000), std::string(32, '1'));
    reason.set_remedy(Repeat(letter, 5000));
    reason.set_evidence(Repeat(letter, 5000));
    const absl::Status sent = ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
    on_unary_ = [&](auto reply) { reply(sent); };
    on_stream_ = [&](const ServerStream& stream) { stream.Finish(sent); };
    for (const absl::Status& got : {Call().status(), EndOfStream()}) {
      EXPECT_EQ(got.code(), absl::StatusCode::kFailedPrecondition) << letter << got;
      const v1::Reason told = ReasonOf(got);
      EXPECT_EQ(told.code(), "MEMORY_SHORT") << letter;
      EXPECT_EQ(told.node_id(), reason.node_id()) << letter;
      for (const std::string& text : {told.message(), told.remedy(), told.evidence()}) {
        EXPECT_GT(text.size(), 100u) << letter;
        EXPECT_TRUE(text.starts_with(letter)) << letter;
      }
    }
  }
}

TEST_F(GrpcLimitsTest, AMessageThatIsTooLargeFailsItsCallAndNoOther) {
  const auto large = Call(std::string(kMessageBytesMax + 1, 'x'));
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted) << large.status();
  EXPECT_TRUE(requests_.empty());
  on_unary_ = [&](auto reply) {
    v1::DescribeModelResponse response;
    response.mutable_model()->set_name(std::string(kMessageBytesMax + 1, 'x'));
    reply(response);
  };
  const auto answered = Call();
  EXPECT_EQ(answered.status().code(), absl::StatusCode::kResourceExhausted) << answered.status();
  on_unary_ = nullptr;
  EXPECT_TRUE(Call("tiny").ok());
}

TEST_F(GrpcLimitsTest, TheLargestMessagePassesBothWays) {
  const std::string text(kMessageBytesMax - 64, 'x');
  const auto answer = Call(text);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->model().name(), text);
}

TEST_F(GrpcLimitsTest, WithoutAnAddressACallFailsLaterAndOnce) {
  const auto channel = NewChannel();
  int ended = 0;
  bool returned = false;
  channel->Call(kUnary, v1::DescribeModelRequest(), seconds(5), [&](Answer came) {
    EXPECT_TRUE(returned) << "a callback never runs within the call";
    EXPECT_EQ(came.status().code(), absl::StatusCode::kUnavailable);
    ++ended;
    dispatcher_.Stop();
  });
  returned = true;
  dispatcher_.Run();
  // Those that it had may be taken away.
  channel_->SetAddresses({});
  EXPECT_EQ(Call().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended, 1);
}

TEST_F(GrpcLimitsTest, ACancelledCallEndsOnceAndCancellingLaterChangesNothing) {
  std::vector<GrpcServer::Reply<v1::DescribeModelResponse>> held;
  on_unary_ = [&](auto reply) {
    held.push_back(std::move(reply));
    dispatcher_.Stop();
  };
  std::vector<absl::StatusCode> ends;
  const CallHandle call =
      channel_->Call(kUnary, v1::DescribeModelRequest(), seconds(20), [&](const Answer& came) {
        ends.push_back(came.status().code());
        dispatcher_.Stop();
      });
  dispatcher_.Run();
  ASSERT_EQ(held.size(), 1u);
  call.Cancel();
  call.Cancel();
  dispatcher_.Run();
  held[0](v1::DescribeModelResponse());
  on_unary_ = nullptr;
  EXPECT_TRUE(Call().ok());
  call.Cancel();
  EXPECT_TRUE(Call().ok());
  EXPECT_EQ(ends, std::vector<absl::StatusCode>{absl::StatusCode::kCancelled});
}

TEST_F(GrpcLimitsTest, ManyCallsAtOnceEachGetTheirOwnAnswer) {
  constexpr int kCalls = 200;
  int ended = 0;
  for (int i = 0; i < kCalls; ++i) {
    v1::DescribeModelRequest request;
    request.set_name_or_path(absl::StrCat("model ", i));
    channel_->Call(kUnary, request, seconds(20), [&, i](Answer came) {
      EXPECT_TRUE(came.ok()) << came.status();
      if (came.ok()) {
        EXPECT_EQ(came->model().name(), absl::StrCat("model ", i));
      }
      if (++ended == kCalls) dispatcher_.Stop();
    });
  }
  dispatcher_.Run();
  EXPECT_EQ(ended, kCalls);
}

TEST_F(GrpcLimitsTest, AnAddressThatNobodyAnswersAtIsPassedOver) {
  const std::string good = channel_->addresses().at(0);
  channel_->SetAddresses({"127.0.0.1:1", good});
  EXPECT_EQ(channel_->addresses().size(), 2u);
  EXPECT_TRUE(Call().ok());
}

}  // namespace
}  // namespace macrame::transport
