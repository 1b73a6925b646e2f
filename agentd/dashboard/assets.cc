#include "agentd/dashboard/assets.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace macrame::agentd::dashboard {

const Asset* FindAsset(absl::string_view path) {
  absl::string_view name = path;
  const bool below = absl::ConsumePrefix(&name, "/dashboard/");
  if (path == "/" || path == "/dashboard" || path == "/dashboard/") {
    name = "index.html";
  } else if (!below) {
    return nullptr;
  }
  for (const Asset& asset : AllAssets()) {
    if (asset.name == name) return &asset;
  }
  return nullptr;
}

absl::string_view ContentTypeOf(const Asset& asset) {
  if (absl::EndsWith(asset.name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(asset.name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(asset.name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(asset.name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

const std::vector<std::pair<std::string, std::string>>& SecurityHeaders() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"content-security-policy",
       "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
       "object-src 'none'"},
      {"referrer-policy", "no-referrer"},
      {"x-frame-options", "DENY"},
      {"cross-origin-opener-policy", "same-origin"},
      {"cross-origin-resource-policy", "same-origin"},
      {"permissions-policy", "camera=(), geolocation=(), microphone=()"},
  };
  return headers;
}

}  // namespace macrame::agentd::dashboard
