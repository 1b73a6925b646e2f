#include "agentd/node/certificate_asker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "tests/support/fake_dispatcher.h"
#include "tests/unit/agentd/fake_peers.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::IdentityOf;
using tests::IdOf;
using tests::PeerCall;

absl::Status NotKeeper() {
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kNotKeeper,
                      "this node does not have the cluster's secret file");
}

class CertificateAskerTest : public ::testing::Test {
 protected:
  CertificateAskerTest() { channels_.UsePlain(); }

  void Meet(std::string_view nodes) {
    for (const char node : nodes) members_.HeardMember(IdentityOf(IdOf(node)), "", false);
  }
  void Begin(std::vector<std::string> https_names = {}) {
    asker_.Begin(
        std::move(https_names),
        [this](const NodeId& signer, const std::string& certificate, const std::string& key) {
          if (!refusal_.ok()) return std::exchange(refusal_, absl::OkStatus());
          taken_.push_back(signer.value().substr(0, 1) + " " + certificate);
          keys_.insert(key);
          return absl::OkStatus();
        },
        [this] { ++failed_; });
  }
  static v1::RenewCertificateResponse Signed(const std::string& text) {
    v1::RenewCertificateResponse response;
    response.set_certificate(text);
    return response;
  }
  // All that are asked have no secret file; whom that were.
  std::set<NodeId> RefuseAll() {
    std::set<NodeId> asked;
    while (!peers_.Open().empty()) {
      EXPECT_THAT(peers_.Open(), SizeIs(1)) << "one after the other";
      PeerCall& call = *peers_.Open().front();
      EXPECT_TRUE(asked.insert(call.node).second) << "asked twice";
      call.End(NotKeeper());
    }
    return asked;
  }

  transport::FakeDispatcher dispatcher_;
  tests::FakePeers peers_;
  PeerChannels channels_{peers_.Maker()};
  MemberMonitor members_{dispatcher_,
                         IdentityOf(IdOf('a')),
                         discovery::FailureLimits(),
                         {[](const auto&) {}, [](const NodeId&) {}, [](const NodeId&) { return 0; },
                          [](const NodeId&) {}}};
  CertificateAsker asker_{dispatcher_, channels_, members_};
  absl::Status refusal_;  // of what is signed next
  std::vector<std::string> taken_;
  std::set<std::string> keys_;
  int failed_ = 0;
};

TEST_F(CertificateAskerTest, WhereNobodyElseLivesItEndsAtOnceAndSaysWhy) {
  EXPECT_EQ(asker_.failure(), "");
  Begin();
  EXPECT_EQ(failed_, 1);
  EXPECT_FALSE(asker_.is_asking());
  EXPECT_THAT(asker_.failure(), HasSubstr("secret file"));
  EXPECT_THAT(peers_.calls(), IsEmpty());
}

TEST_F(CertificateAskerTest, EachMemberIsAskedOnceUntilAllHaveRefused) {
  Meet("bcde");
  Begin();
  EXPECT_TRUE(asker_.is_asking());
  EXPECT_EQ(RefuseAll(), (std::set<NodeId>{IdOf('b'), IdOf('c'), IdOf('d'), IdOf('e')}));
  EXPECT_EQ(failed_, 1);
  EXPECT_FALSE(asker_.is_asking());
  EXPECT_EQ(asker_.failure(), "no member that answers has the cluster's secret file");
}

TEST_F(CertificateAskerTest, TheFirstThatSignsIsTakenAndNobodyElseIsAsked) {
  Meet("bcd");
  Begin();
  peers_.last().End(NotKeeper());
  const std::string signer = peers_.last().node.value().substr(0, 1);
  peers_.last().Answer(Signed("pem"));
  EXPECT_THAT(taken_, ElementsAre(signer + " pem"));
  EXPECT_THAT(peers_.calls(), SizeIs(2));
  EXPECT_FALSE(asker_.is_asking());
  EXPECT_EQ(asker_.failure(), "");
  EXPECT_EQ(failed_, 0);
}

// What stood in the way is worth more than that the others have no secret file.
TEST_F(CertificateAskerTest, AnErrorOfAKeeperIsToldWithItsNameWhateverTheOthersSay) {
  for (const size_t at : {0u, 1u, 2u}) {
    tests::FakePeers peers;
    PeerChannels channels(peers.Maker());
    channels.UsePlain();
    Meet("bcd");
    CertificateAsker asker(dispatcher_, channels, members_);
    asker.Begin(
        {}, [](const auto&, const auto&, const auto&) { return absl::OkStatus(); }, [] {});
    NodeId broken;
    for (size_t place = 0; place < 3; ++place) {
      if (place == at) broken = peers.last().node;
      peers.last().End(place == at ? absl::PermissionDeniedError("its file can't be read")
                                   : NotKeeper());
    }
    EXPECT_FALSE(asker.is_asking());
    EXPECT_THAT(asker.failure(), HasSubstr(ShortId(broken)));
    EXPECT_THAT(asker.failure(), HasSubstr("its file can't be read"));
  }
}

