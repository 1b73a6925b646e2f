#pragma once

// How many requests and tokens each key may have in a minute, and how many requests at once. Pure.
//
// A bucket for each: it holds what a minute allows, and fills evenly. A request takes one from the
// first; tokens are counted when an answer has ended, so that the bucket may fall below zero, and
// requests wait until it is above again. Each gateway counts for itself. Bounds: the keys.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agentd/gateway/admission.h"
#include "agentd/gateway/api_error.h"
#include "agentd/gateway/http_reply.h"

namespace macrame::agentd {

struct LimitVerdict {
  std::optional<ApiError> refused;  // 429, with retry-after
  HeaderFields headers;             // x-ratelimit-…
};

class RequestLimits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A request begins, unless it is refused; then nothing was taken. Not for one without a key.
  LimitVerdict Begin(const Principal& principal, Time now);
  // One that began is over.
  void End(const std::string& key_id);
  // What it cost.
  void AddTokens(const std::string& key_id, uint64_t tokens, Time now);
  // Forgets keys that are not among these, and have nothing under way.
  void Keep(const std::set<std::string>& key_ids);

 private:
  struct Bucket {
    double limit = 0;  // a minute's; 0: none
    double level = 0;
    Time filled_at{};
    void Fill(uint32_t limit_now, Time now);
    // Until there is `wanted`.
    std::chrono::milliseconds Until(double wanted) const;
  };
  struct Use {
    Bucket requests;
    Bucket tokens;
    uint32_t under_way = 0;
  };
  static void AddHeaders(const char* what, const Bucket& bucket, HeaderFields* headers);

  std::map<std::string, Use> uses_;  // by key id
};

// As OpenAI writes it: "350ms", "12s", "1m5s".
std::string ResetText(std::chrono::milliseconds time);

}  // namespace macrame::agentd
