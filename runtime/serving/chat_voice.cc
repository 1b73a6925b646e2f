#include "runtime/serving/chat_voice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/serving/markup/call_text.h"
#include "runtime/serving/markup/python_text.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// Of a prompt, to find out whether it ends within reasoning.
constexpr size_t kPromptEndTokens = 32;
constexpr char kProbeKey[] = "k7q", kProbeValue[] = "v7q";

std::string Quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool IsObject(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && json::accept(text);
}

// The value of a system message's `tools`: the tools without what OpenAI wraps them in.
std::string ToolsOfSystem(std::string_view tools_json, ToolsPlace place) {
  using ordered_json = nlohmann::ordered_json;
  ordered_json tools = ordered_json::parse(tools_json, nullptr, /*allow_exceptions=*/false);
  if (tools.is_discarded()) return std::string(tools_json);  // the template library says so
  for (ordered_json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function")) continue;
    ordered_json function = std::move(tool["function"]);
    tool = std::move(function);
  }
  const std::string list = markup::PythonText(tools, markup::PythonWords::kJson);
  return place == ToolsPlace::kSystemAsText ? Quoted(list) : list;
}

constexpr char kProbedTools[] =
    R"([{"type": "function", "function": {"name": "k7q", "description": "d", "parameters": )"
    R"({"type": "object", "properties": {"p": {"type": "string", "description": "d"}}, )"
    R"("required": ["p"]}}}])";

// Where a template shows tools that it does not show in `tools`; none: nowhere.
std::optional<ToolsPlace> FindToolsInSystem(const text::ChatTemplate& chat_template) {
  // A list is preferred: a template that writes JSON itself would quote a text once more. Where it
  // joins it to text, it fails, or prints it as Python does.
  for (const ToolsPlace place : {ToolsPlace::kSystem, ToolsPlace::kSystemAsText}) {
    const std::string messages =
        absl::StrCat(R"([{"role": "system", "content": "a", "tools": )",
                     ToolsOfSystem(kProbedTools, place), R"(}, {"role": "user", "content": "a"}])");
    text::ChatPrompt prompt;
    prompt.messages_json = messages;
    prompt.local_unix_s = 0;
    const auto shown = chat_template.Render(prompt);
    if (shown.ok() && absl::StrContains(*shown, absl::StrCat("\"", kProbeKey, "\""))) return place;
  }
  return std::nullopt;
}

// Whether tools reach the prompt, and where the template reads them.
void FindTools(const text::ChatTemplate& chat_template, const std::string& source,
               ChatVoice& voice) {
  if (!absl::StrContains(source, "tools")) return;
  text::ChatPrompt prompt;
  prompt.messages_json = R"([{"role": "user", "content": "a"}])";
  prompt.local_unix_s = 0;
  voice.takes_tools = true;
  if (!chat_template.Render(prompt).ok()) return;  // it says nothing
  prompt.tools_json = kProbedTools;
  const auto shown = chat_template.Render(prompt);
  if (!shown.ok() || absl::StrContains(*shown, kProbeKey)) return;
  const auto place = FindToolsInSystem(chat_template);
  voice.takes_tools = place.has_value();
  voice.tools_place = place.value_or(ToolsPlace::kVariable);
}

constexpr char kProbeTools[] =
    R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": )"
    R"({"type": "object", "properties": {"p": {"type": "string", "description": "d"}}}}}])";

// What the template makes of these messages behind a user's; none when it refuses them.
std::optional<std::string> Shown(const text::ChatTemplate& chat_template, std::string_view tools,
                                 const std::string& messages) {
  const std::string all = absl::StrCat(R"([{"role": "user", "content": "a"}, )", messages, "]");
  text::ChatPrompt prompt;
  prompt.messages_json = all;
  prompt.tools_json = tools;
  prompt.add_generation_prompt = false;
  prompt.local_unix_s = 0;
  auto shown = chat_template.Render(prompt);
  return shown.ok() ? std::optional<std::string>(*std::move(shown)) : std::nullopt;
}

