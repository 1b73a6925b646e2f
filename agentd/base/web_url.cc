#include "agentd/base/web_url.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macrame::agentd {
namespace {

struct HostPort {
  absl::string_view host;  // without brackets
  absl::string_view port;  // empty: none is named
};

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsAddressCharacter(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
}

// RFC 3986, 3.3 and 3.4: what a path and a query are made of, escapes among it.
bool IsTargetCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("-._~!$&'()*+,;=:@/?%", absl::string_view(&c, 1));
}

bool IsPort(absl::string_view text) {
  uint32_t port = 0;
  const bool are_digits = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  return text.empty() || (are_digits && absl::SimpleAtoi(text, &port) && port <= UINT16_MAX);
}

// False: it is malformed.
bool Split(absl::string_view authority, HostPort* parts) {
  absl::string_view rest;
  bool fits = true;
  if (absl::StartsWith(authority, "[")) {
    const size_t close = authority.find(']');
    if (close == absl::string_view::npos) return false;
    parts->host = authority.substr(1, close - 1);
    rest = authority.substr(close + 1);
    fits = std::all_of(parts->host.begin(), parts->host.end(), IsAddressCharacter);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    parts->host = authority.substr(0, colon);
    rest = authority.substr(colon);
    fits = std::all_of(parts->host.begin(), parts->host.end(), IsHostCharacter);
  }
  if (!rest.empty() && !absl::ConsumePrefix(&rest, ":")) return false;
  parts->port = rest;
  return fits && !parts->host.empty() && IsPort(parts->port);
}

// Lower case, without a closing dot.
std::string PlainHost(const HostPort& parts) {
  return absl::AsciiStrToLower(absl::StripSuffix(parts.host, "."));
}

// Consumes "http://" or "https://", in any case.
bool ConsumeScheme(absl::string_view* text, bool* is_secure) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(*text, scheme)) continue;
    text->remove_prefix(scheme.size());
    *is_secure = scheme.size() == 8;
    return true;
  }
  return false;
}

}  // namespace

std::string HostOf(absl::string_view authority) {
  HostPort parts;
  return Split(authority, &parts) ? PlainHost(parts) : "";
}

std::string AuthorityOfOrigin(absl::string_view origin) {
  bool is_secure = false;
  if (!ConsumeScheme(&origin, &is_secure) || HostOf(origin).empty()) return "";
  return std::string(origin);
}

std::optional<WebUrl> ParseWebUrl(absl::string_view text) {
  WebUrl url;
  if (!ConsumeScheme(&text, &url.is_secure)) return std::nullopt;
  const absl::string_view authority = text.substr(0, text.find_first_of("/?#"));
  HostPort parts;
  if (!Split(authority, &parts)) return std::nullopt;
  url.host = PlainHost(parts);
  if (url.host.empty()) return std::nullopt;
  url.port = !parts.port.empty() ? std::string(parts.port) : url.is_secure ? "443" : "80";
  absl::string_view target = text.substr(authority.size());
  target = target.substr(0, target.find('#'));
  if (!std::all_of(target.begin(), target.end(), IsTargetCharacter)) return std::nullopt;
  url.target = absl::StrCat(absl::StartsWith(target, "/") ? "" : "/", target);
  return url;
}

std::optional<WebUrl> TracesUrl(absl::string_view endpoint) {
  std::optional<WebUrl> url = ParseWebUrl(endpoint);
  if (!url.has_value() || absl::StrContains(url->target, '?')) return std::nullopt;
  while (absl::EndsWith(url->target, "/")) url->target.pop_back();
  url->target += "/v1/traces";
  return url;
}

std::string PercentDecode(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    int value = 0;
    const absl::string_view digits = text.substr(i + 1, 2);
    const bool is_escape = digits.size() == 2 &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(digits[1])) &&
                           absl::SimpleHexAtoi(digits, &value);
    if (!is_escape) return std::string(text);
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

}  // namespace macrame::agentd
