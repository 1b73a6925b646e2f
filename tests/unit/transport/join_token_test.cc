#include "transport/join_token.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

std::string Bytes(std::mt19937& random, size_t count) {
  std::string bytes;
  while (bytes.size() < count) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

std::string Hex(std::mt19937& random, size_t digits) {
  std::string text;
  while (text.size() < digits) text.push_back("0123456789abcdef"[random() % 16]);
  return text;
}

JoinToken RandomToken(std::mt19937& random) {
  JoinToken token;
  token.id = Hex(random, 2 * kJoinTokenIdBytes);
  token.secret = Bytes(random, kJoinTokenSecretBytes);
  token.authority_digest = Bytes(random, 32);
  token.port = static_cast<int>(1 + random() % 65535);
  for (uint32_t left = 1 + random() % kJoinAddressesMax; left > 0; --left) {
    token.ips.push_back(random() % 2 == 0
                            ? absl::StrCat("10.", random() % 256, ".", random() % 256, ".7")
                            : absl::StrCat("fd00::", Hex(random, 3), ":", Hex(random, 4)));
  }
  return token;
}

bool IsSame(const JoinToken& a, const JoinToken& b) {
  return a.id == b.id && a.secret == b.secret && a.authority_digest == b.authority_digest &&
         a.port == b.port && a.ips == b.ips;
}

class JoinTokenLine : public ::testing::Test {
 protected:
  JoinTokenLine() : token_(RandomToken(random_)), line_(FormatJoinToken(token_)) {}
  // The line with `with` in the place of the first `what`.
  std::string With(const std::string& what, const std::string& with) const {
    std::string line = line_;
    const size_t at = line.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return line.replace(at, what.size(), with);
  }

  std::mt19937 random_{7};
  const JoinToken token_;
  const std::string line_;
};

TEST_F(JoinTokenLine, AnyTokenIsReadBackAndNoShellChangesIt) {
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const JoinToken token = RandomToken(random);
    const std::string line = FormatJoinToken(token);
    EXPECT_LE(line.size(), kJoinTokenTextMax);
    EXPECT_EQ(line.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;!#~%"), std::string::npos) << line;
    const auto read = ParseJoinToken(line);
    ASSERT_TRUE(read.ok()) << line << read.status();
    EXPECT_TRUE(IsSame(*read, token)) << line;
  }
}

TEST_F(JoinTokenLine, AnAlteredCharacterIsRefusedOrMeansSomethingElse) {
  for (size_t at = 0; at < line_.size(); ++at) {
    for (const char other : {'x', '0', 'f', '.', '@', ',', ':', ' ', 'A', '\0'}) {
      std::string altered = line_;
      if (altered[at] == other) continue;
      altered[at] = other;
      const auto read = ParseJoinToken(altered);
      if (read.ok()) {
        EXPECT_FALSE(IsSame(*read, token_)) << altered;
        continue;
      }
      EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(ReasonOf(read.status()).code(), reasons::kTokenMalformed);
      // Who mistyped a secret does not find it in a log.
      EXPECT_EQ(std::string(read.status().message()).find(line_.substr(27, 20)), std::string::npos);
    }
  }
}

TEST_F(JoinTokenLine, WhatIsAddedOrTwiceThereIsRefused) {
  const std::string port = absl::StrCat("@", token_.port, ",");
  const std::string ip = token_.ips[0];
  for (const std::string& line : {line_ + "@",
                                  line_ + ",",
                                  " " + line_,
                                  line_ + "\n",
                                  line_ + " " + line_,
                                  line_ + "@" + line_,
                                  With("macrame1", "macrame2"),
                                  With("macrame1.", "macrame1.."),
                                  With("macrame1.", ""),
                                  With(port, "@,"),
                                  With(port, "@0,"),
                                  With(port, "@-1,"),
                                  With(port, "@65536,"),
                                  With(port, "@99999999999,"),
                                  With(port, "@port,"),
                                  With(port, "@80.5,"),
                                  With(port, ","),
                                  With(ip, "mini-1.local"),
                                  With(ip, "10.0.0"),
                                  With(ip, "[fd00::1]"),
                                  With(ip, ""),
                                  With(token_.id, token_.id + "00"),
                                  With(token_.id, token_.id.substr(2)),
                                  line_.substr(0, line_.find(','))}) {
    EXPECT_FALSE(ParseJoinToken(line).ok()) << line;
  }
}

TEST_F(JoinTokenLine, DigitsAreSmallAndOfOneAlphabet) {
  std::string line = line_;
  const size_t letter = line.find_first_of("abcdef", line.find('.'));
  ASSERT_NE(letter, std::string::npos);
  line[letter] = static_cast<char>(std::toupper(line[letter]));
  EXPECT_FALSE(ParseJoinToken(line).ok()) << line;
}

TEST_F(JoinTokenLine, AsManyAddressesAsFitAndNoneMore) {
  JoinToken token = token_;
  token.ips.assign(kJoinAddressesMax, "fd12:3456:789a:bcde:f012:3456:789a:bcde");
  EXPECT_TRUE(ParseJoinToken(FormatJoinToken(token)).ok());
  token.ips.push_back("10.0.0.1");
  EXPECT_FALSE(ParseJoinToken(FormatJoinToken(token)).ok());
}

TEST(JoinProofTest, EachPartChangesIt) {
  const std::string secret(32, 's'), exported(32, 'e'), id(16, '0');
  const NodeId node(std::string(32, '1'));
  std::set<std::string> proofs = {JoinProof(secret, exported, id, node, "request")};
  EXPECT_EQ(proofs.begin()->size(), 32u);
  EXPECT_TRUE(proofs.contains(JoinProof(secret, exported, id, node, "request")));
  EXPECT_TRUE(proofs.insert(JoinProof(std::string(32, 't'), exported, id, node, "request")).second);
  EXPECT_TRUE(proofs.insert(JoinProof(secret, std::string(32, 'f'), id, node, "request")).second);
  EXPECT_TRUE(
      proofs.insert(JoinProof(secret, exported, std::string(16, '1'), node, "request")).second);
  EXPECT_TRUE(
      proofs.insert(JoinProof(secret, exported, id, NodeId(std::string(32, '2')), "request"))
          .second);
  EXPECT_TRUE(proofs.insert(JoinProof(secret, exported, id, node, "requesu")).second);
  EXPECT_TRUE(proofs.insert(JoinProof(secret, exported, id, node, "")).second);
}

}  // namespace
}  // namespace macrame::transport
