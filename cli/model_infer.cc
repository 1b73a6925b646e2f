#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "transport/regular_file.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kMaxTokensMax = 1'000'000'000;
constexpr size_t kInferFileBytesMax = size_t{4} << 20;

struct InferOptions {
  std::string model, prompt, system, tools_file, schema_file;
  std::vector<std::string> stop;
  uint32_t max_tokens = 0, top_k = 0, thinking_tokens = 0;
  bool no_thinking = false, raw = false;
  double temperature = 0, top_p = 0, min_p = 0;
  int64_t seed = 0;
};

// What files of the command line hold; empty without.
struct InferFiles {
  std::string tools_json, json_schema;
};

// Which flags were given is asked of the option tree: 0 is a value like others.
v1::GenerateRequest MakeRequest(const InferOptions& options, const CLI::App& command,
                                const std::string& prompt, const InferFiles& files) {
  v1::GenerateRequest request;
  request.set_deployment(options.model);
  request.set_max_tokens(options.max_tokens);
  const auto say = [&](const std::string& role, const std::string& content) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(role);
    message->set_content(content);
  };
  if (options.raw) {
    request.set_prompt(prompt);
    request.set_plain_text(true);
  } else {
    if (!options.system.empty()) say("system", options.system);
    say("user", prompt);
  }
  v1::Sampling& sampling = *request.mutable_sampling();
  const auto given = [&](const char* flag) { return command.get_option(flag)->count() > 0; };
  if (given("--temperature")) sampling.set_temperature(options.temperature);
  if (given("--top-p")) sampling.set_top_p(options.top_p);
  if (given("--top-k")) sampling.set_top_k(options.top_k);
  if (given("--min-p")) sampling.set_min_p(options.min_p);
  if (given("--seed")) sampling.set_seed(static_cast<uint64_t>(options.seed));
  for (const std::string& stop : options.stop) request.add_stop(stop);
  if (!files.tools_json.empty()) request.mutable_tools()->set_tools_json(files.tools_json);
  if (!files.json_schema.empty()) {
    request.mutable_structure()->set_json_schema(files.json_schema);
  }
  if (options.no_thinking) request.mutable_reasoning()->set_enabled(false);
  if (given("--thinking-tokens")) {
    request.mutable_reasoning()->set_tokens_max(options.thinking_tokens);
  }
  return request;
}

absl::StatusOr<std::string> TextOf(const std::string& path) {
  auto text = transport::ReadFileOrPipe(path, kInferFileBytesMax);
  if (text.ok()) return text;
  v1::Reason reason =
      MakeReason(reasons::kBadRequest, absl::IsNotFound(text.status())
                                           ? absl::StrCat(path, " can't be read: it is not there")
                                           : std::string(text.status().message()));
  reason.set_remedy("check its name and who may read it");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

// The list of a file, as the API takes it; empty without one.
absl::StatusOr<std::string> ReadTools(const std::string& path) {
  if (path.empty()) return std::string();
  const auto text = TextOf(path);
  if (!text.ok()) return text;
  const auto tools = nlohmann::ordered_json::parse(*text, nullptr, false);
  const auto is_tool = [](const nlohmann::ordered_json& tool) {
    return tool.is_object() && tool.contains("function");
  };
  if (!tools.is_array() || tools.empty() || !std::all_of(tools.begin(), tools.end(), is_tool)) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat(path,
                                     " can't be read as a list of tools, as the API's field "
                                     "'tools' takes it: [{\"type\":\"function\",…}]"));
  }
  return tools.dump();
}

// The schema of a file, members in its order; empty without one.
absl::StatusOr<std::string> ReadSchema(const std::string& path) {
  if (path.empty()) return std::string();
  const auto text = TextOf(path);
  if (!text.ok()) return text;
  const auto schema = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!schema.is_object()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat(path, " can't be read as a JSON schema: an object"));
  }
  return schema.dump();
}

absl::StatusOr<InferFiles> ReadFiles(const InferOptions& options) {
  const auto tools = ReadTools(options.tools_file);
  if (!tools.ok()) return tools.status();
  const auto schema = ReadSchema(options.schema_file);
  if (!schema.ok()) return schema.status();
  return InferFiles{*tools, *schema};
}

int RunModelInfer(const Invocation& run, const InferOptions& options, const CLI::App& command) {
  const Environment& environment = run.environment;
  std::string prompt = options.prompt;
  const bool from_stdin = prompt == "-" || command.get_option("--prompt")->count() == 0;
  if (from_stdin) {
    if (prompt != "-" && environment.in_is_terminal) {
      v1::Reason reason = MakeReason(reasons::kBadRequest, "no prompt");
      reason.set_remedy("add --prompt \"...\", or pipe it in");
      return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, reason));
    }
    auto read = ReadQuestion(*environment.in);
    if (!read.ok()) return run.Fail(read.status());
    prompt = *std::move(read);
  }
  const auto files = ReadFiles(options);
  if (!files.ok()) return run.Fail(files.status());
  v1::GenerateRequest request = MakeRequest(options, command, prompt, *files);
  AgentClient client(run.options.agent);
  request.set_deployment(ModelMeantBy(client, options.model));
  return AskOnce(run, request);
}

}  // namespace

void AddModelInfer(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "infer", "Ask a loaded model; the answer streams to stdout");
  auto options = std::make_shared<InferOptions>();
  command->add_option("model", options->model, "Name of a loaded model")->required();
  command->add_option("-p,--prompt", options->prompt, "Question to ask; '-' or none reads stdin")
      ->type_name("TEXT");
  command->add_option("--system", options->system, "System prompt")->type_name("TEXT");
  command->add_flag("--raw", options->raw,
                    "Continue the prompt as it is, without the chat template");
  command->add_option("--max-tokens", options->max_tokens, "Maximum number of tokens of the answer")
      ->check(CLI::Range(1u, kMaxTokensMax));
  command->add_option("--temperature", options->temperature, "Sampling temperature; 0: greedy")
      ->check(CLI::Range(0.0, 2.0));
  command
      ->add_option("--top-p", options->top_p,
                   "Sample from the most likely tokens up to this total probability")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--top-k", options->top_k,
                   "Sample from this number of most likely tokens; 0: all")
      ->check(CLI::Range(0u, kMaxTokensMax));
  command
      ->add_option("--min-p", options->min_p,
                   "Minimum probability of a token, relative to the most likely one")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", options->seed, "Seed of the sampler, for a repeatable answer");
  command->add_option("--stop", options->stop, "Stop before this text; repeatable")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--tools", options->tools_file,
                   "File with a list of tools, as in the API; calls are printed, not run")
      ->type_name("FILE");
  command
      ->add_option("--json-schema", options->schema_file,
                   "File with a JSON schema that the answer must follow")
      ->type_name("FILE");
  command->add_flag("--no-thinking", options->no_thinking, "Answer without reasoning first");
  command
      ->add_option("--thinking-tokens", options->thinking_tokens,
                   "Maximum number of tokens of reasoning")
      ->check(CLI::Range(0u, kMaxTokensMax));
  tree.OnChosen(command, [options, command](const Invocation& run) {
    return RunModelInfer(run, *options, *command);
  });
}

}  // namespace macrame::cli
