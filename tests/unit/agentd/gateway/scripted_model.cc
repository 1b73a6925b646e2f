#include "tests/unit/agentd/gateway/scripted_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/serving/markup/answer_markup.h"
#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;
namespace markup = runtime::markup;

struct Call {
  std::string name;
  ordered_json arguments = ordered_json::object();
};
struct Turn {
  std::string reasoning, text;
  std::vector<Call> calls{};
};

std::vector<Turn> Turns() {
  return {{"The user asks for Oslo.", "I look.", {{"get_weather", {{"city", "Oslo"}}}}},
          {"", "", {{"get_weather", {{"city", "Rome"}, {"days", 2}}}, {"get_time"}}},
          {"",
           "",
           {{"write_file",
             {{"path", "report.md"}, {"content", "# Tromsø\n\nsays \"<b>7°</b>\" & more\n"}}}}},
          {"All is there.", "It is 7° in Oslo.", {}}};
}

std::string Written(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

using Members = std::function<std::string(const std::string&, const ordered_json&)>;
std::string Each(const ordered_json& arguments, const std::string& between, const Members& write) {
  std::string out;
  for (const auto& [key, value] : arguments.items()) {
    absl::StrAppend(&out, out.empty() ? "" : between, write(key, value));
  }
  return out;
}

std::string Think(const Turn& turn) {
  return turn.reasoning.empty() ? "" : absl::StrCat("<think>\n", turn.reasoning, "\n</think>\n\n");
}

std::string Hermes(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "\n<tool_call>\n{\"name\": \"", call.name,
                    "\", \"arguments\": ", call.arguments.dump(), "}\n</tool_call>");
  }
  return out;
}

std::string QwenCoder(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "\n<tool_call>\n<function=", call.name, ">\n",
                    Each(call.arguments, "",
                         [](const std::string& key, const ordered_json& value) {
                           return absl::StrCat("<parameter=", key, ">\n", Written(value),
                                               "\n</parameter>\n");
                         }),
                    "</function>\n</tool_call>");
  }
  return out;
}

std::string Glm(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "\n<tool_call>", call.name, "\n",
                    Each(call.arguments, "",
                         [](const std::string& key, const ordered_json& value) {
                           return absl::StrCat("<arg_key>", key, "</arg_key>\n<arg_value>",
                                               Written(value), "</arg_value>\n");
                         }),
                    "</tool_call>");
  }
  return out;
}

std::string Minimax(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  if (turn.calls.empty()) return out;
  out += "\n<minimax:tool_call>\n";
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "<invoke name=\"", call.name, "\">\n",
                    Each(call.arguments, "",
                         [](const std::string& key, const ordered_json& value) {
                           return absl::StrCat("<parameter name=\"", key, "\">", Written(value),
                                               // A line's end on each side is the tag's.
                                               value.is_string() ? "\n" : "", "</parameter>\n");
                         }),
                    "</invoke>\n");
  }
  return out + "</minimax:tool_call>";
}

std::string Kimi(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  if (turn.calls.empty()) return out;
  out += "<|tool_calls_section_begin|>";
  int index = 0;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "<|tool_call_begin|>functions.", call.name, ":", index++,
                    "<|tool_call_argument_begin|>", call.arguments.dump(), "<|tool_call_end|>");
  }
  return out + "<|tool_calls_section_end|>";
}

std::string DeepSeek(const Turn& turn) {
  std::string out = Think(turn) + turn.text;
  if (turn.calls.empty()) return out;
  out += "<｜tool▁calls▁begin｜>";
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "<｜tool▁call▁begin｜>", call.name, "<｜tool▁sep｜>",
                    call.arguments.dump(), "<｜tool▁call▁end｜>");
  }
  return out + "<｜tool▁calls▁end｜>";
}

std::string Mistral(const Turn& turn) {
  std::string out =
      turn.reasoning.empty() ? "" : absl::StrCat("[THINK]", turn.reasoning, "[/THINK]");
  out += turn.text;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "[TOOL_CALLS]", call.name, "[ARGS]", call.arguments.dump());
  }
  return out;
}

