#include "agentd/gateway/access/cors_policy.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace macrame::agentd {
namespace {

constexpr absl::string_view kAll = "*";
constexpr char kPreflightSeconds[] = "600";

}  // namespace

CorsPolicy::CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {
  for (std::string& origin : origins_) {
    absl::AsciiStrToLower(&origin);
    all_ = all_ || origin == kAll;
  }
}

bool CorsPolicy::Allows(absl::string_view origin) const {
  if (origin.empty()) return false;
  return all_ || std::find(origins_.begin(), origins_.end(), absl::AsciiStrToLower(origin)) !=
                     origins_.end();
}

HeaderFields CorsPolicy::Headers(absl::string_view origin) const {
  HeaderFields fields;
  if (origins_.empty()) return fields;
  // Caches on the way must not hand one origin's answer to another.
  fields.emplace_back("vary", "Origin");
  if (!Allows(origin)) return fields;
  fields.emplace_back("access-control-allow-origin",
                      all_ ? std::string(kAll) : std::string(origin));
  fields.emplace_back("access-control-expose-headers", "*");
  return fields;
}

HttpReply CorsPolicy::Preflight(absl::string_view methods, absl::string_view asked) const {
  HttpReply reply;
  reply.content_type = "text/plain";
  reply.headers.emplace_back("access-control-allow-methods", std::string(methods));
  // Clients of many libraries, each with fields of its own, and no credentials among them.
  if (!asked.empty()) {
    reply.headers.emplace_back("access-control-allow-headers", std::string(asked));
  }
  reply.headers.emplace_back("access-control-max-age", kPreflightSeconds);
  return reply;
}

}  // namespace macrame::agentd
