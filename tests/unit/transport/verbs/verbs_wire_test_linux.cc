// The wire of RDMA over devices in memory (fake_ibverbs.h): sums, credits, every refusal with the
// same reason on every rank, and what is left behind.

#include "transport/verbs/verbs_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <mutex>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/unit/transport/collectives/loopback_ranks.h"
#include "tests/unit/transport/verbs/fake_ibverbs.h"
#include "transport/collectives/group.h"
#include "transport/verbs/queue_pair.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using tests::FakeVerbs;
using tests::FakeVerbsDevice;
using tests::VerbsFault;
using Bytes = std::vector<std::byte>;

// "rdma_0_2": of rank 0, towards rank 2. Each cable has a subnet of its own.
std::string DeviceName(int from, int to) { return absl::StrCat("rdma_", from, "_", to); }

FakeVerbsDevice Device(int from, int to) {
  const int low = std::min(from, to), high = std::max(from, to);
  FakeVerbsDevice device;
  device.name = DeviceName(from, to);
  device.gids = {"fe80", absl::StrCat("10.", low, ".", high, ".", from == low ? 1 : 2)};
  return device;
}

Bytes Numbers(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class VerbsWireTest : public testing::Test {
 protected:
  void SetUp() override { FakeVerbs::Reset(); }
  void TearDown() override {
    EXPECT_THAT(FakeVerbs::Held(), testing::IsEmpty()) << "nothing is left behind";
    EXPECT_THAT(FakeVerbs::Complaints(), testing::IsEmpty());
    EXPECT_EQ(FakeVerbs::Overruns(), 0);
  }

  // A device of each rank towards each other.
  void Cable(int size) {
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        if (from != to) FakeVerbs::Add(Device(from, to));
      }
    }
  }

  static VerbsWireOptions Options(int rank, int size) {
    VerbsWireOptions options;
    for (int to = 0; to < size; ++to) {
      options.devices.push_back(to == rank ? "" : DeviceName(rank, to));
    }
    options.collective_timeout = milliseconds(10'000);
    return options;
  }

  using Body = std::function<void(int rank, std::unique_ptr<Wire> wire)>;
  using Adjust = std::function<void(int rank, VerbsWireOptions& options)>;
  void Run(int size, const Body& body, const Adjust& adjust = {}) {
    LoopbackRanks(size).Run([&](int rank, std::unique_ptr<Wire> side) {
      VerbsWireOptions options = Options(rank, size);
      if (adjust) adjust(rank, options);
      auto wire = ConnectVerbsWire(options, std::move(side));
      ASSERT_TRUE(wire.ok()) << rank << ": " << wire.status();
      body(rank, *std::move(wire));
    });
  }

  // How forming the group ended on each rank.
  std::vector<absl::Status> Refused(int size, const Adjust& adjust = {}) {
    std::vector<absl::Status> ends(static_cast<size_t>(size));
    const auto begun = steady_clock::now();
    LoopbackRanks(size).Run([&](int rank, std::unique_ptr<Wire> side) {
      VerbsWireOptions options = Options(rank, size);
      if (adjust) adjust(rank, options);
      ends[static_cast<size_t>(rank)] = ConnectVerbsWire(options, std::move(side)).status();
    });
    EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(5)) << "nobody waits for a limit";
    return ends;
  }
};

// ---- what passes

TEST_F(VerbsWireTest, SumsAreRightOverEveryShapeSizeAndKindOfConnection) {
  for (const VerbsConnection kind : {VerbsConnection::kReliable, VerbsConnection::kUnreliable}) {
    for (const auto& [ranks, is_ring] : {std::pair(2, false), {3, false}, {4, true}}) {
      SCOPED_TRACE(absl::StrCat(ranks, is_ring ? " ring" : " mesh"));
      FakeVerbs::Reset();
      Cable(ranks);
      const auto body = [&, ranks = ranks, is_ring = is_ring](int rank,
                                                              std::unique_ptr<Wire> wire) {
        EXPECT_EQ(wire->backend(), Backend::kVerbs);
        const auto group = MakeGroup(std::move(wire), is_ring ? Topology::kRing : Topology::kMesh);
        for (const size_t count : {1, 1000, 16384, 16385, 70001, 1200000}) {
          std::vector<int32_t> values(count);
          for (size_t i = 0; i < count; ++i) {
            values[i] = static_cast<int32_t>(i * 31) + rank * 1'000'000;
          }
          const absl::Status status = group->AllReduce(values.data(), values.data(), count,
                                                       Element::kInt32, Reduction::kSum);
          ASSERT_TRUE(status.ok()) << count << " " << status;
          for (size_t i = 0; i < count; ++i) {
            const int32_t wanted =
                ranks * static_cast<int32_t>(i * 31) + 1'000'000 * (ranks * (ranks - 1) / 2);
            ASSERT_EQ(values[i], wanted) << i << " of " << count;
          }
        }
      };
      Run(ranks, body, [&, is_ring = is_ring, ranks = ranks](int rank, VerbsWireOptions& options) {
        options.connection = kind;
        options.neighbours_only = is_ring;
        for (int to = 0; is_ring && to < ranks; ++to) {
          if ((to - rank + ranks) % ranks == 2) options.devices[static_cast<size_t>(to)] = "";
        }
      });
      EXPECT_THAT(FakeVerbs::Complaints(), testing::IsEmpty());
      EXPECT_EQ(FakeVerbs::Overruns(), 0);
      EXPECT_THAT(FakeVerbs::Held(), testing::IsEmpty());
    }
  }
}

