// Callers that would hold a server's calls or memory: over TLS, on loopback.

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/reasons.h"
#include "transport/asio_dispatcher.h"
#include "transport/call_places.h"
#include "transport/grpc_channel.h"
#include "transport/grpc_server.h"
#include "transport/peer_channel.h"
#include "transport/tls_credentials.h"
#include "transport/trust.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const NodeId kServerId("00000000000000000000000000000001");
const NodeId kMemberId("00000000000000000000000000000002");
const NodeId kOtherId("00000000000000000000000000000003");
constexpr Method<v1::DescribeModelRequest, v1::DescribeModelResponse> kForMembers{
    "/macrame.v1.AgentService/ForMembers", Access::kMember};
constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kForReaders{
    "/macrame.v1.AgentService/ForReaders", Access::kCertificate, Remote::kRead};

// A little less than a message may have.
constexpr size_t kLargeBytes = kMessageBytesMax - 1024;

// A call whose message never comes.
class SilentCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  SilentCall(Dispatcher& dispatcher, const std::shared_ptr<grpc::Channel>& channel,
             std::string_view method)
      : dispatcher_(dispatcher) {
    context_.set_deadline(std::chrono::system_clock::now() + seconds(30));
    grpc::GenericStub stub(channel);
    stub.PrepareBidiStreamingCall(&context_, std::string(method), grpc::StubOptions(), this);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  void OnDone(const grpc::Status& status) override {
    dispatcher_.Post([this, status] { ended_ = status; });
  }
  // Owner thread.
  const std::optional<grpc::Status>& ended() const { return ended_; }

 private:
  Dispatcher& dispatcher_;
  grpc::ClientContext context_;
  std::optional<grpc::Status> ended_;
};

class GrpcPlacesTest : public ::testing::Test {
 protected:
  void Start(Duration message_limit = kMessageLimit) {
    secret_ = *CreateClusterSecret("test");
    server_.emplace(dispatcher_, message_limit);
    server_->HandleUnary(kForMembers,
                         [](const Caller&, const v1::DescribeModelRequest&,
                            const GrpcServer::Reply<v1::DescribeModelResponse>& reply) {
                           reply(v1::DescribeModelResponse());
                         });
    server_->HandleStream(kForReaders,
                          [this](const Caller&, const v1::GenerateRequest&, ServerStream stream) {
                            held_.push_back(std::move(stream));
                          });
    server_->SetMemberCheck([](const NodeId& node) { return node == kMemberId; });
    server_->SetPersonCheck([this](const std::string&, Remote) {
      ++asked_;
      return may_;
    });
    server_->SetObserver([this](const Caller&, std::string_view method,
                                const google::protobuf::MessageLite&) -> RpcServer::OnEnded {
      return [this, method = std::string(method)](const absl::Status& status) {
        observed_.emplace_back(method, status.code());
      };
    });
    const auto port = server_->StartTcp(
        "127.0.0.1", 0, TlsServerCredentials(*MakeNodeCredentials(secret_, kServerId)));
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = absl::StrCat("127.0.0.1:", *port);
  }

  NodeCredentials Person(const std::string& key_id) const {
    const KeyPair pair =
        *MakePersonCredentials(secret_, key_id, SystemUnixSeconds(), SystemUnixSeconds() + 3600);
    NodeCredentials shown;
    shown.certificate_pem = pair.certificate_pem;
    shown.key_pem = pair.key_pem;
    shown.authority_certificate_pem = secret_.authority_certificate_pem;
    return shown;
  }
  NodeCredentials Node(const NodeId& id) const { return *MakeNodeCredentials(secret_, id); }

