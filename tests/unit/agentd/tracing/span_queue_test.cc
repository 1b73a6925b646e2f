#include "agentd/tracing/span_queue.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

std::vector<Span> Request(const std::string& name, size_t spans) {
  Span span;
  span.name = name;
  return std::vector<Span>(spans, span);
}

TEST(SpanQueue, DropsARequestWholeWhenThereIsNoPlace) {
  SpanQueue queue(5);
  EXPECT_TRUE(queue.Add(Request("a", 3)));
  EXPECT_FALSE(queue.Add(Request("b", 3)));
  EXPECT_TRUE(queue.Add(Request("c", 2)));
  EXPECT_FALSE(queue.Add(Request("d", 1)));
  EXPECT_TRUE(queue.Add({}));
  EXPECT_EQ(queue.size(), 5u);
  const std::vector<Span> all = queue.Take(100);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[3].name, "c");
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_TRUE(queue.Add(Request("e", 5))) << "there is place again";
}

TEST(SpanQueue, GivesWholeRequestsUpToABatch) {
  SpanQueue queue(100);
  EXPECT_TRUE(queue.Add(Request("a", 4)));
  EXPECT_TRUE(queue.Add(Request("b", 4)));
  EXPECT_TRUE(queue.Add(Request("large", 20)));
  EXPECT_EQ(queue.Take(9).size(), 8u);
  EXPECT_EQ(queue.size(), 20u);
  EXPECT_EQ(queue.Take(9).size(), 20u) << "larger than a batch: alone";
  EXPECT_TRUE(queue.Take(9).empty());
}

}  // namespace
}  // namespace macrame::agentd