bool ShowsWords(const std::optional<std::string>& shown, std::string_view words) {
  return shown.has_value() && shown->find(words) != std::string::npos;
}

// A call of the tool "f" and what it answered, told in `role`.
std::string CallAndResult(const std::string& arguments, const char* role, const char* result) {
  return absl::StrCat(
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": )"
      R"("function", "function": {"name": "f", "arguments": )",
      arguments, R"(}}]}, {"role": ")", role,
      R"(", "tool_call_id": "abcdefghi", "name": "f", "content": ")", result, "\"}");
}

// An object that is joined to text is refused, or printed as Python prints it.
bool WantsArgumentsAsText(const text::ChatTemplate& chat_template) {
  const std::string object = absl::StrCat("{\"", kProbeKey, "\": \"", kProbeValue, "\"}");
  const auto with = [&](const std::string& arguments) {
    return Shown(chat_template, "", CallAndResult(arguments, "tool", "b"));
  };
  const auto with_object = with(object);
  const bool object_fits = ShowsWords(with_object, kProbeKey) &&
                           !ShowsWords(with_object, absl::StrCat("'", kProbeKey, "'"));
  return !object_fits && ShowsWords(with(Quoted(object)), absl::StrCat("{\"", kProbeKey, "\""));
}

// Where past calls and their results must stand so that the template shows them; some leave out
// what they don't know, and the model would see a question without its answer.
void FindPastCalls(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer,
                   const markup::Dialect& dialect, ChatVoice& voice) {
  constexpr char kResult[] = "r7q", kResponseRole[] = "tool_response";
  const std::string object = absl::StrCat("{\"p\": \"", kProbeValue, "\"}");
  const std::string arguments = voice.arguments_as_text ? Quoted(object) : object;
  const auto shown = [&](const std::string& messages) {
    return Shown(chat_template, voice.takes_tools ? kProbeTools : "", messages);
  };
  const auto listed = shown(CallAndResult(arguments, "tool", kResult));
  // A template that takes tools and refuses this says so by itself.
  if (!listed.has_value()) {
    voice.no_calls = !voice.takes_tools;
    return;
  }
  const auto shows_answer = [&](const std::string& text, const char* more, std::string_view words) {
    return voice.takes_tools && !text.empty() &&
           ShowsWords(
               shown(absl::StrCat(R"({"role": "assistant", "content": )", Quoted(text), more, "}")),
               words);
  };
  if (!ShowsWords(listed, kProbeValue)) {
    const std::string text = markup::CallText(dialect, {{"f", object}});
    if (shows_answer(object, R"(, "metadata": "k7q")", kProbeKey)) {
      voice.past_calls = PastCalls::kMetadata;
    } else if (shows_answer(text, "", kProbeValue)) {
      voice.past_calls = PastCalls::kContent;
    } else {
      voice.no_calls = true;
    }
  }
  // A template that names each turn after its role shows a result as it shows the tools; the family
  // has a token of its own for it.
  const std::string own_role = absl::StrCat("<|", kResponseRole, "|>");
  if (voice.tools_place != ToolsPlace::kVariable && tokenizer.TokenId(own_role).has_value() &&
      ShowsWords(shown(CallAndResult(arguments, kResponseRole, kResult)), own_role)) {
    voice.result_role = kResponseRole;
    return;
  }
  if (ShowsWords(listed, kResult)) return;
  if (ShowsWords(shown(CallAndResult(arguments, "observation", kResult)), kResult)) {
    voice.result_role = "observation";
  } else {
    voice.no_calls = true;
  }
}

TokenSpellings SpecialOnes(const text::Tokenizer& tokenizer,
                           const std::vector<std::string>& spellings) {
  TokenSpellings special;
  for (const std::string& spelling : spellings) {
    const auto id = tokenizer.TokenId(spelling);
    if (!id.has_value()) continue;
    const int32_t ids[] = {*id};
    // What a decoder doesn't leave out comes through it anyway.
    const auto decoded = tokenizer.Decode(ids, /*skip_special_tokens=*/true);
    if (decoded.ok() && decoded->empty()) special[*id] = spelling;
  }
  return special;
}

