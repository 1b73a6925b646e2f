// Real rankd processes with a draft model on rank 0: the text is the same with and without, however
// good the drafts are and however the model is divided; and what is refused before anybody waits.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/process/exit_codes.h"
#include "tests/unit/runtime/model/random_model.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Test;

constexpr uint32_t kUsers = 4;

// Greedy ones and others, of several lengths.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  for (uint32_t user = 0; user < kUsers; ++user) {
    std::string text = "Explain RDMA in simple terms";
    for (uint32_t i = 0; i < 20 * user; ++i) text += " and number " + std::to_string(i * user);
    requests.push_back(Question(text, 40 + 10 * user));
    if (user % 2 == 0) continue;
    requests.back().mutable_sampling()->set_temperature(1.0);
    requests.back().mutable_sampling()->set_seed(user);
  }
  return requests;
}

struct Served {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<v1::GenerateChunk> last;
  v1::RankStatus status;
};

// Once it tells of so many drafts: an answer's last chunk may be there before.
v1::RankStatus StatusOf(v1::RankService::Stub& stub, uint64_t drafts) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto reader = stub.Watch(&context, v1::WatchRequest());
  v1::RankStatus status;
  do {
    EXPECT_TRUE(reader->Read(&status)) << "it never told of " << drafts << " drafts";
    if (Test::HasFailure()) break;
  } while (status.draft_model().draft_tokens_total() < drafts);
  context.TryCancel();
  return status;
}

// All requests at once. `draft`: the draft model's folder; empty: none, and no lookup either.
Served Serve(GangShape shape, uint32_t ranks, const std::string& draft) {
  std::vector<v1::LaunchSpec> specs = MakeSpecs(kBundledModel, shape, ranks);
  for (v1::LaunchSpec& spec : specs) spec.set_concurrent_sequences(kUsers);
  if (draft.empty()) {
    specs[0].set_draft_tokens_max(0);
  } else {
    specs[0].mutable_draft_model()->set_path(draft);
    specs[0].mutable_draft_model()->set_name("the-draft");
    specs[0].set_draft_model_unpriced(true);
    specs[0].set_draft_tokens_max(4);
  }
  Gang gang(specs);
  EXPECT_TRUE(gang.WaitUntilReady());
  const std::vector<v1::GenerateRequest> requests = Requests();
  std::vector<Answer> answers(requests.size());
  std::vector<std::thread> users;
  for (size_t i = 0; i < requests.size(); ++i) {
    users.emplace_back([&, i] { answers[i] = Ask(gang.stub(), requests[i]); });
  }
  for (std::thread& user : users) user.join();
  Served served;
  uint64_t drafts = 0;
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_FALSE(answer.tokens.empty());
    served.tokens.push_back(answer.tokens);
    served.last.push_back(answer.last);
    drafts += answer.last.model_draft_tokens();
  }
  served.status = StatusOf(gang.stub(), drafts);
  return served;
}

std::string RandomDraft(uint64_t seed = 7) {
  RandomModelShape shape;
  shape.layers = 1;
  shape.context = 512;
  shape.seed = seed;
  return WriteRandomModel(shape, kBundledModel);
}