std::string Gemma(const Turn& turn) {
  std::string out = turn.reasoning.empty()
                        ? ""
                        : absl::StrCat("<|channel>thought\n", turn.reasoning, "\n<channel|>");
  out += turn.text;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, "<|tool_call>call:", call.name, "{",
                    Each(call.arguments, ",",
                         [](const std::string& key, const ordered_json& value) {
                           const std::string quote = value.is_string() ? "<|\"|>" : "";
                           return absl::StrCat(key, ":", quote, Written(value), quote);
                         }),
                    "}<tool_call|>");
  }
  return out;
}

std::string Harmony(const Turn& turn) {
  std::string out;
  const auto message = [&out](const std::string& header, const std::string& body, const char* end) {
    absl::StrAppend(&out, out.empty() ? "" : "<|start|>assistant", "<|channel|>", header,
                    "<|message|>", body, end);
  };
  if (!turn.reasoning.empty()) message("analysis", turn.reasoning, "<|end|>");
  if (!turn.text.empty()) {
    message(turn.calls.empty() ? "final" : "commentary", turn.text, "<|end|>");
  }
  for (const Call& call : turn.calls) {
    message(absl::StrCat("commentary to=functions.", call.name, " <|constrain|>json"),
            call.arguments.dump(), "<|call|>");
  }
  return out;
}

std::string Pythonic(const Turn& turn) {
  if (turn.calls.empty()) return turn.text;
  std::string list;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&list, list.empty() ? "[" : ", ", call.name, "(",
                    Each(call.arguments, ", ",
                         [](const std::string& key, const ordered_json& value) {
                           return absl::StrCat(key, "=", value.dump());
                         }),
                    ")");
  }
  return list + "]";
}

std::string Llama(const Turn& turn) {
  if (turn.calls.empty()) return turn.text;
  std::string out;
  for (const Call& call : turn.calls) {
    absl::StrAppend(&out, out.empty() ? "" : "; ", "{\"name\": \"", call.name,
                    "\", \"parameters\": ", call.arguments.dump(), "}");
  }
  return out;
}

using Writer = std::string (*)(const Turn&);
const std::map<std::string, Writer>& Writers() {
  static const std::map<std::string, Writer> writers = {
      {"hermes", Hermes},   {"qwen3_coder", QwenCoder}, {"glm", Glm},         {"minimax", Minimax},
      {"kimi", Kimi},       {"deepseek_v31", DeepSeek}, {"mistral", Mistral}, {"gemma4", Gemma},
      {"harmony", Harmony}, {"pythonic", Pythonic},     {"llama3", Llama}};
  return writers;
}

v1::GenerateChunk ChunkOf(const markup::MarkupEvent& event) {
  v1::GenerateChunk chunk;
  using Kind = markup::MarkupEvent::Kind;
  if (event.kind == Kind::kContent) {
    chunk.set_text(event.text);
  } else if (event.kind == Kind::kReasoning) {
    chunk.set_reasoning(event.text);
  } else {
    v1::ToolCallDelta& call = *chunk.add_tool_calls();
    call.set_index(event.call);
    call.set_id(event.id);
    if (event.kind == Kind::kCallBegin) call.set_name(event.text);
    if (event.kind == Kind::kArguments) call.set_arguments(event.text);
    call.set_ended(event.kind == Kind::kCallEnd);
  }
  return chunk;
}

// The next few characters, whole ones.
size_t PieceEnd(const std::string& text, size_t begin, size_t letters) {
  size_t end = begin;
  for (size_t i = 0; i < letters && end < text.size(); ++i) {
    do {
      ++end;
    } while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  }
  return end;
}

}  // namespace

std::vector<std::string> ScriptedFamilies() {
  std::vector<std::string> families;
  for (const auto& [family, writer] : Writers()) families.push_back(family);
  return families;
}