// Names by the ids of the calls so far.
using CallNames = std::map<std::string, std::string>;

std::string ArgumentsOf(const v1::ToolCall& call) {
  const std::string& arguments = call.arguments();
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return "{}";
  if (IsObject(arguments)) return arguments;
  return absl::StrCat("{\"invalid_json\": ", Quoted(arguments), "}");
}

std::string CallJson(const v1::ToolCall& call, const ChatVoice& voice) {
  std::string arguments = ArgumentsOf(call);
  if (voice.arguments_as_text) arguments = Quoted(arguments);
  const std::string id = voice.nine_letter_ids ? markup::NineLetterId(call.id()) : call.id();
  return absl::StrCat("{\"id\": ", Quoted(id),
                      ", \"type\": \"function\", \"function\": {\"name\": ", Quoted(call.name()),
                      ", \"arguments\": ", arguments, "}}");
}

// The calls of a message within its content, as the model writes them.
v1::ChatMessage WithCallsInContent(v1::ChatMessage message, const markup::Dialect& dialect) {
  std::vector<markup::PastCall> calls;
  for (const v1::ToolCall& call : message.tool_calls()) {
    calls.push_back({call.name(), ArgumentsOf(call)});
  }
  absl::StrAppend(message.mutable_content(), message.content().empty() ? "" : "\n",
                  markup::CallText(dialect, calls));
  message.clear_tool_calls();
  return message;
}

// A message for each call, as GLM 4's own code tells them.
std::string CallMessagesJson(const v1::ChatMessage& message) {
  std::string text;
  for (const v1::ToolCall& call : message.tool_calls()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", R"({"role": "assistant", "metadata": )",
                    Quoted(call.name()), R"(, "content": )", Quoted(ArgumentsOf(call)), "}");
  }
  return text;
}

// `more`: members of the message.
std::string MessageJson(const v1::ChatMessage& message, const ChatVoice& voice, CallNames& names,
                        const std::string& more = "") {
  const std::string& role = message.role() == "tool" ? voice.result_role : message.role();
  std::string text =
      absl::StrCat("{\"role\": ", Quoted(role), ", \"content\": ", Quoted(message.content()));
  std::string name = message.name();
  if (message.role() == "tool") {
    const std::string& id = message.tool_call_id();
    const auto found = names.find(id);
    if (name.empty() && found != names.end()) name = found->second;
    const std::string told = voice.nine_letter_ids ? markup::NineLetterId(id) : id;
    absl::StrAppend(&text, ", \"tool_call_id\": ", Quoted(told));
  }
  if (!name.empty()) absl::StrAppend(&text, ", \"name\": ", Quoted(name));
  if (!message.reasoning().empty()) {
    absl::StrAppend(&text, ", \"reasoning_content\": ", Quoted(message.reasoning()));
  }
  if (!message.tool_calls().empty()) {
    std::vector<std::string> calls;
    for (const v1::ToolCall& call : message.tool_calls()) {
      names[call.id()] = call.name();
      calls.push_back(CallJson(call, voice));
    }
    std::string list;
    for (const std::string& call : calls) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", call);
    }
    absl::StrAppend(&text, ", \"tool_calls\": [", list, "]");
  }
  return absl::StrCat(text, more, "}");
}

bool WantsCalls(const v1::GenerateRequest& request) {
  return !request.tools().tools_json().empty();
}

// The turn that has the tools, a new one where there is no system message; none: they stand
// elsewhere. The words are those of the only model that is known to read tools there.
std::optional<size_t> AddToolsPlace(const v1::GenerateRequest& request, const ChatVoice& voice,
                                    std::vector<v1::ChatMessage>& turns) {
  if (!WantsCalls(request) || voice.tools_place == ToolsPlace::kVariable) return std::nullopt;
  const auto found = std::find_if(turns.begin(), turns.end(), [](const v1::ChatMessage& turn) {
    return turn.role() == "system";
  });
  if (found != turns.end()) return static_cast<size_t>(found - turns.begin());
  v1::ChatMessage system;
  system.set_role("system");
  system.set_content("You are a helpful assistant with some tools.");
  turns.insert(turns.begin(), std::move(system));
  return 0;
}

