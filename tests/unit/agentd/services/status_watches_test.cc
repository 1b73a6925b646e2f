#include "agentd/services/status_watches.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

// Who watches: how often it was told, and how it ended.
struct Watcher {
  int told = 0;
  std::optional<absl::Status> end;
  std::function<void()> on_cancel;
};

class WatchersCall final : public transport::ServerStream::Call {
 public:
  explicit WatchersCall(std::shared_ptr<Watcher> watcher) : watcher_(std::move(watcher)) {}
  bool Write(const google::protobuf::MessageLite&) override {
    ++watcher_->told;
    return true;
  }
  void Answer(const google::protobuf::MessageLite&) override {}
  void Finish(const absl::Status& status) override { watcher_->end = status; }
  void OnCancel(std::function<void()> on_cancel) override {
    watcher_->on_cancel = std::move(on_cancel);
  }

 private:
  const std::shared_ptr<Watcher> watcher_;
};

class StatusWatchesTest : public ::testing::Test {
 protected:
  // Over the socket, or with an access file's key.
  std::shared_ptr<Watcher> Watch(uint32_t interval_ms, const std::string& key_id = "") {
    auto watcher = std::make_shared<Watcher>();
    const transport::Caller caller{NodeId(), /*local=*/key_id.empty(), "", key_id};
    const bool taken = watches_.Add(
        caller, interval_ms, transport::ServerStream(std::make_shared<WatchersCall>(watcher)));
    EXPECT_NE(taken, watcher->end.has_value());
    return watcher;
  }
  void TickAfter(int64_t ms, bool changed = false) {
    now_ += milliseconds(ms);
    watches_.Tick(now_, changed, [this] {
      ++asked_;
      return v1::ClusterStatus();
    });
  }

  MonotonicTime now_{std::chrono::hours(1)};
  int asked_ = 0;
  StatusWatches watches_;
};

TEST_F(StatusWatchesTest, EachIsToldAtOnceAtAChangeAndAfterItsInterval) {
  const auto often = Watch(1000), seldom = Watch(5000);
  TickAfter(0);
  EXPECT_EQ(often->told, 1);
  EXPECT_EQ(seldom->told, 1);
  EXPECT_EQ(asked_, 1) << "once for all";
  TickAfter(1000);
  EXPECT_EQ(often->told, 2);
  EXPECT_EQ(seldom->told, 1);
  TickAfter(100, /*changed=*/true);
  EXPECT_EQ(often->told, 3);
  EXPECT_EQ(seldom->told, 2);
  TickAfter(100);
  EXPECT_EQ(asked_, 3) << "it was nobody's turn";
}

TEST_F(StatusWatchesTest, NoIntervalIsBeyondItsBounds) {
  const auto longest = Watch(UINT32_MAX), shortest = Watch(1);
  TickAfter(0);
  TickAfter(kStatusIntervalMinMs - 1);
  EXPECT_EQ(shortest->told, 1);
  TickAfter(1);
  EXPECT_EQ(shortest->told, 2);
  TickAfter(kStatusIntervalMaxMs);
  EXPECT_EQ(longest->told, 2);
}

TEST_F(StatusWatchesTest, WhoIsGoneIsForgottenBeforeItsTurn) {
  const auto watcher = Watch(kStatusIntervalMaxMs);
  TickAfter(0);
  watcher->on_cancel();
  TickAfter(100);
  EXPECT_TRUE(watches_.IsEmpty());
  EXPECT_EQ(watcher->told, 1);
}

TEST_F(StatusWatchesTest, NoAccessFileTakesThePlacesOfOthers) {
  const WatchPlaces places(kStatusWatchesMax);
  std::vector<std::shared_ptr<Watcher>> watchers;
  const auto watch = [&](const std::string& key_id) {
    watchers.push_back(Watch(0, key_id));
    return !watchers.back()->end.has_value();
  };
  size_t of_keys = 0;
  for (const char* key : {"a", "b", "c", "d", "e", "f"}) {
    size_t of_key = 0;
    while (of_key < kStatusWatchesMax && watch(key)) ++of_key;
    EXPECT_LE(of_key, places.of_key_max()) << key;
    of_keys += of_key;
  }
  EXPECT_EQ(of_keys, kStatusWatchesMax - places.kept());
  for (size_t i = 0; i < places.kept(); ++i) EXPECT_TRUE(watch("")) << "over the socket";
  EXPECT_FALSE(watch(""));
  EXPECT_EQ(watchers.back()->end->code(), absl::StatusCode::kResourceExhausted);
  watchers.front()->on_cancel();
  TickAfter(0);
  EXPECT_TRUE(watch("a")) << "its place was given back";
}

}  // namespace
}  // namespace macrame::agentd
