#include "cli/sibling_program.h"

#include <gtest/gtest.h>

#include <chrono>

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> Script(const std::string& text) { return {"-c", text}; }

TEST(OutputOf, GivesTheInputAndTakesTheOutputWhole) {
  EXPECT_EQ(*OutputOf("cat", {}, "a\n\0b"), "a\n");
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(*OutputOf("cat", {}, large), large) << "more than a pipe holds";
  EXPECT_EQ(*OutputOf("true", {}, large), "") << "who reads nothing is asked all the same";
  EXPECT_EQ(*OutputOf("printf", {"%s|", "a b", "$(x)", ""}, ""), "a b|$(x)||");
}

TEST(OutputOf, SaysHowAProgramFailed) {
  const auto missing = OutputOf("/nowhere/planner", {}, "");
  EXPECT_TRUE(absl::IsInternal(missing.status()));
  EXPECT_TRUE(Has(std::string(missing.status().message()),
                  "the program /nowhere/planner can't be started: No such file"))
      << missing.status();
  EXPECT_TRUE(Has(std::string(missing.status().message()), "installed beside clusterctl"));
  EXPECT_TRUE(Has(std::string(OutputOf("sh", Script("exit 3"), "").status().message()),
                  "ended with a failure (exit code 3)"));
  EXPECT_TRUE(Has(std::string(OutputOf("sh", Script("kill -9 $$"), "").status().message()),
                  "ended with a failure (signal 9)"));
}

TEST(StreamOutputOf, HandsOverWhatComesUntilTheEnd) {
  std::string all;
  EXPECT_TRUE(StreamOutputOf("sh", Script("cat; echo one; echo two"), std::chrono::seconds(60),
                             [&](std::string_view text) {
                               all += text;
                               return true;
                             })
                  .ok())
      << "its input is empty";
  EXPECT_EQ(all, "one\ntwo\n");
}

TEST(StreamOutputOf, AFailureAfterOutputIsAFailure) {
  const absl::Status failed =
      StreamOutputOf("sh", Script("echo one; exit 4"), std::chrono::seconds(60),
                     [](std::string_view) { return true; });
  EXPECT_TRUE(Has(std::string(failed.message()), "(exit code 4)")) << failed;
  EXPECT_TRUE(absl::IsInternal(StreamOutputOf("/nowhere/x", {}, std::chrono::seconds(60),
                                              [](std::string_view) { return true; })));
}

TEST(StreamOutputOf, WhoWantsNoMoreIsNotKeptWaiting) {
  const auto begin = std::chrono::steady_clock::now();
  // It notices at its next line that nobody reads.
  const absl::Status stopped =
      StreamOutputOf("sh", Script("while echo x; do :; done"), std::chrono::seconds(60),
                     [](std::string_view text) { return text.empty(); });
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kStopLimit);
}

TEST(StreamOutputOf, OneThatSaysNothingIsEnded) {
  const absl::Status idle = StreamOutputOf("sh", Script("exec sleep 600"), std::chrono::seconds(0),
                                           [](std::string_view) { return true; });
  EXPECT_TRUE(Has(std::string(idle.message()), "said nothing for 0 s")) << idle;
}

}  // namespace
}  // namespace macrame::cli
