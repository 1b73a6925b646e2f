#include <algorithm>
#include <chrono>
#include <fstream>
#include <istream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

constexpr size_t kPromptBytesMax = 4 * 1024 * 1024;
constexpr uint32_t kMaxTokensMax = 1'000'000'000;

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

absl::StatusOr<std::string> ReadPrompt(std::istream& in) {
  std::string text;
  char block[65536];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<size_t>(in.gcount()));
    if (text.size() > kPromptBytesMax) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kPromptTooLong,
                          "the prompt on stdin has more than 4 MiB");
    }
  }
  if (const size_t at = FirstNonUtf8(text); at < text.size()) {
    v1::Reason reason = MakeReason(reasons::kBadRequest,
                                   absl::StrCat("the prompt on stdin is not text in UTF-8: byte ",
                                                at + 1, " of it begins no ", "character"));
    reason.set_remedy("convert it first, for example with 'iconv -f latin1 -t utf-8'");
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The list of a file, as the API takes it; empty without one.
absl::StatusOr<std::string> ReadTools(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const auto tools = nlohmann::ordered_json::parse(text.str(), nullptr, false);
  const auto is_tool = [](const nlohmann::ordered_json& tool) {
    return tool.is_object() && tool.contains("function");
  };
  if (!file || !tools.is_array() || tools.empty() ||
      !std::all_of(tools.begin(), tools.end(), is_tool)) {
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
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const auto schema = nlohmann::ordered_json::parse(text.str(), nullptr, false);
  if (!file || !schema.is_object()) {
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

struct Call {
  std::string id, name, arguments;
};

// What came, put together.
struct Answer {
  std::string text, reasoning;
  std::vector<Call> calls;
  uint32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, cold_tokens = 0;
  v1::PrefixMiss miss;
  double prefill_ms = 0, decode_ms = 0, first_text_ms = -1;
  uint32_t reasoning_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;

  void Add(const v1::GenerateChunk& chunk, double now_ms) {
    const bool has_news =
        !chunk.text().empty() || !chunk.reasoning().empty() || !chunk.tool_calls().empty();
    if (first_text_ms < 0 && has_news) first_text_ms = now_ms;
    text += chunk.text();
    reasoning += chunk.reasoning();
    reasoning_tokens = std::max(reasoning_tokens, chunk.reasoning_tokens());
    for (const v1::ToolCallDelta& delta : chunk.tool_calls()) {
      if (delta.index() >= calls.size()) calls.emplace_back();
      calls.back().id += delta.id();
      calls.back().name += delta.name();
      calls.back().arguments += delta.arguments();
    }
    prompt_tokens = std::max(prompt_tokens, chunk.prompt_tokens());
    completion_tokens = std::max(completion_tokens, chunk.completion_tokens());
    cached_tokens = std::max(cached_tokens, chunk.cached_tokens());
    cold_tokens = std::max(cold_tokens, chunk.cold_tokens());
    if (chunk.has_prefix_miss()) miss = chunk.prefix_miss();
    prefill_ms = std::max(prefill_ms, chunk.prefill_ms());
    decode_ms = std::max(decode_ms, chunk.decode_ms());
    if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
  }
};

const char* FinishWord(v1::FinishReason finish) {
  switch (finish) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

std::string Timed(uint32_t tokens, double ms) {
  std::string text = Plural(tokens, "token");
  if (ms > 0) {
    absl::StrAppend(&text, " in ", Milliseconds(ms), " (", Rate(tokens * 1000.0 / ms),
                    " tokens/s)");
  }
  return text;
}

// What of the prompt was not computed, and why no more; nothing when the cache had no part in it.
std::string CacheLine(const Answer& answer) {
  const bool has_miss = !answer.miss.kind().empty() && answer.miss.kind() != "empty";
  if (answer.cached_tokens == 0 && !has_miss) return "";
  std::string text = absl::StrCat(Plural(answer.cached_tokens, "token"), " of the prompt cached");
  if (answer.cold_tokens > 0) absl::StrAppend(&text, ", ", answer.cold_tokens, " from disk");
  if (has_miss) absl::StrAppend(&text, "; ", Printable(answer.miss.text(), false));
  return absl::StrCat(text, "\n");
}

std::string Statistics(const Answer& answer) {
  std::string text = absl::StrCat("prompt ", Timed(answer.prompt_tokens, answer.prefill_ms),
                                  ", answer ", Timed(answer.completion_tokens, answer.decode_ms));
  if (answer.reasoning_tokens > 0) {
    absl::StrAppend(&text, ", ", answer.reasoning_tokens, " of them reasoning");
  }
  if (answer.first_text_ms >= 0) {
    absl::StrAppend(&text, ", first text after ", Milliseconds(answer.first_text_ms));
  }
  return absl::StrCat(text, ", finish: ", FinishWord(answer.finish), "\n", CacheLine(answer));
}

Json AnswerDocument(const std::string& model, const Answer& answer) {
  Json document = Document("Completion");
  document["model"] = model;
  document["text"] = answer.text;
  if (!answer.reasoning.empty()) document["reasoning"] = answer.reasoning;
  for (const Call& call : answer.calls) {
    document["tool_calls"].push_back(
        {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  document["finish_reason"] = FinishWord(answer.finish);
  document["prompt_tokens"] = answer.prompt_tokens;
  document["completion_tokens"] = answer.completion_tokens;
  document["cached_tokens"] = answer.cached_tokens;
  document["cold_tokens"] = answer.cold_tokens;
  document["prefix_miss"] = answer.miss.text();
  document["prefill_ms"] = answer.prefill_ms;
  document["decode_ms"] = answer.decode_ms;
  document["first_text_ms"] = answer.first_text_ms;
  return document;
}

// Writes an answer while it comes. Reasoning is dimmed on a terminal and left out of files; a call
// begins a line of its own.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(const Invocation& run) : run_(run) {}

  void Print(const v1::GenerateChunk& chunk) {
    if (!chunk.reasoning().empty() && run_.environment.out_is_terminal) {
      Begin(Part::kReasoning);
      Write(run_.style.Dim(Printable(chunk.reasoning(), true)), chunk.reasoning());
    }
    if (!chunk.text().empty()) {
      Begin(Part::kText);
      Write(Shown(chunk.text()), chunk.text());
    }
    for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
      if (!call.name().empty()) {
        EndLine();
        part_ = Part::kCall;
        Write(run_.style.Bold(absl::StrCat("→ ", Shown(call.name()))) + " ", " ");
      }
      if (!call.arguments().empty()) Write(Shown(call.arguments()), call.arguments());
    }
    *run_.environment.out << std::flush;
  }
  void EndLine() {
    if (is_in_line_) *run_.environment.out << "\n" << std::flush;
    is_in_line_ = false;
  }

 private:
  enum class Part { kNone, kReasoning, kText, kCall };

  // A model's words must not steer the terminal; a file gets them as they are.
  std::string Shown(const std::string& text) const {
    return run_.environment.out_is_terminal ? Printable(text, true) : text;
  }
  void Begin(Part part) {
    if (part != part_ && part_ != Part::kNone) EndLine();
    part_ = part;
  }
  void Write(const std::string& shown, const std::string& text) {
    *run_.environment.out << shown;
    is_in_line_ = text.back() != '\n';
  }

  const Invocation& run_;
  Part part_ = Part::kNone;
  bool is_in_line_ = false;
};

int RunModelInfer(const Invocation& run, const InferOptions& options, const CLI::App& command) {
  const Environment& environment = run.environment;
  std::string prompt = options.prompt;
  const bool from_stdin = prompt == "-" || command.get_option("--prompt")->count() == 0;
  if (from_stdin) {
    if (prompt != "-" && environment.in_is_terminal) {
      *environment.err << "error: no prompt\n  next:   add --prompt \"...\", or pipe it in\n";
      return kExitUsage;
    }
    auto read = ReadPrompt(*environment.in);
    if (!read.ok()) return run.Fail(read.status());
    prompt = *std::move(read);
  }
  const auto files = ReadFiles(options);
  if (!files.ok()) return run.Fail(files.status());
  AgentClient client(run.options.socket_path);
  Answer answer;
  AnswerPrinter printer(run);
  const auto begin = std::chrono::steady_clock::now();
  InterruptWatch interrupt([&] { client.Cancel(); });
  const absl::Status ended = client.Infer(MakeRequest(options, command, prompt, *files),
                                          [&](const v1::GenerateChunk& chunk) {
                                            const std::chrono::duration<double, std::milli> now =
                                                std::chrono::steady_clock::now() - begin;
                                            answer.Add(chunk, now.count());
                                            if (run.wants_table()) printer.Print(chunk);
                                          });
  if (run.wants_table()) printer.EndLine();
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!ended.ok()) return run.Fail(ended);
  if (!run.wants_table()) run.PrintDocument(AnswerDocument(options.model, answer));
  if (run.wants_table() && !run.options.quiet) {
    *environment.err << run.err_style.Dim(Statistics(answer));
  }
  return kExitOk;
}

}  // namespace

void AddModelInfer(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "infer", "Ask a loaded model; the answer streams to stdout");
  auto options = std::make_shared<InferOptions>();
  command->add_option("model", options->model, "The name it is served under")->required();
  command->add_option("-p,--prompt", options->prompt, "The question; '-' or nothing reads stdin");
  command->add_option("--system", options->system, "Instructions ahead of the question");
  command->add_flag("--raw", options->raw,
                    "Go on with the prompt as it is, without the model's chat template");
  command->add_option("--max-tokens", options->max_tokens, "At most this many tokens of answer")
      ->check(CLI::Range(1u, kMaxTokensMax));
  command->add_option("--temperature", options->temperature, "0 always takes the likeliest token")
      ->check(CLI::Range(0.0, 2.0));
  command->add_option("--top-p", options->top_p, "Only the likeliest tokens up to this share")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", options->top_k, "Only this many likeliest tokens; 0 takes all")
      ->check(CLI::Range(0u, kMaxTokensMax));
  command->add_option("--min-p", options->min_p, "Only tokens this likely beside the likeliest")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", options->seed, "Makes the answer repeatable");
  command->add_option("--stop", options->stop, "End before this text; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--tools", options->tools_file,
                      "A file with the API's list of tools; calls are shown, not made");
  command->add_option("--json-schema", options->schema_file,
                      "A file with a JSON schema that the answer is held to");
  command->add_flag("--no-thinking", options->no_thinking, "Answer without reasoning first");
  command
      ->add_option("--thinking-tokens", options->thinking_tokens,
                   "Reason for at most this many tokens")
      ->check(CLI::Range(0u, kMaxTokensMax));
  tree.OnChosen(command, [options, command](const Invocation& run) {
    return RunModelInfer(run, *options, *command);
  });
}

}  // namespace macrame::cli
