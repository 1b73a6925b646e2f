#include "transport/parsed_size.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "macrame/v1/rank.pb.h"
#include "transport/peer_channel.h"

namespace macrame::transport {
namespace {

using namespace std::string_literals;  // bytes that are zero

// In pieces, as gRPC's buffers are.
std::optional<size_t> Counted(const google::protobuf::Message& message, const std::string& bytes,
                              int piece = 16384) {
  google::protobuf::io::ArrayInputStream in(bytes.data(), static_cast<int>(bytes.size()), piece);
  return ParsedBytes(*message.GetDescriptor(), &in, bytes.size());
}

std::string Times(size_t count, const std::string& bytes) {
  std::string all;
  all.reserve(count * bytes.size());
  for (size_t i = 0; i < count; ++i) all += bytes;
  return all;
}

std::string Varint(size_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Against what the parsed message says of itself, which leaves out what lists have in reserve.
void ExpectCounted(const std::string& what, const std::string& bytes, double most) {
  SCOPED_TRACE(what);
  v1::GenerateRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  for (const int piece : {1, 7, 16384}) {
    const std::optional<size_t> counted = Counted(request, bytes, piece);
    ASSERT_TRUE(counted.has_value());
    EXPECT_GE(*counted, request.SpaceUsedLong());
    EXPECT_LE(static_cast<double>(*counted), most * static_cast<double>(request.SpaceUsedLong()));
  }
}

TEST(ParsedSize, NothingTakesMoreThanIsCounted) {
  v1::GenerateRequest request;
  ExpectCounted("nothing", "", 1.1);
  request.set_prompt(std::string(100'000, 'x'));
  ExpectCounted("a text", request.SerializeAsString(), 1.1);
  request.Clear();
  for (int i = 0; i < 1000; ++i) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(std::string(static_cast<size_t>(i), 'x'));
    request.add_stop(absl::StrCat("stop ", i));
    request.add_prompt_token_ids(i * i);
    (*request.mutable_sampling()->mutable_logit_bias())[i] = 1.5F;
  }
  ExpectCounted("a chat", request.SerializeAsString(), 2);
  for (const int count : {1, 2, 3, 4, 7, 8, 15, 16, 1023}) {
    request.Clear();
    for (int i = 0; i < count; ++i) request.add_prompt_token_ids(i);
    ExpectCounted(absl::StrCat(count, " ids"), request.SerializeAsString(), 3);
  }
  ExpectCounted("empty messages", Times(3000, "\x1a\x00"s), 1.3);
  ExpectCounted("empty texts", Times(3000, "\x3a\x00"s), 3);
  ExpectCounted("numbers", Times(3000, "\xf8\x03\x07"s), 9);
  ExpectCounted("unknown numbers", Times(3000, "\xf8\x7f\x07"s), 4);
  ExpectCounted("unknown texts", Times(3000, "\xfa\x7f\x00"s), 4);
  ExpectCounted("unknown groups", Times(3000, "\xfb\x7f\xfc\x7f"s), 4);
  ExpectCounted("an unknown number in each message", Times(3000, "\x1a\x02\x78\x00"s), 3);
  ExpectCounted("numbers in the place of a text", Times(3000, "\x10\x07"s), 4);
  ExpectCounted("texts in the place of a number", Times(3000, "\x2a\x00"s), 6);
  ExpectCounted("numbers of four bytes in the place of others", Times(3000, "\x2d\0\0\0\0"s), 4);
  ExpectCounted("the same in a message of numbers",
                "\x32" + Varint(6000) + Times(3000, "\x08\x00"s), 4);
}

TEST(ParsedSize, CountingEndsSoonAboveTheBound) {
  const std::string inner = Times(kMessageBytesMax / 2 - 16, "\x08\x00"s);
  for (const std::string& bytes :
       {Times(kMessageBytesMax / 2, "\x1a\x00"s), Times(kMessageBytesMax / 2, "\x3a\x00"s),
        Times(kMessageBytesMax / 4, "\xfb\x7f\xfc\x7f"s),
        Times(kMessageBytesMax / 4, "\xf8\x7f\x07"s), "\x32" + Varint(inner.size()) + inner}) {
    const std::optional<size_t> counted = Counted(v1::GenerateRequest(), bytes);
    ASSERT_TRUE(counted.has_value());
    EXPECT_GT(*counted, kParsedBytesMax);
    EXPECT_LT(*counted, kParsedBytesMax + 4096);
  }
}

// What clients send is far below it: all that a message may have, as one text, and a million ids.
TEST(ParsedSize, WhatIsSentInEarnestFits) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(kMessageBytesMax - 64, 'x'));
  EXPECT_LE(Counted(request, request.SerializeAsString()).value_or(SIZE_MAX), kParsedBytesMax);
  request.Clear();
  for (int i = 0; i < 1'000'000; ++i) request.add_prompt_token_ids(i % 150'000);
  EXPECT_LE(Counted(request, request.SerializeAsString()).value_or(SIZE_MAX), kParsedBytesMax);
}

// A part that says it is longer than what it is part of is read by the parser to the end that it
// says, before it fails: so nothing but what is whole may be counted.
TEST(ParsedSize, WhatIsNoMessageIsNotCounted) {
  const std::string many = Times(10'000, "\x32\x00"s);
  const std::vector<std::string> wrong = {
      "\x1a",
      "\xff",
      "\x1a\x7f"s + std::string(10, 'x'),
      "\x22\xff\xff\xff\xff\x0f"s,
      Times(50, "\xfb\x7f"s),
      Times(200, "\xfb\x7f"s) + Times(200, "\xfc\x7f"s),
      "\xfc\x7f"s + many,
      "\x00\x00"s,
      "\x03\x04"s,
      "\x0c"s,
      "\x32\x02\x1a" + Varint(many.size()) + many,
      "\x32\x01\xf8\x7f\x00"s,
      "\x2d\x00\x00"s,
  };
  for (const std::string& bytes : wrong) {
    v1::GenerateRequest request;
    EXPECT_FALSE(request.ParseFromString(bytes)) << absl::CHexEscape(bytes.substr(0, 40));
    for (const int piece : {1, 16384}) {
      EXPECT_FALSE(Counted(request, bytes, piece).has_value())
          << absl::CHexEscape(bytes.substr(0, 40));
    }
  }
}

// What one takes the other takes: bytes by chance, and messages with one byte changed.
TEST(ParsedSize, TakesWhatTheParserTakes) {
  std::mt19937 random(7);
  v1::GenerateRequest honest;
  honest.set_prompt("hello");
  honest.add_messages()->set_content("hi");
  honest.mutable_sampling()->set_temperature(0.5);
  (*honest.mutable_sampling()->mutable_logit_bias())[7] = 1;
  honest.add_prompt_token_ids(300);
  const std::string whole = honest.SerializeAsString();
  size_t taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    if (round % 2 == 0) {
      bytes.resize(random() % 24);
      for (char& byte : bytes) byte = static_cast<char>(random());
    } else {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::GenerateRequest parsed;
    const bool is_taken = parsed.ParseFromString(bytes);
    const std::optional<size_t> counted = Counted(parsed, bytes);
    // Texts that are no UTF-8 are refused by the parser alone.
    if (is_taken) {
      ++taken;
      ASSERT_TRUE(counted.has_value()) << absl::CHexEscape(bytes);
      ASSERT_GE(*counted, parsed.SpaceUsedLong()) << absl::CHexEscape(bytes);
    }
  }
  EXPECT_GT(taken, 1000u);
}

}  // namespace
}  // namespace macrame::transport
