#include "transport/collectives/group.h"
#include "absl/strings/str_cat.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/unit/transport/collectives/loopback_ranks.h"
#include "transport/collectives/part_wire.h"

namespace macrame::transport {
namespace {

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}
template <typename T>
std::span<std::byte> Bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

std::vector<float> Numbers(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) * 7919 + static_cast<uint32_t>(count));
  std::uniform_real_distribution<float> draw(-4, 4);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = draw(random);
  return numbers;
}

struct Shape {
  int ranks;
  Topology topology;
};

class GroupTest : public testing::TestWithParam<Shape> {
 protected:
  // Every rank's result of one operation.
  template <typename T>
  std::vector<std::vector<T>> Collect(
      const std::function<void(Group& group, std::vector<T>* out)>& operation) {
    std::vector<std::vector<T>> results(static_cast<size_t>(GetParam().ranks));
    LoopbackRanks ranks(GetParam().ranks);
    ranks.Run([&](int rank, std::unique_ptr<Wire> wire) {
      const std::unique_ptr<Group> group = MakeGroup(std::move(wire), GetParam().topology);
      operation(*group, &results[static_cast<size_t>(rank)]);
    });
    return results;
  }
};

TEST_P(GroupTest, SumsOfFloatsAreRightAndTheSameBitsOnEveryRank) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{20001},
                             size_t{300007}, size_t{1500000}}) {
    const auto results = Collect<float>([&](Group& group, std::vector<float>* out) {
      const std::vector<float> in = Numbers(group.rank(), count);
      out->resize(count);
      const absl::Status status =
          group.AllReduce(in.data(), out->data(), count, Element::kFloat32, Reduction::kSum);
      ASSERT_TRUE(status.ok()) << status;
    });
    std::vector<double> wanted(count);
    for (int rank = 0; rank < GetParam().ranks; ++rank) {
      const std::vector<float> in = Numbers(rank, count);
      for (size_t i = 0; i < count; ++i) wanted[i] += static_cast<double>(in[i]);
    }
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(results[0][i], wanted[i], 1e-5) << i;
    for (const auto& result : results) {
      if (count == 0) break;
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), count * sizeof(float)), 0) << count;
    }
  }
}

TEST_P(GroupTest, ReducesInPlace) {
  constexpr size_t kCount = 200000;
  const auto results = Collect<int32_t>([&](Group& group, std::vector<int32_t>* out) {
    out->assign(kCount, group.rank() + 1);
    const absl::Status status =
        group.AllReduce(out->data(), out->data(), kCount, Element::kInt32, Reduction::kSum);
    ASSERT_TRUE(status.ok()) << status;
  });
  const int wanted = GetParam().ranks * (GetParam().ranks + 1) / 2;
  for (const auto& result : results) EXPECT_EQ(result, std::vector<int32_t>(kCount, wanted));
}

TEST_P(GroupTest, MaxAndMinOfEveryRank) {
  const auto results = Collect<int64_t>([&](Group& group, std::vector<int64_t>* out) {
    const int64_t own = 100 - group.rank();
    out->resize(2);
    ASSERT_TRUE(group.AllReduce(&own, &(*out)[0], 1, Element::kInt64, Reduction::kMax).ok());
    ASSERT_TRUE(group.AllReduce(&own, &(*out)[1], 1, Element::kInt64, Reduction::kMin).ok());
  });
  for (const auto& result : results) {
    EXPECT_EQ(result, (std::vector<int64_t>{100, 101 - GetParam().ranks}));
  }
}

TEST_P(GroupTest, GathersInRankOrder) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{100000}}) {
    const auto results = Collect<int32_t>([&](Group& group, std::vector<int32_t>* out) {
      const std::vector<int32_t> in(count, group.rank() + 10);
      out->resize(count * static_cast<size_t>(group.size()));
      const absl::Status status = group.AllGather(Bytes(in), Bytes(*out));
      ASSERT_TRUE(status.ok()) << status;
    });
    for (const auto& result : results) {
      for (size_t i = 0; i < result.size(); ++i) {
        ASSERT_EQ(result[i], static_cast<int32_t>(i / count) + 10);
      }
    }
  }
}

TEST_P(GroupTest, ScattersSums) {
  for (const size_t count : {size_t{3}, size_t{50000}}) {
    const auto results = Collect<float>([&](Group& group, std::vector<float>* out) {
      const auto n = static_cast<size_t>(group.size());
      std::vector<float> in(count * n);
      for (size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<float>(i / count) + 100 * static_cast<float>(group.rank());
      }
      out->resize(count);
      const absl::Status status =
          group.ReduceScatter(in.data(), out->data(), count, Element::kFloat32, Reduction::kSum);
      ASSERT_TRUE(status.ok()) << status;
    });
    const int n = GetParam().ranks;
    for (int rank = 0; rank < n; ++rank) {
      const float wanted = static_cast<float>(rank * n + 100 * n * (n - 1) / 2);
      EXPECT_EQ(results[static_cast<size_t>(rank)], std::vector<float>(count, wanted));
    }
  }
}

