#include "runtime/gang/gang_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/stream_socket.h"

namespace macrame::runtime::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transport::StreamSocket;

v1::LaunchSpec Spec(uint32_t rank, uint32_t tp, uint32_t pp) {
  v1::LaunchSpec spec;
  spec.set_rank(rank);
  spec.set_world_size(tp * pp);
  spec.set_tp(tp);
  spec.set_pp(pp);
  spec.set_backend(NameOf(Backend::kRing));
  spec.set_backend_topology(NameOf(Topology::kMesh));
  for (uint32_t i = 0; i < tp * pp; ++i) spec.add_ring_addresses(absl::StrCat("10.0.0.", i, ":1"));
  spec.mutable_assignment()->set_stage(rank / tp);
  spec.mutable_assignment()->set_tp_rank(rank % tp);
  spec.mutable_assignment()->set_layer_begin(rank / tp * 10);
  spec.mutable_assignment()->set_layer_end(rank / tp * 10 + 10);
  return spec;
}

TEST(PlaceOf, ARanksPlaceFollowsFromItsNumber) {
  const auto place = PlaceOf(Spec(5, 2, 4));
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->tp, 2);
  EXPECT_EQ(place->tp_rank, 1);
  EXPECT_EQ(place->layer_begin, 20);
  EXPECT_EQ(place->layer_end, 30);
  EXPECT_FALSE(place->embeds);
  EXPECT_FALSE(place->has_head);
  EXPECT_EQ(place->slice_begin, 1);
  EXPECT_EQ(place->slice_end, 2);
  EXPECT_EQ(place->slice_count, 2) << "equal parts";
  EXPECT_TRUE(PlaceOf(Spec(0, 2, 4))->embeds);
  EXPECT_TRUE(PlaceOf(Spec(7, 2, 4))->has_head);
  const auto alone = PlaceOf(Spec(0, 1, 1));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->embeds && alone->has_head);
  v1::LaunchSpec sliced = Spec(1, 2, 1);
  sliced.mutable_assignment()->set_slice_count(8);
  sliced.mutable_assignment()->set_slice_begin(3);
  sliced.mutable_assignment()->set_slice_end(8);
  const auto uneven = PlaceOf(sliced);
  ASSERT_TRUE(uneven.ok()) << uneven.status();
  EXPECT_EQ(uneven->slice_begin, 3);
  EXPECT_EQ(uneven->slice_count, 8);
}

struct BadSpec {
  const char* name;
  std::function<void(v1::LaunchSpec&)> make;
  const char* says;
};

class BadSpecTest : public testing::TestWithParam<BadSpec> {};

TEST_P(BadSpecTest, IsRefusedBeforeAnybodyIsCalled) {
  v1::LaunchSpec spec = Spec(1, 2, 2);
  GetParam().make(spec);
  const auto place = PlaceOf(spec);
  EXPECT_EQ(ReasonOf(place.status()).code(), reasons::kConfigInvalid) << place.status();
  EXPECT_THAT(ReasonOf(place.status()).message(), HasSubstr(GetParam().says));
  if (spec.world_size() == 1) return;
  const auto link = GangLink::Form(spec, WireType::kFloat32,
                                   [](const std::string&) { ADD_FAILURE() << "nothing is begun"; });
  EXPECT_EQ(ReasonOf(link.status()).code(), reasons::kConfigInvalid);
}

