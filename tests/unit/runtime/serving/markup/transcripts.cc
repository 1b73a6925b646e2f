#include "tests/unit/runtime/serving/markup/transcripts.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace macrame::runtime::markup {
namespace {

std::vector<TranscriptCase> Joined() {
  std::vector<TranscriptCase> all;
  for (const auto* part :
       {&JsonTranscripts(), &TagTranscripts(), &ControlTranscripts(), &NativeTranscripts()}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

// One thing, put together from its events.
struct Thing {
  MarkupEvent::Kind kind = MarkupEvent::Kind::kContent;
  uint32_t call = 0;
  std::string head, text;
  bool is_over = false;
};

}  // namespace

std::string TemplateOf(const std::string& family) {
  static const std::map<std::string, std::string> templates = {
      {"hermes",
       "{% for t in tools %}<tools>{% endfor %}<tool_call> </tool_call> <think> </think>"},
      {"qwen3_coder", "<tool_call>\n<function=example>\n<parameter=a> </function> <think>"},
      {"glm", "<tool_call>{name}<arg_key>{k}</arg_key><arg_value> <think></think>"},
      {"minimax", "<minimax:tool_call><invoke name=> <think>"},
      {"minimax_m3", "{% set ns = ']<]minimax[>[' %} <tool_call> <mm:think>"},
      {"dsml", "<｜DSML｜function_calls> <｜DSML｜invoke name=> <think> </think>"},
      {"kimi", "<|tool_calls_section_begin|><|tool_call_begin|> <think>"},
      {"deepseek_v3", "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>\n```json\n </think>"},
      {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁sep｜> </think>"},
      {"mistral_old", "[AVAILABLE_TOOLS] [TOOL_CALLS] ["},
      {"mistral", "[AVAILABLE_TOOLS] [TOOL_CALLS]name[ARGS] [THINK][/THINK]"},
      {"gemma4", "<|tool_call>call:<tool_call|> <|channel>thought<channel|>"},
      {"function_gemma", "<start_function_call>call:<end_function_call>"},
      {"harmony", "<|start|>assistant<|channel|>final<|message|>"},
      {"pythonic", "{{ tools }} <|python_start|> <|python_end|>"},
      {"lfm2", "<|tool_list_start|>{{ tools }}<|tool_list_end|>"},
      {"llama3", "Environment: ipython <|python_tag|> \"parameters\""},
      {"nemotron", "<TOOLCALL>[]</TOOLCALL>"},
      {"seed", "<seed:tool_call><function=x> <seed:think>"},
      {"olmo3", "within <function_calls></function_calls> XML tags <functions>{{ tools }} <think>"},
      {"solar", "<|begin|>assistant<|tool_call:begin|><|tool_call:name|><|tool_call:args|>"},
      {"json_functions", "{{ tools }} '<function=' + name + '>' '</function>' <|python_tag|>"},
      {"functionary", "{{ tools }} >>>${recipient}\\n${content}"},
      {"glm4", "{% for tool in tools %} role == 'observation' %}<|observation|>"},
      {"minicpm5", "{{ tools }} '<function name=\"' ~ name <param name=\"param-name\">"},
      {"minicpm4", "{{ tools }} <|tool_call_start|> <|tool_call_end|>"},
      {"hunyuan", "{% set HYTK = ':x' %} {{ tools }} '<think{}>' '<arg_key{}>'.format(HYTK)"},
      {"hunyuan_a13b", "{{ tools }} <tool_calls></tool_calls> '</think>' in m '<answer>' in m"},
      {"granite",
       "{{ tools }} respond with <|tool_call|> followed by a JSON list. Write your thoughts "
       "between <think></think> and write your response between <response></response>"},
      {"phi4", "'<|tool|>' + message['tools'] + '<|/tool|>'"},
      {"functools", "{{ tools }} prefix calls with functools, as functools[{}]"},
      {"cohere", "{{ tools }} <|START_THINKING|><|START_ACTION|>"},
      {"apertus", "{{ tools }} {% set t = '<|tools_prefix|>' %}"},
      {"plain", "{{ messages }}"},
      {"unknown", "{{ tools }} in a way of its own"},
  };
  return templates.at(family);
}

const char* TranscriptTools() {
  return R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                     "detailed": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
      "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "search", "parameters": {"type": "object",
      "properties": {"filters": {"$ref": "#/$defs/Filters"}, "tags": {"type": "array"},
                     "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
      "$defs": {"Filters": {"type": "object", "properties": {
        "year": {"type": "integer"}, "code": {"type": "string"},
        "places": {"type": "array", "items": {"type": "object", "properties": {
          "zip": {"type": "string"}, "near": {"$ref": "#/$defs/Filters"}}}}}}}}}},
    {"type": "function", "function": {"name": "get_time"}}])";
}

