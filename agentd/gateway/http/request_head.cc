#include "agentd/gateway/http/request_head.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/web_url.h"
#include "agentd/dashboard/request_checks.h"
#include "agentd/gateway/access/host_policy.h"
#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {
namespace {

// Browsers and proxies send some thirty. Each takes some 70 bytes beside its text.
constexpr int kHeadFieldsMax = 128;
constexpr absl::string_view kScheme = "http://";
// What proxies put in: the client is then not on this machine, wherever the connection comes from.
constexpr const char* kProxyFields[] = {"forwarded", "via", "x-forwarded-for", "x-forwarded-host",
                                        "x-real-ip"};

}  // namespace

std::string PathOf(const HttpRequest& request) {
  absl::string_view target = Plain(request.target());
  if (absl::StartsWithIgnoreCase(target, kScheme)) {
    const size_t slash = target.find('/', kScheme.size());
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find('?')));
}

absl::string_view QueryOf(const HttpRequest& request) {
  const absl::string_view target = Plain(request.target());
  const size_t mark = target.find('?');
  return mark == absl::string_view::npos ? "" : target.substr(mark + 1);
}

std::string AuthorityOf(const HttpRequest& request) {
  const absl::string_view target = Plain(request.target());
  if (absl::StartsWithIgnoreCase(target, kScheme)) {
    const size_t begin = kScheme.size();
    return std::string(target.substr(begin, target.find('/', begin) - begin));
  }
  return std::string(Plain(request[http::field::host]));
}

absl::string_view OriginOf(const HttpRequest& request) {
  return Plain(request[http::field::origin]);
}

std::vector<absl::string_view> FieldsOf(const HttpRequest& request, const char* name) {
  std::vector<absl::string_view> values;
  const auto range = request.equal_range(name);
  for (auto at = range.first; at != range.second; ++at) values.push_back(Plain(at->value()));
  return values;
}

std::optional<ApiError> CheckHead(const HttpRequest& request, const Arrival& arrival,
                                  const std::vector<std::string>& allowed_hosts) {
  if (std::distance(request.begin(), request.end()) > kHeadFieldsMax) {
    return HttpError(431,
                     absl::StrCat("The request's head has more than ", kHeadFieldsMax, " fields."),
                     "head_too_large");
  }
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11)) {
    return HttpError(400, "The request must carry one Host header.", "malformed_http");
  }
  if (request.version() != 10 && request.version() != 11) {
    return HttpError(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.", "malformed_http");
  }
  if (request.count(http::field::content_length) > 1 ||
      request.count(http::field::transfer_encoding) > 1 ||
      (request.count(http::field::transfer_encoding) == 1 &&
       !beast::iequals(request[http::field::transfer_encoding], "chunked"))) {
    return HttpError(400, "The body's length is not stated in one plain way.", "malformed_http");
  }
  // Its key has crossed the network by now; the next one should not.
  if (arrival.has_tls && !arrival.is_secure && !arrival.is_loopback) {
    return HttpError(400, "This gateway speaks TLS to other machines: use https:// here.",
                     "tls_required");
  }
  if (hosts == 0) return std::nullopt;  // HTTP/1.0: no browser
  if (!IsHostAllowed(HostOf(AuthorityOf(request)), arrival.over_loopback, allowed_hosts)) {
    return HttpError(403,
                     "This Host is not served here. Use localhost or an address of this machine, "
                     "or have the name added to gateway_hosts in its agentd.yaml.",
                     "host_not_allowed");
  }
  return std::nullopt;
}

std::optional<ApiError> CheckContentType(const HttpRequest& request, bool may_be_untold) {
  const absl::string_view encoding = Plain(request[http::field::content_encoding]);
  const absl::string_view type = Plain(request[http::field::content_type]);
  const absl::string_view plain = absl::StripAsciiWhitespace(
      absl::string_view(type.data(), std::min(type.find(';'), type.size())));
  // A web page can send other types anywhere without asking first; this one it can't. Programs that
  // name none, or just bytes, are known from pages in that browsers say where a body comes from.
  // The last one is what `curl -d` says.
  const bool is_untold = plain.empty() || plain == "application/octet-stream" ||
                         absl::EqualsIgnoreCase(plain, "application/x-www-form-urlencoded");
  const bool is_program = may_be_untold && is_untold &&
                          request.find(http::field::origin) == request.end() &&
                          request.find("sec-fetch-site") == request.end();
  if (!is_program && !absl::EqualsIgnoreCase(plain, "application/json")) {
    return HttpError(415, "Send the body as 'content-type: application/json'.",
                     "unsupported_media_type");
  }
  if (!encoding.empty() && encoding != "identity") {
    return HttpError(415, "Send the body without a content-encoding.", "unsupported_media_type");
  }
  return std::nullopt;
}

// By a loopback name and through no proxy. A browser says with each order which page gives it, and
// no page can say that it were another: pages at another port of this machine are other pages.
bool IsOwnPage(const HttpRequest& request, bool is_secure) {
  const std::string authority = AuthorityOf(request);
  if (!IsHostAllowed(HostOf(authority), /*over_loopback=*/true, {})) return false;
  for (const char* field : kProxyFields) {
    if (request.count(field) > 0) return false;
  }
  if (request.count(http::field::origin) > 1 ||
      dashboard::IsFromAnotherSite(Plain(request["sec-fetch-site"]), OriginOf(request),
                                   authority)) {
    return false;
  }
  const bool reads = request.method() == http::verb::get || request.method() == http::verb::head;
  const char* scheme = is_secure ? "https://" : "http://";
  return reads || absl::EqualsIgnoreCase(OriginOf(request), absl::StrCat(scheme, authority));
}

}  // namespace macrame::agentd
