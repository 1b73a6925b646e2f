// Whatever a model's logits are, an answer is what its structure says; reasoning before it is free.
// The bundled model's vocabulary, and logits by a seed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proto/reasons.h"
#include "runtime/serving/answer.h"
#include "tests/unit/runtime/serving/structure/random_schema.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr char kModel[] = "deploy/models/knot-5m-4bit";  // as the repository's root knows it
constexpr size_t kVocabulary = 4096;

struct Told {
  std::string text;
  std::string called, arguments;
  std::vector<int32_t> tokens;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  absl::Status status;
};

class StructuredAnswerTest : public ::testing::Test {
 protected:
  StructuredAnswerTest() {
    auto text = LoadModelText(kModel);
    EXPECT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
    request_.set_prompt("One two three");
    request_.mutable_sampling()->set_temperature(1.0);
    request_.set_max_tokens(1500);
  }

  absl::StatusOr<GenerationJob> Prepare(uint64_t seed = 5) const {
    return PrepareJob(request_, *text_, kVocabulary, 4096, seed, 0);
  }

  std::string Refused() const {
    const auto job = Prepare();
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(job.status().message());
  }

  TextStream NewText() const {
    auto decoder = std::make_shared<text::StreamDecoder>(
        text_->tokenizer.NewStream(/*skip_special_tokens=*/true));
    return {[decoder](int32_t token) { return decoder->Push(token); },
            [decoder] { return decoder->Finish(); }};
  }

  // Logits of a position by seed; what ends things is made likelier, so that answers end.
  std::vector<float> Logits(uint64_t seed, uint64_t position) const {
    std::mt19937_64 random(seed * 1000003 + position);
    std::normal_distribution<float> spread(0.0F, 3.0F);
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = spread(random);
    for (const char* end : {"\"", "}", "]", ",", ":"}) {
      const auto tokens = text_->tokenizer.Encode(end, false, false);
      if (tokens.ok() && tokens->size() == 1) logits[static_cast<size_t>((*tokens)[0])] += 6.0F;
    }
    return logits;
  }

  Told Answered(const GenerationJob& job, uint64_t seed) const {
    Told told;
    const auto hear = [&told](const v1::GenerateChunk& chunk) {
      told.text += chunk.text();
      for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
        told.called += call.name();
        told.arguments += call.arguments();
      }
      told.tokens.insert(told.tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
        told.finish = chunk.finish_reason();
      }
    };
    Answer answer(job, NewText(), hear, std::chrono::steady_clock::now());
    for (uint64_t position = 0; position < 4096; ++position) {
      const auto token = answer.Next(Logits(seed, position));
      if (!token.ok()) told.status = token.status();
      if (!token.ok() || !token->has_value()) break;
    }
    return told;
  }

  std::shared_ptr<const ModelText> text_;
  v1::GenerateRequest request_;
};

TEST_F(StructuredAnswerTest, WhateverTheLogitsAreTheTextValidates) {
  int ended = 0, schemas = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const ordered_json schema = RandomSchema(seed, 3);
    request_.mutable_structure()->set_json_schema(schema.dump());
    const auto job = Prepare(seed);
    ASSERT_TRUE(job.ok()) << job.status() << " for " << schema.dump();
    const Told told = Answered(*job, seed);
    ASSERT_TRUE(told.status.ok()) << told.status << " for " << schema.dump();
    ++schemas;
    if (told.finish == v1::FINISH_REASON_LENGTH) continue;
    ++ended;
    EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
    const json value = json::parse(told.text, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(value.is_discarded()) << told.text << " for " << schema.dump();
    EXPECT_TRUE(Validates(schema, value)) << told.text << " for " << schema.dump();
  }
  EXPECT_GE(ended, schemas * 9 / 10);
  std::cout << ended << " of " << schemas << " answers ended by themselves\n";
}

