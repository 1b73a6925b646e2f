// One client can't end a model for everybody: texts and grammars that choke what works on them are
// refused one by one, the rank keeps its memory, and other keys' requests don't wait for them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/unit/runtime/model/model_fixture.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kHostile = 9;
constexpr long kKeptBytesMax = 200l << 20;
// A piece of another key's work may stand before one's own on this lane's thread.
constexpr milliseconds kOthersWaitMax{10'000};

// The bundled model with a normaliser that sorts combining characters.
std::string FolderWithNfc() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kBundledModel)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file),
                                      std::istreambuf_iterator<char>()};
  }
  std::string& tokenizer = files["tokenizer.json"];
  const std::string with =
      absl::StrReplaceAll(tokenizer, {{R"("normalizer": null)", R"("normalizer": {"type": "NFC"})"},
                                      {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})"}});
  EXPECT_NE(with, tokenizer);
  tokenizer = with;
  return WriteFolder(files);
}

long ResidentBytes(pid_t pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  long all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

v1::GenerateRequest Tokenize(const std::string& key, std::string text) {
  v1::GenerateRequest request;
  request.set_fairness_key(key + "/");
  request.set_prompt(std::move(text));
  request.set_max_tokens(1);
  request.mutable_tokenize()->set_count_only(true);
  return request;
}

std::string Prose(size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) absl::StrAppend(&text, "line ", i, " of it\n");
  return text;
}

// Notes that NFC takes apart into three signs, each of them four tokens of one byte.
std::string Notes(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "\xf0\x9d\x85\xa4";  // U+1D164
  return text;
}

v1::GenerateRequest HeldTo(const std::string& key, const std::string& schema) {
  v1::GenerateRequest request = Question("Answer.", 40);
  request.set_fairness_key(key + "/");
  request.mutable_structure()->set_json_schema(schema);
  return request;
}

v1::GenerateRequest HostileGrammar(const std::string& key, int number) {
  v1::GenerateRequest request = Question("Answer.", 4);
  request.set_fairness_key(key + "/");
  std::string regex = absl::StrCat("x{", number + 1, "}");
  for (int i = 0; i < 43'000; ++i) regex += "\\w";  // each some hundred ranges of bytes
  request.mutable_structure()->set_regex(regex);
  return request;
}

void ExpectServed(Gang& gang, const std::string& key) {
  const auto began = steady_clock::now();
  EXPECT_TRUE(Ask(gang.stub(), Tokenize(key, "a few words")).status.ok());
  const Answer held =
      Ask(gang.stub(), HeldTo(key, R"({"type":"object","properties":{"a":{"type":"integer"}},)"
                                   R"("required":["a"],"additionalProperties":false})"));
  EXPECT_TRUE(held.status.ok()) << held.status.error_message();
  const Answer counted =
      Ask(gang.stub(), HeldTo(key, R"({"type":"array","items":{"type":"integer"},"maxItems":2})"));
  EXPECT_TRUE(counted.status.ok()) << counted.status.error_message();
  const Answer prose = Ask(gang.stub(), Tokenize(key, Prose(300'000)));
  EXPECT_TRUE(prose.status.ok()) << prose.status.error_message();
  EXPECT_LT(steady_clock::now() - began, 4 * kOthersWaitMax);
}

// What the hostile key learns each time, and that others are served meanwhile and afterwards.
void ExpectOnlyItsOwnRefused(Gang& gang, const std::vector<v1::GenerateRequest>& hostile) {
  ExpectServed(gang, "other");
  const long before = ResidentBytes(gang.rank(0).pid());
  std::vector<std::thread> clients;
  for (const v1::GenerateRequest& request : hostile) {
    clients.emplace_back([&gang, &request] {
      const Answer answer = Ask(gang.stub(), request);
      if (answer.status.ok()) return;
      EXPECT_EQ(answer.status.error_message().find("restart"), std::string::npos)
          << answer.status.error_message();
    });
  }
  ExpectServed(gang, "other");
  for (std::thread& client : clients) client.join();
  ExpectServed(gang, "hostile");
  EXPECT_LT(ResidentBytes(gang.rank(0).pid()) - before, kKeptBytesMax);
}

TEST(HostileTextTest, ChokingPromptsCountAgainstTheirOwnKey) {
  Gang gang(MakeSpecs(FolderWithNfc(), GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  std::vector<v1::GenerateRequest> hostile;
  for (int i = 0; i < kHostile; ++i) {
    hostile.push_back(Tokenize("hostile", Notes(490'000)));
  }
  ExpectOnlyItsOwnRefused(gang, hostile);
}

TEST(HostileTextTest, GrammarsThatTakeTooLongCountAgainstTheirOwnKey) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  std::vector<v1::GenerateRequest> hostile;
  for (int i = 0; i < kHostile; ++i) hostile.push_back(HostileGrammar("hostile", i));
  ExpectOnlyItsOwnRefused(gang, hostile);
}

TEST(HostileTextTest, TwelveLongTextsOfOneKeyDoNotHoldUpAnothersPrompt) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  const std::string prose = Prose(100'000);
  ASSERT_TRUE(Ask(gang.stub(), Tokenize("other", prose)).status.ok());
  const v1::GenerateRequest greedy = Tokenize("greedy", Prose(1'500'000));
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0, refused = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const grpc::Status status = Ask(gang.stub(), greedy).status;
      // On a slow machine its own last ones wait too long for their turn.
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++refused;
      if (status.ok()) ++answered;
    });
  }
  while (StatusOf(gang.stub()).requests_queued() < 6 && answered == 0) std::this_thread::yield();
  EXPECT_TRUE(Ask(gang.stub(), Tokenize("other", prose)).status.ok());
  EXPECT_LT(answered, 6) << "another key's prompt waited for them";
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered + refused, 12);
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace macrame::runtime::engine