TEST_F(VerbsWireTest, MessagesOfEverySizeArriveInTheirOrder) {
  Cable(2);
  constexpr size_t kPiece = kSlotBytes - 16;
  const std::vector<size_t> sizes = {0,          1, kPiece - 1,  kPiece, kPiece + 1,
                                     2 * kPiece, 0, 17 * kPiece, 5,      100 * kPiece + 3};
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    std::vector<Bytes> messages;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (size_t i = 0; i < sizes.size(); ++i) {
      messages.push_back(rank == 0 ? Numbers(sizes[i], static_cast<uint32_t>(i)) : Bytes(sizes[i]));
    }
    for (Bytes& message : messages) {
      sends.push_back({1, message});
      receives.push_back({0, message});
    }
    // All of them in one exchange, then one by one.
    for (int round = 0; round < 2; ++round) {
      const absl::Status status =
          rank == 0 ? wire->Exchange(sends, {}) : wire->Exchange({}, receives);
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; rank == 1 && i < sizes.size(); ++i) {
        ASSERT_EQ(messages[i], Numbers(sizes[i], static_cast<uint32_t>(i))) << i;
      }
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const absl::Status status =
          rank == 0 ? wire->Exchange({&sends[i], 1}, {}) : wire->Exchange({}, {&receives[i], 1});
      ASSERT_TRUE(status.ok()) << i << " " << status;
    }
  });
}

// The receiver takes nothing before the sender has given all that it may: 16 pieces.
TEST_F(VerbsWireTest, ASenderNeverOverrunsWhoDoesNotTakeAnything) {
  Cable(2);
  constexpr int kPieces = 100;
  std::mutex turn;
  turn.lock();
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    Bytes message(kPieces * (kSlotBytes - 16));
    if (rank == 0) {
      std::thread unlocker([&] {
        // Bounded: the sender gets as far as its credit reaches, whatever the machine's load.
        const auto end = steady_clock::now() + std::chrono::seconds(10);
        while (FakeVerbs::MessagesSent() < kSlots && steady_clock::now() < end) {
          std::this_thread::yield();
        }
        EXPECT_EQ(FakeVerbs::MessagesSent(), kSlots);
        turn.unlock();
      });
      const Send send{1, message};
      EXPECT_TRUE(wire->Exchange({&send, 1}, {}).ok());
      unlocker.join();
      return;
    }
    const std::lock_guard wait(turn);
    const Receive receive{0, message};
    EXPECT_TRUE(wire->Exchange({}, {&receive, 1}).ok());
  });
}

TEST_F(VerbsWireTest, WhatARankSentArrivesThoughItLeavesAtOnce) {
  Cable(2);
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    Bytes message = rank == 0 ? Numbers(300'000, 8) : Bytes(300'000);
    const Send send{1, message};
    const Receive receive{0, message};
    const absl::Status status =
        rank == 0 ? wire->Exchange({&send, 1}, {}) : wire->Exchange({}, {&receive, 1});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(message, Numbers(300'000, 8));
  });
}

TEST_F(VerbsWireTest, DevicesOfDifferentPacketSizesTakeTheSmaller) {
  FakeVerbsDevice small = Device(0, 1);
  small.mtu = 3;
  FakeVerbs::Add(small);
  FakeVerbs::Add(Device(1, 0));
  Run(2, [&](int, std::unique_ptr<Wire> wire) {
    EXPECT_TRUE(Meet(*MakeGroup(std::move(wire), Topology::kMesh)).ok());
  });
}