namespace {

size_t TurnsBefore(const v1::GenerateRequest& request) {
  size_t turns = 0;
  for (const v1::ChatMessage& message : request.messages()) {
    turns += message.tool_calls().empty() ? 0 : 1;
  }
  return turns;
}

std::vector<v1::GenerateChunk> Spoken(const std::string& family, const Turn& turn,
                                      const v1::GenerateRequest& request) {
  uint32_t calls_before = 0;
  for (const v1::ChatMessage& message : request.messages()) {
    calls_before += static_cast<uint32_t>(message.tool_calls_size());
  }
  markup::MarkupTraits traits = markup::TraitsOf({family, "", "", "", "", false});
  traits.tools = request.tools().tools_json().empty()
                     ? nullptr
                     : std::make_shared<const markup::ToolSet>(request.tools().tools_json());
  traits.ids.salt = request.request_id();
  traits.ids.calls_before = calls_before;
  markup::AnswerMarkup answer(traits);
  const std::string text = Writers().at(family)(turn);
  std::vector<v1::GenerateChunk> chunks;
  const auto take = [&chunks](const std::vector<markup::MarkupEvent>& events) {
    for (const markup::MarkupEvent& event : events) chunks.push_back(ChunkOf(event));
  };
  bool is_over = false;
  uint32_t tokens = 0;
  for (size_t begin = 0; begin < text.size() && !is_over; ++tokens) {
    const size_t end = PieceEnd(text, begin, 1 + begin % 5);
    take(answer.Push(std::string_view(text).substr(begin, end - begin)));
    begin = end;
    is_over = request.tools().single_call() && answer.calls_ended() > 0;
  }
  if (!is_over) take(answer.Finish(/*is_cut=*/false));
  v1::GenerateChunk last;
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  last.set_prompt_tokens(11);
  last.set_completion_tokens(tokens);
  last.set_reasoning_tokens(turn.reasoning.empty() ? 0 : 3);
  chunks.push_back(last);
  return chunks;
}

bool Offers(const v1::GenerateRequest& request, const std::string& name) {
  const std::string& text = request.tools().tools_json();
  const auto tools = text.empty() ? ordered_json::array() : ordered_json::parse(text);
  return std::any_of(tools.begin(), tools.end(), [&name](const ordered_json& tool) {
    return tool.at("function").at("name") == name;
  });
}

bool IsTold(const v1::GenerateRequest& request, const std::string& words) {
  return std::any_of(request.messages().begin(), request.messages().end(),
                     [&words](const v1::ChatMessage& message) {
                       return absl::StrContains(message.content(), words);
                     });
}

std::string LastResult(const v1::GenerateRequest& request) {
  std::string result;
  for (const v1::ChatMessage& message : request.messages()) {
    if (message.role() == "tool") result = message.content();
  }
  return result;
}

Turn TurnOfScript(const ordered_json& script, const v1::GenerateRequest& request) {
  const ordered_json& turns = script.at("turns");
  const size_t turn = TurnsBefore(request);
  if (turn < turns.size()) {
    for (const ordered_json& call : turns[turn].at("calls")) {
      if (!Offers(request, call.at("name"))) continue;
      return {turns[turn].value("reasoning", ""),
              turns[turn].value("text", ""),
              {{call.at("name"), call.at("arguments")}}};
    }
  }
  for (const ordered_json& reply : script.at("replies")) {
    if (IsTold(request, reply.at("to"))) return {"", reply.at("text"), {}};
  }
  return {
      "",
      absl::StrReplaceAll(script.at("last").get<std::string>(), {{"$RESULT", LastResult(request)}}),
      {}};
}

}  // namespace

std::vector<v1::GenerateChunk> ScriptedAnswer(const std::string& family,
                                              const v1::GenerateRequest& request) {
  const std::vector<Turn> turns = Turns();
  return Spoken(family, turns[std::min(TurnsBefore(request), turns.size() - 1)], request);
}

std::vector<v1::GenerateChunk> AnswerByScript(const std::string& family, const std::string& script,
                                              const v1::GenerateRequest& request) {
  return Spoken(family, TurnOfScript(ordered_json::parse(script), request), request);
}

}  // namespace macrame::agentd
