// The server and the channel against each other, over loopback and unix sockets.

#include "transport/grpc_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/transport/tls_caller.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_channel.h"
#include "transport/peer_channel.h"
#include "transport/status_codec.h"
#include "transport/tls_credentials.h"
#include "transport/trust.h"
#include "transport/unix_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const NodeId kServerId("00000000000000000000000000000001");
const NodeId kClientId("00000000000000000000000000000002");
constexpr char kKeyId[] = "0123456789ab";
using UnaryMethod = Method<v1::DescribeModelRequest, v1::DescribeModelResponse>;
constexpr UnaryMethod kUnary{"/macrame.v1.AgentService/DescribeModel", Access::kCertificate};
constexpr UnaryMethod kForMembers{"/macrame.v1.AgentService/ForMembers", Access::kMember};
constexpr UnaryMethod kForThisMachine{"/macrame.v1.AgentService/ForThisMachine", Access::kLocal};
constexpr UnaryMethod kForOperators{"/macrame.v1.AgentService/ForOperators", Access::kLocal,
                                    Remote::kOperate};
constexpr Method<v1::LeaveRequest, v1::LeaveResponse> kDance{"/macrame.v1.AgentService/Dance",
                                                             Access::kCertificate};
constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kStream{
    "/macrame.v1.AgentService/Generate", Access::kCertificate, Remote::kRead};

using UnaryReply = GrpcServer::Reply<v1::DescribeModelResponse>;

class GrpcServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    secret_ = *CreateClusterSecret("test");
    server_credentials_ = *MakeNodeCredentials(secret_, kServerId);
    client_credentials_ = *MakeNodeCredentials(secret_, kClientId);
    server_.emplace(dispatcher_);
    for (const UnaryMethod& method : {kUnary, kForMembers, kForThisMachine, kForOperators}) {
      server_->HandleUnary(
          method, [this](const Caller& caller, v1::DescribeModelRequest request, UnaryReply reply) {
            EXPECT_TRUE(dispatcher_.IsOwnerThread());
            callers_.push_back(caller);
            on_unary_(request, std::move(reply));
          });
    }
    server_->HandleStream(kStream,
                          [this](const Caller&, v1::GenerateRequest request, ServerStream stream) {
                            on_stream_(request, std::move(stream));
                          });
    // Nothing here may wait for ever.
    dispatcher_.PostAfter(seconds(20), [this] {
      ADD_FAILURE() << "the test took too long";
      dispatcher_.Stop();
    });
  }

  NodeCredentials PersonCredentials() const {
    const KeyPair pair =
        *MakePersonCredentials(secret_, kKeyId, SystemUnixSeconds(), SystemUnixSeconds() + 3600);
    NodeCredentials shown;
    shown.certificate_pem = pair.certificate_pem;
    shown.key_pem = pair.key_pem;
    shown.authority_certificate_pem = secret_.authority_certificate_pem;
    return shown;
  }

  void StartTls() {
    const auto port = server_->StartTcp("127.0.0.1", 0, TlsServerCredentials(server_credentials_));
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = absl::StrCat("127.0.0.1:", *port);
  }

  std::unique_ptr<PeerChannel> Connect(const NodeCredentials& credentials, const NodeId& expected) {
    auto channel = std::make_unique<GrpcChannel>(dispatcher_, TlsChannelCredentials(credentials),
                                                 NodeTlsName(expected), credentials.node_id);
    channel->SetAddresses({address_});
    return channel;
  }

  // Runs the dispatcher until the call has ended.
  absl::StatusOr<v1::DescribeModelResponse> CallUnary(PeerChannel& channel,
                                                      Duration timeout = seconds(5),
                                                      const UnaryMethod& method = kUnary) {
    v1::DescribeModelRequest request;
    request.set_name_or_path("tiny");
    absl::StatusOr<v1::DescribeModelResponse> result;
    channel.Call(method, request, timeout, [&](absl::StatusOr<v1::DescribeModelResponse> response) {
      EXPECT_TRUE(dispatcher_.IsOwnerThread());
      result = std::move(response);
      dispatcher_.Stop();
    });
    dispatcher_.Run();
    return result;
  }

  AsioDispatcher dispatcher_;
  ClusterSecret secret_;
  NodeCredentials server_credentials_;
  NodeCredentials client_credentials_;
  std::optional<GrpcServer> server_;
  std::string address_;
  std::vector<Caller> callers_;
  std::function<void(const v1::DescribeModelRequest&, UnaryReply)> on_unary_ =
      [](const v1::DescribeModelRequest& request, UnaryReply reply) {
        v1::DescribeModelResponse response;
        response.mutable_model()->set_name(request.name_or_path());
        reply(response);
      };
  std::function<void(const v1::GenerateRequest&, ServerStream)> on_stream_;
  std::optional<ServerStream> held_;
};

