// SECURITY.md says for each gRPC method who may call it: a real server is asked each over mutual
// TLS, with the access file of each scope, as a member and as a node that is none.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/gateway/access/admission.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/scope_table.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_channel.h"
#include "transport/grpc_server.h"
#include "transport/tls_credentials.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using transport::Caller;

const NodeId kServer("00000000000000000000000000000001");
const NodeId kMember("00000000000000000000000000000002");
const NodeId kOther("00000000000000000000000000000003");
const std::map<std::string, std::string> kKeyIds = {{"infer", "0000000000a1"},
                                                    {"read", "0000000000a2"},
                                                    {"operate", "0000000000a3"},
                                                    {"admin", "0000000000a4"}};

// A method as rpc_methods.h declares it. What a request is made of does not matter: none is asked
// for more than whether it may come.
using AnyMethod = Method<v1::VersionRequest, v1::VersionResponse>;
struct Declared {
  std::string path, name;
  Access access = Access::kLocal;
  Remote remote = Remote::kNobody;
};

std::vector<Declared> AllMethods() {
  static const std::map<std::string, Access> kAccess = {{"kLocal", Access::kLocal},
                                                        {"kMember", Access::kMember},
                                                        {"kCertificate", Access::kCertificate}};
  static const std::map<std::string, Remote> kRemote = {
      {"", Remote::kNobody},    {"kNobody", Remote::kNobody},   {"kInfer", Remote::kInfer},
      {"kRead", Remote::kRead}, {"kOperate", Remote::kOperate}, {"kAdmin", Remote::kAdmin}};
  std::ifstream file(MACRAME_SOURCE "/agentd/base/rpc_methods.h");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::regex method(
      R"re("(/macrame\.v1\.\w+/(\w+))",\s*Access::(\w+)(?:,\s*Remote::(\w+))?\s*\})re");
  std::vector<Declared> methods;
  for (std::sregex_iterator it(text.begin(), text.end(), method), end; it != end; ++it) {
    const std::smatch& found = *it;
    methods.push_back({found[1], found[2], kAccess.at(found[3]), kRemote.at(found[4])});
  }
  return methods;
}

class RemoteScopesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    methods_ = AllMethods();
    secret_ = *transport::CreateClusterSecret("test");
    server_.emplace(dispatcher_);
    for (const Declared& declared : methods_) {
      server_->HandleUnary(AnyMethod{declared.path, declared.access, declared.remote},
                           [](const Caller&, const v1::VersionRequest&, const auto& reply) {
                             reply(v1::VersionResponse());
                           });
    }
    const uint64_t now = NowS() * 1000;
    for (const auto& [scope, id] : kKeyIds) {
      keys_[id].set_id(id);
      keys_[id].add_scopes(scope);
      keys_[id].set_has_access_file(true);
      keys_[id].set_expires_unix_ms(now + 3'600'000);
    }
    // As agents do (AccessFileService::CheckPerson).
    server_->SetPersonCheck([this, now](const std::string& key_id, Remote needed) {
      return CheckRemoteCall(keys_, key_id, needed, now);
    });
    server_->SetMemberCheck([](const NodeId& node) { return node == kMember; });
    const auto port = server_->StartTcp(
        "127.0.0.1", 0, transport::TlsServerCredentials(*MakeNodeCredentials(secret_, kServer)));
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = absl::StrCat("127.0.0.1:", *port);
  }
  static uint64_t NowS() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count());
  }
  std::unique_ptr<transport::PeerChannel> Connect(const transport::NodeCredentials& shown) {
    auto channel = std::make_unique<transport::GrpcChannel>(
        dispatcher_, transport::TlsChannelCredentials(shown), transport::NodeTlsName(kServer),
        shown.node_id);
    channel->SetAddresses({address_});
    return channel;
  }
  std::unique_ptr<transport::PeerChannel> ConnectWithFile(const std::string& key_id) {
    const auto now = static_cast<int64_t>(NowS());
    const auto pair = *transport::MakePersonCredentials(secret_, key_id, now, now + 3600);
    transport::NodeCredentials shown;
    shown.certificate_pem = pair.certificate_pem;
    shown.key_pem = pair.key_pem;
    shown.authority_certificate_pem = secret_.authority_certificate_pem;
    return Connect(shown);
  }
  std::unique_ptr<transport::PeerChannel> ConnectAs(const NodeId& node) {
    return Connect(*transport::MakeNodeCredentials(secret_, node));
  }
  absl::Status Call(transport::PeerChannel& channel, const Declared& declared) {
    absl::Status ended;
    channel.Call(AnyMethod{declared.path, declared.access, declared.remote}, v1::VersionRequest(),
                 seconds(20), [&](const absl::StatusOr<v1::VersionResponse>& response) {
                   ended = response.status();
                   dispatcher_.Stop();
                 });
    dispatcher_.Run();
    return ended;
  }

  std::vector<Declared> methods_;
  transport::AsioDispatcher dispatcher_;
  transport::ClusterSecret secret_;
  std::map<std::string, v1::ApiKey> keys_;
  std::optional<transport::GrpcServer> server_;
  std::string address_;
};

TEST_F(RemoteScopesTest, EveryMethodHasARowAndNoOther) {
  EXPECT_GE(methods_.size(), 60u);
  std::map<std::string, tests::ScopeRow> rows = tests::ReadScopeTable("call");
  for (const Declared& declared : methods_) {
    EXPECT_EQ(rows.erase(declared.name), 1u) << declared.name << " has no row in SECURITY.md";
  }
  for (const auto& [name, row] : rows) ADD_FAILURE() << "there is no method " << name;
}

TEST_F(RemoteScopesTest, AnAccessFileMayWhatTheTableSays) {
  const std::map<std::string, tests::ScopeRow> rows = tests::ReadScopeTable("call");
  for (const auto& [scope, id] : kKeyIds) {
    const auto channel = ConnectWithFile(id);
    for (const Declared& declared : methods_) {
      const absl::Status ended = Call(*channel, declared);
      EXPECT_EQ(ended.ok(), rows.at(declared.name).at(scope) == "yes")
          << declared.name << " " << scope << ": " << ended;
      const std::string code = ended.ok() ? "" : ReasonOf(ended).code();
      EXPECT_TRUE(ended.ok() || code == reasons::kBeyondScope || code == reasons::kLocalOnly)
          << declared.name << " " << scope << ": " << ended;
    }
  }
}

TEST_F(RemoteScopesTest, OtherAgentsMayWhatTheTableSays) {
  const std::map<std::string, tests::ScopeRow> rows = tests::ReadScopeTable("call");
  const auto member = ConnectAs(kMember), other = ConnectAs(kOther);
  for (const Declared& declared : methods_) {
    const std::string& word = rows.at(declared.name).at("other agents");
    EXPECT_EQ(Call(*member, declared).ok(), word != "none") << declared.name;
    EXPECT_EQ(Call(*other, declared).ok(), word == "any node") << declared.name;
  }
}

TEST_F(RemoteScopesTest, AKeyThatEndedMayNothing) {
  for (auto& [id, key] : keys_) key.set_revoked_unix_ms(1);
  const auto channel = ConnectWithFile(kKeyIds.at("admin"));
  for (const Declared& declared : methods_) {
    EXPECT_FALSE(Call(*channel, declared).ok()) << declared.name;
  }
}

}  // namespace
}  // namespace macrame::agentd
