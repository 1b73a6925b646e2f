#include "agentd/services/access_file_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/fake_server.h"
#include "tests/unit/agentd/idle_machine.h"
#include "tests/unit/agentd/lone_node.h"
#include "tests/unit/fresh_folder.h"
#include "transport/access_file.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using tests::IdentityOf;
using tests::IdOf;

constexpr char kKeyId[] = "0123456789ab";

class AccessFileServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    secret_ = *transport::CreateClusterSecret("home", NowS());
    trust_.emplace(node_.dispatcher, node_.self, folder_ + "/cluster.secret", node_.channels,
                   node_.members, [](const transport::NodeCredentials&) {});
    own_.emplace(node_.dispatcher, IdentityOf(node_.self, "10.0.0.9"), prober_, supervisor_);
    service_.emplace(AccessFileService::Parts{
        node_.dispatcher, *own_, node_.replicator, *trust_, node_.members,
        [this](const transport::Caller& caller, const v1::CreateKeyRequest& request,
               transport::RpcServer::Reply<v1::CreateKeyResponse> reply) {
          EXPECT_TRUE(caller.local);
          asked_.push_back(request.key());
          if (!refusal_.ok()) return reply(refusal_);
          v1::CreateKeyResponse response;
          *response.mutable_key() = request.key();
          response.mutable_key()->set_id(kKeyId);
          response.mutable_key()->set_expires_unix_ms(expires_ms_);
          reply(response);
        }});
    service_->RegisterLocal(server_);
  }

  int64_t NowS() const { return static_cast<int64_t>(node_.dispatcher.UnixMs() / 1000); }
  void BeKeeper() {
    ASSERT_TRUE(transport::WriteClusterSecret(secret_, folder_ + "/cluster.secret").ok());
    ASSERT_TRUE(trust_->Load().ok());
  }
  absl::StatusOr<v1::CreateAccessFileResponse> Create() {
    v1::CreateAccessFileRequest request;
    request.mutable_key()->set_name("laptop");
    request.mutable_key()->add_scopes("read");
    const auto heard = server_.Call({NodeId(), true, ""}, kCreateAccessFile, request);
    if (!heard->end.has_value()) return absl::UnknownError("not answered");
    if (!heard->end->ok()) return *heard->end;
    return heard->messages.back();
  }
  void WriteKey(const v1::ApiKey& key) {
    node_.replicator.Write(absl::StrCat("key/", key.id()), key.SerializeAsString(),
                           [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
  }

  tests::LoneNode node_;
  std::string folder_;
  transport::ClusterSecret secret_;
  tests::CountingProber prober_;
  tests::ListedRanks supervisor_;
  std::optional<NodeTrust> trust_;
  std::optional<OwnNode> own_;
  std::optional<AccessFileService> service_;
  tests::FakeServer server_;
  std::vector<v1::ApiKey> asked_;
  absl::Status refusal_;
  uint64_t expires_ms_ = node_.dispatcher.UnixMs() + 86'400'000;
};

TEST_F(AccessFileServiceTest, WhatIsMadeIsAFileThatClusterctlTakes) {
  BeKeeper();
  const auto made = Create();
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_TRUE(asked_[0].has_access_file()) << "it is no key that is shown as text";
  EXPECT_THAT(asked_[0].scopes(), ElementsAre("read"));
  EXPECT_EQ(made->key().id(), kKeyId);
  const std::string path = folder_ + "/cluster.access";
  std::ofstream(path) << transport::FormatAccessFile(made->file());
  ::chmod(path.c_str(), 0600);
  const auto read = transport::ReadAccessFile(path, NowS());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), made->file().SerializeAsString());
  EXPECT_EQ(read->cluster_name(), "home");
  EXPECT_EQ(read->key_name(), "laptop");
  EXPECT_FALSE(transport::ReadAccessFile(path, NowS() + 2 * 86'400).ok()) << "it has ended then";
}

TEST_F(AccessFileServiceTest, WithoutTheSecretFileNoKeyIsMade) {
  const auto refused = Create();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kNotKeeper);
  EXPECT_THAT(asked_, SizeIs(0));
  BeKeeper();
  std::filesystem::remove(folder_ + "/cluster.secret");
  EXPECT_EQ(ReasonOf(Create().status()).code(), reasons::kNotKeeper);
  EXPECT_THAT(asked_, SizeIs(0));
}