uint32_t CallsBefore(const v1::GenerateRequest& request) {
  int calls = 0;
  for (const v1::ChatMessage& message : request.messages()) calls += message.tool_calls_size();
  return static_cast<uint32_t>(calls);
}

class PlanMaker {
 public:
  PlanMaker(const text::Tokenizer& tokenizer, const markup::Dialect& dialect)
      : tokenizer_(tokenizer), dialect_(dialect) {}

  absl::StatusOr<markup::SteeringPlan> Make(const v1::GenerateRequest& request) {
    markup::SteeringPlan plan;
    plan.ends_with_first_call = WantsCalls(request) && request.tools().single_call();
    AddBudget(request.reasoning(), plan);
    AddCall(request, plan);
    if (!status_.ok()) return status_;
    return plan;
  }

 private:
  std::vector<int32_t> Tokens(const std::string& text) {
    if (text.empty()) return {};
    auto tokens = tokenizer_.Encode(text, /*add_special_tokens=*/false,
                                    /*special_tokens_in_text=*/true);
    if (!tokens.ok()) status_ = tokens.status();
    return tokens.value_or(std::vector<int32_t>());
  }

  void AddBudget(const v1::ReasoningOptions& reasoning, markup::SteeringPlan& plan) {
    if (reasoning.has_tokens_max()) plan.reasoning_tokens_max = reasoning.tokens_max();
    if (reasoning.has_enabled() && !reasoning.enabled()) plan.reasoning_tokens_max = 0;
    if (!plan.reasoning_tokens_max.has_value()) return;
    plan.close = Tokens(markup::ForcedClosing(dialect_, false));
    plan.close_for_good = Tokens(markup::ForcedClosing(dialect_, true));
  }

  void AddCall(const v1::GenerateRequest& request, markup::SteeringPlan& plan) {
    const v1::ToolOptions& tools = request.tools();
    const bool is_named = tools.choice() == v1::TOOL_CHOICE_KIND_NAMED;
    if (!WantsCalls(request) || (!is_named && tools.choice() != v1::TOOL_CHOICE_KIND_REQUIRED)) {
      return;
    }
    const std::string opening =
        markup::ForcedOpening(dialect_, is_named ? tools.name() : "", CallsBefore(request));
    plan.call = Tokens(opening);
    if (dialect_.syntax == markup::CallSyntax::kHarmony) {
      // It reasons in a message of its own, unless it must not.
      plan.call_after_reasoning = Tokens(absl::StrCat("<|start|>assistant", opening));
      const bool reasons = plan.reasoning_tokens_max.value_or(1) > 0;
      if (reasons) plan.begin = Tokens("<|channel|>analysis<|message|>");
      return;
    }
    const bool is_solar = dialect_.syntax == markup::CallSyntax::kSolar;
    plan.call_after_reasoning =
        Tokens(absl::StrCat(is_solar ? "<|begin|>assistant" : "\n\n", opening));
    const std::vector<int32_t> think = Tokens(dialect_.think_open);
    if (!think.empty()) plan.think_open = think[0];
  }

  const text::Tokenizer& tokenizer_;
  const markup::Dialect& dialect_;
  absl::Status status_;
};

}  // namespace

