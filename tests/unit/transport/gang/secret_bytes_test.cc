#include "transport/gang/secret_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace macrame::transport {
namespace {

// Both sizes matter: a short string lies within its object, a long one elsewhere.
const std::vector<std::string> kSecrets = {std::string(8, 's'), std::string(64, 's')};

TEST(SecretBytesTest, AMovedOneIsEmptyAndItsPlaceWiped) {
  for (const std::string& text : kSecrets) {
    SecretBytes from{std::string(text)};
    const unsigned char* const at = from.data();
    const SecretBytes to = std::move(from);
    EXPECT_EQ(to.view(), text);
    EXPECT_EQ(from.size(), 0u);  // NOLINT: what is left of it is the matter
    if (to.data() == at) continue;
    // The short one was copied: nothing of it may lie where it was.
    for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(at[i], 0) << i;
  }
}

TEST(SecretBytesTest, AssignedTheyHoldTheOthersBytesAndCopiesAreApart) {
  for (const std::string& text : kSecrets) {
    SecretBytes copy(std::string(100, 'x'));
    {
      const SecretBytes original{std::string(text)};
      copy = original;
      EXPECT_EQ(original.view(), text);
    }
    EXPECT_EQ(copy.view(), text);
    SecretBytes moved;
    moved = std::move(copy);
    EXPECT_EQ(moved.view(), text);
    EXPECT_EQ(copy.size(), 0u);  // NOLINT: what is left of it is the matter
  }
}

TEST(SecretBytesTest, AssignedToThemselvesTheyAreKept) {
  for (const std::string& text : kSecrets) {
    SecretBytes secret{std::string(text)};
    SecretBytes& same = secret;
    secret = same;
    EXPECT_EQ(secret.view(), text);
    secret = std::move(same);
    EXPECT_EQ(secret.view(), text);
  }
}

TEST(SecretBytesTest, WhatIsWipedIsOverwrittenInItsWholeRoom) {
  std::string text(200, 's');
  text.resize(64);
  const char* const at = text.data();
  const size_t room = text.capacity();
  Wipe(text);
  ASSERT_EQ(text.data(), at);
  EXPECT_TRUE(text.empty());
  for (size_t i = 1; i < room; ++i) EXPECT_EQ(at[i], '\0') << i;
}

}  // namespace
}  // namespace macrame::transport