TEST_F(AccessFileServiceTest, WhyNoKeyIsMadeIsToldAsItIs) {
  BeKeeper();
  refusal_ = ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator, "nobody leads");
  EXPECT_EQ(Create().status(), refusal_);
}

TEST_F(AccessFileServiceTest, ItNamesThisNodeFirstAndThenTheOthersThatCanBeCalled) {
  BeKeeper();
  node_.members.HeardMember(IdentityOf(IdOf('b'), "10.0.0.2"), "", true);
  node_.members.HeardMember(IdentityOf(IdOf('c'), "10.0.0.3"), "", true);
  node_.members.Leave(IdOf('c'));
  v1::NodeIdentity six = IdentityOf(IdOf('d'), "fd00::4");
  node_.members.HeardMember(six, "", true);
  const auto made = Create();
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<std::string> nodes, addresses;
  for (const v1::AccessFileNode& node : made->file().nodes()) {
    nodes.push_back(node.hostname());
    addresses.insert(addresses.end(), node.addresses().begin(), node.addresses().end());
  }
  EXPECT_THAT(nodes, ElementsAre("host-a", "host-b", "host-d"));
  EXPECT_THAT(addresses, ElementsAre("10.0.0.9:4711", "10.0.0.2:4711", "[fd00::4]:4711"));
}

TEST_F(AccessFileServiceTest, ItIsBoundedHoweverManyThereAre) {
  BeKeeper();
  for (int number = 1; number <= 70; ++number) {
    v1::NodeIdentity identity = IdentityOf(NodeId(absl::StrFormat("%032x", number)));
    identity.set_hostname(absl::StrCat("host-", number));
    for (int address = 0; address < 30; ++address) {
      identity.add_addresses()->set_ip(absl::StrCat("10.1.", number, ".", address));
    }
    node_.members.HeardMember(identity, "", true);
  }
  const auto made = Create();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->file().nodes(), SizeIs(transport::kAccessNodesMax));
  EXPECT_EQ(made->file().nodes(0).node_id(), node_.self.value());
  for (const v1::AccessFileNode& node : made->file().nodes()) {
    EXPECT_LE(node.addresses_size(), transport::kAccessAddressesMax);
  }
}

// --- what its key may do -------------------------------------------------------------------------

TEST_F(AccessFileServiceTest, AKeyMayDoWhatItsScopesSayUntilItIsTakenBack) {
  node_.Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  v1::ApiKey key;
  key.set_id(kKeyId);
  key.set_has_access_file(true);
  key.add_scopes("read");
  key.set_expires_unix_ms(node_.dispatcher.UnixMs() + 60'000);
  EXPECT_EQ(ReasonOf(service_->CheckPerson(kKeyId, Remote::kRead)).code(), reasons::kKeyNotFound);
  WriteKey(key);
  EXPECT_TRUE(service_->CheckPerson(kKeyId, Remote::kRead).ok());
  for (const Remote beyond : {Remote::kOperate, Remote::kAdmin}) {
    EXPECT_EQ(ReasonOf(service_->CheckPerson(kKeyId, beyond)).code(), reasons::kBeyondScope);
  }
  EXPECT_FALSE(service_->CheckPerson("", Remote::kRead).ok());
  EXPECT_FALSE(service_->CheckPerson("ba9876543210", Remote::kRead).ok());

  v1::ApiKey revoked = key;
  revoked.set_revoked_unix_ms(1);
  WriteKey(revoked);
  EXPECT_EQ(ReasonOf(service_->CheckPerson(kKeyId, Remote::kRead)).code(), reasons::kKeyNotFound);
  WriteKey(key);
  EXPECT_TRUE(service_->CheckPerson(kKeyId, Remote::kRead).ok());
  node_.dispatcher.AdvanceBy(seconds(61));
  EXPECT_EQ(ReasonOf(service_->CheckPerson(kKeyId, Remote::kRead)).code(), reasons::kKeyNotFound)
      << "it has ended";
}

TEST_F(AccessFileServiceTest, AKeyThatIsShownAsTextOpensNothingThisWay) {
  node_.Pass(seconds(8));
  v1::ApiKey key;
  key.set_id(kKeyId);
  key.add_scopes("admin");
  WriteKey(key);
  EXPECT_EQ(ReasonOf(service_->CheckPerson(kKeyId, Remote::kRead)).code(), reasons::kKeyNotFound);
}

}  // namespace
}  // namespace macrame::agentd
