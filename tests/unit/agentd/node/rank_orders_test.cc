// RankOrders, and NodeCalls on the way to it: whose orders this node obeys, and when it takes
// ranks.

#include "agentd/node/rank_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "agentd/node/node_calls.h"
#include "proto/reasons.h"
#include "runtime/second_engine/mlx_lm.h"
#include "tests/support/fake_dispatcher.h"
#include "tests/unit/agentd/idle_machine.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const NodeId kSelf(std::string(32, 'a'));
const NodeId kCoordinator(std::string(32, 'b'));
const NodeId kOther(std::string(32, 'c'));

// Has "m" and "d"; answers when it is told to.
class SlowLibrary final : public ModelLibrary {
 public:
  void Start(Duration, std::function<void(std::vector<v1::LocalModel>)>) override {}
  void Stop() override {}
  void ExpectSecondEngine() override {}
  void SetSecondEngine(runtime::SecondEngine) override {}
  void Resolve(const std::string& name, Described done) override {
    v1::ModelDescription model;
    model.set_name(name);
    Find(model, std::move(done));
  }
  void Locate(const std::string&, Located) override {}
  void Find(const v1::ModelDescription& model, Described done) override {
    const bool is_here = model.name() == "m" || model.name() == "d";
    absl::StatusOr<DescribedModel> found =
        ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound, "no folder has it");
    if (is_here) {
      found = DescribedModel{model, ""};
      found->description.set_path("/here/" + model.name());
    }
    looks_.push_back([done = std::move(done), found] { done(found); });
  }
  const std::vector<v1::Reason>& broken() const override { return broken_; }

  // The next look is through.
  void Answer() {
    ASSERT_FALSE(looks_.empty());
    const auto next = std::move(looks_.front());
    looks_.erase(looks_.begin());
    next();
  }
  bool is_asked() const { return !looks_.empty(); }

 private:
  std::vector<std::function<void()>> looks_;
  const std::vector<v1::Reason> broken_;
};

class NotingSupervisor final : public tests::ListedRanks {
 public:
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                              const std::string& local_ip,
                                              const runtime::NodeMemory&) override {
    reservations.push_back(
        absl::StrCat(request.model().path(), " ", request.draft_model().path(), " at ", local_ip));
    return v1::ReserveResponse();
  }
  absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec& spec) override {
    launched.push_back(spec.deployment());
    return v1::LaunchResponse();
  }
  uint32_t StopRanks(const std::string& deployment, uint64_t up_to_epoch, const std::string&, bool,
                     uint64_t) override {
    stopped.push_back(absl::StrCat(deployment, " ", up_to_epoch));
    return 1;
  }

  std::vector<std::string> reservations, launched, stopped;
};

class RankOrdersTest : public ::testing::Test {
 protected:
  RankOrdersTest() { GrantTo(kCoordinator, 3); }

  void GrantTo(const NodeId& node, uint64_t term) {
    v1::LeaseRequest lease;
    *lease.mutable_fence() = ToProto({Term(term), node});
    lease.set_lease_ms(2000);
    dispatcher_.AdvanceBy(std::chrono::seconds(10));
    election_.OnLeaseRequest(node, lease, dispatcher_.Now());
  }
  static v1::Fence FenceOf(const NodeId& node, uint64_t term) {
    return ToProto({Term(term), node});
  }
  v1::ReserveRequest Order(const std::string& model, const std::string& draft = "") {
    v1::ReserveRequest request;
    *request.mutable_fence() = FenceOf(kCoordinator, 3);
    request.mutable_model()->set_name(model);
    if (!draft.empty()) request.mutable_draft_model()->set_name(draft);
    return request;
  }
  void Reserve(const NodeId& from, const v1::ReserveRequest& request) {
    told_.reset();
    orders_.Reserve(from, request, [this](const absl::StatusOr<v1::ReserveResponse>& response) {
      EXPECT_FALSE(told_.has_value()) << "told twice";
      told_ = response.status();
    });
  }
  std::string Told() const {
    if (!told_.has_value()) return "waits";
    return told_->ok() ? "ok" : ReasonOf(*told_).code();
  }

  transport::FakeDispatcher dispatcher_;
  Election election_{kSelf, ElectionOptions(), std::nullopt, [] { return uint64_t{0}; },
                     dispatcher_.Now()};
  SlowLibrary library_;
  NotingSupervisor supervisor_;
  bool is_draining_ = false;
  RankOrders orders_{election_,
                     library_,
                     supervisor_,
                     {[] { return std::string("10.0.0.1"); }, [] { return runtime::NodeMemory(); },
                      [this] { return is_draining_; }}};
  PeerChannels channels_{[](const auto&...) { return nullptr; }};
  NodeCalls calls_{kSelf, channels_, orders_, library_};
  std::optional<absl::Status> told_;
};

TEST_F(RankOrdersTest, ARankIsReservedForWhereThisNodeHasTheFiles) {
  Reserve(kCoordinator, Order("m"));
  EXPECT_EQ(Told(), "waits");
  library_.Answer();
  EXPECT_EQ(Told(), "ok");
  EXPECT_THAT(supervisor_.reservations, ElementsAre("/here/m  at 10.0.0.1"));
}

TEST_F(RankOrdersTest, TheDraftModelIsLookedForToo) {
  Reserve(kCoordinator, Order("m", "d"));
  library_.Answer();
  EXPECT_EQ(Told(), "waits");
  library_.Answer();
  EXPECT_EQ(Told(), "ok");
  EXPECT_THAT(supervisor_.reservations, ElementsAre("/here/m /here/d at 10.0.0.1"));
}

