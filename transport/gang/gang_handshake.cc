#include "transport/gang/gang_handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "transport/gang/record_cipher.h"

namespace macrame::transport {
namespace {

constexpr std::string_view kGreeting = "macrame2";
constexpr uint8_t kPrivate = 1;  // of a message's flags
constexpr std::string_view kUnproven = "it does not know the gang's secret";

template <typename T>
void Put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
}

template <typename T>
T Take(std::string_view& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  bytes.remove_prefix(sizeof(T));
  return static_cast<T>(value);
}

absl::Status Refused(std::string why) { return absl::PermissionDeniedError(std::move(why)); }

std::string Proof(const SecretBytes& secret, std::string_view label, std::string_view said) {
  const SecretBytes key = DeriveKey(secret, "", "macrame handshake", kHandshakeProofBytes);
  std::string text(label);
  text.append(said);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return std::string(reinterpret_cast<char*>(digest), size);
}

// In constant time. `message` ends with its proof.
bool EndsWithProof(std::string_view message, const SecretBytes& secret, std::string_view label,
                   std::string_view said_before) {
  const std::string_view proof = message.substr(message.size() - kHandshakeProofBytes);
  std::string said(said_before);
  said.append(message.substr(0, message.size() - kHandshakeProofBytes));
  return CRYPTO_memcmp(proof.data(), Proof(secret, label, said).data(), proof.size()) == 0;
}

// `said` has a message without its proof at its end.
void AddProof(const SecretBytes& secret, std::string_view label, std::string& said) {
  said.append(Proof(secret, label, said));
}

constexpr std::string_view kHelloLabel = "hello", kAnswerLabel = "answer", kFinishLabel = "finish";

// One direction's: `label` says whose sending it is.
SecretBytes Traffic(const GangMember& own, std::string_view said, std::string_view label) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const int made =
      EVP_Digest(said.data(), said.size(), digest, &size, EVP_sha256(), /*impl=*/nullptr);
  MACRAME_CHECK(made == 1) << "OpenSSL: SHA-256";
  // Both nonces are in what was said.
  return DeriveKey(own.secret, {reinterpret_cast<char*>(digest), size}, label, kTrafficSecretBytes);
}

GangAgreement Agreed(const GangMember& own, uint32_t other, bool is_private, std::string_view said,
                     bool is_caller) {
  GangAgreement agreement;
  agreement.rank = other;
  agreement.is_private = is_private;
  if (is_private) return agreement;
  SecretBytes caller = Traffic(own, said, "macrame caller's traffic");
  SecretBytes listener = Traffic(own, said, "macrame listener's traffic");
  agreement.send_secret = is_caller ? caller : listener;
  agreement.receive_secret = is_caller ? std::move(listener) : std::move(caller);
  return agreement;
}

void CheckNonce(std::string_view nonce) {
  MACRAME_CHECK(nonce.size() == kHandshakeNonceBytes) << "a nonce of " << nonce.size() << " bytes";
}

}  // namespace

CallerHandshake::CallerHandshake(const GangMember& own, uint32_t callee, bool is_private,
                                 const std::string& nonce)
    : own_(own), callee_(callee), wants_private_(is_private) {
  CheckNonce(nonce);
  hello_ = kGreeting;
  Put(hello_, static_cast<uint8_t>(own.channel));
  Put(hello_, static_cast<uint8_t>(is_private ? kPrivate : 0));
  Put(hello_, uint16_t{0});
  Put(hello_, own.rank);
  Put(hello_, own.size);
  Put(hello_, callee);
  Put(hello_, own.epoch);
  hello_.append(nonce);
  AddProof(own.secret, kHelloLabel, hello_);
  MACRAME_CHECK(hello_.size() == kHelloBytes) << "a hello of " << hello_.size() << " bytes";
}

absl::StatusOr<std::string> CallerHandshake::OnAnswer(std::string_view answer) {
  if (answer.size() != kAnswerBytes) return Refused("its answer is cut short");
  std::string_view rest = answer;
  rest.remove_prefix(kGreeting.size());
  if (answer.substr(0, kGreeting.size()) != kGreeting) {
    return Refused("whoever listens there is no rank of this version");
  }
  if (!EndsWithProof(answer, own_.secret, kAnswerLabel, hello_)) {
    return Refused(absl::StrCat("whoever listens there: ", kUnproven.data()));
  }
  const auto flags = Take<uint32_t>(rest);
  const auto rank = Take<uint32_t>(rest);
  if (rank != callee_) {
    return Refused(absl::StrCat("whoever listens there: is rank ", rank, ", not ", callee_));
  }
  is_private_ = wants_private_ && (flags & kPrivate) != 0;
  said_ = absl::StrCat(hello_, absl::string_view(answer.data(), answer.size()));
  return Proof(own_.secret, kFinishLabel, said_);
}

GangAgreement CallerHandshake::Agreement() const {
  return Agreed(own_, callee_, is_private_, said_, /*is_caller=*/true);
}

ListenerHandshake::ListenerHandshake(const GangMember& own,
                                     std::function<bool(uint32_t)> is_private, std::string nonce)
    : own_(own), private_of_(std::move(is_private)), nonce_(std::move(nonce)) {
  CheckNonce(nonce_);
}

absl::StatusOr<std::string> ListenerHandshake::OnHello(std::string_view hello) {
  if (hello.size() != kHelloBytes || hello.substr(0, kGreeting.size()) != kGreeting) {
    return Refused("it is no rank, or of another version");
  }
  if (!EndsWithProof(hello, own_.secret, kHelloLabel, "")) return Refused(std::string(kUnproven));
  std::string_view rest = hello.substr(kGreeting.size());
  const auto channel = Take<uint8_t>(rest);
  const auto flags = Take<uint8_t>(rest);
  Take<uint16_t>(rest);
  const auto rank = Take<uint32_t>(rest), size = Take<uint32_t>(rest);
  const auto callee = Take<uint32_t>(rest);
  const auto epoch = Take<uint64_t>(rest);
  if (channel != static_cast<uint8_t>(own_.channel)) return Refused("it calls for another channel");
  if (epoch != own_.epoch) {
    return Refused(absl::StrCat("it is of epoch ", epoch, ", this is epoch ", own_.epoch));
  }
  if (size != own_.size || rank >= size || rank == own_.rank || callee != own_.rank) {
    return Refused(absl::StrCat("it is rank ", rank, " of ", size, " and calls rank ", callee,
                                "; this is rank ", own_.rank, " of ", own_.size));
  }
  caller_ = rank;
  is_private_ = (flags & kPrivate) != 0 && private_of_ && private_of_(rank);
  std::string answer(kGreeting);
  Put(answer, static_cast<uint32_t>(is_private_ ? kPrivate : 0));
  Put(answer, own_.rank);
  answer.append(nonce_);
  said_ = std::string(hello) + answer;
  AddProof(own_.secret, kAnswerLabel, said_);
  answer = said_.substr(hello.size());
  MACRAME_CHECK(answer.size() == kAnswerBytes) << "an answer of " << answer.size() << " bytes";
  return answer;
}

absl::Status ListenerHandshake::OnFinish(std::string_view finish) {
  if (finish.size() == kFinishBytes && EndsWithProof(finish, own_.secret, kFinishLabel, said_)) {
    return absl::OkStatus();
  }
  return Refused(std::string(kUnproven));
}

GangAgreement ListenerHandshake::Agreement() const {
  return Agreed(own_, caller_, is_private_, said_, /*is_caller=*/false);
}

}  // namespace macrame::transport