INSTANTIATE_TEST_SUITE_P(
    Specs, BadSpecTest,
    testing::Values(
        BadSpec{"NoRanks", [](auto& spec) { spec.set_world_size(0); }, "rank 1 of 0"},
        BadSpec{"RankBeyond", [](auto& spec) { spec.set_rank(4); }, "rank 4 of 4"},
        BadSpec{"NoTensorDegree", [](auto& spec) { spec.set_tp(0); }, "tp 0"},
        BadSpec{"NoStages", [](auto& spec) { spec.set_pp(0); }, "pp 0"},
        BadSpec{"DegreesDoNotMultiply", [](auto& spec) { spec.set_tp(3); }, "tp 3 and pp 2"},
        // 65538 * 65538 is 4 in 32 bits.
        BadSpec{"DegreesThatWrapAround",
                [](auto& spec) {
                  spec.set_tp(65538);
                  spec.set_pp(65538);
                },
                "tp 65538"},
        BadSpec{"AnotherStage", [](auto& spec) { spec.mutable_assignment()->set_stage(1); },
                "given stage 1 and tensor part 1"},
        BadSpec{"AnotherPart", [](auto& spec) { spec.mutable_assignment()->set_tp_rank(0); },
                "given stage 0 and tensor part 0"},
        BadSpec{"TooFewAddresses", [](auto& spec) { spec.mutable_ring_addresses()->RemoveLast(); },
                "3 ring addresses for 4 ranks"},
        BadSpec{"EmptySlice",
                [](auto& spec) {
                  spec.mutable_assignment()->set_slice_count(4);
                  spec.mutable_assignment()->set_slice_begin(2);
                  spec.mutable_assignment()->set_slice_end(2);
                },
                "slices [2, 2) of 4"},
        BadSpec{"SliceBeyond",
                [](auto& spec) {
                  spec.mutable_assignment()->set_slice_count(4);
                  spec.mutable_assignment()->set_slice_end(5);
                },
                "slices [0, 5) of 4"},
        BadSpec{"MoreSlicesThanThereCanBe",
                [](auto& spec) {
                  spec.mutable_assignment()->set_slice_count(1u << 31);
                  spec.mutable_assignment()->set_slice_end(1);
                },
                "of 2147483648"},
        BadSpec{"StagesOverJaccl", [](auto& spec) { spec.set_backend(NameOf(Backend::kJaccl)); },
                "need a group that can be divided"},
        BadSpec{"StagesOverARingOfVerbs",
                [](auto& spec) {
                  spec.set_backend(NameOf(Backend::kVerbs));
                  spec.set_backend_topology(NameOf(Topology::kRing));
                },
                "need a group that can be divided"}),
    [](const auto& info) { return info.param.name; });

TEST(DeviceMatrix, IsWhatJacclReads) {
  v1::LaunchSpec spec;
  v1::DeviceRow& first = *spec.add_device_matrix();
  first.add_cells();
  first.add_cells()->add_devices("rdma_en2");
  v1::DeviceRow& second = *spec.add_device_matrix();
  v1::DeviceCell& several = *second.add_cells();
  several.add_devices("rdma_en3");
  several.add_devices("rdma_\"en4");
  second.add_cells();
  EXPECT_EQ(DeviceMatrixOf(spec), R"([[null,"rdma_en2"],[["rdma_en3","rdma_\"en4"],null]])");
  EXPECT_EQ(DeviceMatrixOf({}), "[]");
}

TEST(Verification, SizesCrossInWholeKibibytesAndAreBounded) {
  v1::VerifyGroupRequest request;
  request.set_rounds(5000);
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{1}, uint64_t{1024}, uint64_t{1025}, uint64_t{1} << 40}) {
    request.add_sizes_bytes(size);
  }
  const Step step = VerifyStepOf(request);
  EXPECT_EQ(step.kind, StepKind::kVerify);
  EXPECT_THAT(step.verify_kib, ElementsAre(0, 1, 1, 2, 1u << 30));
  const v1::VerifyGroupRequest got = VerifyRequestOf(step);
  EXPECT_EQ(got.rounds(), kVerifyRoundsMax);
  EXPECT_THAT(got.sizes_bytes(), ElementsAre(1024, 1024, 1024, 2048, kVerifyBytesMax));
}

TEST(WireTypes, AreMlxsAndBack) {
  for (const WireType type : {WireType::kFloat32, WireType::kBfloat16, WireType::kFloat16}) {
    EXPECT_EQ(WireTypeOf(DtypeOf(type)), type);
  }
  EXPECT_EQ(WireTypeOf(mlx::core::int32), WireType::kFloat32);
}

// ---- forming, over the loopback interface