TEST_F(RankOrdersTest, WhatIsMissingIsNamed) {
  Reserve(kCoordinator, Order("x"));
  library_.Answer();
  EXPECT_EQ(Told(), reasons::kModelNotFound);
  Reserve(kCoordinator, Order("m", "x"));
  library_.Answer();
  library_.Answer();
  EXPECT_EQ(Told(), reasons::kModelNotFound);
  EXPECT_THAT(ReasonOf(*told_).message(), HasSubstr("the draft model x"));
  EXPECT_THAT(supervisor_.reservations, IsEmpty());
}

TEST_F(RankOrdersTest, WhoDoesNotHoldTheLeaseIsNotObeyed) {
  v1::ReserveRequest order = Order("m");
  Reserve(kOther, order);
  EXPECT_EQ(told_->code(), absl::StatusCode::kPermissionDenied) << "in another's name";
  *order.mutable_fence() = FenceOf(kCoordinator, 2);
  Reserve(kCoordinator, order);
  EXPECT_EQ(Told(), reasons::kStaleTerm);
  *order.mutable_fence() = FenceOf(kOther, 9);
  Reserve(kOther, order);
  EXPECT_EQ(Told(), reasons::kNoCoordinator) << "not granted yet";
  EXPECT_FALSE(library_.is_asked());
  v1::LaunchRequest launch;
  *launch.mutable_fence() = FenceOf(kCoordinator, 2);
  v1::StopRanksRequest stop;
  *stop.mutable_fence() = FenceOf(kCoordinator, 2);
  int refused = 0;
  orders_.Launch(kCoordinator, launch, [&](const auto& response) { refused += !response.ok(); });
  orders_.StopRanks(kCoordinator, stop, [&](const auto& response) { refused += !response.ok(); });
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(supervisor_.launched, IsEmpty());
  EXPECT_THAT(supervisor_.stopped, IsEmpty());
}

// Looking at files took a moment in which another was elected, or this node was told to stop.
TEST_F(RankOrdersTest, WhatChangedWhileFilesWereLookedAtCounts) {
  for (const int looks : {1, 2}) {
    for (const bool is_draining : {false, true}) {
      GrantTo(kCoordinator, election_.highest_term().value() + 1);
      v1::ReserveRequest order = Order("m", looks == 2 ? "d" : "");
      *order.mutable_fence() = FenceOf(kCoordinator, election_.highest_term().value());
      is_draining_ = false;
      Reserve(kCoordinator, order);
      if (looks == 2) library_.Answer();
      ASSERT_EQ(Told(), "waits");
      if (is_draining) {
        is_draining_ = true;
      } else {
        GrantTo(kOther, election_.highest_term().value() + 1);
      }
      library_.Answer();
      EXPECT_EQ(Told(), is_draining ? reasons::kNodeLeft : reasons::kStaleTerm)
          << looks << " looks, draining: " << is_draining;
    }
  }
  EXPECT_THAT(supervisor_.reservations, IsEmpty());
}

// It takes nothing new, and ends what it is told to end.
TEST_F(RankOrdersTest, ANodeThatIsAboutToStopStartsNothingAndEndsRanks) {
  is_draining_ = true;
  Reserve(kCoordinator, Order("m"));
  EXPECT_EQ(Told(), reasons::kNodeLeft);
  v1::LaunchRequest launch;
  *launch.mutable_fence() = FenceOf(kCoordinator, 3);
  orders_.Launch(kCoordinator, launch, [](const auto& response) {
    EXPECT_EQ(ReasonOf(response.status()).code(), reasons::kNodeLeft);
  });
  v1::StopRanksRequest stop;
  *stop.mutable_fence() = FenceOf(kCoordinator, 3);
  stop.set_deployment("m");
  stop.set_up_to_epoch(7);
  uint32_t ended = 0;
  orders_.StopRanks(kCoordinator, stop, [&](const auto& response) { ended = response->ended(); });
  EXPECT_EQ(ended, 1u);
  EXPECT_THAT(supervisor_.stopped, ElementsAre("m 7"));
  EXPECT_THAT(supervisor_.launched, IsEmpty());
}

// --- NodeCalls -----------------------------------------------------------------------------------

TEST_F(RankOrdersTest, OrdersToThisNodeItselfTakeNoWireAndAreCheckedTheSame) {
  v1::LaunchRequest launch;
  *launch.mutable_fence() = FenceOf(kCoordinator, 3);
  absl::Status refused;
  calls_.Launch(kSelf, launch, [&](const auto& response) { refused = response.status(); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << "this node does not lead";
  std::string path;
  calls_.DescribeModel(kSelf, "m", [&](const absl::StatusOr<v1::DescribeModelResponse>& found) {
    path = found->model().path();
  });
  library_.Answer();
  EXPECT_EQ(path, "/here/m");
  absl::Status missing;
  calls_.DescribeModel(kSelf, "x", [&](const auto& found) { missing = found.status(); });
  library_.Answer();
  EXPECT_EQ(ReasonOf(missing).code(), reasons::kModelNotFound);
}

TEST_F(RankOrdersTest, ANodeThatCantBeCalledIsNamed) {
  int told = 0;
  const auto is_named = [&](const auto& response) {
    ++told;
    EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(response.status().message()), HasSubstr(ShortId(kOther)));
  };
  calls_.Reserve(kOther, v1::ReserveRequest(), is_named);
  calls_.Launch(kOther, v1::LaunchRequest(), is_named);
  calls_.StopRanks(kOther, v1::StopRanksRequest(), is_named);
  calls_.DescribeModel(kOther, "m", is_named);
  EXPECT_EQ(told, 4);
}

}  // namespace
}  // namespace macrame::agentd
