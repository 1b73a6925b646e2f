#pragma once

// Which pages of other origins may read answers (CORS). Pure.
//
// Off by default: no header is sent, so browsers keep answers from every page. Credentials
// (cookies) are never allowed; a key in a header is the page's own to send.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/http_reply.h"

namespace macrame::agentd {

class CorsPolicy {
 public:
  CorsPolicy() = default;
  // "https://host", "http://host:port", in any case; "*" is every page.
  explicit CorsPolicy(std::vector<std::string> origins);

  bool Allows(absl::string_view origin) const;
  // What an answer to a request of `origin` says besides: nothing for an origin that is not
  // allowed.
  HeaderFields Headers(absl::string_view origin) const;
  // The answer to OPTIONS, the question that a browser asks before the request; `asked`: its header
  // Access-Control-Request-Headers.
  HttpReply Preflight(absl::string_view methods, absl::string_view asked) const;

 private:
  std::vector<std::string> origins_;  // lower case
  bool all_ = false;
};

}  // namespace macrame::agentd
