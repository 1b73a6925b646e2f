#include "agentd/gateway/request_limits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

constexpr double kMinuteMs = 60'000;

ApiError TooMany(const std::string& message, std::chrono::milliseconds wait) {
  ApiError error = HttpError(429, message, "rate_limit_exceeded");
  error.retry_after_seconds = std::max(1, static_cast<int>((wait.count() + 999) / 1000));
  return error;
}

}  // namespace

std::string ResetText(std::chrono::milliseconds time) {
  const int64_t ms = std::max<int64_t>(0, time.count());
  if (ms < 1000) return absl::StrCat(ms, "ms");
  const int64_t seconds = (ms + 999) / 1000;
  if (seconds < 60) return absl::StrCat(seconds, "s");
  return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
}

void RequestLimits::Bucket::Fill(uint32_t limit_now, Time now) {
  if (limit_now != limit) {
    level = limit == 0 ? limit_now : std::min<double>(level, limit_now);
    limit = limit_now;
    filled_at = now;
  }
  const double passed_ms =
      std::chrono::duration<double, std::milli>(std::max(now, filled_at) - filled_at).count();
  level = std::min(limit, level + passed_ms * limit / kMinuteMs);
  filled_at = std::max(now, filled_at);
}

std::chrono::milliseconds RequestLimits::Bucket::Until(double wanted) const {
  if (limit == 0 || level >= wanted) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::ceil((wanted - level) * kMinuteMs / limit)));
}

void RequestLimits::AddHeaders(const char* what, const Bucket& bucket, HeaderFields* headers) {
  if (bucket.limit == 0) return;
  const auto remaining = static_cast<uint64_t>(std::max(0.0, std::floor(bucket.level)));
  headers->emplace_back(absl::StrCat("x-ratelimit-limit-", what),
                        absl::StrCat(static_cast<uint64_t>(bucket.limit)));
  headers->emplace_back(absl::StrCat("x-ratelimit-remaining-", what), absl::StrCat(remaining));
  headers->emplace_back(absl::StrCat("x-ratelimit-reset-", what),
                        ResetText(bucket.Until(bucket.limit)));
}

LimitVerdict RequestLimits::Begin(const Principal& principal, Time now) {
  LimitVerdict verdict;
  Use& use = uses_[principal.key_id];
  use.requests.Fill(principal.requests_per_minute, now);
  use.tokens.Fill(principal.tokens_per_minute, now);
  if (use.requests.limit > 0 && use.requests.level < 1) {
    verdict.refused = TooMany(absl::StrCat("This API key may send ", principal.requests_per_minute,
                                           " requests a minute, and has."),
                              use.requests.Until(1));
  } else if (use.tokens.limit > 0 && use.tokens.level < 1) {
    verdict.refused = TooMany(absl::StrCat("This API key may use ", principal.tokens_per_minute,
                                           " tokens a minute, and has."),
                              use.tokens.Until(1));
  } else if (principal.concurrent_requests > 0 && use.under_way >= principal.concurrent_requests) {
    verdict.refused =
        TooMany(absl::StrCat("This API key may have ", principal.concurrent_requests,
                             principal.concurrent_requests == 1 ? " request" : " requests",
                             " under way at once, and has."),
                std::chrono::seconds(1));
  } else {
    ++use.under_way;
    if (use.requests.limit > 0) use.requests.level -= 1;
  }
  AddHeaders("requests", use.requests, &verdict.headers);
  AddHeaders("tokens", use.tokens, &verdict.headers);
  return verdict;
}

void RequestLimits::End(const std::string& key_id) {
  const auto found = uses_.find(key_id);
  if (found != uses_.end() && found->second.under_way > 0) --found->second.under_way;
}

void RequestLimits::AddTokens(const std::string& key_id, uint64_t tokens, Time now) {
  const auto found = uses_.find(key_id);
  if (found == uses_.end() || found->second.tokens.limit == 0) return;
  Bucket& bucket = found->second.tokens;
  bucket.Fill(static_cast<uint32_t>(bucket.limit), now);
  bucket.level -= static_cast<double>(tokens);
}

void RequestLimits::Keep(const std::set<std::string>& key_ids) {
  std::erase_if(uses_, [&](const auto& item) {
    return item.second.under_way == 0 && !key_ids.contains(item.first);
  });
}

}  // namespace macrame::agentd
