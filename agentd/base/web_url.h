#pragma once

// Parts of the URLs that HTTP clients send and owners write. Pure.

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

// Of an authority ("host", "host:port", "[address]:port"): the host alone, lower case, without
// brackets and closing dot. Empty: it is malformed, names a user, or its host has other characters
// than names and addresses have.
std::string HostOf(absl::string_view authority);

// Of a web page's origin, as browsers write it in the header Origin ("https://host:port"): its
// authority. Empty: it is none, "null" and those of browsers' extensions among them.
std::string AuthorityOfOrigin(absl::string_view origin);

// Where a program asks: "https://host:port/path?query", http too. The port is the scheme's where
// none is named.
struct WebUrl {
  bool is_secure = false;
  std::string host;  // as HostOf has it
  std::string port;
  std::string target = "/";  // path and query
};
// Nullopt: it is none, or names a user.
std::optional<WebUrl> ParseWebUrl(absl::string_view text);

// Where the collector at `endpoint` takes traces: "/v1/traces" behind it, as OpenTelemetry's SDKs
// have it. Nullopt: it is no such URL, or has a query.
std::optional<WebUrl> TracesUrl(absl::string_view endpoint);

// "%2F" and the like become what they stand for; a text with a malformed one stays as it is.
std::string PercentDecode(absl::string_view text);

}  // namespace macrame::agentd
