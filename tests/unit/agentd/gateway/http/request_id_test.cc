#include "agentd/gateway/http/request_id.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

TEST(RequestId, WhatGoesIntoHeadersAndLogsAsItIs) {
  for (const char* id : {"a", "req_0123", "8f14e45f-ceea-467f-a8b2-1c9d3b1e7c01", "trace/1:2.3",
                         "Root=1-67891233-abcdef012345678912345678"}) {
    EXPECT_TRUE(IsRequestId(id)) << id;
  }
  EXPECT_TRUE(IsRequestId(std::string(kRequestIdBytesMax, 'x')));
}

TEST(RequestId, NothingElse) {
  for (const char* id : {"", " ", "a b", "a\nb", "a\"b", "a\\b", "<b>", "ü", "a;b", "a,b", "%0a"}) {
    EXPECT_FALSE(IsRequestId(id)) << id;
  }
  EXPECT_FALSE(IsRequestId(std::string("a\0b", 3)));
  EXPECT_FALSE(IsRequestId(std::string(kRequestIdBytesMax + 1, 'x')));
}

}  // namespace
}  // namespace macrame::agentd
