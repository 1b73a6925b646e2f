// What takes long to prepare holds up nobody but itself: the rank goes on reporting, and short
// chats are answered.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "tests/unit/runtime/model/model_fixture.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An agent ends a rank that says nothing for 10 s; it is to report each second.
constexpr milliseconds kReportGapMax{4000};
constexpr size_t kLongBytes = 3'900'000;

// The bundled model with a template that goes over a long message again and again.
std::string FolderOfSlowTemplate() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kBundledModel)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file),
                                      std::istreambuf_iterator<char>()};
  }
  files["chat_template.jinja"] =
      "{% set text = messages[0]['content'] %}{% set all = namespace(size=0) %}"
      "{% for i in range(6) %}"
      "{% set all.size = all.size + (text | replace('a', 'bb') | length) %}{% endfor %}"
      "{{ all.size }}";
  return WriteFolder(files);
}

struct Reports {
  milliseconds longest_gap{0};
  uint32_t queued_max = 0;
};

// Watches as an agent does, until `context` is cancelled.
Reports WatchReports(v1::RankService::Stub& stub, grpc::ClientContext& context) {
  Reports reports;
  const auto reader = stub.Watch(&context, v1::WatchRequest());
  v1::RankStatus status;
  auto last = steady_clock::now();
  while (reader->Read(&status)) {
    const auto now = steady_clock::now();
    const auto gap = std::chrono::duration_cast<milliseconds>(now - last);
    reports.longest_gap = std::max(reports.longest_gap, gap);
    reports.queued_max = std::max(reports.queued_max, status.requests_queued());
    last = now;
  }
  return reports;
}

TEST(BigPromptTest, ARankReportsAndAnswersWhileLongPromptsArePrepared) {
  Gang gang(MakeSpecs(FolderOfSlowTemplate(), GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  grpc::ClientContext watching;
  Reports reports;
  std::thread watcher([&] { reports = WatchReports(gang.stub(), watching); });
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  const auto began = steady_clock::now();
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      const Answer answer = Ask(gang.stub(), Question(std::string(kLongBytes, 'a'), 4));
      answered += answer.status.ok() ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(milliseconds(500));
  const Answer chat = Ask(gang.stub(), Question("What is a mutex?", 4));
  EXPECT_TRUE(chat.status.ok()) << chat.status.error_message();
  EXPECT_LT(answered, 8) << "a chat waited for the long prompts";
  for (std::thread& client : clients) client.join();
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
  watching.TryCancel();
  watcher.join();
  EXPECT_EQ(answered, 8);
  EXPECT_LT(reports.longest_gap, kReportGapMax) << "of " << took.count() << " ms";
  EXPECT_GE(reports.queued_max, 4u) << "what is prepared counts as queued";
  std::fprintf(stderr, "took %d ms, longest gap %d ms\n", static_cast<int>(took.count()),
               static_cast<int>(reports.longest_gap.count()));
}

// Bytes alone say that it can't fit.
TEST(BigPromptTest, WhatCannotFitIsRefusedBeforeItIsTokenised) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  const auto began = steady_clock::now();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      v1::GenerateRequest request = Question(std::string(kLongBytes, 'a'), 4);
      if (i % 2 == 1) {
        request.clear_messages();
        request.set_prompt(std::string(kLongBytes, 'b'));
      }
      const Answer answer = Ask(gang.stub(), request);
      EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_NE(answer.status.error_message().find("bytes, at least"), std::string::npos)
          << answer.status.error_message();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(20));
}

// Who goes away while it waits leaves its place to others at once.
TEST(BigPromptTest, WhoGoesAwayIsNotPrepared) {
  GangOptions options;
  options.queued_requests_max = 1;  // and 16 that are answered
  Gang gang(MakeSpecs(FolderOfSlowTemplate(), GangShape::kPipeline, 1, options));
  ASSERT_TRUE(gang.WaitUntilReady());
  const v1::GenerateRequest request = Question(std::string(kLongBytes, 'a'), 4);
  auto began = steady_clock::now();
  ASSERT_TRUE(Ask(gang.stub(), request).status.ok());
  const auto alone = steady_clock::now() - began;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateChunk>>> readers;
  for (int i = 0; i < 14; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(gang.stub().Generate(contexts.back().get(), request));
  }
  std::this_thread::sleep_for(milliseconds(300));
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
  began = steady_clock::now();
  EXPECT_TRUE(Ask(gang.stub(), request).status.ok());
  // One that was being prepared, and this one; not fifteen.
  EXPECT_LT(steady_clock::now() - began, 5 * alone + std::chrono::seconds(1));
  EXPECT_EQ(StatusOf(gang.stub()).requests_queued(), 0u);
}

}  // namespace
}  // namespace macrame::runtime::engine
