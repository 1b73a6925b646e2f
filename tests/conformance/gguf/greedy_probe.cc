// Greedy answers of a model from real rank processes, in every shape of gang.
//
//   greedy_probe MODEL_FOLDER MAX_TOKENS <QUESTIONS.json >ANSWERS.json
//
// QUESTIONS is an array of users' messages. ANSWERS is an object: for each shape an array with, for
// each question, {"prompt_tokens": N, "tokens": [...], "text": "..."}. As many questions as may be
// are asked at the same time.

#include <atomic>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kAskedAtOnce = 8;

struct Shape {
  const char* name;
  GangShape shape;
  uint32_t ranks;
  std::vector<uint32_t> slices;  // of a tensor split, by rank; empty: even ones
};
const Shape kShapes[] = {
    {"one rank", GangShape::kTensor, 1, {}},   {"pp 2", GangShape::kPipeline, 2, {}},
    {"tp 2", GangShape::kTensor, 2, {}},       {"tp 3, uneven", GangShape::kTensor, 3, {2, 1, 1}},
    {"2 x 2", GangShape::kStagesOfTwo, 4, {}},
};

std::vector<v1::LaunchSpec> SpecsOf(const Shape& shape, const std::string& folder) {
  GangOptions options;
  options.context_length = 1024;
  auto specs = MakeSpecs(folder, shape.shape, shape.ranks, options);
  uint32_t total = 0, begin = 0;
  for (const uint32_t width : shape.slices) total += width;
  for (size_t rank = 0; rank < shape.slices.size(); ++rank) {
    v1::Assignment& part = *specs[rank].mutable_assignment();
    part.set_slice_count(total);
    part.set_slice_begin(begin);
    part.set_slice_end(begin += shape.slices[rank]);
  }
  for (v1::LaunchSpec& spec : specs) spec.set_concurrent_sequences(kAskedAtOnce);
  return specs;
}

// Empty when a question was not answered.
nlohmann::json AnswersOf(Gang& gang, const std::vector<std::string>& questions,
                         uint32_t max_tokens) {
  std::vector<Answer> answers(questions.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kAskedAtOnce; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < questions.size(); at = next++) {
        answers[at] = Ask(gang.stub(), Question(questions[at], max_tokens));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  nlohmann::json out = nlohmann::json::array();
  for (const Answer& answer : answers) {
    if (!answer.status.ok()) {
      std::fprintf(stderr, "greedy_probe: %s\n%s\n", answer.status.error_message().c_str(),
                   gang.rank(0).Log().c_str());
      return {};
    }
    out.push_back({{"prompt_tokens", answer.first.prompt_tokens()},
                   {"tokens", answer.tokens},
                   {"text", answer.text}});
  }
  return out;
}

int Run(const std::string& folder, uint32_t max_tokens) {
  const auto questions = nlohmann::json::parse(std::cin).get<std::vector<std::string>>();
  nlohmann::json all;
  for (const Shape& shape : kShapes) {
    Gang gang(SpecsOf(shape, folder));
    if (!gang.WaitUntilReady()) return 1;
    all[shape.name] = AnswersOf(gang, questions, max_tokens);
    if (all[shape.name].is_null()) return 1;
  }
  std::cout << all.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL_FOLDER MAX_TOKENS <QUESTIONS.json\n", argv[0]);
    return 64;
  }
  return macrame::runtime::engine::Run(argv[1], static_cast<uint32_t>(std::atoi(argv[2])));
}
