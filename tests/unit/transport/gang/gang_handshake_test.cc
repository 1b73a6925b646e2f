#include "transport/gang/gang_handshake.h"

#include <gtest/gtest.h>

#include <string>

namespace macrame::transport {
namespace {

GangMember Member(uint32_t rank, char secret = 's') {
  return {GangChannel::kSteps, rank, 3, 7, SecretBytes(std::string(32, secret))};
}
std::string Nonce(char fill) { return std::string(kHandshakeNonceBytes, fill); }

struct Outcome {
  bool agreed = false;
  GangAgreement caller{}, listener{};
  std::string why{};
};

// Rank 2 calls rank 0.
Outcome Meet(const GangMember& caller_is, const GangMember& listener_is,
             bool caller_private = false, bool listener_private = false, char caller_nonce = 'c',
             char listener_nonce = 'l') {
  CallerHandshake caller(caller_is, 0, caller_private, Nonce(caller_nonce));
  ListenerHandshake listener(
      listener_is, [=](uint32_t rank) { return rank == 2 && listener_private; },
      Nonce(listener_nonce));
  Outcome outcome;
  const auto answer = listener.OnHello(caller.hello());
  if (!answer.ok()) {
    outcome.why = std::string(answer.status().message());
    return outcome;
  }
  const auto finish = caller.OnAnswer(*answer);
  if (!finish.ok()) {
    outcome.why = std::string(finish.status().message());
    return outcome;
  }
  outcome.agreed = listener.OnFinish(*finish).ok();
  outcome.caller = caller.Agreement();
  outcome.listener = listener.Agreement();
  return outcome;
}

TEST(GangHandshakeTest, BothSidesAgreeOnWhoTheyAreAndOnKeys) {
  const Outcome met = Meet(Member(2), Member(0));
  ASSERT_TRUE(met.agreed) << met.why;
  EXPECT_EQ(met.caller.rank, 0u);
  EXPECT_EQ(met.listener.rank, 2u);
  EXPECT_EQ(met.caller.send_secret.view(), met.listener.receive_secret.view());
  EXPECT_EQ(met.caller.receive_secret.view(), met.listener.send_secret.view());
  EXPECT_NE(met.caller.send_secret.view(), met.caller.receive_secret.view());
}

TEST(GangHandshakeTest, EachConnectionHasKeysOfItsOwn) {
  const Outcome one = Meet(Member(2), Member(0));
  EXPECT_NE(Meet(Member(2), Member(0), false, false, 'd').caller.send_secret.view(),
            one.caller.send_secret.view());
  EXPECT_NE(Meet(Member(2), Member(0), false, false, 'c', 'm').caller.send_secret.view(),
            one.caller.send_secret.view());
}

TEST(GangHandshakeTest, ALinkIsPrivateOnlyWhereBothSaySo) {
  for (const bool caller : {false, true}) {
    for (const bool listener : {false, true}) {
      const Outcome met = Meet(Member(2), Member(0), caller, listener);
      ASSERT_TRUE(met.agreed);
      EXPECT_EQ(met.caller.is_private, caller && listener);
      EXPECT_EQ(met.listener.is_private, caller && listener);
    }
  }
}

TEST(GangHandshakeTest, EverythingMustFit) {
  EXPECT_EQ(Meet(Member(2, 'x'), Member(0)).why, "it does not know the gang's secret");
  GangMember other = Member(2);
  other.epoch = 6;
  EXPECT_EQ(Meet(other, Member(0)).why, "it is of epoch 6, this is epoch 7");
  other = Member(2);
  other.channel = GangChannel::kGroup;
  EXPECT_EQ(Meet(other, Member(0)).why, "it calls for another channel");
  other = Member(2);
  other.size = 4;
  EXPECT_EQ(Meet(other, Member(0)).why, "it is rank 2 of 4 and calls rank 0; this is rank 0 of 3");
  EXPECT_FALSE(Meet(Member(3), Member(0)).agreed);
  EXPECT_FALSE(Meet(Member(2), Member(1)).agreed) << "rank 1 listens where rank 0 was expected";
  EXPECT_FALSE(Meet(Member(0), Member(0)).agreed) << "one's own hello, sent back";
}

// Whoever sits between the two changes a byte of a message.
TEST(GangHandshakeTest, EveryAlteredByteIsRefused) {
  CallerHandshake caller(Member(2), 0, false, Nonce('c'));
  ListenerHandshake listener(Member(0), {}, Nonce('l'));
  const std::string answer = listener.OnHello(caller.hello()).value();
  const std::string finish = caller.OnAnswer(answer).value();
  const auto altered = [](std::string text, size_t at) {
    text[at] = static_cast<char>(text[at] ^ 1);
    return text;
  };
  for (size_t at = 0; at < kHelloBytes; ++at) {
    EXPECT_FALSE(
        ListenerHandshake(Member(0), {}, Nonce('l')).OnHello(altered(caller.hello(), at)).ok())
        << at;
    EXPECT_FALSE(
        ListenerHandshake(Member(0), {}, Nonce('l')).OnHello(caller.hello().substr(0, at)).ok());
  }
  for (size_t at = 0; at < kAnswerBytes; ++at) {
    EXPECT_FALSE(
        CallerHandshake(Member(2), 0, false, Nonce('c')).OnAnswer(altered(answer, at)).ok())
        << at;
    EXPECT_FALSE(
        CallerHandshake(Member(2), 0, false, Nonce('c')).OnAnswer(answer.substr(0, at)).ok());
  }
  for (size_t at = 0; at < kFinishBytes; ++at) {
    EXPECT_FALSE(listener.OnFinish(altered(finish, at)).ok()) << at;
  }
  EXPECT_TRUE(listener.OnFinish(finish).ok());
}

TEST(GangHandshakeTest, WhatWasRecordedIsNoUseLater) {
  CallerHandshake caller(Member(2), 0, false, Nonce('c'));
  ListenerHandshake then(Member(0), {}, Nonce('l')), now(Member(0), {}, Nonce('m'));
  const std::string finish = caller.OnAnswer(then.OnHello(caller.hello()).value()).value();
  ASSERT_TRUE(now.OnHello(caller.hello()).ok());
  EXPECT_FALSE(now.OnFinish(finish).ok());
}

}  // namespace
}  // namespace macrame::transport
