// A gang over jaccl, with a stand-in for MLX's group: forming it over the gang's own lines, proving
// it, and letting go of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/distributed/distributed_impl.h"
#include "mlx/scheduler.h"
#include "proto/reasons.h"
#include "runtime/gang/gang_link.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using testing::Each;
using testing::HasSubstr;
using transport::StreamSocket;

constexpr const char* kVariables[] = {
    "JACCL_RING", "MLX_JACCL_RING", "JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR",
    "JACCL_RANK", "MLX_RANK",       "JACCL_IBV_DEVICES", "MLX_IBV_DEVICES"};

// What the ranks of one process share in the place of cables.
struct Wire {
  explicit Wire(uint32_t world) : parts(world), arrived(world) {}
  std::vector<std::vector<float>> parts;
  std::barrier<> arrived;
  size_t damaged_from = SIZE_MAX;  // sums of so many bytes and more lack the last rank's share
  bool is_gather_halved = false;   // of each part the second half is missing
};

// Sums floats as jaccl's group does, on a stream of its own, where MLX would have one process each.
class StandInGroup : public mx::distributed::detail::GroupImpl {
 public:
  StandInGroup(std::shared_ptr<Wire> wire, int rank)
      : wire_(std::move(wire)), rank_(rank), stream_(mx::new_stream(mx::Device::cpu)) {}

  mx::Stream communication_stream(mx::StreamOrDevice) override { return stream_; }
  int rank() override { return rank_; }
  int size() override { return static_cast<int>(wire_->parts.size()); }
  void all_sum(const mx::array& in, mx::array& out, mx::Stream stream) override {
    Exchange(in, out, stream, [this](float* to, size_t count) {
      const bool is_damaged = count * sizeof(float) >= wire_->damaged_from;
      std::fill_n(to, count, 0.0F);
      for (size_t part = 0; part + (is_damaged ? 1 : 0) < wire_->parts.size(); ++part) {
        for (size_t i = 0; i < count; ++i) to[i] += wire_->parts[part][i];
      }
    });
  }
  std::shared_ptr<GroupImpl> split(int, int) override { return nullptr; }
  void all_gather(const mx::array& in, mx::array& out, mx::Stream stream) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Exchange(in, out, stream, [this](float* to, size_t count) {
      const auto whole = static_cast<ptrdiff_t>(count);
      for (size_t part = 0; part < wire_->parts.size(); ++part) {
        std::fill_n(to + part * count, count, 0.0F);
        std::copy_n(wire_->parts[part].data(), wire_->is_gather_halved ? whole / 2 : whole,
                    to + part * count);
      }
    });
  }
  void send(const mx::array&, int, mx::Stream) override {}
  void recv(mx::array&, int, mx::Stream) override {}
  void all_max(const mx::array&, mx::array&, mx::Stream) override {}
  void all_min(const mx::array&, mx::array&, mx::Stream) override {}
  void sum_scatter(const mx::array&, mx::array&, mx::Stream) override {}

 private:
  // Each rank lays its part beside the others', and then makes its result of all of them.
  void Exchange(const mx::array& in, mx::array& out, mx::Stream stream,
                std::function<void(float* to, size_t count)> combine) {
    auto& encoder = mx::cpu::get_command_encoder(stream);
    encoder.set_input_array(in);
    encoder.set_output_array(out);
    encoder.dispatch([this, from = in.data<float>(), to = out.data<float>(), count = in.size(),
                      combine = std::move(combine)] {
      wire_->parts[rank_].assign(from, from + count);
      wire_->arrived.arrive_and_wait();
      combine(to, count);
      wire_->arrived.arrive_and_wait();
    });
  }

  const std::shared_ptr<Wire> wire_;
  const int rank_;
  const mx::Stream stream_;
};