struct Gang {
  explicit Gang(uint32_t world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      v1::LaunchSpec spec = Spec(rank, 1, world);
      spec.set_gang_secret(std::string(32, 's'));
      spec.set_epoch(3);
      spec.set_connect_timeout_ms(5000);
      spec.set_step_address("127.0.0.1:" + std::to_string(step.LocalPort()));
      specs.push_back(spec);
    }
  }
  std::vector<absl::StatusOr<std::unique_ptr<GangLink>>> FormSteps() {
    std::vector<absl::StatusOr<std::unique_ptr<GangLink>>> links(specs.size());
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < specs.size(); ++rank) {
      BoundSockets bound;
      if (rank == 0) bound.step = step.Release();
      ranks.emplace_back([this, rank, bound, &links] {
        links[rank] = GangLink::FormSteps(
            specs[rank], Backend::kRing, [](const std::string&) {}, bound);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return links;
  }
  StreamSocket step = StreamSocket::Listen("127.0.0.1:0").value();
  std::vector<v1::LaunchSpec> specs;
};

TEST(GangLink, RanksOfAnEngineWithAGroupOfItsOwnHaveTheStepsAndALineEach) {
  Gang gang(3);
  const auto links = gang.FormSteps();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(links[rank].ok()) << links[rank].status();
    GangLink& link = **links[rank];
    EXPECT_EQ(link.rank(), rank);
    EXPECT_EQ(link.group_size(), 3u);
    EXPECT_EQ(link.backend(), Backend::kRing);
    EXPECT_TRUE(link.single()) << "no group of MLX's";
    EXPECT_EQ(link.own_group(), nullptr);
    EXPECT_FALSE(link.tells_observer());
    EXPECT_EQ(link.bytes_moved(), 0u);
    EXPECT_EQ(link.leader() != nullptr, rank == 0);
    EXPECT_EQ(link.follower() != nullptr, rank != 0);
    const auto lines = link.TakeWatchLines();
    ASSERT_EQ(lines.size(), rank == 0 ? 3u : 1u);
    EXPECT_EQ(lines[0].open(), rank != 0);
    const auto verified = link.Verify({});
    EXPECT_EQ(ReasonOf(verified.status()).code(), reasons::kEngineLimit);
  }
  Step stop;
  stop.kind = StepKind::kStop;
  stop.number = 1;  // after the first, which connected
  ASSERT_TRUE((*links[0])->leader()->Send(stop).ok());
  for (const int rank : {1, 2}) {
    EXPECT_EQ((*links[rank])->follower()->Receive()->kind, StepKind::kStop);
  }
  (*links[1])->ShutDown();
  EXPECT_FALSE((*links[1])->follower()->Receive().ok());
}

TEST(GangLink, WhoDoesNotComeIsNamedByRankZeroAndRankZeroByOthers) {
  Gang gang(3);
  gang.specs.pop_back();
  for (v1::LaunchSpec& spec : gang.specs) spec.set_connect_timeout_ms(300);
  const auto links = gang.FormSteps();
  EXPECT_EQ(ReasonOf(links[0].status()).code(), reasons::kConnectFailed);
  EXPECT_THAT(ReasonOf(links[0].status()).message(),
              HasSubstr("rank 2 did not connect to rank 0 within 300 ms"));
  EXPECT_FALSE(links[1].ok());
  v1::LaunchSpec nobody = gang.specs[1];
  const auto alone = GangLink::FormSteps(nobody, Backend::kRing, [](const std::string&) {});
  EXPECT_EQ(ReasonOf(alone.status()).code(), reasons::kConnectFailed);
  EXPECT_THAT(ReasonOf(alone.status()).message(),
              HasSubstr("rank 1 can't reach rank 0 at " + nobody.step_address()));
}

TEST(GangLink, ARankOfAnotherEpochIsNotLetIn) {
  Gang gang(2);
  gang.specs[1].set_epoch(2);
  for (v1::LaunchSpec& spec : gang.specs) spec.set_connect_timeout_ms(400);
  const auto links = gang.FormSteps();
  EXPECT_FALSE(links[0].ok());
  EXPECT_FALSE(links[1].ok());
  EXPECT_THAT(ReasonOf(links[0].status()).message(), HasSubstr("refused"));
}

TEST(GangLink, OneRankNeedsNobodyAndFreesItsPort) {
  StreamSocket ring = StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address = "127.0.0.1:" + std::to_string(ring.LocalPort());
  BoundSockets bound;
  bound.ring = ring.Release();
  const auto link = GangLink::Form(
      Spec(0, 1, 1), WireType::kBfloat16, [](const std::string&) {}, nullptr, bound);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_TRUE((*link)->single());
  EXPECT_EQ((*link)->backend(), Backend::kSingle);
  EXPECT_EQ((*link)->wire_type(), mlx::core::bfloat16);
  EXPECT_TRUE(StreamSocket::Listen(address).ok()) << "nobody meets there";
  const auto verified = (*link)->Verify({});
  ASSERT_TRUE(verified.ok());
  EXPECT_TRUE(verified->sum_correct());
  EXPECT_EQ(verified->group_size(), 1u);
}

}  // namespace
}  // namespace macrame::runtime::engine