TEST(DraftGangTest, ItsOwnDraftsAreRightAndTheTextIsTheSame) {
  const Served one = Serve(GangShape::kPipeline, 1, "");
  EXPECT_FALSE(one.status.has_draft_model());
  const auto check = [&](GangShape shape, uint32_t ranks, const Served& without) {
    SCOPED_TRACE(ranks);
    const Served with = Serve(shape, ranks, kBundledModel);
    EXPECT_EQ(with.tokens, without.tokens);
    uint64_t drafted = 0, accepted = 0;
    for (size_t i = 0; i < with.last.size(); ++i) {
      EXPECT_LE(with.last[i].model_draft_tokens(), with.last[i].draft_tokens());
      if (i % 2 == 1) continue;  // hot ones are not what is likeliest
      drafted += with.last[i].model_draft_tokens();
      accepted += with.last[i].model_accepted_tokens();
    }
    std::cout << ranks << " ranks: " << accepted << " of " << drafted << " greedy drafts right\n";
    // How many depends on who answers at the same time; what is behind an answer's end is unused.
    EXPECT_GE(drafted, 4u);
    EXPECT_GE(accepted * 2, drafted);
    EXPECT_EQ(with.status.draft_model().name(), "the-draft");
    EXPECT_LE(with.status.draft_model().draft_tokens_total(), with.status.draft_tokens_total());
  };
  check(GangShape::kPipeline, 1, one);
  check(GangShape::kPipeline, 2, one);
  check(GangShape::kPipeline, 3, one);
  check(GangShape::kStagesOfTwo, 4, one);
  // Sums over tensor ranks are rounded in another way than one rank's.
  check(GangShape::kTensor, 2, Serve(GangShape::kTensor, 2, ""));
}

TEST(DraftGangTest, OneOfNoUseIsTurnedOffAndTheTextIsTheSame) {
  const Served without = Serve(GangShape::kPipeline, 1, "");
  for (const uint32_t ranks : {1u, 2u}) {
    const Served with = Serve(GangShape::kPipeline, ranks, RandomDraft());
    EXPECT_EQ(with.tokens, without.tokens);
    const v1::DraftModelStatus& draft = with.status.draft_model();
    std::cout << ranks << " ranks: " << draft.accepted_tokens_total() << " of "
              << draft.draft_tokens_total() << " drafts right\n";
    EXPECT_GT(draft.draft_tokens_total(), 0u) << "it was tried";
    EXPECT_LE(draft.accepted_tokens_total() * 4, draft.draft_tokens_total());
    // Four tokens each, until its rate has fallen to 0.05 (19 wrong ones in a row, and more for
    // each that is right), and one try or two later.
    EXPECT_LE(draft.draft_tokens_total(), kUsers * 4 * 32);
  }
}

// Starts rank 0 alone with this draft model and gives what it said at its end.
std::string Refusal(const std::string& draft, int exit_code) {
  std::vector<v1::LaunchSpec> specs = MakeSpecs(kBundledModel, GangShape::kPipeline, 2);
  specs[0].mutable_draft_model()->set_path(draft);
  Gang gang({specs[0]});
  EXPECT_EQ(gang.rank(0).WaitForExit(milliseconds(60'000)), exit_code) << "before rank 1 is there";
  return gang.rank(0).Log();
}

TEST(DraftGangTest, AnotherVocabularyIsRefusedBeforeAnybodyWaits) {
  const std::string folder = RandomDraft(8);
  const std::string path = folder + "/tokenizer.json";
  nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(path));
  auto& vocabulary = tokenizer["model"]["vocab"];
  std::vector<std::string> spelled(1002);
  for (const auto& [token, id] : vocabulary.items()) {
    if (id.get<size_t>() < spelled.size()) spelled[id.get<size_t>()] = token;
  }
  vocabulary[spelled[1000]] = 1001;
  vocabulary[spelled[1001]] = 1000;
  std::ofstream(path) << tokenizer.dump();
  const std::string said = Refusal(folder, kExitModelInvalid);
  EXPECT_THAT(said, HasSubstr("DRAFT_VOCABULARY_DIFFERS"));
  EXPECT_THAT(said, HasSubstr("token 1000 is"));
  EXPECT_THAT(said, HasSubstr("token 1001 is"));
}

TEST(DraftGangTest, FilesThatAreNotThereAreRefusedBeforeAnybodyWaits) {
  const std::string said = Refusal("/nowhere/at-all", kExitModelInvalid);
  EXPECT_THAT(said, HasSubstr("/nowhere/at-all"));
}

}  // namespace
}  // namespace macrame::runtime::engine