// Ranks as threads. `form` makes one's group; its first words come over the side channel.
struct JacclGang {
  explicit JacclGang(uint32_t world)
      : wire(std::make_shared<Wire>(world)), kept(world), cached(world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      v1::LaunchSpec spec;
      spec.set_rank(rank);
      spec.set_world_size(world);
      spec.set_tp(world);
      spec.set_pp(1);
      spec.set_backend(NameOf(Backend::kJaccl));
      spec.set_backend_topology(NameOf(Topology::kMesh));
      for (uint32_t i = 0; i < world; ++i)
        spec.add_ring_addresses(absl::StrCat("10.0.0.", i, ":1"));
      spec.mutable_assignment()->set_tp_rank(rank);
      spec.mutable_assignment()->set_layer_end(10);
      for (uint32_t row = 0; row < world; ++row) {
        v1::DeviceRow& devices = *spec.add_device_matrix();
        for (uint32_t cell = 0; cell < world; ++cell) {
          devices.add_cells()->add_devices(absl::StrCat("rdma_en", cell));
        }
      }
      spec.set_gang_secret(std::string(32, 's'));
      spec.set_connect_timeout_ms(5000);
      spec.set_step_address(absl::StrCat("127.0.0.1:", step.LocalPort()));
      specs.push_back(spec);
    }
    told.resize(world);
    forgotten.resize(world, 0);
  }

  JacclLibrary Library(uint32_t rank) {
    return {[] { return true; },
            [this, rank](const mx::distributed::AllGatherFactory& factory) {
              const auto world = static_cast<int>(specs.size());
              std::string all(static_cast<size_t>(world) * 3, '?');
              factory(static_cast<int>(rank), world)(absl::StrCat("qp", rank).c_str(), all.data(),
                                                     3);
              told[rank] = all;
              const auto group = std::make_shared<StandInGroup>(wire, static_cast<int>(rank));
              kept[rank] = group;
              cached[rank] = group;
              return mx::distributed::Group(group);
            },
            [this, rank] {
              ++forgotten[rank];
              cached[rank] = nullptr;
            }};
  }

  std::vector<absl::StatusOr<std::unique_ptr<GangLink>>> Form() {
    std::vector<absl::StatusOr<std::unique_ptr<GangLink>>> links(specs.size());
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < specs.size(); ++rank) {
      BoundSockets bound;
      if (rank == 0) bound.step = step.Release();
      ranks.emplace_back([this, rank, bound, &links] {
        links[rank] = GangLink::Form(
            specs[rank], WireType::kFloat32, [](const std::string&) {}, nullptr, bound,
            Library(rank));
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return links;
  }

  StreamSocket step = StreamSocket::Listen("127.0.0.1:0").value();
  std::shared_ptr<Wire> wire;
  std::vector<v1::LaunchSpec> specs;
  std::vector<std::string> told;
  std::vector<int> forgotten;
  std::vector<std::weak_ptr<StandInGroup>> kept;
  std::vector<std::shared_ptr<StandInGroup>> cached;  // MLX keeps each until it is told to forget
};

TEST(JacclGroup, RanksTellEachOtherTheirQueuePairsOverTheGangsLines) {
  for (const uint32_t world : {2U, 3U}) {
    JacclGang gang(world);
    const auto links = gang.Form();
    for (const auto& link : links) {
      ASSERT_TRUE(link.ok()) << link.status();
      EXPECT_EQ((*link)->backend(), Backend::kJaccl);
      EXPECT_EQ((*link)->group_size(), world);
      EXPECT_FALSE((*link)->single());
      EXPECT_EQ((*link)->own_group(), nullptr);
    }
    EXPECT_THAT(gang.told, Each(world == 2 ? "qp0qp1" : "qp0qp1qp2"));
  }
}

TEST(JacclGroup, NothingOfAUsersEnvironmentCounts) {
  JacclGang gang(2);
  for (const char* name : kVariables) setenv(name, "99", 1);
  ASSERT_TRUE(gang.Form()[0].ok());
  for (const char* name : kVariables) {
    const char* value = getenv(name);
    if (std::string_view(name).ends_with("RANK") || std::string_view(name).ends_with("DEVICES")) {
      ASSERT_NE(value, nullptr) << name;
      EXPECT_STRNE(value, "99") << name;
    } else {
      EXPECT_EQ(value, nullptr) << name;
    }
  }
  JacclGang ring(3);
  for (v1::LaunchSpec& spec : ring.specs) spec.set_backend_topology(NameOf(Topology::kRing));
  ASSERT_TRUE(ring.Form()[0].ok());
  EXPECT_STREQ(getenv("JACCL_RING"), "1");
}

// macOS before and after 26.3 cut messages of 64 KiB differently; smaller ones are whole.
TEST(JacclGroup, ThatAddsWronglyOnlyAtSomeSizeIsRefused) {
  for (const size_t from : {size_t{1}, size_t{64} << 10, size_t{1} << 20}) {
    JacclGang gang(2);
    gang.wire->damaged_from = from;
    const auto links = gang.Form();
    for (const auto& link : links) {
      EXPECT_EQ(ReasonOf(link.status()).code(), reasons::kGroupMismatch) << from;
    }
    if (from > 1) {
      EXPECT_THAT(ReasonOf(links[0].status()).message(),
                  HasSubstr(absl::StrCat("a sum of ", from >> 10, " KiB over jaccl")));
    }
    EXPECT_THAT(gang.cached, Each(nullptr)) << "what is refused holds no device";
  }
}

// MLX's ring did, until 0.32.4: sums were right, and every answer would have been wrong.
TEST(JacclGroup, ThatGathersWronglyIsRefused) {
  JacclGang gang(3);
  gang.wire->is_gather_halved = true;
  for (const auto& link : gang.Form()) {
    EXPECT_EQ(ReasonOf(link.status()).code(), reasons::kGroupMismatch);
    EXPECT_THAT(ReasonOf(link.status()).message(),
                HasSubstr("a gather of 64 KiB of each rank over jaccl has "));
  }
  EXPECT_THAT(gang.cached, Each(nullptr)) << "what is refused holds no device";
}

TEST(JacclGroup, IsGivenBackOnceWhenItsRankLeavesOrGoes) {
  JacclGang gang(2);
  auto links = gang.Form();
  ASSERT_TRUE(links[0].ok() && links[1].ok());
  EXPECT_FALSE(gang.kept[0].expired());
  (*links[0])->LeaveGroup();
  EXPECT_TRUE(gang.kept[0].expired());
  (*links[0])->LeaveGroup();
  links.clear();
  EXPECT_TRUE(gang.kept[1].expired());
  EXPECT_THAT(gang.forgotten, Each(1));
}

TEST(JacclGroup, WithoutJacclOrAWholeMatrixNobodyIsCalled) {
  for (const bool has_jaccl : {false, true}) {
    JacclGang gang(2);
    if (has_jaccl) {
      for (v1::LaunchSpec& spec : gang.specs) spec.mutable_device_matrix()->RemoveLast();
    }
    std::vector<absl::Status> failed(2);
    std::vector<std::thread> ranks;
    for (uint32_t rank : {0U, 1U}) {
      BoundSockets bound;
      if (rank == 0) bound.step = gang.step.Release();
      ranks.emplace_back([&, rank, bound] {
        failed[rank] =
            GangLink::Form(gang.specs[rank], WireType::kFloat32, [](const std::string&) {}, nullptr,
                           bound,
                           {[has_jaccl] { return has_jaccl; },
                            [](const mx::distributed::AllGatherFactory&) -> mx::distributed::Group {
                              throw std::logic_error("nothing is formed");
                            },
                            [] {}})
                .status();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const absl::Status& status : failed) {
      EXPECT_EQ(ReasonOf(status).code(),
                has_jaccl ? reasons::kConfigInvalid : reasons::kTransportUnavailable);
    }
  }
}

TEST(JacclGroup, WhatIsQueuedKeepsItsGroup) {
  JacclGang gang(2);
  auto links = gang.Form();
  ASSERT_TRUE(links[0].ok() && links[1].ok());
  const mx::Stream stream = (*links[0])->group().raw_group()->communication_stream({});
  std::promise<void> other_rank_came;
  mx::scheduler::enqueue(stream, [came = other_rank_came.get_future().share()] { came.wait(); });
  (*links[0])->LeaveGroup();
  EXPECT_FALSE(gang.kept[0].expired());
  other_rank_came.set_value();
  (*links[0])->LeaveGroup();
  EXPECT_TRUE(gang.kept[0].expired());
}

TEST(JacclGroup, WhoFormsNoneNamesWhatTheLibrarySays) {
  JacclGang gang(2);
  auto form = [&](uint32_t rank, const BoundSockets& bound) {
    return GangLink::Form(
        gang.specs[rank], WireType::kFloat32, [](const std::string&) {}, nullptr, bound,
        {[] { return true; },
         [](const mx::distributed::AllGatherFactory&) -> mx::distributed::Group {
           throw std::runtime_error("[jaccl] Couldn't allocate protection domain");
         },
         [] { ADD_FAILURE() << "there is nothing to give back"; }});
  };
  std::thread other([&] { EXPECT_FALSE(form(1, {}).ok()); });
  BoundSockets bound;
  bound.step = gang.step.Release();
  const auto link = form(0, bound);
  other.join();
  EXPECT_EQ(ReasonOf(link.status()).code(), reasons::kConnectFailed);
  EXPECT_THAT(ReasonOf(link.status()).message(),
              HasSubstr("rank 0 could not form the jaccl group: [jaccl] Couldn't allocate"));
}

}  // namespace
}  // namespace macrame::runtime::engine
