#pragma once

// Keys for the HTTP API: how one is written, what is kept of it, and what it may do. Pure.
//
// A key is "mk-ID-SECRET": a public id of 12 hex digits and a secret of 64, 256 random bits. Only
// the secret's SHA-256 is kept. That is the right digest for it: slow ones (bcrypt, scrypt) make up
// for passwords that can be guessed, and 256 random bits can't, so that a slow digest would cost
// each request milliseconds and protect nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "macrame/v1/access.pb.h"

namespace macrame::agentd {

inline constexpr size_t kKeyIdBytes = 6;
inline constexpr size_t kKeySecretBytes = 32;
inline constexpr size_t kKeysMax = 512;
inline constexpr size_t kKeyNameBytesMax = 100;
inline constexpr size_t kKeyModelsMax = 64;
inline constexpr size_t kKeyModelBytesMax = 200;
inline constexpr uint64_t kAccessFileMsMax = 400ull * 24 * 60 * 60 * 1000;
inline constexpr uint32_t kKeyLimitMax = 1'000'000'000;

// What a key may do, as bits.
inline constexpr uint32_t kScopeInfer = 1;  // ask models
inline constexpr uint32_t kScopeRead = 2;   // see how the cluster is: metrics, the dashboard's data
inline constexpr uint32_t kScopeOperate = 4;  // load and unload models; includes read
inline constexpr uint32_t kScopeAdmin = 8;    // keys and nodes; includes all others

// 0: there is no such scope.
uint32_t ScopeBit(absl::string_view name);
// With what the given ones include.
uint32_t ScopesOf(const v1::ApiKey& key);
// "infer or read".
std::string ScopeNames(uint32_t scopes);

// `id` and `secret` in hex.
std::string FormatApiKey(absl::string_view id, absl::string_view secret);
struct ApiKeyText {
  std::string id;
  std::string secret;
};
std::optional<ApiKeyText> ParseApiKey(absl::string_view text);
// 32 bytes, of the secret in hex.
std::string KeyDigest(absl::string_view secret);

// What somebody asks for when a key is made. BAD_REQUEST (INVALID_ARGUMENT) names what is wrong.
absl::Status CheckNewKey(const v1::ApiKey& key, uint64_t now_unix_ms);

// All keys of the cluster, ended ones too.
class KeyTable {
 public:
  KeyTable() = default;
  explicit KeyTable(std::map<std::string, v1::ApiKey> keys) : keys_(std::move(keys)) {}

  bool empty() const { return keys_.empty(); }
  const std::map<std::string, v1::ApiKey>& keys() const { return keys_; }
  // The key whose secret `text` has, ended or not. Null: none. Takes as long for an unknown id as
  // for a wrong secret, and compares in constant time.
  const v1::ApiKey* Find(absl::string_view text) const;
  // The key with this id is there and has not ended.
  bool IsInForce(const std::string& id, uint64_t now_unix_ms) const;

 private:
  std::map<std::string, v1::ApiKey> keys_;  // by id
};

}  // namespace macrame::agentd