TEST_F(VerbsWireTest, CountsWhatItMoved) {
  Cable(2);
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    Bytes message(1000);
    const Send send{1 - rank, message};
    const Receive receive{1 - rank, message};
    ASSERT_TRUE(
        (rank == 0 ? wire->Exchange({&send, 1}, {}) : wire->Exchange({}, {&receive, 1})).ok());
    EXPECT_EQ(rank == 0 ? wire->stats().bytes_sent : wire->stats().bytes_received, 1016u);
    EXPECT_EQ(wire->stats().exchanges, 1u);
  });
}

// ---- what is refused while it forms: the same reason everywhere

struct Refusal {
  const char* name;
  VerbsFault fault;
  std::string_view code;
  const char* says;
};

class VerbsRefusalTest : public VerbsWireTest, public testing::WithParamInterface<Refusal> {};

TEST_P(VerbsRefusalTest, IsNamedByEveryRankWithTheDevice) {
  Cable(3);
  FakeVerbsDevice bad = Device(1, 2);
  bad.fault = GetParam().fault;
  FakeVerbs::Change(bad);
  for (const absl::Status& end : Refused(3)) {
    const v1::Reason reason = ReasonOf(end);
    EXPECT_EQ(reason.code(), GetParam().code) << end;
    EXPECT_THAT(reason.message(), HasSubstr("rank 1 towards rank 2")) << end;
    EXPECT_THAT(reason.message(), HasSubstr("rdma_1_2")) << end;
    EXPECT_THAT(reason.message(), HasSubstr(GetParam().says)) << end;
    // That a machine has no device is no fault by itself, so that its code has no remedy.
    EXPECT_EQ(reason.remedy().empty(), reason.code() == reasons::kNoVerbsDevice) << end;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, VerbsRefusalTest,
    testing::Values(
        Refusal{"Open", VerbsFault::kOpen, reasons::kNoVerbsDevice, "can't be opened: Cannot"},
        Refusal{"Port", VerbsFault::kQueryPort, reasons::kPortDown, "can't be asked"},
        Refusal{"Domain", VerbsFault::kProtectionDomain, reasons::kNoProtectionDomain,
                "gives no protection domain: Cannot allocate memory"},
        Refusal{"Memory", VerbsFault::kMemory, reasons::kNoProtectionDomain,
                "gives no 2720 KiB of locked memory"},
        Refusal{"Channel", VerbsFault::kCompletionChannel, reasons::kNoProtectionDomain,
                "gives no completion channel"},
        Refusal{"Queue", VerbsFault::kCompletionQueue, reasons::kNoProtectionDomain,
                "gives no completion queue"},
        Refusal{"Pair", VerbsFault::kQueuePair, reasons::kNoProtectionDomain,
                "gives no queue pair"},
        Refusal{"Init", VerbsFault::kToInit, reasons::kConnectFailed, "queue pair to INIT"},
        Refusal{"Receive", VerbsFault::kToReceive, reasons::kConnectFailed,
                "queue pair to RTR towards 0000:0000:0000:0000:0000:ffff:0a01:0202"}),
    [](const auto& info) { return info.param.name; });

TEST_F(VerbsWireTest, ADeviceThatIsNotListedIsNamedByEveryRank) {
  Cable(2);
  const auto ends = Refused(2, [](int rank, VerbsWireOptions& options) {
    if (rank == 0) options.devices[1] = "mlx5_9";
  });
  for (const absl::Status& end : ends) {
    EXPECT_EQ(ReasonOf(end).code(), reasons::kNoVerbsDevice) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("mlx5_9 is not listed"));
  }
}

TEST_F(VerbsWireTest, APortThatIsNotActiveOrHasNoAddressIsSaid) {
  const auto refused = [&](const FakeVerbsDevice& device) {
    FakeVerbs::Reset();
    FakeVerbs::Add(device);
    FakeVerbs::Add(Device(1, 0));
    return ReasonOf(Refused(2)[1]);
  };
  FakeVerbsDevice down = Device(0, 1), bare = Device(0, 1), empty = Device(0, 1);
  down.port_state = IBV_PORT_ARMED;
  EXPECT_EQ(refused(down).code(), reasons::kPortDown);
  bare.gids = {"fe80", ""};
  EXPECT_EQ(refused(bare).code(), reasons::kNoIpv4Gid);
  empty.gids = {};
  EXPECT_EQ(refused(empty).code(), reasons::kNoIpv4Gid);
}

TEST_F(VerbsWireTest, AWayThatIsMissingIsNamed) {
  Cable(3);
  const auto ends = Refused(3, [](int rank, VerbsWireOptions& options) {
    if (rank == 2) options.devices[0] = "";
  });
  for (const absl::Status& end : ends) {
    EXPECT_EQ(ReasonOf(end).code(), reasons::kNoVerbsDevice) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("no device of rank 2 leads to rank 0"));
  }
}

