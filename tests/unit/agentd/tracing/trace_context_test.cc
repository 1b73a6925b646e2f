#include "agentd/tracing/trace_context.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macrame::agentd {
namespace {

// The standard's own example.
constexpr absl::string_view kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr absl::string_view kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

TEST(TraceContext, TakesWhatTheStandardShows) {
  const auto context = ParseTraceparent({kGood});
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(context->is_sampled());
  EXPECT_FALSE(
      ParseTraceparent({"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"})->is_sampled());
  // Flags that nobody knows yet are not passed on.
  EXPECT_EQ(ParseTraceparent({"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff"})->flags,
            kTraceSampled | kTraceRandom);
}

TEST(TraceContext, TakesLaterVersionsAsFarAsItKnowsThem) {
  for (const absl::string_view text :
       {"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-will-be-like",
        "fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"}) {
    const auto context = ParseTraceparent({text});
    ASSERT_TRUE(context.has_value()) << text;
    EXPECT_EQ(context->trace_id, kTrace) << text;
  }
}

TEST(TraceContext, IgnoresWhatIsMalformed) {
  for (const absl::string_view text : {
           "",
           "-",
           "00",
           "00-",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-.1",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e47366-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
           "00 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "FE-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "000-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01,00-"
           "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
       }) {
    EXPECT_FALSE(ParseTraceparent({text}).has_value()) << text;
  }
  EXPECT_FALSE(ParseTraceparent({}).has_value());
  EXPECT_FALSE(ParseTraceparent({kGood, kGood}).has_value()) << "which one is meant?";
}

// Whatever is taken is what it says, and is written again as it was.
TEST(TraceContext, RandomChangesAreTakenOrNotAndNeverMisread) {
  std::mt19937 random(4711);
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text(kGood);
    for (uint32_t changes = random() % 3; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char other =
          static_cast<char>(random() % 3 == 0 ? random() : "0123456789abcdef-"[random() % 17]);
      if (random() % 4 == 0)
        text.erase(at, 1);
      else if (random() % 4 == 0)
        text.insert(at, 1, other);
      else
        text[at] = other;
      if (text.empty()) break;
    }
    const auto context = ParseTraceparent({text});
    if (!context.has_value()) continue;
    ++taken;
    EXPECT_EQ(context->trace_id, text.substr(3, 32)) << text;
    EXPECT_EQ(context->parent_id, text.substr(36, 16)) << text;
    EXPECT_TRUE(
        ParseTraceparent({TraceparentOf(context->trace_id, context->parent_id, context->flags)})
            .has_value());
  }
  EXPECT_GT(taken, 5'000);
}

TEST(TraceContext, PassesTracestateOnOrDropsAllOfIt) {
  EXPECT_EQ(ParseTracestate({"congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}),
            "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
  EXPECT_EQ(ParseTracestate({" a=1 , ,b=2\t", "t1@v-x=3"}), "a=1,b=2,t1@v-x=3");
  EXPECT_EQ(ParseTracestate({"a=b c"}), "a=b c");
  EXPECT_EQ(ParseTracestate({}), "");
  for (const absl::string_view text :
       {"a", "=1", "a=", "A=1", "a=1,a=2", "a=1=2", "a b=1", "a=\x01", "a=\xc3\xa4", "-a=1"}) {
    EXPECT_EQ(ParseTracestate({"good=1", text}), "") << text;
  }
  std::string many;
  for (size_t i = 0; i < kTracestateMembersMax; ++i) absl::StrAppend(&many, "k", i, "=v,");
  EXPECT_NE(ParseTracestate({many}), "");
  EXPECT_EQ(ParseTracestate({many, "one-more=v"}), "");
  EXPECT_EQ(ParseTracestate({"a=" + std::string(256, 'x') + ",b=" + std::string(256, 'x')}), "");
}

TEST(TraceContext, SamplesByTheTraceIdAlone) {
  EXPECT_TRUE(IsInRatio(std::string(32, 'f'), 1));
  EXPECT_FALSE(IsInRatio(std::string(32, '0'), 0));
  EXPECT_TRUE(IsInRatio(std::string(32, '0'), 0.0001));
  EXPECT_FALSE(IsInRatio(std::string(32, 'f'), 0.9999));
  // As OpenTelemetry's samplers: the lower eight bytes, without their last bit.
  EXPECT_TRUE(IsInRatio("ffffffffffffffff7fffffffffffffff", 0.5));
  EXPECT_FALSE(IsInRatio("00000000000000008000000000000000", 0.5));
  std::mt19937_64 random(1);
  int taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    taken += IsInRatio(absl::StrFormat("%016x%016x", random(), random()), 0.25) ? 1 : 0;
  }
  EXPECT_NEAR(taken, 2'500, 200);
}

}  // namespace
}  // namespace macrame::agentd