TEST_F(StructuredAnswerTest, GreedyAndEveryWayOfSamplingStayWithin) {
  request_.mutable_structure()->set_json_schema(
      R"({"type": "array", "items": {"enum": ["a", "b", 12]}, "minItems": 3, "maxItems": 3})");
  for (int way = 0; way < 6; ++way) {
    v1::Sampling& sampling = *request_.mutable_sampling();
    sampling.Clear();
    sampling.set_temperature(way == 0 ? 0.0 : 1.5);
    if (way == 1) sampling.set_top_p(0.9);
    if (way == 2) sampling.set_top_k(40);
    if (way == 3) sampling.set_min_p(0.1);
    if (way == 4) sampling.set_typical_p(0.8);
    if (way == 5) sampling.set_repetition_penalty(1.3);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const auto job = Prepare(seed);
      ASSERT_TRUE(job.ok()) << job.status();
      const Told told = Answered(*job, seed);
      ASSERT_TRUE(told.status.ok()) << told.status;
      const json value = json::parse(told.text, nullptr, false);
      EXPECT_TRUE(value.is_array() && value.size() == 3) << told.text << " way " << way;
    }
  }
}

TEST_F(StructuredAnswerTest, ChoicesExpressionsAndGrammars) {
  v1::Structure& structure = *request_.mutable_structure();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    structure.mutable_choices()->clear_texts();
    for (const char* text : {"red", "green", "a very blue one"}) {
      structure.mutable_choices()->add_texts(text);
    }
    const Told chosen = Answered(*Prepare(seed), seed);
    EXPECT_TRUE(chosen.text == "red" || chosen.text == "green" || chosen.text == "a very blue one")
        << chosen.text;
    EXPECT_EQ(chosen.finish, v1::FINISH_REASON_STOP);
    structure.set_regex("[A-Z]{3}-[0-9]{2}");
    EXPECT_THAT(Answered(*Prepare(seed), seed).text,
                ::testing::MatchesRegex("[A-Z][A-Z][A-Z]-[0-9][0-9]"));
    structure.set_lark("start: \"(\" NUMBER \")\"\nNUMBER: /[1-9]/");
    EXPECT_THAT(Answered(*Prepare(seed), seed).text, ::testing::MatchesRegex("\\([1-9]\\)"));
    structure.set_json_object(true);
    request_.set_max_tokens(30);
    EXPECT_THAT(Answered(*Prepare(seed), seed).text, ::testing::StartsWith("{"));
    request_.set_max_tokens(1500);
  }
}