  std::unique_ptr<GrpcChannel> Connect(const NodeCredentials& shown) {
    auto channel = std::make_unique<GrpcChannel>(dispatcher_, TlsChannelCredentials(shown),
                                                 NodeTlsName(kServerId), shown.node_id);
    channel->SetAddresses({address_});
    return channel;
  }
  std::unique_ptr<SilentCall> CallSilently(const NodeCredentials& shown, std::string_view method) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(NodeTlsName(kServerId));
    return std::make_unique<SilentCall>(
        dispatcher_, grpc::CreateCustomChannel(address_, TlsChannelCredentials(shown), arguments),
        method);
  }
  // Runs the dispatcher until `done`, for 20 s at most.
  void Await(const std::function<bool()>& done) {
    const MonotonicTime limit = dispatcher_.Now() + seconds(20);
    while (!done()) {
      ASSERT_LT(dispatcher_.Now(), limit) << "it took too long";
      dispatcher_.PostAfter(milliseconds(1), [this] { dispatcher_.Stop(); });
      dispatcher_.Run();
    }
  }
  void AwaitEnd(const SilentCall& call) {
    Await([&] { return call.ended().has_value(); });
    ASSERT_TRUE(call.ended().has_value());
  }
  void CancelAndAwait(SilentCall& call) {
    call.Cancel();
    AwaitEnd(call);
  }
  // Held by the server; its end is kept.
  std::shared_ptr<std::optional<absl::Status>> Open(PeerChannel& channel, size_t bytes = 0) {
    auto ended = std::make_shared<std::optional<absl::Status>>();
    v1::GenerateRequest request;
    request.set_deployment(std::string(bytes, 'x'));
    channel.Stream(
        kForReaders, request, seconds(20), [](v1::GenerateChunk) {},
        [ended](absl::Status status) { *ended = std::move(status); });
    return ended;
  }
  // Whether the server holds it, before or instead of its end.
  bool IsHeld(PeerChannel& channel, size_t bytes) {
    const size_t before = held_.size();
    const auto ended = Open(channel, bytes);
    Await([&] { return held_.size() > before || ended->has_value(); });
    return held_.size() > before;
  }
  absl::Status EndOfNext(PeerChannel& channel, size_t bytes = 0) {
    const auto ended = Open(channel, bytes);
    Await([&] { return ended->has_value(); });
    return ended->value_or(absl::UnknownError("it goes on"));
  }
  absl::Status CallAsMember() {
    const auto channel = Connect(Node(kMemberId));
    std::optional<absl::Status> ended;
    channel->Call(
        kForMembers, v1::DescribeModelRequest(), seconds(10),
        [&](const absl::StatusOr<v1::DescribeModelResponse>& answer) { ended = answer.status(); });
    Await([&] { return ended.has_value(); });
    return ended.value_or(absl::UnknownError("it goes on"));
  }

  AsioDispatcher dispatcher_;
  ClusterSecret secret_;
  std::string address_;
  absl::Status may_;
  int asked_ = 0;
  std::vector<std::pair<std::string, absl::StatusCode>> observed_;
  std::vector<ServerStream> held_;
  std::optional<GrpcServer> server_;
};

