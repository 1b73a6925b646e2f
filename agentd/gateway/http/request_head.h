#pragma once

// What the head of a request says: where it goes, which page sends it, and what is wrong with it.
// Pure.

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"

namespace macrame::agentd {

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;

// The target without its query; where it is a whole URL, without scheme and host too.
std::string PathOf(const HttpRequest& request);
// What follows the target's question mark; empty: nothing.
absl::string_view QueryOf(const HttpRequest& request);
// Host and port that the client asks for.
std::string AuthorityOf(const HttpRequest& request);
absl::string_view OriginOf(const HttpRequest& request);
// All fields of a name.
std::vector<absl::string_view> FieldsOf(const HttpRequest& request, const char* name);

// How a request's connection came.
struct Arrival {
  bool is_loopback = false;    // from an address of this machine
  bool over_loopback = false;  // to a loopback address
  bool is_secure = false;      // in TLS
  bool has_tls = false;        // the gateway has a certificate
};

// The faults of a head, before any path is looked at.
std::optional<ApiError> CheckHead(const HttpRequest& request, const Arrival& arrival,
                                  const std::vector<std::string>& allowed_hosts);
// `may_be_untold`: programs that name no type, or just bytes, send JSON all the same.
std::optional<ApiError> CheckContentType(const HttpRequest& request, bool may_be_untold);
// Whether the request says of itself that it comes from the page that this gateway serves, opened
// on this machine.
bool IsOwnPage(const HttpRequest& request, bool is_secure);

}  // namespace macrame::agentd