TEST_F(StructuredAnswerTest, AnAnswerThatIsCutSaysSo) {
  request_.mutable_structure()->set_json_schema(R"({"type": "string", "minLength": 50})");
  request_.set_max_tokens(5);
  const Told told = Answered(*Prepare(), 1);
  EXPECT_EQ(told.finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(told.tokens.size(), 5u);
  EXPECT_FALSE(json::accept(told.text)) << told.text;
}

TEST_F(StructuredAnswerTest, WhatCannotBeUsedIsRefused) {
  request_.mutable_structure();
  EXPECT_THAT(Refused(), HasSubstr("neither a schema nor a grammar"));
  request_.mutable_structure()->set_json_schema("{");
  EXPECT_THAT(Refused(), HasSubstr("the JSON schema is not JSON"));
  request_.mutable_structure()->set_json_schema(R"({"not": {}})");
  EXPECT_THAT(Refused(), HasSubstr("not"));
  EXPECT_EQ(ReasonOf(Prepare().status()).code(), "STRUCTURE_REFUSED");
  request_.mutable_structure()->set_regex("(");
  EXPECT_THAT(Refused(), HasSubstr("the regular expression can't be used"));
  request_.mutable_structure()->set_json_object(true);
  request_.set_min_tokens(2);
  EXPECT_THAT(Refused(), HasSubstr("min_tokens"));
}

// A dialect of the test's own, over tokens that the bundled vocabulary has.
class ReasoningTest : public StructuredAnswerTest {
 protected:
  ReasoningTest() {
    auto dialect = std::make_shared<markup::Dialect>();
    dialect->think_open = "Q";
    dialect->think_close = "Z";
    dialect_ = dialect;
    request_.mutable_structure()->mutable_choices()->add_texts("red");
  }
  int32_t TokenOf(const char* text) const {
    const auto tokens = text_->tokenizer.Encode(text, false, false);
    EXPECT_TRUE(tokens.ok() && tokens->size() == 1) << text;
    return (*tokens)[0];
  }
  // Greedy logits that want `token`.
  static std::vector<float> Wanting(int32_t token) {
    std::vector<float> logits(kVocabulary);
    logits[static_cast<size_t>(token)] = 10.0F;
    return logits;
  }
  std::shared_ptr<const markup::Dialect> dialect_;
};

TEST_F(ReasoningTest, IsFreeAndTheStructureBeginsBehindIt) {
  request_.mutable_sampling()->set_temperature(0);
  auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  job->shape.markup.dialect = dialect_;
  job->shape.markup.opens_reasoning = true;
  std::string text, reasoning;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  Answer answer(
      *job, NewText(),
      [&](const v1::GenerateChunk& chunk) {
        text += chunk.text();
        reasoning += chunk.reasoning();
        finish = chunk.finish_reason();
      },
      std::chrono::steady_clock::now());
  const int32_t free = TokenOf("W"), close = TokenOf("Z");
  for (const int32_t token : {free, free, close}) {
    const auto taken = answer.Next(Wanting(token));
    ASSERT_TRUE(taken.ok() && taken->has_value());
    EXPECT_EQ(**taken, token) << "reasoning is free";
  }
  for (int i = 0; i < 8 && finish == v1::FINISH_REASON_UNSPECIFIED; ++i) {
    ASSERT_TRUE(answer.Next(Wanting(free)).ok());
  }
  EXPECT_EQ(text, "red");
  EXPECT_EQ(reasoning, "WW");
  EXPECT_EQ(finish, v1::FINISH_REASON_STOP);
}

// "</think>\n\n<tool_call>" is how most families go on.
TEST_F(ReasoningTest, ACallMayComeBehindALinesEnd) {
  request_.mutable_sampling()->set_temperature(0);
  const int32_t line = TokenOf("\n"), opener = TokenOf("V"), close = TokenOf("Z");
  const auto job_of = [&] {
    auto job = Prepare();
    EXPECT_TRUE(job.ok()) << job.status();
    job->shape.markup.dialect = dialect_;
    job->shape.markup.opens_reasoning = true;
    job->shape.structure.line_ends = {line};
    job->shape.structure.call_openers = {opener};
    return *std::move(job);
  };
  Answer answer(
      job_of(), NewText(), [](const v1::GenerateChunk&) {}, std::chrono::steady_clock::now());
  ASSERT_TRUE(answer.Next(Wanting(close)).ok());
  EXPECT_EQ(answer.Admitted(std::vector{line, opener, opener}), 3u);
  const auto drafted = SampleRow(Wanting(opener), answer.SamplingOfNext(1), std::vector{line});
  EXPECT_EQ(drafted->token, opener);
  EXPECT_EQ(**answer.Next(Wanting(line)), line);
  EXPECT_EQ(answer.Admitted(std::vector{line}), 0u) << "one of them";
  EXPECT_EQ(**answer.Next(Wanting(opener)), opener);
}

TEST_F(ReasoningTest, ARowBehindTheDraftThatEndsItIsChosenAnew) {
  request_.mutable_sampling()->set_temperature(0);
  auto job = Prepare();
  job->shape.markup.dialect = dialect_;
  job->shape.markup.opens_reasoning = true;
  Answer answer(
      *job, NewText(), [](const v1::GenerateChunk&) {}, std::chrono::steady_clock::now());
  const int32_t free = TokenOf("W"), close = TokenOf("Z");
  EXPECT_EQ(answer.Admitted(std::vector{close, free}), 2u) << "nothing is known of reasoning";
  const auto first = SampleRow(Wanting(close), answer.SamplingOfNext(0));
  const auto second = SampleRow(Wanting(free), answer.SamplingOfNext(1), std::vector{close});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(answer.MustChooseAnew(first));
  EXPECT_TRUE(answer.Take(first).ok());
  EXPECT_TRUE(answer.MustChooseAnew(second));
  const auto again = SampleRow(Wanting(free), answer.SamplingOfNext(0));
  EXPECT_FALSE(answer.MustChooseAnew(again));
  EXPECT_NE(again->token, free);
  EXPECT_EQ(answer.Admitted(std::vector{free}), 0u);
}

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]},
    "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"],
    "additionalProperties": false}}}, {"type": "function", "function": {"name": "stop",
    "strict": true, "parameters": {"type": "object", "properties": {},
    "additionalProperties": false}}}])";

