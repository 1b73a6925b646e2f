#include "transport/collectives/tcp_handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::transport {
namespace {

constexpr char kGreeting[] = "macrame1";
constexpr size_t kGreetingBytes = 8;
constexpr size_t kNonceBytes = 32;
constexpr size_t kHelloBytes = kGreetingBytes + 8 + kNonceBytes;
constexpr size_t kProofBytes = 32;
constexpr int kRanksMax = 4096;

void PutInt(uint32_t number, std::string* out) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

uint32_t GetInt(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (int i = 0; i < 4; ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return number;
}

std::string Hello(const HandshakePlace& place) {
  std::string hello(kGreeting, kGreetingBytes);
  PutInt(static_cast<uint32_t>(place.rank), &hello);
  PutInt(static_cast<uint32_t>(place.size), &hello);
  std::string nonce(kNonceBytes, '\0');
  const int made = RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes);
  MACRAME_CHECK(made == 1) << "the system gives no random bytes";
  return hello + nonce;
}

std::string Proof(const std::string& secret, char role, const std::string& prover_hello,
                  const std::string& other_hello) {
  const std::string text = absl::StrCat("wire", std::string(1, role), prover_hello, other_hello);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return std::string(reinterpret_cast<char*>(digest), size);
}

}  // namespace

absl::StatusOr<int> ShakeHands(const StreamSocket& socket, const HandshakePlace& place,
                               bool is_listener) {
  socket.SetReceiveLimit(kHandshakeLimit);
  const std::string own = Hello(place);
  absl::Status status = socket.SendBytes(own);
  if (!status.ok()) return status;
  std::string other(kHelloBytes, '\0');
  status = socket.ReceiveBytes(other.data(), other.size());
  if (!status.ok()) return status;
  const uint32_t rank = GetInt(other, kGreetingBytes);
  if (std::memcmp(other.data(), kGreeting, kGreetingBytes) != 0 || rank >= kRanksMax ||
      GetInt(other, kGreetingBytes + 4) != static_cast<uint32_t>(place.size)) {
    return absl::PermissionDeniedError("no rank of this gang");
  }
  status = socket.SendBytes(Proof(place.secret, is_listener ? 'L' : 'C', own, other));
  if (!status.ok()) return status;
  std::string proof(kProofBytes, '\0');
  status = socket.ReceiveBytes(proof.data(), proof.size());
  if (!status.ok()) return status;
  const std::string expected = Proof(place.secret, is_listener ? 'C' : 'L', other, own);
  if (CRYPTO_memcmp(proof.data(), expected.data(), kProofBytes) != 0) {
    return absl::PermissionDeniedError("it does not know the gang's secret");
  }
  socket.SetReceiveLimit(std::chrono::milliseconds(0));
  return static_cast<int>(rank);
}

}  // namespace macrame::transport