TEST_F(VerbsWireTest, TwoKindsOfConnectionDoNotMeet) {
  Cable(2);
  const auto ends = Refused(2, [](int rank, VerbsWireOptions& options) {
    if (rank == 0) options.connection = VerbsConnection::kUnreliable;
  });
  for (const absl::Status& end : ends) {
    EXPECT_EQ(ReasonOf(end).code(), reasons::kConnectFailed) << end;
  }
}

TEST_F(VerbsWireTest, AListOfAnotherLengthIsABadCall) {
  Cable(2);
  const auto ends =
      Refused(2, [](int, VerbsWireOptions& options) { options.devices.push_back("rdma_0_1"); });
  for (const absl::Status& end : ends) EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
}

// One rank's last step fails: the others have formed and see it go at once.
TEST_F(VerbsWireTest, ARankThatCannotSendLeavesAndIsMissed) {
  Cable(2);
  FakeVerbsDevice bad = Device(0, 1);
  bad.fault = VerbsFault::kToSend;
  FakeVerbs::Change(bad);
  std::vector<absl::Status> ends(2);
  const auto begun = steady_clock::now();
  LoopbackRanks(2).Run([&](int rank, std::unique_ptr<Wire> side) {
    auto wire = ConnectVerbsWire(Options(rank, 2), std::move(side));
    absl::Status& end = ends[static_cast<size_t>(rank)];
    end = wire.status();
    if (wire.ok()) end = Meet(*MakeGroup(*std::move(wire), Topology::kMesh));
  });
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(ReasonOf(ends[0]).code(), reasons::kConnectFailed) << ends[0];
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("queue pair to RTS"));
  EXPECT_EQ(ReasonOf(ends[1]).code(), reasons::kPeerLost) << ends[1];
  EXPECT_THAT(std::string(ends[1].message()), HasSubstr("rank 0"));
}

// ---- what breaks it later

TEST_F(VerbsWireTest, ALostPieceIsAnErrorAndNeverAWrongSum) {
  // The first, one in the middle, the last but one.
  for (const int lost : {0, 3, 8}) {
    FakeVerbs::Reset();
    FakeVerbsDevice lossy = Device(0, 1);
    lossy.lost_message = lost;
    FakeVerbs::Add(lossy);
    FakeVerbs::Add(Device(1, 0));
    Run(
        2,
        [&](int rank, std::unique_ptr<Wire> wire) {
          Bytes messages(10 * 10'000);
          absl::Status status;
          for (size_t i = 0; i < 10 && status.ok(); ++i) {
            const std::span<std::byte> one = std::span(messages).subspan(i * 10'000, 10'000);
            const Send send{1, one};
            const Receive receive{0, one};
            status = rank == 0 ? wire->Exchange({&send, 1}, {}) : wire->Exchange({}, {&receive, 1});
          }
          if (rank == 0) return;
          EXPECT_EQ(ReasonOf(status).code(), reasons::kCollectiveFailed) << lost << " " << status;
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr("rank 0 and rank 1 are out of step"));
        },
        [](int, VerbsWireOptions& options) { options.connection = VerbsConnection::kUnreliable; });
  }
}

TEST_F(VerbsWireTest, AMessageOfAnotherLengthIsFoundOut) {
  Cable(2);
  Run(2, [](int rank, std::unique_ptr<Wire> wire) {
    Bytes bytes(rank == 0 ? 100 : 200);
    const Send send{1, bytes};
    const Receive receive{0, bytes};
    const absl::Status status =
        rank == 0 ? wire->Exchange({&send, 1}, {}) : wire->Exchange({}, {&receive, 1});
    if (rank == 0) return;
    EXPECT_EQ(ReasonOf(status).code(), reasons::kCollectiveFailed) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("message 0 of 100 bytes came, 0 of 200 was expected"));
    EXPECT_EQ(wire->Exchange({}, {}), status) << "a broken wire stays broken";
  });
}

struct Announcement {
  const char* name;
  int event;
  std::string_view code;
  const char* says;
};

class VerbsEventTest : public VerbsWireTest, public testing::WithParamInterface<Announcement> {};