TEST_P(GroupTest, PassesMessagesToTheNextRank) {
  const auto results = Collect<float>([&](Group& group, std::vector<float>* out) {
    const std::vector<float> in(3000, static_cast<float>(group.rank()));
    out->resize(3000);
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    if (group.rank() == 0) {
      ASSERT_TRUE(group.SendTo(Bytes(in), next).ok());
      ASSERT_TRUE(group.ReceiveFrom(Bytes(*out), previous).ok());
    } else {
      ASSERT_TRUE(group.ReceiveFrom(Bytes(*out), previous).ok());
      ASSERT_TRUE(group.SendTo(Bytes(in), next).ok());
    }
  });
  for (int rank = 0; rank < GetParam().ranks; ++rank) {
    const int from = (rank + GetParam().ranks - 1) % GetParam().ranks;
    EXPECT_EQ(results[static_cast<size_t>(rank)],
              std::vector<float>(3000, static_cast<float>(from)));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupTest,
                         testing::Values(Shape{2, Topology::kMesh}, Shape{3, Topology::kMesh},
                                         Shape{4, Topology::kMesh}, Shape{5, Topology::kMesh},
                                         Shape{2, Topology::kRing}, Shape{3, Topology::kRing},
                                         Shape{4, Topology::kRing}, Shape{5, Topology::kRing}),
                         [](const auto& info) {
                           return absl::StrCat(
                               info.param.topology == Topology::kMesh ? "Mesh" : "Ring",
                               info.param.ranks);
                         });

TEST(Group, OneRankIsAGroupToo) {
  TcpWireOptions options;
  options.addresses = {"127.0.0.1:0"};
  auto wire = ConnectTcpWire(options);
  ASSERT_TRUE(wire.ok());
  const std::unique_ptr<Group> group = MakeGroup(*std::move(wire), Topology::kMesh);
  float in = 3, out = 0;
  EXPECT_TRUE(group->AllReduce(&in, &out, 1, Element::kFloat32, Reduction::kSum).ok());
  EXPECT_EQ(out, 3);
  EXPECT_TRUE(Meet(*group).ok());
}

TEST(Group, RefusesARankThatIsNotThere) {
  LoopbackRanks ranks(2);
  ranks.Run([](int, std::unique_ptr<Wire> wire) {
    const std::unique_ptr<Group> group = MakeGroup(std::move(wire), Topology::kMesh);
    std::byte byte{};
    EXPECT_EQ(group->SendTo({&byte, 1}, 2).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->SendTo({&byte, 1}, group->rank()).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->SendTo({&byte, 1}, -1).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Meet(*group).ok());
  });
}

TEST(PartWire, EachPartSumsForItselfAndTheWholeStillWorks) {
  std::vector<float> parts(4), whole(4), from_peer(4);
  LoopbackRanks(4).Run([&](int rank, std::unique_ptr<Wire> wire) {
    const std::shared_ptr<Wire> shared = std::move(wire);
    const auto all = MakeGroup(MakePartWire(shared, 0, 4), Topology::kMesh);
    const auto pair = MakeGroup(MakePartWire(shared, rank / 2 * 2, 2), Topology::kMesh);
    EXPECT_EQ(pair->rank(), rank % 2);
    EXPECT_EQ(pair->size(), 2);
    const float own = static_cast<float>(1 << rank);
    for (int round = 0; round < 50; ++round) {
      ASSERT_TRUE(pair->AllReduce(&own, &parts[rank], 1, Element::kFloat32, Reduction::kSum).ok());
      ASSERT_TRUE(all->AllReduce(&own, &whole[rank], 1, Element::kFloat32, Reduction::kSum).ok());
    }
    // From each rank of the first pair to its counterpart of the second.
    float value = own;
    const auto bytes = std::as_writable_bytes(std::span<float>(&value, 1));
    ASSERT_TRUE((rank < 2 ? all->SendTo(bytes, rank + 2) : all->ReceiveFrom(bytes, rank - 2)).ok());
    from_peer[rank] = value;
  });
  EXPECT_EQ(parts, (std::vector<float>{3, 3, 12, 12}));
  EXPECT_EQ(whole, (std::vector<float>{15, 15, 15, 15}));
  EXPECT_EQ(from_peer, (std::vector<float>{1, 2, 1, 2}));
}

}  // namespace
}  // namespace macrame::transport
