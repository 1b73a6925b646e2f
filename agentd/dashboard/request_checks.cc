#include "agentd/dashboard/request_checks.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agentd/base/web_url.h"

namespace macrame::agentd::dashboard {

bool IsFromAnotherSite(absl::string_view fetch_site, absl::string_view origin,
                       absl::string_view host) {
  if (!fetch_site.empty()) {
    return !absl::EqualsIgnoreCase(fetch_site, "same-origin") &&
           !absl::EqualsIgnoreCase(fetch_site, "none");
  }
  if (origin.empty()) return false;
  const std::string authority = AuthorityOfOrigin(origin);
  return authority.empty() || !absl::EqualsIgnoreCase(authority, host);
}

bool EtagMatches(absl::string_view if_none_match, absl::string_view etag) {
  for (absl::string_view one : absl::StrSplit(if_none_match, ',')) {
    one = absl::StripAsciiWhitespace(one);
    if (one == "*") return true;
    absl::ConsumePrefix(&one, "W/");
    if (one == etag) return true;
  }
  return false;
}

}  // namespace macrame::agentd::dashboard
