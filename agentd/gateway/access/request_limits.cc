#include "agentd/gateway/access/request_limits.h"

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

// Of two refusals the one that lasts longer: who waits as told should not meet the other one.
void TakeLonger(std::optional<ApiError> other, std::optional<ApiError>* why) {
  const bool is_longer =
      other.has_value() &&
      (!why->has_value() || other->retry_after_seconds > (*why)->retry_after_seconds);
  if (is_longer) *why = std::move(other);
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
    // What a higher limit allows more is there at once.
    level = limit == 0 ? limit_now
                       : std::min<double>(level + std::max(0.0, limit_now - limit), limit_now);
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

std::optional<ApiError> RequestLimits::WhyNot(Use& use, const Allowance& allowed,
                                              const std::string& who, Time now) {
  use.requests.Fill(allowed.requests_per_minute, now);
  use.tokens.Fill(allowed.tokens_per_minute, now);
  std::optional<ApiError> why;
  if (use.requests.limit > 0 && use.requests.level < 1) {
    why = TooMany(absl::StrCat(who, " may send ", allowed.requests_per_minute,
                               " requests a minute, and has."),
                  use.requests.Until(1));
  }
  if (use.tokens.limit > 0 && use.tokens.level < 1) {
    TakeLonger(TooMany(absl::StrCat(who, " may use ", allowed.tokens_per_minute,
                                    " tokens a minute, and has."),
                       use.tokens.Until(1)),
               &why);
  }
  if (allowed.concurrent_requests > 0 && use.under_way >= allowed.concurrent_requests) {
    TakeLonger(TooMany(absl::StrCat(who, " may have ", allowed.concurrent_requests,
                                    allowed.concurrent_requests == 1 ? " request" : " requests",
                                    " under way at once, and has."),
                       std::chrono::seconds(1)),
               &why);
  }
  return why;
}

void RequestLimits::Take(Use& use) {
  ++use.under_way;
  if (use.requests.limit > 0) use.requests.level -= 1;
}

LimitVerdict RequestLimits::Begin(const Principal& principal, Time now,
                                  const v1::TenantLimits* tenant) {
  const Allowance of_key{principal.requests_per_minute, principal.tokens_per_minute,
                         principal.concurrent_requests};
  Use& key = keys_[principal.key_id];
  // A tenant that gets limits later has its requests under way counted, too.
  Use* all = principal.tenant.empty() ? nullptr : &tenants_[principal.tenant];
  LimitVerdict verdict;
  verdict.refused = WhyNot(key, of_key, "This API key", now);
  if (all != nullptr) {
    Allowance of_tenant;
    if (tenant != nullptr) {
      of_tenant = {tenant->requests_per_minute(), tenant->tokens_per_minute(),
                   tenant->concurrent_requests()};
    }
    TakeLonger(WhyNot(*all, of_tenant,
                      absl::StrCat("The tenant '", principal.tenant, "' of this key"), now),
               &verdict.refused);
  }
  if (!verdict.refused.has_value()) {
    Take(key);
    if (all != nullptr) Take(*all);
  }
  const auto tighter = [&](Bucket Use::*bucket) -> const Bucket& {
    const Bucket& own = key.*bucket;
    const bool is_tenants = all != nullptr && (all->*bucket).limit > 0 &&
                            (own.limit == 0 || (all->*bucket).level < own.level);
    return is_tenants ? all->*bucket : own;
  };
  AddHeaders("requests", tighter(&Use::requests), &verdict.headers);
  AddHeaders("tokens", tighter(&Use::tokens), &verdict.headers);
  return verdict;
}

void RequestLimits::End(const Principal& principal) {
  const auto end = [](std::map<std::string, Use>& uses, const std::string& name) {
    const auto found = uses.find(name);
    if (found != uses.end() && found->second.under_way > 0) --found->second.under_way;
  };
  end(keys_, principal.key_id);
  end(tenants_, principal.tenant);
}

void RequestLimits::AddTokens(const Principal& principal, uint64_t tokens, Time now) {
  const auto add = [&](std::map<std::string, Use>& uses, const std::string& name) {
    const auto found = uses.find(name);
    if (found == uses.end() || found->second.tokens.limit == 0) return;
    Bucket& bucket = found->second.tokens;
    bucket.Fill(static_cast<uint32_t>(bucket.limit), now);
    bucket.level -= static_cast<double>(tokens);
  };
  add(keys_, principal.key_id);
  add(tenants_, principal.tenant);
}

void RequestLimits::Keep(const std::set<std::string>& key_ids,
                         const std::set<std::string>& tenants) {
  std::erase_if(keys_, [&](const auto& item) {
    return item.second.under_way == 0 && !key_ids.contains(item.first);
  });
  std::erase_if(tenants_, [&](const auto& item) {
    return item.second.under_way == 0 && !tenants.contains(item.first);
  });
}

}  // namespace macrame::agentd
