#include "agentd/node/peer_channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "absl/strings/str_cat.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const NodeId kOne(std::string(32, 'a'));
const NodeId kTwo(std::string(32, 'b'));

struct Made {
  NodeId node;
  std::string tls_name;
  int credentials_set = 0;
  bool is_gone = false;
  absl::Status calls_ended_as;
  std::vector<std::string> addresses;
};

// Notes what is done with it, and calls nobody.
class NotingChannel final : public transport::PeerChannel {
 public:
  explicit NotingChannel(Made& made) : made_(made) {}
  ~NotingChannel() override { made_.is_gone = true; }
  void SetCredentials(std::shared_ptr<grpc::ChannelCredentials>) override {
    ++made_.credentials_set;
  }
  void SetAddresses(std::vector<std::string> addresses) override {
    made_.addresses = std::move(addresses);
  }
  const std::vector<std::string>& addresses() const override { return made_.addresses; }
  void EndCalls(const absl::Status& status) override { made_.calls_ended_as = status; }

 private:
  transport::CallHandle CallUnary(std::string_view, const google::protobuf::MessageLite&,
                                  MessagePtr, Duration,
                                  std::function<void(absl::Status)>) override {
    return {};
  }
  transport::CallHandle CallStream(std::string_view, const google::protobuf::MessageLite&,
                                   MakeMessage, Duration, std::function<void(absl::Status)>,
                                   transport::HandOver) override {
    return {};
  }
  Made& made_;
};

class PeerChannelsTest : public ::testing::Test {
 protected:
  static v1::NodeAddress Address(const std::string& ip) {
    v1::NodeAddress address;
    address.set_ip(ip);
    return address;
  }
  transport::NodeCredentials Credentials() {
    const auto secret = transport::CreateClusterSecret("test", 1'790'000'000);
    EXPECT_TRUE(secret.ok());
    const auto node = transport::MakeNodeCredentials(*secret, kOne, 1'790'000'000);
    EXPECT_TRUE(node.ok());
    return *node;
  }

  std::list<Made> made_;
  PeerChannels channels_{[this](const NodeId& node, auto, std::string tls_name) {
    made_.emplace_back();
    made_.back().node = node;
    made_.back().tls_name = std::move(tls_name);
    return std::make_unique<NotingChannel>(made_.back());
  }};
};

TEST_F(PeerChannelsTest, NobodyIsCalledBeforeItIsClearHow) {
  EXPECT_FALSE(channels_.ready());
  EXPECT_EQ(channels_.For(kOne), nullptr);
  EXPECT_FALSE(channels_.SetAddresses(kOne, {Address("10.0.0.1")}, 4711));
  EXPECT_THAT(made_, IsEmpty());
}

TEST_F(PeerChannelsTest, ANodeHasOneChannel) {
  channels_.UsePlain();
  transport::PeerChannel* first = channels_.For(kOne);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(channels_.For(kOne), first);
  EXPECT_NE(channels_.For(kTwo), first);
  EXPECT_THAT(made_, SizeIs(2));
  EXPECT_EQ(made_.front().tls_name, "") << "no certificate is held to anything";
}

TEST_F(PeerChannelsTest, OverTlsAPeerIsHeldToItsId) {
  channels_.UseTls(Credentials());
  ASSERT_NE(channels_.For(kTwo), nullptr);
  EXPECT_EQ(made_.back().tls_name, transport::NodeTlsName(kTwo));
}

// Calls under way go on over a new certificate, and none over what was plain.
TEST_F(PeerChannelsTest, ANewCertificateKeepsTheChannelsAndTlsKeepsNoPlainOnes) {
  channels_.UsePlain();
  channels_.For(kOne);
  channels_.UseTls(Credentials());
  EXPECT_TRUE(made_.front().is_gone);
  channels_.For(kOne);
  ASSERT_THAT(made_, SizeIs(2));
  channels_.UseTls(Credentials());
  EXPECT_FALSE(made_.back().is_gone);
  EXPECT_EQ(made_.back().credentials_set, 1);
}

TEST_F(PeerChannelsTest, AddressesAreTriedInTheirOrderAndNotTooMany) {
  channels_.UsePlain();
  std::vector<v1::NodeAddress> many = {Address("fe80::1"), Address("10.0.0.7"), Address("fd00::7")};
  EXPECT_TRUE(channels_.SetAddresses(kOne, many, 4711));
  EXPECT_THAT(made_.back().addresses, ElementsAre("10.0.0.7:4711", "[fd00::7]:4711"));
  for (int i = 0; i < 20; ++i) many.push_back(Address(absl::StrCat("10.0.1.", i)));
  EXPECT_TRUE(channels_.SetAddresses(kOne, many, 4711));
  EXPECT_THAT(made_.back().addresses, SizeIs(kAddressesTriedMax));
}

TEST_F(PeerChannelsTest, WhereNothingCouldBeCalledTheOldAddressesStay) {
  channels_.UsePlain();
  ASSERT_TRUE(channels_.SetAddresses(kOne, {Address("10.0.0.7")}, 4711));
  EXPECT_FALSE(channels_.SetAddresses(kOne, {}, 4711));
  EXPECT_FALSE(channels_.SetAddresses(kOne, {Address("fe80::1")}, 4711));
  EXPECT_FALSE(channels_.SetAddresses(kOne, {Address("10.0.0.8")}, 0)) << "it told no port";
  EXPECT_THAT(made_.back().addresses, ElementsAre("10.0.0.7:4711"));
}

TEST_F(PeerChannelsTest, WhoIsRevokedIsNotCalledAnyMore) {
  channels_.UsePlain();
  channels_.For(kOne);
  channels_.For(kTwo);
  channels_.SetRevoked({kOne});
  EXPECT_TRUE(made_.front().is_gone);
  EXPECT_TRUE(absl::IsUnavailable(made_.front().calls_ended_as));
  EXPECT_FALSE(made_.back().is_gone);
  EXPECT_EQ(channels_.For(kOne), nullptr);
  EXPECT_FALSE(channels_.SetAddresses(kOne, {Address("10.0.0.1")}, 4711));
  channels_.UseTls(Credentials());
  EXPECT_EQ(channels_.For(kOne), nullptr) << "also with another certificate";
  EXPECT_NE(channels_.For(kTwo), nullptr);
}

TEST_F(PeerChannelsTest, AForgottenNodeGetsANewChannel) {
  channels_.UsePlain();
  channels_.For(kOne);
  channels_.Forget(kOne);
  EXPECT_TRUE(made_.front().is_gone);
  EXPECT_TRUE(absl::IsUnavailable(made_.front().calls_ended_as))
      << "who waits for its answer is told";
  channels_.Forget(kTwo);
  EXPECT_NE(channels_.For(kOne), nullptr);
  channels_.Clear();
  EXPECT_TRUE(made_.back().is_gone);
  EXPECT_TRUE(made_.back().calls_ended_as.ok()) << "by then nobody is there to be told";
  EXPECT_NE(channels_.For(kOne), nullptr);
}

TEST(HostPort, AddressesOfIpv6StandInBrackets) {
  EXPECT_EQ(HostPort("10.0.0.7", 4711), "10.0.0.7:4711");
  EXPECT_EQ(HostPort("fd00::7", 4711), "[fd00::7]:4711");
}

}  // namespace
}  // namespace macrame::agentd
