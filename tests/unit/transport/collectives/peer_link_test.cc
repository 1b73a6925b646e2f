#include "transport/collectives/peer_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace macrame::transport {
namespace {

// A connection that is sealed, or not.
GangConnection End(int fd, bool is_private, char send, char receive) {
  return MakeConnection(StreamSocket(fd),
                        {1, is_private, SecretBytes(std::string(kTrafficSecretBytes, send)),
                         SecretBytes(std::string(kTrafficSecretBytes, receive))});
}

std::vector<std::byte> Numbers(size_t size, int first) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + i * 7);
  return bytes;
}

// Two links with somebody between who has what passes in hand.
struct Between {
  PeerLink sender, receiver;
  StreamSocket at_sender, at_receiver;

  Between() {
    int left[2], right[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
    sender.Adopt(End(left[0], false, 'a', 'b'));
    receiver.Adopt(End(right[0], false, 'b', 'a'));
    at_sender = StreamSocket(left[1]);
    at_receiver = StreamSocket(right[1]);
  }
  std::string Take(const std::vector<std::byte>& message) {
    sender.QueueSend(message);
    std::string passed;
    while (sender.has_sends()) {
      const auto sent = sender.PumpSend();
      EXPECT_TRUE(sent.ok()) << sent.status();
      std::string piece(*sent, '\0');
      EXPECT_TRUE(at_sender.ReceiveBytes(piece.data(), piece.size()).ok());
      passed += piece;
    }
    return passed;
  }
  // What the receiver makes of what it is given.
  absl::Status Give(const std::string& passed, std::vector<std::byte>& message) {
    receiver.QueueReceive(message);
    for (size_t at = 0; at < passed.size() && receiver.has_receives(); at += 5000) {
      EXPECT_TRUE(at_receiver.SendBytes(std::string_view(passed).substr(at, 5000)).ok());
      size_t got = 1;
      while (got > 0 && receiver.has_receives()) {
        const auto received = receiver.PumpReceive();
        if (!received.ok()) return received.status();
        got = *received;
      }
    }
    return receiver.has_receives() ? absl::UnavailableError("more is to come") : absl::OkStatus();
  }
};

TEST(PeerLink, MessagesOfEverySizeArriveInTheirOrder) {
  Between between;
  for (const size_t size : {size_t{0}, size_t{1}, kWireRecordBytes - 1, kWireRecordBytes,
                            kWireRecordBytes + 1, 3 * kWireRecordBytes, size_t{0}, size_t{8192}}) {
    const auto sent = Numbers(size, 3);
    std::vector<std::byte> got(size);
    const absl::Status given = between.Give(between.Take(sent), got);
    ASSERT_TRUE(given.ok()) << size << " " << given;
    EXPECT_EQ(got, sent) << size;
  }
}

TEST(PeerLink, WhatIsSentStaysAsItWas) {
  Between between;
  const auto sent = Numbers(2 * kWireRecordBytes, 5);
  auto copy = sent;
  between.Take(copy);
  EXPECT_EQ(copy, sent) << "a rank sends the same memory to several others";
}

TEST(PeerLink, AlteredBytesEndIt) {
  const auto sent = Numbers(40, 1);
  const size_t whole = 16 + sent.size() + kSealBytes;
  for (size_t at = 0; at < whole; ++at) {
    Between between;
    std::string passed = between.Take(sent);
    ASSERT_EQ(passed.size(), whole);
    passed[at] = static_cast<char>(passed[at] ^ 0x40);
    std::vector<std::byte> got(sent.size());
    EXPECT_TRUE(absl::IsDataLoss(between.Give(passed, got))) << at;
  }
}

TEST(PeerLink, RecordsOfOneMessageCannotChangePlaces) {
  Between between;
  const std::string passed = between.Take(Numbers(3 * kWireRecordBytes, 0));
  const size_t record = kWireRecordBytes + kSealBytes;
  const std::string swapped = passed.substr(0, 16) + passed.substr(16 + record, record) +
                              passed.substr(16, record) + passed.substr(16 + 2 * record);
  std::vector<std::byte> got(3 * kWireRecordBytes);
  EXPECT_TRUE(absl::IsDataLoss(between.Give(swapped, got)));
}

TEST(PeerLink, ARepeatedMessageIsNone) {
  Between between;
  const auto sent = Numbers(100, 9);
  std::string passed = between.Take(sent);
  std::vector<std::byte> got(sent.size());
  ASSERT_TRUE(between.Give(passed, got).ok());
  EXPECT_TRUE(absl::IsDataLoss(between.Give(passed, got))) << "its number is the last one's";
  Between again;
  passed = again.Take(sent);
  ASSERT_TRUE(again.Give(passed, got).ok());
  passed[4] = 1;  // the number that is expected
  EXPECT_TRUE(absl::IsDataLoss(again.Give(passed, got)));
}

// A header says nothing that is believed: an empty message is sealed too.
TEST(PeerLink, NobodyElseCanMakeAnEmptyMessage) {
  Between between;
  std::string passed = between.Take({});
  EXPECT_EQ(passed.size(), 16 + kSealBytes);
  std::fill(passed.begin() + 16, passed.end(), '\0');
  std::vector<std::byte> none;
  EXPECT_TRUE(absl::IsDataLoss(between.Give(passed, none)));
}

}  // namespace
}  // namespace macrame::transport
