#include "transport/gang/sealed_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace macrame::transport {
namespace {

// A frame of so many bytes takes this much of the connection.
constexpr size_t Taken(size_t bytes) { return 4 + bytes + kSealBytes; }

// Two sealed ends with somebody between who has all that passes in hand.
struct Between {
  StreamSocket at_sender, at_receiver;
  SealedSocket sender, receiver;

  Between() {
    int left[2], right[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
    sender = End(left[0], 'a', 'b');
    receiver = End(right[0], 'b', 'a');
    at_sender = StreamSocket(left[1]);
    at_receiver = StreamSocket(right[1]);
    receiver.SetReceiveLimit(std::chrono::milliseconds(2000));
  }
  static SealedSocket End(int fd, char send, char receive) {
    return SealedSocket(MakeConnection(
        StreamSocket(fd), {1, false, SecretBytes(std::string(kTrafficSecretBytes, send)),
                           SecretBytes(std::string(kTrafficSecretBytes, receive))}));
  }
  // What passes when `text` is sent.
  std::string Take(const std::string& text) {
    EXPECT_TRUE(sender.SendFrame(text).ok());
    std::string bytes(Taken(text.size()), '\0');
    EXPECT_TRUE(at_sender.ReceiveBytes(bytes.data(), bytes.size()).ok());
    return bytes;
  }
  void Give(const std::string& bytes) { ASSERT_TRUE(at_receiver.SendBytes(bytes).ok()); }
};

TEST(SealedSocketTest, FramesArriveAndCannotBeRead) {
  Between between;
  for (const std::string& text : {std::string("What is my salary?"), std::string(),
                                  std::string(kFrameBytesMax, 'x'), std::string("next")}) {
    const std::string passed = between.Take(text);
    EXPECT_TRUE(text.empty() || passed.find(text) == std::string::npos);
    between.Give(passed);
    const auto got = between.receiver.ReceiveFrame();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, text);
  }
  EXPECT_FALSE(between.sender.SendFrame(std::string(kFrameBytesMax + 1, 'x')).ok());
}

TEST(SealedSocketTest, EveryAlteredByteEndsTheConnection) {
  const std::string text = "tokens";
  for (size_t at = 0; at < Taken(text.size()); ++at) {
    Between between;
    std::string passed = between.Take(text), next = between.Take(text);
    passed[at] = static_cast<char>(passed[at] ^ 0x10);
    between.Give(passed);
    between.Give(next + std::string(kFrameBytesMax / 8, '\0'));  // what a longer frame may want
    between.at_receiver.ShutDown();
    const auto got = between.receiver.ReceiveFrame();
    ASSERT_FALSE(got.ok()) << at;
    EXPECT_FALSE(between.receiver.ReceiveFrame().ok()) << "no frame comes after it";
    if (at >= 4) {
      EXPECT_TRUE(absl::IsDataLoss(got.status())) << got.status();
      EXPECT_NE(got.status().message().find("altered, repeated, left out"), std::string::npos);
    }
  }
}

TEST(SealedSocketTest, RepeatedSwappedAndDroppedFramesEndIt) {
  Between repeated;
  const std::string once = repeated.Take("once");
  repeated.Give(once + once);
  EXPECT_EQ(repeated.receiver.ReceiveFrame().value(), "once");
  EXPECT_TRUE(absl::IsDataLoss(repeated.receiver.ReceiveFrame().status()));

  Between swapped;
  const std::string first = swapped.Take("one"), second = swapped.Take("two");
  swapped.Give(second + first);
  EXPECT_TRUE(absl::IsDataLoss(swapped.receiver.ReceiveFrame().status()));

  Between dropped;
  dropped.Take("lost");
  dropped.Give(dropped.Take("next"));
  EXPECT_TRUE(absl::IsDataLoss(dropped.receiver.ReceiveFrame().status()));
}

TEST(SealedSocketTest, OnesOwnFrameSentBackIsNone) {
  Between between;
  const std::string passed = between.Take("to the other side");
  ASSERT_TRUE(between.at_sender.SendBytes(passed).ok());
  EXPECT_TRUE(absl::IsDataLoss(between.sender.ReceiveFrame().status()));
}

TEST(SealedSocketTest, EveryTruncationIsALossAndNeverAShorterFrame) {
  const std::string text = "tokens";
  for (size_t size = 0; size < Taken(text.size()); ++size) {
    Between between;
    between.Give(between.Take(text).substr(0, size));
    between.at_receiver.ShutDown();
    EXPECT_TRUE(absl::IsUnavailable(between.receiver.ReceiveFrame().status())) << size;
  }
}

}  // namespace
}  // namespace macrame::transport
