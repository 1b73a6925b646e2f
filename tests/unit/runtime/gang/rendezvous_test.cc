#include "runtime/gang/rendezvous.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/unit/free_port.h"
#include "transport/stream_socket.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

std::string FreeAddress() { return absl::StrCat("127.0.0.1:", FreePort()); }

std::vector<absl::Status> Meet(const std::vector<RendezvousPlace>& places, milliseconds limit) {
  std::vector<absl::Status> ends(places.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < places.size(); ++i) {
    threads.emplace_back(
        [&ends, &places, limit, i] { ends[i] = MeetAtRendezvous(places[i], limit); });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(Rendezvous, AllComeAndTheAddressIsFreeAgain) {
  const std::string address = FreeAddress(), secret(32, 's');
  for (int round = 0; round < 3; ++round) {
    for (const absl::Status& end :
         Meet({{0, 3, address, secret}, {1, 3, address, secret}, {2, 3, address, secret}},
              milliseconds(10'000))) {
      EXPECT_TRUE(end.ok()) << end;
    }
    EXPECT_TRUE(transport::StreamSocket::Listen(address).ok()) << "whoever meets there next";
  }
}

// Macs without a LAN: each calls rank 0 at the end of its own cable.
TEST(Rendezvous, RankZeroIsMetAtMoreThanOneOfItsAddresses) {
  const std::string secret(32, 's'), address = FreeAddress();
  const std::string port = address.substr(address.rfind(':'));
  // A Mac has but one address on its loopback interface unless it is given more.
  const bool has_second = transport::StreamSocket::Listen("127.0.0.2:0").ok();
  for (const absl::Status& end :
       Meet({{0, 3, "0.0.0.0" + port, secret},
             {1, 3, "127.0.0.1" + port, secret},
             {2, 3, (has_second ? "127.0.0.2" : "127.0.0.1") + port, secret}},
            milliseconds(10'000))) {
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST(Rendezvous, WhoNeverCameIsNamed) {
  const std::string address = FreeAddress(), secret(32, 's');
  const auto ends = Meet({{0, 3, address, secret}, {1, 3, address, secret}}, milliseconds(300));
  EXPECT_EQ(ReasonOf(ends[0]).code(), "RENDEZVOUS_UNREACHABLE");
  EXPECT_NE(ends[0].message().find("rank 2 did not come"), absl::string_view::npos) << ends[0];
  EXPECT_EQ(ReasonOf(ends[1]).code(), "RENDEZVOUS_UNREACHABLE") << ends[1];
}

TEST(Rendezvous, AnAddressThatIsNotThereIsNamed) {
  const std::string address = FreeAddress();
  const auto ends = Meet({{1, 2, address, std::string(32, 's')}}, milliseconds(300));
  EXPECT_EQ(ReasonOf(ends[0]).code(), "RENDEZVOUS_UNREACHABLE");
  EXPECT_NE(ends[0].message().find(address), absl::string_view::npos) << ends[0];
}

TEST(Rendezvous, AnUnknownCallerIsNotARank) {
  const std::string address = FreeAddress();
  const auto ends =
      Meet({{0, 2, address, std::string(32, 's')}, {1, 2, address, std::string(32, 'x')}},
           milliseconds(500));
  EXPECT_FALSE(ends[0].ok());
  EXPECT_FALSE(ends[1].ok());
}

TEST(Rendezvous, OneRankMeetsNobodyAndFreesTheAddress) {
  auto listener = transport::StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address = absl::StrCat("127.0.0.1:", listener.LocalPort());
  RendezvousPlace alone{0, 1, address, std::string(32, 's')};
  alone.listen_fd = listener.Release();
  EXPECT_TRUE(MeetAtRendezvous(alone, milliseconds(0)).ok());
  EXPECT_TRUE(transport::StreamSocket::Listen(address).ok()) << "it is the library's from here on";
}

TEST(Rendezvous, AllThatDidNotComeAreNamed) {
  const std::string address = FreeAddress(), secret(32, 's');
  const auto ends = Meet({{0, 5, address, secret}, {2, 5, address, secret}}, milliseconds(300));
  EXPECT_EQ(ReasonOf(ends[0]).code(), "RENDEZVOUS_UNREACHABLE");
  EXPECT_NE(ends[0].message().find("rank 1, 3, 4 did not come to the rendezvous at " + address),
            absl::string_view::npos)
      << ends[0];
  EXPECT_NE(ends[1].message().find("rank 2 can't reach rank 0 at " + address),
            absl::string_view::npos)
      << ends[1];
}

TEST(Rendezvous, ARankOfAnotherEpochDoesNotCount) {
  const std::string address = FreeAddress(), secret(32, 's');
  const auto ends =
      Meet({{0, 2, address, secret, 7}, {1, 2, address, secret, 6}}, milliseconds(500));
  EXPECT_NE(ends[0].message().find("rank 1 did not come"), absl::string_view::npos) << ends[0];
  EXPECT_EQ(ReasonOf(ends[1]).code(), "RENDEZVOUS_UNREACHABLE") << ends[1];
}

TEST(Rendezvous, SilentCallersHoldNobodyUp) {
  auto listener = transport::StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address = absl::StrCat("127.0.0.1:", listener.LocalPort());
  std::vector<transport::StreamSocket> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(transport::StreamSocket::Connect(address, milliseconds(1000)).value());
  }
  RendezvousPlace host{0, 3, address, std::string(32, 's')};
  host.listen_fd = listener.Release();
  const auto begun = std::chrono::steady_clock::now();
  for (const absl::Status& end :
       Meet({host, {1, 3, address, std::string(32, 's')}, {2, 3, address, std::string(32, 's')}},
            milliseconds(30'000))) {
    EXPECT_TRUE(end.ok()) << end;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(2000));
  EXPECT_TRUE(transport::StreamSocket::Listen(address).ok()) << "it is the library's from here on";
}

}  // namespace
}  // namespace macrame::runtime::engine
