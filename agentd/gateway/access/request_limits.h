#pragma once

// How many requests and tokens each key, and all keys of a tenant together, may have in a minute,
// and how many requests at once. Pure.
//
// A bucket for each: it holds what a minute allows, and fills evenly. A request takes one from the
// first; tokens are counted when an answer has ended, so that the bucket may fall below zero, and
// requests wait until it is above again. Each gateway counts for itself. Bounds: the keys, and
// their tenants.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/http_reply.h"
#include "macrame/v1/access.pb.h"

namespace macrame::agentd {

struct LimitVerdict {
  std::optional<ApiError> refused;  // 429, with retry-after: until all limits let one in
  HeaderFields headers;             // x-ratelimit-…
};

class RequestLimits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A request begins, unless it is refused; then nothing was taken. Not for one without a key.
  // `tenant`: the limits of the key's tenant; null: it has none. Headers tell, of the
  // key's limits and its tenant's, what has less left.
  LimitVerdict Begin(const Principal& principal, Time now,
                     const v1::TenantLimits* tenant = nullptr);
  // One that began is over.
  void End(const Principal& principal);
  // What it cost.
  void AddTokens(const Principal& principal, uint64_t tokens, Time now);
  // Forgets keys and tenants that are not among these, and have nothing under way.
  void Keep(const std::set<std::string>& key_ids, const std::set<std::string>& tenants);

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
  struct Allowance {
    uint32_t requests_per_minute = 0;
    uint32_t tokens_per_minute = 0;
    uint32_t concurrent_requests = 0;
  };
  // `who`: "This API key".
  static std::optional<ApiError> WhyNot(Use& use, const Allowance& allowed, const std::string& who,
                                        Time now);
  static void Take(Use& use);
  static void AddHeaders(const char* what, const Bucket& bucket, HeaderFields* headers);

  std::map<std::string, Use> keys_;     // by id
  std::map<std::string, Use> tenants_;  // by name
};

// As OpenAI writes it: "350ms", "12s", "1m5s".
std::string ResetText(std::chrono::milliseconds time);

}  // namespace macrame::agentd
