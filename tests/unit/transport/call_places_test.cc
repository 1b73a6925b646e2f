#include "transport/call_places.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/peer_channel.h"

namespace macrame::transport {
namespace {

Caller Person(const std::string& key_id) { return {NodeId(), false, "10.0.0.7", key_id}; }
Caller Node() { return {NodeId(std::string(32, '1')), false, "10.0.0.8"}; }

constexpr size_t kLarge = kMessageBytesMax;

class CallPlacesTest : public ::testing::Test {
 protected:
  // How many calls find a place one after the other, at most `most`.
  int Fill(const Caller& caller, bool is_member, int most = 10'000) {
    int taken = 0;
    while (taken < most && places_.Take(caller, is_member).ok()) ++taken;
    return taken;
  }
  // Of another call, which goes on.
  absl::Status HoldOne(const Caller& caller, bool is_member, size_t bytes) {
    absl::StatusOr<CallPlaces::Place> place = places_.Take(caller, is_member);
    return place.ok() ? places_.Hold(bytes, &*place) : place.status();
  }
  // How many large messages fit one after the other.
  int HoldLarge(const Caller& caller, bool is_member) {
    int held = 0;
    while (HoldOne(caller, is_member, kLarge).ok()) ++held;
    return held;
  }
  void Read(const std::string& key_id) {
    places_.Read(key_id, alive_, [this, key_id] { begun_.push_back(key_id); });
  }