const std::vector<TranscriptCase>& TranscriptCases() {
  static const std::vector<TranscriptCase> cases = Joined();
  return cases;
}

MarkupTraits TraitsOf(const TranscriptCase& transcript) {
  MarkupTraits traits;
  const Dialect dialect =
      ChooseDialect(TemplateOf(transcript.family), [](std::string_view) { return false; });
  traits.dialect = std::make_shared<const Dialect>(dialect);
  traits.tools = std::make_shared<const ToolSet>(TranscriptTools());
  traits.opens_reasoning = OpensReasoning(dialect, transcript.prompt_end);
  traits.follows_reasoning = ClosesReasoning(dialect, transcript.prompt_end);
  traits.ids = {dialect.id_style, "salt", 0};
  return traits;
}

std::string Told(const std::vector<MarkupEvent>& events) {
  std::vector<Thing> things;
  for (const MarkupEvent& event : events) {
    using Kind = MarkupEvent::Kind;
    const bool is_of_call = event.kind == Kind::kArguments || event.kind == Kind::kCallEnd;
    if (is_of_call) {
      if (things.empty() || things.back().kind != Kind::kCallBegin || things.back().is_over ||
          things.back().call != event.call) {
        things.push_back({Kind::kCallEnd, event.call, "stray", "", true});
      }
      things.back().text += event.text;
      things.back().is_over = things.back().is_over || event.kind == Kind::kCallEnd;
    } else if (event.kind == Kind::kCallBegin) {
      things.push_back({event.kind, event.call, event.text, "", false});
    } else if (!things.empty() && things.back().kind == event.kind) {
      things.back().text += event.text;
    } else {
      things.push_back({event.kind, 0, "", event.text, true});
    }
  }
  std::string told;
  for (const Thing& thing : things) {
    const std::string text = absl::StrReplaceAll(thing.text, {{"\n", "\\n"}});
    if (thing.kind == MarkupEvent::Kind::kContent) absl::StrAppend(&told, "say: ", text);
    if (thing.kind == MarkupEvent::Kind::kReasoning) absl::StrAppend(&told, "think: ", text);
    if (thing.kind == MarkupEvent::Kind::kCallBegin || thing.kind == MarkupEvent::Kind::kCallEnd) {
      absl::StrAppend(&told, "call ", thing.call, " ", thing.head, ": ", text,
                      thing.is_over ? "" : " …");
    }
    told += "\n";
  }
  return told;
}

std::vector<MarkupEvent> EventsOf(const TranscriptCase& transcript,
                                  const std::vector<size_t>& cuts) {
  AnswerMarkup markup(TraitsOf(transcript));
  std::vector<MarkupEvent> events;
  const auto take = [&events](const std::vector<MarkupEvent>& more) {
    events.insert(events.end(), more.begin(), more.end());
  };
  const std::string_view text = transcript.text;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    take(markup.Push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  take(markup.Push(text.substr(begin)));
  take(markup.Finish(transcript.is_cut));
  return events;
}

}  // namespace macrame::runtime::markup
