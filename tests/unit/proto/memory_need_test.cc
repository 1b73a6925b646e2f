#include "proto/memory_need.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(WiredBytesTest, CountsWhatTheGpuReads) {
  v1::MemoryNeed need;
  need.set_weights_bytes(1'000'000);
  need.set_embedding_bytes(200'000);
  need.set_head_bytes(30'000);
  need.set_kv_cache_bytes(4'000);
  need.set_state_bytes(500);
  need.set_activation_bytes(60);
  EXPECT_EQ(WiredBytes(need), Bytes(1'234'560));
  need.set_runtime_bytes(7);
  need.set_headroom_bytes(7);
  need.set_total_bytes(1'234'574);
  EXPECT_EQ(WiredBytes(need), Bytes(1'234'560));
  need.set_draft_bytes(7);
  EXPECT_EQ(WiredBytes(need), Bytes(1'234'567)) << "a draft model computes where the rank does";
}

TEST(WiredBytesTest, ASumBeyondAllNumbersIsTheLargest) {
  v1::MemoryNeed need;
  need.set_weights_bytes(~uint64_t{0} - 5);
  need.set_kv_cache_bytes(10);
  need.set_activation_bytes(~uint64_t{0});
  EXPECT_EQ(WiredBytes(need), Bytes(~uint64_t{0}));
  EXPECT_EQ(WiredBytes({}), Bytes(0));
}

}  // namespace
}  // namespace macrame