ChatVoice VoiceOf(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer) {
  const std::string source = chat_template.Source(/*with_tools=*/true);
  markup::Dialect dialect = markup::ChooseDialect(
      source, [&](std::string_view token) { return tokenizer.TokenId(token).has_value(); });
  ChatVoice voice;
  FindTools(chat_template, source, voice);
  voice.nine_letter_ids = dialect.id_style == markup::CallIdStyle::kNine;
  // Also of a template that lists no tools: a session may have begun with another model.
  voice.arguments_as_text = WantsArgumentsAsText(chat_template);
  static_cast<TurnRules&>(voice) = ProbeTurnRules(chat_template, voice.takes_tools);
  FindPastCalls(chat_template, tokenizer, dialect, voice);
  const TokenSpellings all = SpecialOnes(tokenizer, dialect.control);
  TokenSpellings reasoning = all;
  for (const std::string& end : dialect.ends) {
    const auto id = tokenizer.TokenId(end);
    if (id.has_value()) voice.end_tokens.insert(*id);
  }
  if (!markup::IsAllMarkup(dialect)) {
    std::erase_if(reasoning, [&dialect](const auto& token) {
      return !absl::StrContains(dialect.think_open, token.second) &&
             !absl::StrContains(dialect.think_close, token.second);
    });
  }
  voice.all_tokens = std::make_shared<const TokenSpellings>(all);
  voice.reasoning_tokens = std::make_shared<const TokenSpellings>(std::move(reasoning));
  voice.dialect = std::make_shared<const markup::Dialect>(std::move(dialect));
  return voice;
}

absl::Status CheckTools(const v1::GenerateRequest& request, const ChatVoice& voice) {
  if (!WantsCalls(request)) return absl::OkStatus();
  const bool is_read =
      voice.dialect == nullptr || voice.dialect->syntax != markup::CallSyntax::kNone;
  if (voice.takes_tools && is_read) return absl::OkStatus();
  if (voice.takes_tools) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        "how this model writes tool calls is not known here (its chat template "
                        "names no known form), so its calls would come out as text; leave 'tools' "
                        "out or load a model of another family");
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                      "this model's chat template takes no tools, so the model would never see "
                      "them; leave 'tools' out or load a model that was trained with tools");
}

std::string MessagesJson(const v1::GenerateRequest& request, int count, const ChatVoice& voice) {
  CallNames names;
  std::string text = "[";
  const auto add = [&](const std::string& messages) {
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", messages);
  };
  std::vector<v1::ChatMessage> turns = TurnsOf(request, count, voice);
  const auto first_system = AddToolsPlace(request, voice, turns);
  for (size_t i = 0; i < turns.size(); ++i) {
    v1::ChatMessage& message = turns[i];
    if (i == first_system) {
      const std::string tools = ToolsOfSystem(request.tools().tools_json(), voice.tools_place);
      add(MessageJson(message, voice, names, absl::StrCat(", \"tools\": ", tools)));
      continue;
    }
    if (message.tool_calls().empty() || voice.past_calls == PastCalls::kListed) {
      add(MessageJson(message, voice, names));
      continue;
    }
    for (const v1::ToolCall& call : message.tool_calls()) names[call.id()] = call.name();
    if (voice.past_calls == PastCalls::kContent) {
      add(MessageJson(WithCallsInContent(std::move(message), *voice.dialect), voice, names));
      continue;
    }
    const std::string calls = CallMessagesJson(message);
    message.clear_tool_calls();
    if (!message.content().empty()) add(MessageJson(message, voice, names));
    add(calls);
  }
  return text + "]";
}

std::string TemplateArgumentsJson(const v1::GenerateRequest& request) {
  const std::string& given = request.template_arguments_json();
  if (!request.reasoning().has_enabled()) return given;
  json arguments = given.empty() ? json::object() : json::parse(given, nullptr, false);
  if (!arguments.is_object()) return given;  // the template library says what is wrong
  // Families call the switch by different names; what the caller set itself stays.
  const bool enabled = request.reasoning().enabled();
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!arguments.contains(name)) arguments[name] = enabled;
  }
  // MiniMax M3's; what it is without: the model decides.
  if (!arguments.contains("thinking_mode")) {
    arguments["thinking_mode"] = enabled ? "enabled" : "disabled";
  }
  return arguments.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<AnswerShape> ShapeOf(const v1::GenerateRequest& request, const ChatVoice& voice,
                                    const text::Tokenizer& tokenizer,
                                    std::span<const int32_t> prompt, uint64_t seed) {
  AnswerShape shape;
  if (voice.dialect == nullptr) return shape;
  shape.markup.dialect = voice.dialect;
  shape.markup.ids.style = voice.dialect->id_style;
  shape.markup.ids.calls_before = CallsBefore(request);
  shape.markup.ids.salt =
      request.request_id().empty() ? absl::StrCat("seed ", seed) : request.request_id();
  shape.shown_tokens = voice.reasoning_tokens;
  if (WantsCalls(request)) {
    shape.markup.tools = std::make_shared<const markup::ToolSet>(request.tools().tools_json());
    shape.shown_tokens = voice.all_tokens;
  }
  const size_t end = std::min(prompt.size(), kPromptEndTokens);
  const auto prompt_end = tokenizer.Decode(prompt.last(end), /*skip_special_tokens=*/false);
  if (!prompt_end.ok()) return prompt_end.status();
  shape.markup.opens_reasoning = markup::OpensReasoning(*voice.dialect, *prompt_end);
  shape.markup.follows_reasoning = markup::ClosesReasoning(*voice.dialect, *prompt_end);
  auto plan = PlanMaker(tokenizer, *voice.dialect).Make(request);
  if (!plan.ok()) return plan.status();
  shape.steering = *std::move(plan);
  return shape;
}