TEST_F(GrpcPlacesTest, ACallerWithoutTheRightIsRefusedBeforeItsMessageComes) {
  Start();
  may_ = absl::PermissionDeniedError("beyond its scope");
  const auto person = CallSilently(Person("00000000000a"), kForReaders.path);
  AwaitEnd(*person);
  EXPECT_EQ(person->ended()->error_code(), grpc::StatusCode::PERMISSION_DENIED);
  Await([&] { return !observed_.empty(); });
  EXPECT_EQ(observed_[0].first, kForReaders.path) << "an audit log has a line for it";
  EXPECT_EQ(observed_[0].second, absl::StatusCode::kPermissionDenied);
  const auto other = CallSilently(Node(kOtherId), kForMembers.path);
  AwaitEnd(*other);
  EXPECT_EQ(other->ended()->error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcPlacesTest, AMessageThatDoesNotComeWithinTheLimitEndsItsCall) {
  Start(std::chrono::seconds(1));
  for (const auto& [shown, method] : {std::pair(Node(kMemberId), kForMembers.path),
                                      std::pair(Person("00000000000a"), kForReaders.path)}) {
    const auto call = CallSilently(shown, method);
    AwaitEnd(*call);
    EXPECT_EQ(call->ended()->error_code(), grpc::StatusCode::ABORTED);
    EXPECT_NE(call->ended()->error_message().find("within 1000 ms"), std::string::npos)
        << call->ended()->error_message();
  }
  EXPECT_TRUE(held_.empty());
  EXPECT_TRUE(CallAsMember().ok());
}

TEST_F(GrpcPlacesTest, ARevokedKeysCallEndsBeforeItsMessageComes) {
  Start();
  const auto call = CallSilently(Person("00000000000a"), kForReaders.path);
  Await([&] { return asked_ > 0; });
  may_ = absl::UnauthenticatedError("revoked");
  server_->RecheckPersons();
  AwaitEnd(*call);
  EXPECT_EQ(call->ended()->error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(GrpcPlacesTest, PersonsHaveTheirShareAndMembersAreNotKeptOut) {
  Start();
  std::vector<std::unique_ptr<GrpcChannel>> channels;
  size_t open = 0;
  for (int key = 0; key < kCallsOfPersonsMax / kCallsOfKeyMax; ++key) {
    channels.push_back(Connect(Person(absl::StrCat("00000000000", key))));
    for (int call = 0; call < kCallsOfKeyMax; ++call) Open(*channels.back());
    open += kCallsOfKeyMax;
    Await([&] { return held_.size() == open; });
    ASSERT_EQ(held_.size(), open);
    const absl::Status own = EndOfNext(*channels.back());
    EXPECT_TRUE(absl::IsResourceExhausted(own)) << own;
    EXPECT_NE(own.message().find("your own other calls"), std::string_view::npos) << own;
  }
  const auto another = Connect(Person("0000000000ff"));
  const absl::Status together = EndOfNext(*another);
  EXPECT_EQ(ReasonOf(together).code(), reasons::kQueueFull) << together;
  EXPECT_NE(together.message().find("128"), std::string_view::npos) << together;
  EXPECT_TRUE(CallAsMember().ok()) << "while persons hold all that they may";
  held_.front().Finish(absl::OkStatus());
  // The place is free soon after the caller has the end.
  std::function<void()> again = [&] {
    another->Stream(
        kForReaders, v1::GenerateRequest(), seconds(20), [](v1::GenerateChunk) {},
        [&](const absl::Status&) {
          if (held_.size() == open) again();
        });
  };
  again();
  Await([&] { return held_.size() == open + 1; });
  EXPECT_EQ(held_.size(), open + 1);
  held_.clear();
  channels.clear();
}

TEST_F(GrpcPlacesTest, LargeMessagesCountUntilTheirCallsEnd) {
  Start();
  const auto person = Connect(Person("00000000000a"));
  for (size_t held = 0; held < kHeldBytesOfCallerMax / kLargeBytes; ++held) {
    ASSERT_TRUE(IsHeld(*person, kLargeBytes));
  }
  const absl::Status beyond = EndOfNext(*person, kLargeBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(beyond)) << beyond;
  EXPECT_EQ(ReasonOf(beyond).code(), reasons::kQueueFull) << beyond;
  EXPECT_TRUE(IsHeld(*person, kSmallMessageBytesMax / 2)) << "what asks for little is answered";
  const auto another = Connect(Person("00000000000b"));
  EXPECT_TRUE(IsHeld(*another, kLargeBytes));
  held_.front().Finish(absl::OkStatus());
  held_.erase(held_.begin());
  // There is room soon after the caller has the end.
  bool fits = false;
  for (int tries = 0; tries < 1000 && !fits; ++tries) fits = IsHeld(*person, kLargeBytes);
  EXPECT_TRUE(fits);
  held_.clear();
}

// Each empty message takes two bytes on the way, and some hundred once it is read.
TEST_F(GrpcPlacesTest, WhatWouldGrowIsRefusedUnread) {
  Start();
  v1::GenerateRequest request;
  for (size_t i = 0; i < kMessageBytesMax / 8; ++i) request.add_messages();
  for (const NodeCredentials& shown : {Person("00000000000a"), Node(kMemberId)}) {
    const auto channel = Connect(shown);
    std::optional<absl::Status> ended;
    channel->Stream(
        kForReaders, request, seconds(20), [](v1::GenerateChunk) {},
        [&](absl::Status status) { ended = std::move(status); });
    Await([&] { return ended.has_value() || !held_.empty(); });
    ASSERT_TRUE(ended.has_value()) << "it was read";
    EXPECT_TRUE(absl::IsInvalidArgument(*ended)) << "for good: " << *ended;
    EXPECT_EQ(ReasonOf(*ended).code(), reasons::kBadRequest) << *ended;
    EXPECT_NE(ended->message().find("16 MiB of memory"), std::string_view::npos) << *ended;
  }
}

TEST_F(GrpcPlacesTest, SharesAreOfWhatMessagesTakeOnceTheyAreRead) {
  Start();
  const auto person = Connect(Person("00000000000a"));
  v1::GenerateRequest request;
  for (int i = 0; i < 600'000; ++i) request.add_prompt_token_ids(1);  // 0.6 MB on the way
  std::optional<absl::Status> ended;
  const auto ask = [&] {
    person->Stream(
        kForReaders, request, seconds(20), [](v1::GenerateChunk) {},
        [&](absl::Status status) { ended = std::move(status); });
  };
  for (size_t held = 1; held <= 3; ++held) {
    ask();
    Await([&] { return held_.size() == held || ended.has_value(); });
    ASSERT_EQ(held_.size(), held) << ended.value_or(absl::OkStatus());
  }
  ask();
  Await([&] { return held_.size() > 3 || ended.has_value(); });
  ASSERT_TRUE(ended.has_value()) << "four would take some 19 of 16 MiB";
  EXPECT_EQ(ReasonOf(*ended).code(), reasons::kQueueFull) << *ended;
  held_.clear();
}

TEST_F(GrpcPlacesTest, MembersRequestsUnderWayKeepNoOrderOut) {
  Start();
  const auto member = Connect(Node(kMemberId));
  for (size_t held = 0; held <= kHeldBytesOfMembersMax / kLargeBytes; ++held) {
    ASSERT_TRUE(IsHeld(*member, kLargeBytes)) << held;
  }
  held_.clear();
}

TEST_F(GrpcPlacesTest, MessagesThatAreHeldBackKeepNoMemberAndNoOtherKeyOut) {
  Start();
  std::vector<std::unique_ptr<SilentCall>> silent;
  for (int call = 0; call < 2 * kReadsOfKeyMax; ++call) {
    silent.push_back(CallSilently(Person("00000000000a"), kForReaders.path));
  }
  Await([&] { return asked_ == 2 * kReadsOfKeyMax; });
  EXPECT_TRUE(CallAsMember().ok());
  const auto another = Connect(Person("00000000000b"));
  Open(*another);
  Await([&] { return held_.size() == 1; });
  EXPECT_EQ(held_.size(), 1u);
  for (const auto& call : silent) CancelAndAwait(*call);
  // Nothing of them is left that the key's next calls would wait for.
  const auto own = Connect(Person("00000000000a"));
  Open(*own);
  Await([&] { return held_.size() == 2; });
  EXPECT_EQ(held_.size(), 2u);
  held_.clear();
}

}  // namespace
}  // namespace macrame::transport
