#pragma once

// What a request's header fields say of who asks, and of what they have. Pure.

#include "absl/strings/string_view.h"

namespace macrame::agentd::dashboard {

// Whether another site's page asks. `fetch_site` is Sec-Fetch-Site, which browsers set and pages
// can't; `origin` and `host` are the fields of these names. Programs send neither and pass; so does
// who types the address into a browser.
bool IsFromAnotherSite(absl::string_view fetch_site, absl::string_view origin,
                       absl::string_view host);

// Whether If-None-Match names `etag` (with its quotes), or anything ("*").
bool EtagMatches(absl::string_view if_none_match, absl::string_view etag);

}  // namespace macrame::agentd::dashboard