  CallPlaces places_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
  std::vector<std::string> begun_;
};

TEST_F(CallPlacesTest, EachKindOfCallerHasPlacesOfItsOwn) {
  EXPECT_EQ(Fill(Person("a"), false), kCallsOfKeyMax);
  int persons = kCallsOfKeyMax;
  for (int key = 0; key < 20; ++key) persons += Fill(Person(absl::StrCat("key", key)), false);
  EXPECT_EQ(persons, kCallsOfPersonsMax);
  EXPECT_EQ(Fill(Node(), false), kCallsOfOthersMax);
  EXPECT_EQ(Fill(Node(), true), kCallsMax) << "members are kept out by nobody else";
}

TEST_F(CallPlacesTest, ARefusalSaysWhichLimitIsReached) {
  Fill(Person("a"), false);
  const absl::Status own = places_.Take(Person("a"), false).status();
  EXPECT_TRUE(absl::IsResourceExhausted(own)) << own;
  EXPECT_EQ(ReasonOf(own).code(), reasons::kQueueFull);
  EXPECT_NE(ReasonOf(own).message().find("32"), std::string::npos) << own;
  EXPECT_NE(ReasonOf(own).remedy().find("your own other calls"), std::string::npos) << own;
  for (const char* key : {"b", "c", "d"}) Fill(Person(key), false);
  const absl::Status together = places_.Take(Person("e"), false).status();
  EXPECT_NE(ReasonOf(together).message().find("128"), std::string::npos) << together;
  Fill(Node(), true);
  const absl::Status member = places_.Take(Node(), true).status();
  EXPECT_TRUE(absl::IsResourceExhausted(member));
  EXPECT_NE(ReasonOf(member).message().find("512"), std::string::npos) << member;
}

TEST_F(CallPlacesTest, APlaceThatIsGivenBackIsFree) {
  const auto place = places_.Take(Person("a"), false);
  ASSERT_TRUE(place.ok());
  Fill(Person("a"), false);
  places_.GiveBack(*place);
  EXPECT_EQ(Fill(Person("a"), false), 1);
  const auto node = places_.Take(Node(), true);
  ASSERT_TRUE(node.ok());
  Fill(Node(), true);
  places_.GiveBack(*node);
  EXPECT_EQ(Fill(Node(), true), 1);
}

TEST_F(CallPlacesTest, MessagesOfACallerHaveAShareAndAnotherOnesFit) {
  for (const Caller& caller : {Person("a"), Node()}) {
    EXPECT_EQ(HoldLarge(caller, false), static_cast<int>(kHeldBytesOfCallerMax / kLarge));
    const absl::Status beyond = HoldOne(caller, false, kLarge);
    EXPECT_TRUE(absl::IsResourceExhausted(beyond)) << beyond;
    EXPECT_EQ(ReasonOf(beyond).code(), reasons::kQueueFull);
    EXPECT_NE(ReasonOf(beyond).message().find("16 MiB"), std::string::npos) << beyond;
    EXPECT_NE(ReasonOf(beyond).remedy().find("your own other calls"), std::string::npos) << beyond;
  }
  EXPECT_TRUE(HoldOne(Person("b"), false, kLarge).ok());
}

TEST_F(CallPlacesTest, MessagesOfAllPersonsHaveATotalAndKeepNoNodeOut) {
  int held = 0;
  for (int key = 0; key < 20; ++key) held += HoldLarge(Person(absl::StrCat("key", key)), false);
  EXPECT_EQ(held, static_cast<int>(kHeldBytesMax / kLarge));
  const absl::Status together = HoldOne(Person("late"), false, kLarge);
  EXPECT_NE(ReasonOf(together).message().find("64 MiB"), std::string::npos) << together;
  EXPECT_NE(ReasonOf(together).remedy().find("another node"), std::string::npos) << together;
  EXPECT_TRUE(HoldOne(Node(), false, kLarge).ok());
  EXPECT_EQ(HoldLarge(Node(), true), static_cast<int>(kHeldBytesOfMembersMax / kLarge));
  const absl::Status members = HoldOne(Node(), true, kLarge);
  EXPECT_NE(ReasonOf(members).message().find("256 MiB"), std::string::npos) << members;
}

TEST_F(CallPlacesTest, ASmallMessageAlwaysFits) {
  HoldLarge(Person("a"), false);
  HoldLarge(Node(), true);
  EXPECT_FALSE(HoldOne(Person("a"), false, kSmallMessageBytesMax + 1).ok());
  EXPECT_TRUE(HoldOne(Person("a"), false, kSmallMessageBytesMax).ok());
  EXPECT_TRUE(HoldOne(Node(), true, kSmallMessageBytesMax).ok());
}

TEST_F(CallPlacesTest, AMessageThatIsLetGoOfMakesRoomOnce) {
  CallPlaces::Place place = *places_.Take(Person("a"), false);
  ASSERT_TRUE(places_.Hold(kLarge, &place).ok());
  HoldLarge(Person("a"), false);
  places_.GiveBack(place);
  EXPECT_FALSE(HoldOne(Person("a"), false, kLarge).ok()) << "a handler may keep it";
  places_.LetGo(&place);
  places_.LetGo(&place);
  EXPECT_EQ(HoldLarge(Person("a"), false), 1);
}

TEST_F(CallPlacesTest, FewMessagesOfAKeyComeAtOnceAndAnotherKeysDoNotWait) {
  for (int i = 0; i < 5; ++i) Read("a");
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfKeyMax));
  Read("b");
  EXPECT_EQ(begun_.back(), "b");
  places_.EndRead("a");
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfKeyMax) + 2);
  EXPECT_EQ(begun_.back(), "a");
}

TEST_F(CallPlacesTest, AllKeysTogetherHaveABoundAndTakeTurns) {
  for (int i = 0; i < kReadsOfPersonsMax; ++i) Read(absl::StrCat("key", i));
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfPersonsMax));
  Read("late");
  Read("later");
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfPersonsMax));
  places_.EndRead("key3");
  EXPECT_EQ(begun_.back(), "late");
  places_.EndRead("late");
  EXPECT_EQ(begun_.back(), "later");
}

TEST_F(CallPlacesTest, ACallThatIsOverIsNotWaitedFor) {
  for (int i = 0; i < kReadsOfKeyMax; ++i) Read("a");
  Read("a");
  alive_.reset();
  places_.EndRead("a");
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfKeyMax));
  alive_ = std::make_shared<int>();
  Read("a");
  EXPECT_EQ(begun_.size(), static_cast<size_t>(kReadsOfKeyMax) + 1);
}

}  // namespace
}  // namespace macrame::transport