TEST_P(VerbsEventTest, EndsAWaitAtOnceWithWhatTheDeviceSays) {
  Cable(2);
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    std::byte byte{};
    const Receive receive{1 - rank, {&byte, 1}};
    if (rank == 1) {
      EXPECT_FALSE(wire->Exchange({}, {&receive, 1}).ok()) << "its peer goes";
      return;
    }
    FakeVerbs::Announce("rdma_0_1", GetParam().event);
    const auto begun = steady_clock::now();
    const absl::Status status = wire->Exchange({}, {&receive, 1});
    EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(2));
    EXPECT_EQ(ReasonOf(status).code(), GetParam().code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 towards rank 1"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().says));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Events, VerbsEventTest,
    testing::Values(Announcement{"PortWentDown", IBV_EVENT_PORT_ERR, reasons::kPortDown,
                                 "the port of rdma_0_1 went down"},
                    Announcement{"DeviceIsGone", IBV_EVENT_DEVICE_FATAL, reasons::kNoVerbsDevice,
                                 "rdma_0_1 is gone"},
                    Announcement{"PairBroke", IBV_EVENT_QP_FATAL, reasons::kCollectiveFailed,
                                 "local work queue catastrophic error"}),
    [](const auto& info) { return info.param.name; });

TEST_F(VerbsWireTest, EventsOfOtherPortsAndGoodNewsAreNoTrouble) {
  Cable(2);
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    if (rank == 0) {
      FakeVerbs::Announce("rdma_0_1", IBV_EVENT_PORT_ERR, /*port=*/2);
      FakeVerbs::Announce("rdma_0_1", IBV_EVENT_PORT_ACTIVE);
    }
    const auto group = MakeGroup(std::move(wire), Topology::kMesh);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(Meet(*group).ok());
  });
}

TEST_F(VerbsWireTest, ATransferThatIsNotAcknowledgedNamesTheRank) {
  Cable(2);
  Run(2, [&](int rank, std::unique_ptr<Wire> wire) {
    std::byte byte{};
    const Receive receive{0, {&byte, 1}};
    const Send send{1, {&byte, 1}};
    if (rank == 1) {
      EXPECT_FALSE(wire->Exchange({}, {&receive, 1}).ok());
      return;
    }
    FakeVerbsDevice broken = Device(0, 1);
    broken.fails_sends = true;
    FakeVerbs::Change(broken);
    absl::Status status;
    for (int i = 0; i < 10 && status.ok(); ++i) status = wire->Exchange({&send, 1}, {});
    EXPECT_EQ(ReasonOf(status).code(), reasons::kPeerLost) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 is gone"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("transport retry counter exceeded"));
  });
}

TEST_F(VerbsWireTest, WhoSaysNothingIsNamedAtTheLimit) {
  Cable(2);
  std::mutex done;
  done.lock();
  Run(
      2,
      [&](int rank, std::unique_ptr<Wire> wire) {
        if (rank == 1) {
          const std::lock_guard wait(done);
          return;
        }
        std::byte byte{};
        const Receive receive{1, {&byte, 1}};
        const absl::Status status = wire->Exchange({}, {&receive, 1});
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
        EXPECT_EQ(ReasonOf(status).code(), reasons::kPeerLost);
        EXPECT_THAT(std::string(status.message()), HasSubstr("waited 300 ms for rank 1"));
        done.unlock();
      },
      [](int, VerbsWireOptions& options) { options.collective_timeout = milliseconds(300); });
}

TEST_F(VerbsWireTest, ShutDownEndsABlockedExchange) {
  Cable(2);
  Run(2, [](int rank, std::unique_ptr<Wire> wire) {
    std::byte byte{};
    const Receive receive{1 - rank, {&byte, 1}};
    if (rank == 1) {
      EXPECT_FALSE(wire->Exchange({}, {&receive, 1}).ok());
      return;
    }
    std::thread stopper([&] { wire->ShutDown(); });
    EXPECT_TRUE(absl::IsCancelled(wire->Exchange({}, {&receive, 1})));
    stopper.join();
  });
}

TEST_F(VerbsWireTest, ARingHasNoWayAcross) {
  Cable(4);
  Run(
      4,
      [](int rank, std::unique_ptr<Wire> wire) {
        const int across = (rank + 2) % 4;
        EXPECT_FALSE(wire->Reaches(across));
        EXPECT_FALSE(wire->Reaches(-1));
        EXPECT_FALSE(wire->Reaches(4));
        std::byte byte{};
        const Send send{across, {&byte, 1}};
        EXPECT_EQ(ReasonOf(wire->Exchange({&send, 1}, {})).code(), reasons::kRingNonNeighbour);
      },
      [](int rank, VerbsWireOptions& options) {
        options.neighbours_only = true;
        options.devices[static_cast<size_t>((rank + 2) % 4)] = "";
      });
}

}  // namespace
}  // namespace macrame::transport