TEST_F(GrpcServerTest, AMemberIsAnsweredAndKnownByItsCertificate) {
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  const auto response = CallUnary(*channel);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->model().name(), "tiny");
  ASSERT_EQ(callers_.size(), 1u);
  EXPECT_EQ(callers_[0].node_id, kClientId);
  EXPECT_EQ(callers_[0].address, "127.0.0.1");
  EXPECT_FALSE(callers_[0].local);
}

TEST_F(GrpcServerTest, EachMethodIsAnsweredToThoseWhoMayCallIt) {
  bool is_known = false;
  server_->SetMemberCheck([&](const NodeId& caller) {
    EXPECT_TRUE(dispatcher_.IsOwnerThread());
    EXPECT_EQ(caller, kClientId);
    return is_known;
  });
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  const absl::Status unknown = CallUnary(*channel, seconds(5), kForMembers).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kFailedPrecondition) << unknown;
  EXPECT_TRUE(CallUnary(*channel).ok()) << "a certificate is enough there";
  is_known = true;
  EXPECT_TRUE(CallUnary(*channel, seconds(5), kForMembers).ok());
  const absl::Status remote = CallUnary(*channel, seconds(5), kForThisMachine).status();
  EXPECT_EQ(remote.code(), absl::StatusCode::kPermissionDenied) << remote;
  EXPECT_EQ(callers_.size(), 2u) << "who may not call reaches no handler";
}

TEST_F(GrpcServerTest, WithoutAMemberCheckNobodyIsAMember) {
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  EXPECT_EQ(CallUnary(*channel, seconds(5), kForMembers).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(callers_.empty());
}

// An access file's certificate names a key, which is asked about at each call.
TEST_F(GrpcServerTest, APersonMayWhatItsKeyMay) {
  std::vector<Remote> asked;
  absl::Status answer;
  server_->SetPersonCheck([&](const std::string& key_id, Remote needed) {
    EXPECT_TRUE(dispatcher_.IsOwnerThread());
    EXPECT_EQ(key_id, kKeyId);
    asked.push_back(needed);
    return answer;
  });
  StartTls();
  auto channel = Connect(PersonCredentials(), kServerId);
  ASSERT_TRUE(CallUnary(*channel, seconds(5), kForOperators).ok());
  ASSERT_EQ(callers_.size(), 1u);
  EXPECT_EQ(callers_[0].key_id, kKeyId);
  EXPECT_EQ(callers_[0].node_id, NodeId());
  EXPECT_EQ(callers_[0].address, "127.0.0.1");
  EXPECT_TRUE(callers_[0].IsPerson());
  EXPECT_FALSE(callers_[0].local);
  EXPECT_EQ(asked, std::vector<Remote>{Remote::kOperate});
  // What persons are not meant for is refused whatever a check says, also what nodes may.
  for (const UnaryMethod& method : {kUnary, kForMembers, kForThisMachine}) {
    const absl::Status refused = CallUnary(*channel, seconds(5), method).status();
    EXPECT_EQ(ReasonOf(refused).code(), reasons::kLocalOnly) << method.path << ": " << refused;
  }
  answer = absl::PermissionDeniedError("beyond its scope");
  EXPECT_EQ(CallUnary(*channel, seconds(5), kForOperators).status(), answer);
  EXPECT_EQ(callers_.size(), 1u) << "who may not call reaches no handler";
}

TEST_F(GrpcServerTest, WithoutAPersonCheckNoAccessFileIsTaken) {
  StartTls();
  auto channel = Connect(PersonCredentials(), kServerId);
  EXPECT_TRUE(absl::IsPermissionDenied(CallUnary(*channel, seconds(5), kForOperators).status()));
  EXPECT_TRUE(callers_.empty());
}

TEST_F(GrpcServerTest, ANodeMayNotWhatOperatorsMay) {
  server_->SetPersonCheck([](const std::string&, Remote) { return absl::OkStatus(); });
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  const absl::Status refused = CallUnary(*channel, seconds(5), kForOperators).status();
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kLocalOnly) << refused;
}

