#include "agentd/base/web_url.h"

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/src.hpp>  // the library itself: it is compiled here and nowhere else

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

namespace urls = boost::urls;

constexpr size_t kPortDigitsMax = 5;

bool IsHostCharacter(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
}

}  // namespace

// What is parsed points into the text. Boost's releases name their own string_view differently, and
// all take a std::string for one.

std::string HostOf(absl::string_view text) {
  const std::string whole(text);
  const auto authority = urls::parse_authority(whole);
  if (!authority || authority->has_userinfo() || authority->port().size() > kPortDigitsMax) {
    return "";
  }
  std::string host(authority->encoded_host_address());
  if (!std::all_of(host.begin(), host.end(), IsHostCharacter)) return "";
  if (!host.empty() && host.back() == '.') host.pop_back();
  return absl::AsciiStrToLower(host);
}

std::string AuthorityOfOrigin(absl::string_view text) {
  const std::string whole(text);
  const auto origin = urls::parse_uri(whole);
  if (!origin || !origin->encoded_path().empty() || origin->has_query() || origin->has_fragment()) {
    return "";
  }
  const bool is_web =
      origin->scheme_id() == urls::scheme::http || origin->scheme_id() == urls::scheme::https;
  std::string authority(origin->encoded_authority().data(), origin->encoded_authority().size());
  return is_web && !HostOf(authority).empty() ? authority : "";
}

std::optional<WebUrl> ParseWebUrl(absl::string_view text) {
  const std::string whole(text);
  const auto parsed = urls::parse_uri(whole);
  if (!parsed) return std::nullopt;
  WebUrl url;
  url.is_secure = parsed->scheme_id() == urls::scheme::https;
  if (!url.is_secure && parsed->scheme_id() != urls::scheme::http) return std::nullopt;
  url.host = HostOf(
      absl::string_view(parsed->encoded_authority().data(), parsed->encoded_authority().size()));
  if (url.host.empty()) return std::nullopt;
  const auto port = parsed->port();
  url.port = !port.empty() ? std::string(port.data(), port.size()) : url.is_secure ? "443" : "80";
  const auto target = parsed->encoded_target();
  const absl::string_view asked(target.data(), target.size());
  url.target = absl::StrCat(absl::StartsWith(asked, "/") ? "" : "/", asked);
  return url;
}

std::string PercentDecode(absl::string_view text) {
  const std::string whole(text);
  const auto encoded = urls::make_pct_string_view(whole);
  return encoded ? encoded->decode() : whole;
}

}  // namespace macrame::agentd
