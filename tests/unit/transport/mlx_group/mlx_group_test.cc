// Our groups inside MLX's graphs: which of our collectives each of MLX's becomes, over which type;
// and sums outside of graphs, in rank order over either topology.

#include "transport/mlx_group/mlx_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "mlx/mlx.h"
#include "tests/unit/transport/collectives/memory_ranks.h"

namespace macrame::transport {
namespace {

namespace mx = mlx::core;

// Two ranks, of which the other has the very same: all in this thread.
class MirrorGroup : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Backend backend() const override { return Backend::kRing; }
  bool sums_in_rank_order() const override { return true; }
  absl::Status AllReduce(const void* in, void* out, size_t count, Element element,
                         Reduction reduction) override {
    calls.push_back(absl::StrCat("reduce ", static_cast<int>(reduction), " of ", count, " of ",
                                 static_cast<int>(element)));
    std::memmove(out, in, count * SizeOf(element));
    return failure;
  }
  absl::Status AllGather(std::span<const std::byte> in, std::span<std::byte> out) override {
    calls.push_back(absl::StrCat("gather ", in.size(), " into ", out.size()));
    std::copy(in.begin(), in.end(), out.begin());
    std::copy(in.begin(), in.end(), out.begin() + static_cast<ptrdiff_t>(in.size()));
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(const void* in, void* out, size_t count, Element element,
                             Reduction) override {
    calls.push_back(absl::StrCat("scatter ", count, " of ", static_cast<int>(element)));
    std::memcpy(out, in, count * SizeOf(element));
    return absl::OkStatus();
  }
  absl::Status SendTo(std::span<const std::byte> bytes, int peer) override {
    calls.push_back(absl::StrCat("send ", bytes.size(), " to ", peer));
    kept.assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  absl::Status ReceiveFrom(std::span<std::byte> bytes, int peer) override {
    calls.push_back(absl::StrCat("receive ", bytes.size(), " from ", peer));
    std::copy(kept.begin(), kept.end(), bytes.begin());
    return absl::OkStatus();
  }
  absl::Status SendAndReceive(std::span<const std::byte>, int, std::span<std::byte>, int) override {
    return absl::OkStatus();
  }
  WireStats stats() const override { return {}; }
  void ShutDown() override {}

  std::vector<std::string> calls;
  std::vector<std::byte> kept;
  absl::Status failure;  // of sums
};

class MlxGroupTest : public testing::Test {
 protected:
  void SetUp() override { mx::set_default_device(mx::Device::cpu); }
  std::string LastCall() const { return mirror_->calls.empty() ? "" : mirror_->calls.back(); }

  const std::shared_ptr<MirrorGroup> mirror_ = std::make_shared<MirrorGroup>();
  MlxGroup group_{mirror_};
};

TEST_F(MlxGroupTest, EveryTypeIsReducedAsItself) {
  const std::pair<mx::Dtype, Element> types[] = {
      {mx::uint8, Element::kUint8},     {mx::int8, Element::kInt8},
      {mx::uint16, Element::kUint16},   {mx::int16, Element::kInt16},
      {mx::uint32, Element::kUint32},   {mx::int32, Element::kInt32},
      {mx::uint64, Element::kUint64},   {mx::int64, Element::kInt64},
      {mx::float16, Element::kFloat16}, {mx::bfloat16, Element::kBfloat16},
      {mx::float32, Element::kFloat32}, {mx::bool_, Element::kBool}};
  for (const auto& [type, element] : types) {
    const mx::array values = mx::ones({3, 5}, type);
    mx::array sum = mx::distributed::all_sum(values, group_.handle());
    sum.eval();
    EXPECT_EQ(LastCall(), absl::StrCat("reduce 0 of 15 of ", static_cast<int>(element)));
    EXPECT_EQ(sum.shape(), (mx::Shape{3, 5}));
    EXPECT_TRUE(mx::array_equal(sum, values).item<bool>());
    EXPECT_EQ(SizeOf(element), values.itemsize());
  }
}

TEST_F(MlxGroupTest, EachOfMlxsCollectivesIsOurs) {
  const mx::array values({1.0F, 2.0F, 3.0F, 4.0F});
  mx::array largest = mx::distributed::all_max(values, group_.handle());
  largest.eval();
  EXPECT_EQ(LastCall(), absl::StrCat("reduce 1 of 4 of ", static_cast<int>(Element::kFloat32)));
  mx::array least = mx::distributed::all_min(values, group_.handle());
  least.eval();
  EXPECT_EQ(LastCall(), absl::StrCat("reduce 2 of 4 of ", static_cast<int>(Element::kFloat32)));
  mx::array all = mx::distributed::all_gather(values, group_.handle());
  all.eval();
  EXPECT_EQ(LastCall(), "gather 16 into 32");
  EXPECT_TRUE(mx::array_equal(all, mx::concatenate({values, values})).item<bool>());
  mx::array sent = mx::distributed::send(values, 1, group_.handle());
  sent.eval();
  EXPECT_EQ(LastCall(), "send 16 to 1");
  mx::array got = mx::distributed::recv({4}, mx::float32, 1, group_.handle());
  got.eval();
  EXPECT_EQ(LastCall(), "receive 16 from 1");
  EXPECT_TRUE(mx::array_equal(got, values).item<bool>());
}

// A view lies in memory in another order: what is summed are its elements.
TEST_F(MlxGroupTest, AViewIsSummedInItsOwnOrder) {
  const mx::array whole = mx::reshape(mx::arange(0.0, 12.0, mx::float32), {3, 4});
  const mx::array turned = mx::transpose(whole);
  mx::array sum = mx::distributed::all_sum(turned, group_.handle());
  sum.eval();
  EXPECT_TRUE(mx::array_equal(sum, turned).item<bool>());
}

// MLX computes on behind a collective that failed, and tells of it once, and only who had to wait.
TEST_F(MlxGroupTest, AFailureIsKeptWhoeverHeardOfIt) {
  const auto sum = [&] {
    try {
      const mx::array total = mx::distributed::all_sum(mx::ones({4}), group_.handle());
      mx::async_eval(std::vector<mx::array>{total});
      mx::eval(total);
    } catch (const std::exception&) {  // now, later or never
    }
  };
  sum();
  EXPECT_TRUE(group_.status().ok());
  mirror_->failure = absl::UnavailableError("rank 1 is gone");
  sum();
  EXPECT_EQ(group_.status().message(), "rank 1 is gone");
  mirror_->failure = absl::OkStatus();
  sum();
  EXPECT_EQ(group_.status().message(), "rank 1 is gone") << "what followed is of no use";
}

TEST_F(MlxGroupTest, TimesOfSmallSumsAreKeptAndLargeOnesLeftOut) {
  EXPECT_EQ(group_.times().count, 0u);
  EXPECT_EQ(group_.times().us_p99, 0);
  std::vector<float> small(kSmallCollectiveBytes / sizeof(float), 1), large(small.size() + 1, 1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(group_.SumInRankOrder(small.data(), small.size(), Element::kFloat32).ok());
  }
  ASSERT_TRUE(group_.SumInRankOrder(large.data(), large.size(), Element::kFloat32).ok());
  const CollectiveTimes times = group_.times();
  EXPECT_EQ(times.count, 1000u);
  EXPECT_GT(times.us_p50, 0);
  EXPECT_LE(times.us_p50, times.us_p99);
}

// The bits of ((a + b) + c) + d whatever the topology and the size: what a batch holds besides must
// not change an answer.
TEST(MlxGroupSums, AreInRankOrderOverEitherTopology) {
  for (const bool is_ring : {false, true}) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{20'000}, size_t{100'001}}) {
      constexpr int kRanks = 4;
      std::vector<std::vector<float>> values(kRanks, std::vector<float>(count));
      std::mt19937 random(static_cast<uint32_t>(count));
      for (auto& own : values) {
        for (float& value : own) {
          value = std::ldexp(static_cast<float>(random() % 16777216),
                             static_cast<int>(random() % 30) - 30);
        }
      }
      std::vector<float> wanted(values[0]);
      for (int rank = 1; rank < kRanks; ++rank) {
        for (size_t i = 0; i < count; ++i) wanted[i] += values[static_cast<size_t>(rank)][i];
      }
      RunInMemory(kRanks, is_ring, [&](int rank, std::unique_ptr<Wire> wire) {
        MlxGroup group(MakeGroup(std::move(wire), is_ring ? Topology::kRing : Topology::kMesh));
        std::vector<float>& own = values[static_cast<size_t>(rank)];
        ASSERT_TRUE(group.SumInRankOrder(own.data(), count, Element::kFloat32).ok());
        EXPECT_EQ(std::memcmp(own.data(), wanted.data(), count * sizeof(float)), 0)
            << (is_ring ? "ring, " : "mesh, ") << count;
      });
    }
  }
}

TEST(MlxGroupSums, ALossIsAnErrorAndNotASum) {
  RunInMemory(
      3, true,
      [](int rank, std::unique_ptr<Wire> wire) {
        MlxGroup group(MakeGroup(std::move(wire), Topology::kRing));
        std::vector<float> values(100, 1.0F);
        const absl::Status status = group.SumInRankOrder(values.data(), 100, Element::kFloat32);
        EXPECT_FALSE(status.ok());
        EXPECT_EQ(group.times().count, 0u);
        if (rank != 0) return;
        EXPECT_NE(status.message().find("is gone"), absl::string_view::npos);
      },
      /*failing_rank=*/0, /*fails_at=*/0);
}

}  // namespace
}  // namespace macrame::transport