TEST_F(GrpcServerTest, AStreamOfAKeyThatIsRevokedEnds) {
  absl::Status answer;
  server_->SetPersonCheck([&](const std::string&, Remote) { return answer; });
  StartTls();
  bool told = false;
  on_stream_ = [&](const v1::GenerateRequest&, ServerStream stream) {
    v1::GenerateChunk chunk;
    stream.OnCancel([&told] { told = true; });
    stream.Write(chunk);
    held_ = stream;
  };
  auto channel = Connect(PersonCredentials(), kServerId);
  auto of_node = Connect(client_credentials_, kServerId);
  std::optional<absl::Status> ended;
  channel->Stream(
      kStream, v1::GenerateRequest(), seconds(10),
      [&](const v1::GenerateChunk&) {
        server_->RecheckPersons();  // nothing changed
        answer = absl::UnauthenticatedError("revoked");
        server_->RecheckPersons();
      },
      [&](absl::Status status) {
        ended = std::move(status);
        dispatcher_.Stop();
      });
  dispatcher_.Run();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(*ended, absl::UnauthenticatedError("revoked"));
  EXPECT_FALSE(held_->Write(v1::GenerateChunk()));
  EXPECT_TRUE(CallUnary(*of_node).ok()) << "nodes go on";
  EXPECT_TRUE(told) << "whoever works for it, also on another node, stops";
}

