#include "transport/join_token.h"

#include <arpa/inet.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <boost/algorithm/hex.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "transport/trust.h"

namespace macrame::transport {
namespace {

constexpr char kPrefix[] = "macrame1";
constexpr size_t kDigestBytes = 32;

bool IsHex(const std::string& text, size_t bytes) {
  return text.size() == 2 * bytes &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool IsIp(const std::string& text) {
  unsigned char address[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, text.c_str(), address) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), address) == 1;
}

absl::Status Malformed() {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kTokenMalformed,
                      "that is not a whole join token");
}

}  // namespace

std::string FormatJoinToken(const JoinToken& token) {
  return absl::StrCat(kPrefix, ".", token.id, ".", HexEncode(token.secret), ".",
                      HexEncode(token.authority_digest), "@", token.port, ",",
                      absl::StrJoin(token.ips, ","));
}

absl::StatusOr<JoinToken> ParseJoinToken(std::string_view text) {
  if (text.size() > kJoinTokenTextMax) return Malformed();
  const std::string line(text);
  const std::vector<std::string> halves = absl::StrSplit(line, '@');
  if (halves.size() != 2) return Malformed();
  const std::vector<std::string> parts = absl::StrSplit(halves[0], '.');
  const std::vector<std::string> places = absl::StrSplit(halves[1], ',');
  const bool fits = parts.size() == 4 && parts[0] == kPrefix &&
                    IsHex(parts[1], kJoinTokenIdBytes) && IsHex(parts[2], kJoinTokenSecretBytes) &&
                    IsHex(parts[3], kDigestBytes) && places.size() >= 2 &&
                    places.size() <= 1 + kJoinAddressesMax;
  if (!fits) return Malformed();
  JoinToken token;
  token.id = parts[1];
  token.secret = boost::algorithm::unhex(parts[2]);
  token.authority_digest = boost::algorithm::unhex(parts[3]);
  if (!absl::SimpleAtoi(places[0], &token.port) || token.port < 1 || token.port > 65'535) {
    return Malformed();
  }
  token.ips.assign(places.begin() + 1, places.end());
  for (const std::string& ip : token.ips) {
    if (!IsIp(ip)) return Malformed();
  }
  return token;
}

std::string JoinProof(const std::string& secret, const std::string& exported,
                      const std::string& token_id, const NodeId& node_id,
                      const std::string& request_der) {
  unsigned char request[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(request_der.data()), request_der.size(), request);
  // Each part has one length.
  const std::string said =
      absl::StrCat("macrame join 1\n", exported, token_id, "\n", node_id.value(), "\n",
                   absl::string_view(reinterpret_cast<const char*>(request), sizeof(request)));
  unsigned char proof[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(said.data()), said.size(), proof, &size);
  return std::string(reinterpret_cast<const char*>(proof), size);
}

}  // namespace macrame::transport
