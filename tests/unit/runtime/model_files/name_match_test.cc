#include "runtime/model_files/name_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NameMatch, TheFirstRuleThatFitsDecides) {
  const std::vector<std::string> names = {"Org/Abc", "abc", "abcd", "org/abc"};
  EXPECT_THAT(MatchName("abc", names).fits, ElementsAre("abc"));
  EXPECT_TRUE(MatchName("abc", names).exact);
  EXPECT_THAT(MatchName("ABC", names).fits, ElementsAre("abc"));
  EXPECT_FALSE(MatchName("ABC", names).exact);
  EXPECT_THAT(MatchName("ORG/ABC", names).fits, ElementsAre("Org/Abc", "org/abc"));
  EXPECT_THAT(MatchName("bcd", names).fits, ElementsAre("abcd"));
  EXPECT_THAT(MatchName("a", names).fits, IsEmpty()) << "one letter means nothing";
  EXPECT_THAT(MatchName("", names).fits, IsEmpty());
  EXPECT_THAT(MatchName(std::string(10'000, 'a'), names).fits, IsEmpty());
}

TEST(NameMatch, SuggestionsComeNearestFirst) {
  EXPECT_THAT(SuggestedNames("qwen3-8", {"qwen3-4b", "llama", "qwen3-8b", "org/qwen3-9b"}),
              ElementsAre("qwen3-8b", "org/qwen3-9b", "qwen3-4b"));
  EXPECT_THAT(SuggestedNames("QWEN3-8B-4bti", {"qwen3-8b-4bit"}), ElementsAre("qwen3-8b-4bit"));
  EXPECT_THAT(SuggestedNames("zzz", {"llama"}), IsEmpty());
}

}  // namespace
}  // namespace macrame::runtime