TEST_F(GrpcServerTest, ACallerOfAnotherClusterDoesNotGetIn) {
  StartTls();
  const ClusterSecret other = *CreateClusterSecret("test");
  NodeCredentials forged = *MakeNodeCredentials(other, kClientId);
  // Even one that trusts our authority must show a certificate of it.
  forged.authority_certificate_pem = secret_.authority_certificate_pem;
  auto channel = Connect(forged, kServerId);
  EXPECT_EQ(CallUnary(*channel).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(callers_.empty());
}

TEST_F(GrpcServerTest, AServerThatIsNotTheExpectedNodeIsNotCalled) {
  StartTls();
  auto channel = Connect(client_credentials_, NodeId("00000000000000000000000000000009"));
  EXPECT_EQ(CallUnary(*channel).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(callers_.empty());
}

TEST_F(GrpcServerTest, ARefusedCertificateIsToldFromAPeerThatIsNotThere) {
  StartTls();
  NodeCredentials forged = *MakeNodeCredentials(*CreateClusterSecret("test"), kClientId);
  auto unknown_node = Connect(forged, kServerId);
  EXPECT_TRUE(IsHandshakeFailure(CallUnary(*unknown_node).status()));
  // The server's to refuse.
  forged.authority_certificate_pem = secret_.authority_certificate_pem;
  auto refused = Connect(forged, kServerId);
  const absl::Status by_server = CallUnary(*refused).status();
  EXPECT_TRUE(IsHandshakeFailure(by_server)) << by_server;
  // A clock that is years off makes a certificate that is not valid yet, or no more.
  for (const int64_t days : {-900, 900}) {
    auto off = Connect(
        *MakeNodeCredentials(secret_, kClientId, SystemUnixSeconds() + days * kSecondsPerDay),
        kServerId);
    const absl::Status status = CallUnary(*off).status();
    EXPECT_TRUE(IsHandshakeFailure(status)) << status;
  }
  auto gone = Connect(client_credentials_, kServerId);
  server_->Stop(Duration::zero());
  EXPECT_FALSE(IsHandshakeFailure(CallUnary(*gone).status()));
}

TEST_F(GrpcServerTest, NewCredentialsAreTakenWithoutEndingWhatRuns) {
  // Made by a clock that was years ahead: nobody takes it.
  server_credentials_ =
      *MakeNodeCredentials(secret_, kServerId, SystemUnixSeconds() + 900 * kSecondsPerDay);
  StartTls();
  auto early = Connect(client_credentials_, kServerId);
  EXPECT_TRUE(IsHandshakeFailure(CallUnary(*early).status()));
  ASSERT_TRUE(
      server_->UseCredentials(TlsServerCredentials(*MakeNodeCredentials(secret_, kServerId))).ok());
  auto first = Connect(client_credentials_, kServerId);
  ASSERT_TRUE(CallUnary(*first).ok());
  // A call that is under way while both sides take new certificates ends well.
  UnaryReply kept;
  on_unary_ = [&](const v1::DescribeModelRequest&, UnaryReply reply) {
    if (!kept) {
      kept = std::move(reply);
      dispatcher_.Stop();
      return;
    }
    reply(v1::DescribeModelResponse());
  };
  absl::StatusOr<v1::DescribeModelResponse> slow = absl::UnknownError("not answered");
  v1::DescribeModelRequest request;
  first->Call(kUnary, request, seconds(10), [&](auto response) {
    slow = std::move(response);
    dispatcher_.Stop();
  });
  dispatcher_.Run();
  ASSERT_TRUE(kept);
  ASSERT_TRUE(
      server_->UseCredentials(TlsServerCredentials(*MakeNodeCredentials(secret_, kServerId))).ok());
  first->SetCredentials(TlsChannelCredentials(*MakeNodeCredentials(secret_, kClientId)));
  EXPECT_TRUE(CallUnary(*first).ok());
  kept(v1::DescribeModelResponse());
  dispatcher_.Run();
  EXPECT_TRUE(slow.ok()) << slow.status();
}

TEST_F(GrpcServerTest, ARevokedNodeIsNotAnsweredAndItsCallsEnd) {
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  ASSERT_TRUE(CallUnary(*channel).ok());
  bool cancelled_too_early = false;
  on_unary_ = [&](const v1::DescribeModelRequest&, UnaryReply reply) {
    // On the very connection that is there, with the call under way.
    server_->SetRevoked({kClientId});
    cancelled_too_early = !reply;
  };
  const absl::Status under_way = CallUnary(*channel).status();
  EXPECT_EQ(ReasonOf(under_way).code(), "NODE_REVOKED") << under_way;
  EXPECT_FALSE(cancelled_too_early);
  const size_t before = callers_.size();
  EXPECT_EQ(ReasonOf(CallUnary(*channel).status()).code(), "NODE_REVOKED");
  EXPECT_EQ(callers_.size(), before);
  // Others go on.
  on_unary_ = [](const v1::DescribeModelRequest&, UnaryReply reply) {
    reply(v1::DescribeModelResponse());
  };
  const NodeId other("00000000000000000000000000000003");
  auto another = Connect(*MakeNodeCredentials(secret_, other), kServerId);
  EXPECT_TRUE(CallUnary(*another).ok());
}

TEST_F(GrpcServerTest, APlainCallerDoesNotGetIn) {
  StartTls();
  GrpcChannel channel(dispatcher_, PlainChannelCredentials(), "", kClientId);
  channel.SetAddresses({address_});
  EXPECT_EQ(CallUnary(channel).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(callers_.empty());
}

TEST_F(GrpcServerTest, ErrorsKeepTheirReason) {
  StartTls();
  on_unary_ = [](const v1::DescribeModelRequest&, UnaryReply reply) {
    reply(ReasonStatus(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND", "no model 'tiny'"));
  };
  auto channel = Connect(client_credentials_, kServerId);
  const auto response = CallUnary(*channel);
  EXPECT_EQ(response.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(response.status()).code(), "MODEL_NOT_FOUND");
}

TEST_F(GrpcServerTest, ADroppedReplyBecomesAnError) {
  StartTls();
  on_unary_ = [](const v1::DescribeModelRequest&, UnaryReply) {};
  auto channel = Connect(client_credentials_, kServerId);
  EXPECT_EQ(CallUnary(*channel).status().code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcServerTest, ASlowAnswerEndsAtTheDeadlineAndLateRepliesAreHarmless) {
  StartTls();
  UnaryReply kept;
  on_unary_ = [&](const v1::DescribeModelRequest&, UnaryReply reply) { kept = std::move(reply); };
  auto channel = Connect(client_credentials_, kServerId);
  EXPECT_EQ(CallUnary(*channel, milliseconds(300)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  server_->Stop(milliseconds(10));
  if (kept) kept(v1::DescribeModelResponse());
}

TEST_F(GrpcServerTest, NobodyListeningIsRefusedAtOnce) {
  StartTls();
  server_->Stop(Duration::zero());
  auto channel = Connect(client_credentials_, kServerId);
  const auto response = CallUnary(*channel);
  EXPECT_TRUE(IsConnectionRefused(response.status())) << response.status();
}

TEST_F(GrpcServerTest, AChannelFindsItsPeerAgainAfterARestart) {
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  ASSERT_TRUE(CallUnary(*channel).ok());
  const int port = std::stoi(address_.substr(address_.find(':') + 1));
  server_->Stop(Duration::zero());
  EXPECT_FALSE(CallUnary(*channel).ok());
  GrpcServer again(dispatcher_);
  again.HandleUnary(kUnary, [](const Caller&, v1::DescribeModelRequest, UnaryReply reply) {
    reply(v1::DescribeModelResponse());
  });
  ASSERT_TRUE(again.StartTcp("127.0.0.1", port, TlsServerCredentials(server_credentials_)).ok());
  int calls = 0;
  std::function<void()> call = [&] {
    channel->Call(kUnary, v1::DescribeModelRequest(), seconds(1),
                  [&](absl::StatusOr<v1::DescribeModelResponse> response) {
                    if (response.ok()) return dispatcher_.Stop();
                    ASSERT_LT(++calls, 100);
                    dispatcher_.PostAfter(milliseconds(50), call);
                  });
  };
  call();
  dispatcher_.Run();
}

TEST_F(GrpcServerTest, UnknownMethodsAndTakenPortsAreNamed) {
  StartTls();
  auto channel = Connect(client_credentials_, kServerId);
  absl::Status status;
  channel->Call(kDance, v1::LeaveRequest(), seconds(5),
                [&](absl::StatusOr<v1::LeaveResponse> response) {
                  status = response.status();
                  dispatcher_.Stop();
                });
  dispatcher_.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  GrpcServer second(dispatcher_);
  const int port = std::stoi(address_.substr(address_.find(':') + 1));
  EXPECT_EQ(
      ReasonOf(
          second.StartTcp("127.0.0.1", port, TlsServerCredentials(server_credentials_)).status())
          .code(),
      "PORT_TAKEN");
}

// The descriptor that listens at this port; -1: none.
int ListenerAt(int port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in at{};
    socklen_t size = sizeof(at);
    int listens = 0;
    socklen_t option = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &option) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0 &&
        at.sin_family == AF_INET && ntohs(at.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

TEST_F(GrpcServerTest, AListenerThatFailsIsMadeAnew) {
  StartTls();
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  const int listener = ListenerAt(port);
  ASSERT_GE(listener, 0);
  ASSERT_EQ(::shutdown(listener, SHUT_RDWR), 0);
  bool answered = false;
  for (int attempt = 0; attempt < 500 && !answered; ++attempt) {
    answered = CallUnary(*Connect(client_credentials_, kServerId)).ok();
  }
  EXPECT_TRUE(answered);
  EXPECT_EQ(server_->ListenerTrouble(), "");
}

TEST_F(GrpcServerTest, MembersWithOlderTlsAreNotLetIn) {
  StartTls();
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  const std::string& certificate = client_credentials_.certificate_pem;
  const std::string& key = client_credentials_.key_pem;
  EXPECT_EQ(AgreedVersion(port, TlsVersion::k13, certificate, key), "TLSv1.3");
  EXPECT_EQ(AgreedVersion(port, TlsVersion::k12, certificate, key), "");
}

#ifdef __linux__
// A process that connects `count` times from 127.0.0.2 to the port that it is told, and is silent.
class SilentCallers {
 public:
  explicit SilentCallers(int count) {
    if (::pipe(ports_) != 0 || ::pipe(done_) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) Connect(count);
  }
  ~SilentCallers() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {ports_[0], ports_[1], done_[0], done_[1]}) ::close(fd);
  }
  // Returns when all have called.
  void Call(int port) {
    char answer = 0;
    ASSERT_EQ(::write(ports_[1], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    ASSERT_EQ(::read(done_[0], &answer, 1), 1);
  }

 private:
  [[noreturn]] void Connect(int count) {
    rlimit many{4096, 4096};
    ::setrlimit(RLIMIT_NOFILE, &many);
    int port = 0;
    if (::read(ports_[0], &port, sizeof(port)) != sizeof(port)) ::_exit(1);
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      ::bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from));
      ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    }
    const char one = 1;
    (void)!::write(done_[1], &one, 1);
    while (true) ::pause();
  }

  int ports_[2] = {-1, -1}, done_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST_F(GrpcServerTest, SilentCallersBeyondTheDescriptorLimitKeepNoMemberOut) {
  SilentCallers callers(600);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few{256, before.rlim_max};  // as launchd has it
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  StartTls();
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  callers.Call(port);
  auto during = Connect(client_credentials_, kServerId);
  EXPECT_TRUE(CallUnary(*during).ok()) << "while 600 are connected";
  during.reset();
  auto after = Connect(client_credentials_, kServerId);
  EXPECT_TRUE(CallUnary(*after).ok());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(GrpcServerTest, TheAcceptorGoesOnWhenNoDescriptorIsLeft) {
  StartTls();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<int> all;
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  SilentCallers callers(20);
  rlimit few{128, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) all.push_back(fd);
  callers.Call(port);  // meets EMFILE
  for (const int fd : all) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  auto channel = Connect(client_credentials_, kServerId);
  EXPECT_TRUE(CallUnary(*channel).ok());
}
#endif

TEST_F(GrpcServerTest, AStreamArrivesWholeAndInOrder) {
  StartTls();
  on_stream_ = [](const v1::GenerateRequest& request, ServerStream stream) {
    for (int i = 0; i < 500; ++i) {
      v1::GenerateChunk chunk;
      chunk.set_completion_tokens(i);
      chunk.set_text(request.prompt());
      EXPECT_TRUE(stream.Write(chunk));
    }
    stream.Finish(absl::OkStatus());
    EXPECT_FALSE(stream.Write(v1::GenerateChunk()));
  };
  auto channel = Connect(client_credentials_, kServerId);
  v1::GenerateRequest request;
  request.set_prompt("p");
  uint32_t next = 0;
  absl::Status end = absl::UnknownError("not ended");
  channel->Stream(
      kStream, request, seconds(10),
      [&](v1::GenerateChunk chunk) {
        EXPECT_EQ(chunk.completion_tokens(), next++);
        EXPECT_EQ(chunk.text(), "p");
      },
      [&](absl::Status status) {
        end = status;
        dispatcher_.Stop();
      });
  dispatcher_.Run();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(next, 500u);
}

TEST_F(GrpcServerTest, AStreamHandedOverAsideWaitsForNothingOnTheOwnerThread) {
  StartTls();
  std::atomic<uint32_t> come = 0;
  on_stream_ = [&](const v1::GenerateRequest&, ServerStream stream) {
    for (int i = 0; i < 50; ++i) {
      v1::GenerateChunk chunk;
      chunk.set_completion_tokens(i);
      EXPECT_TRUE(stream.Write(chunk));
    }
    // The owner thread is busy until all have come.
    const auto limit = std::chrono::steady_clock::now() + seconds(10);
    while (come < 50 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(come, 50u);
    stream.Finish(absl::OkStatus());
  };
  auto channel = Connect(client_credentials_, kServerId);
  absl::Status end = absl::UnknownError("not ended");
  channel->Stream(
      kStream, v1::GenerateRequest(), seconds(15),
      [&](v1::GenerateChunk chunk) {
        EXPECT_FALSE(dispatcher_.IsOwnerThread());
        EXPECT_EQ(chunk.completion_tokens(), come++);
      },
      [&](absl::Status status) {
        EXPECT_TRUE(dispatcher_.IsOwnerThread());
        end = status;
        dispatcher_.Stop();
      },
      HandOver::kChannelThread);
  dispatcher_.Run();
  EXPECT_TRUE(end.ok()) << end;
}

TEST_F(GrpcServerTest, CancellingAStreamReachesTheHandler) {
  StartTls();
  bool cancelled = false;
  bool ended = false;
  std::optional<ServerStream> kept;
  on_stream_ = [&](const v1::GenerateRequest&, ServerStream stream) {
    kept = stream;
    stream.OnCancel([&] {
      cancelled = true;
      if (ended) dispatcher_.Stop();
    });
    stream.Write(v1::GenerateChunk());
  };
  auto channel = Connect(client_credentials_, kServerId);
  absl::Status end;
  CallHandle handle;
  handle = channel->Stream(
      kStream, v1::GenerateRequest(), seconds(10), [&](v1::GenerateChunk) { handle.Cancel(); },
      [&](absl::Status status) {
        end = status;
        ended = true;
        if (cancelled) dispatcher_.Stop();
      });
  dispatcher_.Run();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cancelled);
  EXPECT_FALSE(kept->Write(v1::GenerateChunk()));
}

// What a handler keeps for a call, the call's own handle among it, goes when the call is over.
TEST_F(GrpcServerTest, NothingOfACallStaysBehindIt) {
  struct Kept {
    ServerStream stream;
    AsioDispatcher* owner;
    ~Kept() {
      EXPECT_TRUE(owner->IsOwnerThread());
      owner->Stop();
    }
  };
  StartTls();
  std::weak_ptr<Kept> kept;
  on_stream_ = [&](const v1::GenerateRequest&, ServerStream stream) {
    const auto call = std::shared_ptr<Kept>(new Kept{stream, &dispatcher_});
    kept = call;
    stream.OnCancel([call] { ADD_FAILURE() << "nobody cancelled " << call.get(); });
    stream.Finish(absl::OkStatus());
  };
  auto channel = Connect(client_credentials_, kServerId);
  channel->Stream(
      kStream, v1::GenerateRequest(), seconds(10), [](v1::GenerateChunk) {}, [](absl::Status) {});
  dispatcher_.PostAfter(seconds(10), [this] { dispatcher_.Stop(); });
  dispatcher_.Run();
  EXPECT_TRUE(kept.expired());
}

TEST_F(GrpcServerTest, AChannelMayGoWithCallsUnderWay) {
  StartTls();
  UnaryReply kept;
  on_unary_ = [&](const v1::DescribeModelRequest&, UnaryReply reply) {
    kept = std::move(reply);
    dispatcher_.Stop();
  };
  auto channel = Connect(client_credentials_, kServerId);
  bool called = false;
  channel->Call(kUnary, v1::DescribeModelRequest(), seconds(10),
                [&](absl::StatusOr<v1::DescribeModelResponse>) { called = true; });
  dispatcher_.Run();
  channel.reset();
  EXPECT_FALSE(called);
}

// Who waits for a node that is forgotten is told, once; a call begun by who was told goes on.
TEST_F(GrpcServerTest, CallsUnderWayEndWhenThePeerIsGivenUp) {
  StartTls();
  int arrived = 0;
  std::vector<UnaryReply> unary;
  std::vector<ServerStream> streams;
  const auto note = [&] {
    if (++arrived == 2) dispatcher_.Stop();
  };
  on_unary_ = [&](const v1::DescribeModelRequest&, UnaryReply reply) {
    unary.push_back(std::move(reply));
    note();
  };
  on_stream_ = [&](const v1::GenerateRequest&, ServerStream stream) {
    streams.push_back(std::move(stream));
    note();
  };
  auto channel = Connect(client_credentials_, kServerId);
  std::vector<absl::Status> told;
  std::optional<absl::Status> second;
  channel->Call(kUnary, v1::DescribeModelRequest(), seconds(10),
                [&](absl::StatusOr<v1::DescribeModelResponse> answer) {
                  told.push_back(answer.status());
                  channel->Call(kUnary, v1::DescribeModelRequest(), seconds(10),
                                [&](absl::StatusOr<v1::DescribeModelResponse> later) {
                                  second = later.status();
                                  dispatcher_.Stop();
                                });
                });
  channel->Stream(
      kStream, v1::GenerateRequest(), seconds(10), [](v1::GenerateChunk) {},
      [&](const absl::Status& status) { told.push_back(status); });
  dispatcher_.Run();
  arrived = 0;
  channel->EndCalls(absl::UnavailableError("it left"));
  ASSERT_EQ(told.size(), 2u);
  for (const absl::Status& status : told) EXPECT_EQ(status.message(), "it left");
  on_unary_ = [](const v1::DescribeModelRequest&, const UnaryReply& reply) {
    reply(v1::DescribeModelResponse());
  };
  for (const UnaryReply& reply : unary) reply(v1::DescribeModelResponse());
  dispatcher_.Run();
  EXPECT_TRUE(second.has_value() && second->ok()) << *second;
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(GrpcServerTest, TheUnixSocketIsPrivateAndItsCallersLocal) {
  const std::string path = FreshFolder() + "/new/a.sock";
  ASSERT_TRUE(server_->StartUnix(path).ok());
  const auto mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  GrpcChannel channel(dispatcher_, PlainChannelCredentials(), "", kClientId);
  channel.SetAddresses({SocketTarget(path)});
  EXPECT_TRUE(CallUnary(channel).ok());
  ASSERT_EQ(callers_.size(), 1u);
  EXPECT_TRUE(callers_[0].local);
  EXPECT_EQ(callers_[0].node_id, kClientId) << "what its own agent says";
  server_->Stop(Duration::zero());
}

}  // namespace
}  // namespace macrame::transport
