#include "transport/gang/record_cipher.h"

#include <gtest/gtest.h>

#include <boost/algorithm/hex.hpp>
#include <string>
#include <vector>

namespace macrame::transport {
namespace {

std::string FromHex(const char* hex) { return boost::algorithm::unhex(std::string(hex)); }

SecretBytes Secret(char fill = 'k') { return SecretBytes(std::string(kTrafficSecretBytes, fill)); }

// A record and its seal, as they go over a connection.
struct Sealed {
  std::vector<std::byte> bytes;
  std::byte seal[kSealBytes];
};

std::span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Sealed Seal(RecordCipher& cipher, std::string_view text, std::string_view beside = "") {
  Sealed sealed;
  sealed.bytes.resize(text.size());
  cipher.Seal(BytesOf(beside), BytesOf(text), sealed.bytes.data(), sealed.seal);
  return sealed;
}

std::string Open(RecordCipher& cipher, Sealed sealed, std::string_view beside = "") {
  const absl::Status opened = cipher.Open(BytesOf(beside), sealed.bytes, sealed.seal);
  if (!opened.ok()) return "REFUSED";
  return {reinterpret_cast<const char*>(sealed.bytes.data()), sealed.bytes.size()};
}

struct Pair {
  RecordCipher seal{RecordCipher::Use::kSeal, Secret()};
  RecordCipher open{RecordCipher::Use::kOpen, Secret()};
};

// RFC 5869, appendix A, cases 1 and 3.
TEST(DeriveKeyTest, GivesWhatTheStandardGives) {
  const SecretBytes key(std::string(22, '\x0b'));
  EXPECT_EQ(
      DeriveKey(key, FromHex("000102030405060708090a0b0c"), FromHex("f0f1f2f3f4f5f6f7f8f9"), 42)
          .view(),
      FromHex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b8"
              "87185865"));
  EXPECT_EQ(DeriveKey(key, "", "", 42).view(),
            FromHex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4"
                    "b61a96c8"));
}

TEST(RecordCipherTest, RecordsOpenInTheirOrder) {
  Pair pair;
  for (const std::string text : {"one", "", "three", "one"}) {
    EXPECT_EQ(Open(pair.open, Seal(pair.seal, text, "header"), "header"), text);
  }
}

TEST(RecordCipherTest, NothingOfTheTextIsInTheRecord) {
  Pair pair;
  const std::string text(64, 'p');
  const Sealed first = Seal(pair.seal, text), second = Seal(pair.seal, text);
  EXPECT_NE(first.bytes, second.bytes) << "the same text twice must not be seen to be the same";
  for (const Sealed* sealed : {&first, &second}) {
    const std::string bytes(reinterpret_cast<const char*>(sealed->bytes.data()), text.size());
    EXPECT_EQ(bytes.find("ppp"), std::string::npos);
  }
}

TEST(RecordCipherTest, WhatWasAlteredDoesNotOpen) {
  const std::string text = "a step of tokens";
  for (size_t bit = 0; bit < (text.size() + kSealBytes) * 8; ++bit) {
    Pair pair;
    Sealed sealed = Seal(pair.seal, text, "header");
    std::byte& byte =
        bit / 8 < text.size() ? sealed.bytes[bit / 8] : sealed.seal[bit / 8 - text.size()];
    byte ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(Open(pair.open, sealed, "header"), "REFUSED") << bit;
  }
  Pair pair;
  EXPECT_EQ(Open(pair.open, Seal(pair.seal, text, "header"), "hfader"), "REFUSED");
}

TEST(RecordCipherTest, WhatWasRepeatedSkippedOrSwappedDoesNotOpen) {
  Pair repeated;
  const Sealed once = Seal(repeated.seal, "once");
  EXPECT_EQ(Open(repeated.open, once), "once");
  EXPECT_EQ(Open(repeated.open, once), "REFUSED");
  Pair skipped;
  Seal(skipped.seal, "first");
  EXPECT_EQ(Open(skipped.open, Seal(skipped.seal, "second")), "REFUSED");
}

TEST(RecordCipherTest, AnotherSecretOpensNothing) {
  Pair pair;
  RecordCipher other(RecordCipher::Use::kOpen, Secret('x'));
  EXPECT_EQ(Open(other, Seal(pair.seal, "text")), "REFUSED");
}

TEST(RecordCipherTest, BothSidesGoOnToTheNextKeyAlike) {
  constexpr uint64_t kPerKey = 3;
  RecordCipher seal(RecordCipher::Use::kSeal, Secret(), kPerKey);
  RecordCipher open(RecordCipher::Use::kOpen, Secret(), kPerKey);
  RecordCipher first_key_only(RecordCipher::Use::kOpen, Secret(), 1000);
  for (int i = 0; i < 10; ++i) {
    const Sealed sealed = Seal(seal, "record");
    EXPECT_EQ(Open(open, sealed), "record") << i;
    EXPECT_EQ(Open(first_key_only, sealed), i < 3 ? "record" : "REFUSED") << i;
  }
}

}  // namespace
}  // namespace macrame::transport