// The opening is put in the model's mouth; behind it stand a tool's name and arguments by its
// schema, whatever the model would say.
TEST_F(StructuredAnswerTest, ACallThatMustBeMadeHasArgumentsByItsSchema) {
  const auto dialect = std::make_shared<const markup::Dialect>(
      markup::ChooseDialect("tools <tool_call>", [](std::string_view) { return false; }));
  for (const char* name : {"", "get_weather"}) {
    const auto call = GrammarOfForcedCall(*dialect, kTools, name, 0, {});
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->is_strict, *name == '\0') << "of those that may be called";
    v1::Structure structure;
    structure.set_lark(call->lark);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      auto job = Prepare(seed);
      ASSERT_TRUE(job.ok()) << job.status();
      auto constraint = text_->grammars->Compile(structure);
      ASSERT_TRUE(constraint.ok()) << constraint.status() << call->lark;
      job->shape.structure.constraint = *std::move(constraint);
      job->shape.structure.is_of_call = true;
      job->shape.markup.dialect = dialect;
      job->shape.markup.tools = std::make_shared<const markup::ToolSet>(kTools);
      job->shape.steering.ends_with_first_call = true;
      job->shape.steering.call =
          *text_->tokenizer.Encode(markup::ForcedOpening(*dialect, name, 0), false, false);
      const Told told = Answered(*job, seed);
      ASSERT_TRUE(told.status.ok()) << told.status;
      EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
      const json arguments = json::parse(told.arguments, nullptr, false);
      ASSERT_TRUE(arguments.is_object()) << told.arguments;
      if (told.called == "get_weather") {
        EXPECT_TRUE(arguments["city"] == "Rome" || arguments["city"] == "Oslo") << arguments;
        EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 9) << arguments;
      } else {
        EXPECT_EQ(told.called, "stop");
        EXPECT_STREQ(name, "");
        EXPECT_TRUE(arguments.empty()) << arguments;
      }
    }
  }
  const auto other = markup::ChooseDialect("<function=", [](std::string_view) { return false; });
  EXPECT_FALSE(GrammarOfForcedCall(other, kTools, "", 0, {}).has_value()) << "not in JSON";
}