std::optional<ForcedCall> ForcedCallOf(const v1::GenerateRequest& request, const ChatVoice& voice) {
  const v1::ToolOptions& tools = request.tools();
  const bool is_named = tools.choice() == v1::TOOL_CHOICE_KIND_NAMED;
  const bool is_forced = is_named || tools.choice() == v1::TOOL_CHOICE_KIND_REQUIRED;
  if (!is_forced || !WantsCalls(request) || voice.dialect == nullptr) return std::nullopt;
  return GrammarOfForcedCall(*voice.dialect, tools.tools_json(), is_named ? tools.name() : "",
                             CallsBefore(request), *voice.all_tokens);
}

std::optional<OwnCalls> OwnCallsOf(const v1::GenerateRequest& request, const ChatVoice& voice,
                                   const text::Tokenizer& tokenizer) {
  const v1::ToolChoiceKind choice = request.tools().choice();
  const bool is_free =
      choice == v1::TOOL_CHOICE_KIND_AUTO || choice == v1::TOOL_CHOICE_KIND_UNSPECIFIED;
  if (!is_free || !WantsCalls(request) || voice.dialect == nullptr) return std::nullopt;
  if (!absl::StrContains(request.tools().tools_json(), "\"strict\"")) return std::nullopt;
  for (const std::string& opener : voice.dialect->openers) {
    const auto token = tokenizer.TokenId(opener);
    if (!token.has_value()) continue;
    auto lark =
        GrammarOfOwnCall(*voice.dialect, request.tools().tools_json(), opener, *voice.all_tokens);
    if (lark.has_value()) return OwnCalls{*std::move(lark), *token};
  }
  return std::nullopt;
}

void AddStructurePlaces(const v1::GenerateRequest& request, const ChatVoice& voice,
                        const text::Tokenizer& tokenizer, StructurePlan& plan) {
  if (voice.dialect == nullptr) return;
  const v1::ReasoningOptions& reasoning = request.reasoning();
  if (!reasoning.has_enabled() || reasoning.enabled()) {
    const auto open = tokenizer.Encode(voice.dialect->think_open, /*add_special_tokens=*/false,
                                       /*special_tokens_in_text=*/true);
    if (open.ok() && !open->empty()) plan.think_open = open->front();
  }
  for (const char* line_ends : {"\n", "\n\n"}) {
    const auto tokens = tokenizer.Encode(line_ends, /*add_special_tokens=*/false,
                                         /*special_tokens_in_text=*/false);
    if (tokens.ok() && tokens->size() == 1) plan.line_ends.push_back((*tokens)[0]);
  }
  // Families whose calls mostly begin without their opener can't be told from the structure.
  const bool begins_as_text = voice.dialect->syntax == markup::CallSyntax::kPlainJson ||
                              voice.dialect->name == "llama4_pythonic";
  if (!WantsCalls(request) || begins_as_text) return;
  for (const std::string& opener : voice.dialect->openers) {
    if (const auto token = tokenizer.TokenId(opener)) plan.call_openers.push_back(*token);
  }
}

}  // namespace macrame::runtime::engine