TEST_F(CertificateAskerTest, WhatIsNotTakenIsAskedOfTheNext) {
  Meet("bc");
  Begin();
  refusal_ = absl::FailedPreconditionError("its clock is wrong");
  peers_.last().Answer(Signed("bad"));
  EXPECT_TRUE(asker_.is_asking());
  EXPECT_EQ(asker_.failure(), "its clock is wrong");
  peers_.last().Answer(Signed("good"));
  ASSERT_THAT(taken_, SizeIs(1));
  EXPECT_THAT(taken_.front(), HasSubstr("good"));
  EXPECT_EQ(asker_.failure(), "");
}

TEST_F(CertificateAskerTest, WhenTheLastIsNotTakenItsReasonStays) {
  Meet("b");
  Begin();
  refusal_ = absl::InvalidArgumentError("no certificate at all");
  peers_.last().Answer(Signed(""));
  EXPECT_EQ(failed_, 1);
  EXPECT_FALSE(asker_.is_asking());
  EXPECT_EQ(asker_.failure(), "no certificate at all");
}

TEST_F(CertificateAskerTest, TheKeyIsThatOfTheRequestAndANewOneEachTime) {
  Meet("b");
  const auto secret = *transport::CreateClusterSecret("home");
  for (int time = 0; time < 2; ++time) {
    Begin();
    const auto request = peers_.last().As<v1::RenewCertificateRequest>();
    EXPECT_THAT(request.https_names(), IsEmpty());
    transport::NodeCredentials node;
    node.node_id = IdOf('a');
    node.authority_certificate_pem = secret.authority_certificate_pem;
    node.certificate_pem =
        *transport::SignCertificateRequest(secret, node.node_id, request.certificate_request());
    peers_.last().Answer(Signed(node.certificate_pem));
    ASSERT_THAT(keys_, SizeIs(time + 1));
    EXPECT_TRUE(std::any_of(keys_.begin(), keys_.end(), [&](const std::string& key) {
      node.key_pem = key;
      return transport::CheckNodeCredentials(node).ok();
    }));
  }
}

TEST_F(CertificateAskerTest, NamesForHttpsStandInEachRequest) {
  Meet("bc");
  Begin({"localhost", "10.0.0.9"});
  peers_.last().End(NotKeeper());
  ASSERT_THAT(peers_.calls(), SizeIs(2));
  for (const auto& call : peers_.calls()) {
    EXPECT_EQ(call->path, kRenewCertificate.path);
    EXPECT_THAT(call->As<v1::RenewCertificateRequest>().https_names(),
                ElementsAre("localhost", "10.0.0.9"));
  }
}

TEST_F(CertificateAskerTest, AMemberThatIsRevokedMeanwhileIsPassedOverAtOnce) {
  Meet("bc");
  Begin();
  const NodeId first = peers_.last().node;
  channels_.Forget(first);
  ASSERT_THAT(peers_.calls(), SizeIs(2));
  EXPECT_NE(peers_.last().node, first);
  peers_.last().Answer(Signed("pem"));
  EXPECT_THAT(taken_, SizeIs(1));
}

TEST_F(CertificateAskerTest, WhoCantBeCalledIsPassedOver) {
  Meet("bcd");
  channels_.SetRevoked({IdOf('b'), IdOf('d')});
  Begin();
  EXPECT_EQ(RefuseAll(), std::set<NodeId>{IdOf('c')});
  channels_.SetRevoked({IdOf('b'), IdOf('c'), IdOf('d')});
  Begin();
  EXPECT_EQ(failed_, 2);
  EXPECT_FALSE(asker_.is_asking());
}

TEST_F(CertificateAskerTest, ANewTryForgetsWhatTheLastOneFailedBy) {
  Meet("b");
  Begin();
  peers_.last().End(absl::InternalError("an old trouble"));
  EXPECT_THAT(asker_.failure(), HasSubstr("an old trouble"));
  Begin();
  EXPECT_THAT(asker_.failure(), Not(HasSubstr("an old trouble")));
  peers_.last().Answer(Signed("pem"));
  EXPECT_EQ(asker_.failure(), "");
  EXPECT_EQ(failed_, 1);
}

}  // namespace
}  // namespace macrame::agentd