// A call that the model makes by itself: free until its opener, then as its tool's schema says, and
// free again until the next one.
TEST_F(StructuredAnswerTest, CallsOfItsOwnHaveArgumentsByTheSchemasOfStrictTools) {
  constexpr char kOpener[] = "@";
  const auto opener = text_->tokenizer.TokenId(kOpener);
  ASSERT_TRUE(opener.has_value());
  markup::Dialect made =
      markup::ChooseDialect("tools <tool_call>", [](std::string_view) { return false; });
  for (std::string* text : {&made.openers[0], &made.forced_any, &made.forced_named}) {
    text->replace(text->find("<tool_call>"), std::string("<tool_call>").size(), kOpener);
  }
  const auto dialect = std::make_shared<const markup::Dialect>(made);
  std::string tools = kTools;
  tools.insert(tools.find("\"parameters\""), "\"strict\": true, ");
  const auto lark = GrammarOfOwnCall(*dialect, tools, kOpener, {});
  ASSERT_TRUE(lark.has_value());
  v1::Structure structure;
  structure.set_lark(*lark);
  int calls = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    request_.set_max_tokens(300);
    auto job = Prepare(seed);
    ASSERT_TRUE(job.ok()) << job.status();
    auto constraint = text_->grammars->Compile(structure);
    ASSERT_TRUE(constraint.ok()) << constraint.status() << *lark;
    StructurePlan& plan = job->shape.structure;
    plan.constraint = *std::move(constraint);
    plan.is_of_call = plan.awaits_calls = true;
    plan.call_openers = {*opener};
    job->shape.markup.dialect = dialect;
    job->shape.markup.tools = std::make_shared<const markup::ToolSet>(tools);
    job->rules.biases = {{*opener, 12.0F}};
    std::vector<std::string> names, arguments;
    Answer answer(
        *job, NewText(),
        [&](const v1::GenerateChunk& chunk) {
          for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
            names.resize(std::max<size_t>(names.size(), call.index() + 1));
            arguments.resize(names.size());
            names[call.index()] += call.name();
            arguments[call.index()] += call.arguments();
          }
        },
        std::chrono::steady_clock::now());
    for (uint64_t position = 0; position < 4096; ++position) {
      const auto token = answer.Next(Logits(seed, position));
      ASSERT_TRUE(token.ok()) << token.status();
      if (!token->has_value()) break;
    }
    // The last one may be cut by the limit of tokens.
    for (size_t i = 0; i + 1 < names.size(); ++i, ++calls) {
      const json said = json::parse(arguments[i], nullptr, false);
      ASSERT_TRUE(said.is_object()) << arguments[i];
      EXPECT_EQ(said.size(), names[i] == "get_weather" ? 2U : 0U) << arguments[i];
      if (names[i] == "get_weather") {
        EXPECT_TRUE(said["city"] == "Rome" || said["city"] == "Oslo") << said;
      } else {
        EXPECT_EQ(names[i], "stop");
      }
    }
  }
  EXPECT_GT(calls, 10) << "several in an answer";
  EXPECT_FALSE(GrammarOfOwnCall(*dialect, R"([{"type": "function", "function": {"name": "a"}}])",
                                kOpener, {})
                   .has_value())
      << "no tool asks for it";
}

// Rows with drafts before them are held as if these had been taken, and take nothing.
TEST_F(StructuredAnswerTest, DraftsChangeNoToken) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    request_.mutable_structure()->set_json_schema(RandomSchema(seed + 50, 2).dump());
    const auto job = Prepare(seed);
    ASSERT_TRUE(job.ok()) << job.status();
    const std::vector<int32_t> tokens = Answered(*job, seed).tokens;
    Answer answer(
        *job, NewText(), [](const v1::GenerateChunk&) {}, std::chrono::steady_clock::now());
    for (size_t at = 0; at < tokens.size(); ++at) {
      const size_t ahead = std::min<size_t>(3, tokens.size() - 1 - at);
      const std::span<const int32_t> drafts(tokens.data() + at, ahead);
      EXPECT_EQ(answer.Admitted(drafts), ahead);
      const auto behind = SampleRow(Logits(seed, at + ahead),
                                    answer.SamplingOfNext(static_cast<uint32_t>(ahead)), drafts);
      ASSERT_TRUE(behind.ok()) << behind.status();
      EXPECT_EQ(behind->token, tokens[at + ahead]) << ahead << " behind " << at;
      ASSERT_TRUE(answer.Next(Logits(seed, at)).ok());
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
