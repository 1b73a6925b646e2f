#include "agentd/services/log_watches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

// Who reads: goes on, or is gone.
struct Reader {
  std::string text;
  std::optional<absl::Status> end;
  std::function<void()> on_cancel;
  bool is_gone = false;
};

class ReadersCall final : public transport::ServerStream::Call {
 public:
  explicit ReadersCall(std::shared_ptr<Reader> reader) : reader_(std::move(reader)) {}
  bool Write(const google::protobuf::MessageLite& message) override {
    if (reader_->is_gone || reader_->end.has_value()) return false;
    reader_->text += static_cast<const v1::LogsChunk&>(message).text();
    return true;
  }
  void Answer(const google::protobuf::MessageLite& message) override {
    Write(message);
    Finish(absl::OkStatus());
  }
  void Finish(const absl::Status& status) override {
    if (!reader_->end.has_value()) reader_->end = status;
  }
  void OnCancel(std::function<void()> on_cancel) override {
    reader_->on_cancel = std::move(on_cancel);
  }

 private:
  const std::shared_ptr<Reader> reader_;
};

class LogWatchesTest : public ::testing::Test {
 protected:
  LogWatchesTest() : path_(FreshFolder() + "/agentd.log"), watches_(path_) {}

  void Log(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  // Over the socket, or with an access file's key.
  std::shared_ptr<Reader> Read(uint32_t lines, bool follow, const std::string& key_id = "") {
    auto reader = std::make_shared<Reader>();
    v1::LogsRequest request;
    request.set_lines(lines);
    request.set_follow(follow);
    const transport::Caller caller{NodeId(), /*local=*/key_id.empty(), "", key_id};
    watches_.Add(caller, request, transport::ServerStream(std::make_shared<ReadersCall>(reader)));
    return reader;
  }

  const std::string path_;
  LogWatches watches_;
};

TEST_F(LogWatchesTest, TheLastLinesAreToldAndTheEnd) {
  Log("one\ntwo\nthree\n");
  const auto reader = Read(2, false);
  EXPECT_EQ(reader->text, "two\nthree\n");
  EXPECT_TRUE(reader->end.has_value() && reader->end->ok());
  EXPECT_TRUE(watches_.IsEmpty());
}

TEST_F(LogWatchesTest, WhoAsksForNoNumberGetsAHundred) {
  for (int line = 0; line < 250; ++line) Log(absl::StrCat(line, "\n"));
  const std::string text = Read(0, false)->text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<int>(kLogLinesDefault));
  EXPECT_EQ(text.substr(0, 4), "150\n");
}

TEST_F(LogWatchesTest, WithoutALogItIsSaid) {
  const auto reader = Read(5, true);
  ASSERT_TRUE(reader->end.has_value());
  EXPECT_TRUE(absl::IsNotFound(*reader->end)) << *reader->end;
  EXPECT_TRUE(watches_.IsEmpty());
}

TEST_F(LogWatchesTest, WhoFollowsGetsEachLineOnceAndNoHalfOnes) {
  Log("one\n");
  const auto reader = Read(5, true);
  EXPECT_FALSE(reader->end.has_value());
  watches_.Tick();
  EXPECT_EQ(reader->text, "one\n");
  Log("two\nthr");
  watches_.Tick();
  EXPECT_EQ(reader->text, "one\ntwo\n");
  Log("ee\n");
  watches_.Tick();
  watches_.Tick();
  EXPECT_EQ(reader->text, "one\ntwo\nthree\n");
}

TEST_F(LogWatchesTest, ALogThatIsRotatedIsFollowedOn) {
  Log("a long first line\n");
  const auto reader = Read(5, true);
  std::remove(path_.c_str());
  watches_.Tick();
  Log("new\n");
  watches_.Tick();
  EXPECT_EQ(reader->text, "a long first line\nnew\n");
}

TEST_F(LogWatchesTest, WhoIsGoneIsForgotten) {
  Log("one\n");
  const auto cancelled = Read(5, true), deaf = Read(5, true), stays = Read(5, true);
  cancelled->on_cancel();
  deaf->is_gone = true;
  Log("two\n");
  watches_.Tick();
  EXPECT_EQ(cancelled->text, "one\n");
  EXPECT_EQ(stays->text, "one\ntwo\n");
  stays->on_cancel();
  watches_.Tick();
  EXPECT_TRUE(watches_.IsEmpty());
}

TEST_F(LogWatchesTest, SoManyFollowAndNoMore) {
  Log("one\n");
  std::vector<std::shared_ptr<Reader>> readers;
  for (size_t i = 0; i < kLogWatchesMax; ++i) readers.push_back(Read(1, true));
  const auto refused = Read(1, true);
  ASSERT_TRUE(refused->end.has_value());
  EXPECT_EQ(refused->end->code(), absl::StatusCode::kResourceExhausted);
  readers.front()->on_cancel();
  watches_.Tick();
  EXPECT_FALSE(Read(1, true)->end.has_value()) << "there is room again";
}

TEST_F(LogWatchesTest, NoAccessFileTakesThePlacesOfOthers) {
  Log("one\n");
  const WatchPlaces places(kLogWatchesMax);
  std::vector<std::shared_ptr<Reader>> readers;
  const auto follow = [&](const std::string& key_id) {
    readers.push_back(Read(1, true, key_id));
    return !readers.back()->end.has_value();
  };
  size_t of_keys = 0;
  for (const char* key : {"a", "b", "c", "d", "e", "f"}) {
    size_t of_key = 0;
    while (of_key < kLogWatchesMax && follow(key)) ++of_key;
    EXPECT_LE(of_key, places.of_key_max()) << key;
    of_keys += of_key;
  }
  EXPECT_EQ(of_keys, kLogWatchesMax - places.kept());
  EXPECT_EQ(Read(1, false, "a")->text, "one\n") << "who does not follow takes no place";
  for (size_t i = 0; i < places.kept(); ++i) EXPECT_TRUE(follow("")) << "over the socket";
  EXPECT_FALSE(follow(""));
  EXPECT_EQ(Read(1, false)->text, "one\n");
  readers.front()->on_cancel();
  watches_.Tick();
  EXPECT_TRUE(follow("a")) << "its place was given back";
}

}  // namespace
}  // namespace macrame::agentd
