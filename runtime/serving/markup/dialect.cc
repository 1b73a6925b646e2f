#include "runtime/serving/markup/dialect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/serving/markup/text_source.h"

namespace macrame::runtime::markup {
namespace {

using HasToken = std::function<bool(std::string_view)>;

constexpr char kNameAndArguments[] = R"({"name": "$NAME", "arguments": )";

// JSON between tags; what stands there may also be <function=…>.
Dialect Tagged(std::string name, std::string opener, std::string closer) {
  Dialect dialect;
  dialect.name = std::move(name);
  dialect.syntax = CallSyntax::kTagged;
  dialect.forced_any = absl::StrCat(opener, "\n{\"name\": \"");
  dialect.forced_named = absl::StrCat(opener, "\n", kNameAndArguments);
  dialect.openers = {std::move(opener)};
  dialect.closer = std::move(closer);
  dialect.function = {"<function=", "</function>", "<parameter=", "</parameter>", true};
  return dialect;
}

// A list of JSON between tags.
Dialect TaggedList(std::string name, std::string opener, std::string closer) {
  Dialect dialect = Tagged(std::move(name), std::move(opener), std::move(closer));
  dialect.forced_any = absl::StrCat(dialect.openers[0], "[{\"name\": \"");
  dialect.forced_named = absl::StrCat(dialect.openers[0], "[", kNameAndArguments);
  return dialect;
}

// The token, or since Granite 3.1 the tag, which vLLM's parser knows too.
Dialect Granite() {
  Dialect dialect = TaggedList("granite", "<|tool_call|>", "");
  dialect.openers.push_back("<tool_call>");
  return dialect;
}

Dialect Functions(std::string name, const std::string& opener, std::string closer) {
  Dialect dialect = Tagged(std::move(name), opener, std::move(closer));
  dialect.openers.push_back("<function=");  // some leave the outer tag away
  dialect.calls_end_reasoning = true;
  dialect.forced_any = absl::StrCat(opener, "\n<function=");
  dialect.forced_named = absl::StrCat(opener, "\n<function=$NAME>\n");
  return dialect;
}

Dialect Pairs(std::string name, const std::string& opener, std::string closer,
              const std::string& prefix) {
  Dialect dialect = Tagged(std::move(name), opener, std::move(closer));
  dialect.pair = {absl::StrCat("<", prefix, "arg_key>"), absl::StrCat("</", prefix, "arg_key>"),
                  absl::StrCat("<", prefix, "arg_value>"),
                  absl::StrCat("</", prefix, "arg_value>")};
  dialect.forced_any = opener;
  dialect.forced_named = absl::StrCat(opener, "$NAME");
  return dialect;
}

// `mark`: what stands between "<" or "</" and the words.
Dialect Invoke(std::string name, const std::string& opener, std::string closer,
               const std::string& mark) {
  Dialect dialect;
  dialect.name = std::move(name);
  dialect.syntax = CallSyntax::kInvoke;
  dialect.openers = {opener};
  dialect.closer = std::move(closer);
  dialect.function = {absl::StrCat("<", mark, "invoke "), absl::StrCat("</", mark, "invoke>"),
                      absl::StrCat("<", mark, "parameter "), absl::StrCat("</", mark, "parameter>"),
                      /*drops_line_ends=*/mark.empty()};
  dialect.calls_end_reasoning = true;
  dialect.forced_any = absl::StrCat(opener, "\n", dialect.function.function_open, "name=\"");
  dialect.forced_named = absl::StrCat(dialect.forced_any, "$NAME\">\n");
  return dialect;
}

// Tags count behind a mark alone, which is a token of its own.
Dialect MiniMaxM3(std::string mark) {
  Dialect dialect = Invoke("minimax_m3", absl::StrCat(mark, "<tool_call>"),
                           absl::StrCat(mark, "</tool_call>"), "");
  dialect.function = {absl::StrCat(mark, "<invoke "), absl::StrCat(mark, "</invoke>"),
                      absl::StrCat(mark, "<"), "", false};
  dialect.forced_any =
      absl::StrCat(dialect.openers[0], "\n", dialect.function.function_open, "name=\"");
  dialect.forced_named = absl::StrCat(dialect.forced_any, "$NAME\">");
  dialect.control = {mark};
  dialect.mark = std::move(mark);
  return dialect;
}

Dialect Kimi() {
  Dialect dialect;
  dialect.name = "kimi_k2";
  dialect.syntax = CallSyntax::kSections;
  // Answers spell the section in the singular, too.
  dialect.openers = {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>",
                     "<|tool_call_begin|>"};
  dialect.section = {"<|tool_calls_section_end|>", "<|tool_call_begin|>",
                     "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                     "<|tool_call_section_end|>"};
  dialect.calls_end_reasoning = true;
  dialect.id_style = CallIdStyle::kIndex;
  dialect.forced_any = "<|tool_calls_section_begin|><|tool_call_begin|>functions.";
  dialect.forced_named =
      absl::StrCat(dialect.forced_any, "$NAME:$INDEX", "<|tool_call_argument_begin|>");
  return dialect;
}

Dialect DeepSeek(std::string_view chat_template) {
  Dialect dialect;
  dialect.name = "deepseek_v3";
  dialect.syntax = CallSyntax::kSections;
  dialect.openers = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"};
  dialect.section = {"<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                     "<｜tool▁call▁end｜>"};
  dialect.calls_end_reasoning = true;
  const bool is_old = chat_template.find("```json") != std::string_view::npos;
  dialect.forced_any = absl::StrCat("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                                    is_old ? "function<｜tool▁sep｜>" : "");
  dialect.forced_named =
      absl::StrCat(dialect.forced_any, "$NAME", is_old ? "\n```json\n" : "<｜tool▁sep｜>");
  return dialect;
}

Dialect Mistral(std::string_view chat_template) {
  Dialect dialect;
  dialect.name = "mistral";
  dialect.syntax = CallSyntax::kMistral;
  dialect.openers = {"[TOOL_CALLS]"};
  dialect.control = {"[ARGS]", "[CALL_ID]"};
  dialect.calls_end_reasoning = true;
  dialect.id_style = CallIdStyle::kNine;
  const bool is_new = chat_template.find("[ARGS]") != std::string_view::npos;
  dialect.forced_any = is_new ? "[TOOL_CALLS]" : "[TOOL_CALLS] [{\"name\": \"";
  dialect.forced_named =
      is_new ? "[TOOL_CALLS]$NAME[ARGS]" : absl::StrCat("[TOOL_CALLS] [", kNameAndArguments);
  return dialect;
}

Dialect Gemma(std::string name, std::string opener, std::string closer, std::string quote) {
  Dialect dialect;
  dialect.name = std::move(name);
  dialect.syntax = CallSyntax::kGemma;
  dialect.forced_any = absl::StrCat(opener, "call:");
  dialect.forced_named = absl::StrCat(opener, "call:$NAME{");
  dialect.openers = {std::move(opener)};
  dialect.closer = std::move(closer);
  dialect.quote = std::move(quote);
  dialect.calls_end_reasoning = true;
  return dialect;
}

Dialect Harmony() {
  Dialect dialect;
  dialect.name = "harmony";
  dialect.syntax = CallSyntax::kHarmony;
  dialect.control = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                     "<|end|>",   "<|call|>",    "<|return|>"};
  dialect.ends = {"<|call|>", "<|return|>"};
  dialect.forced_any = "<|channel|>commentary to=functions.";
  dialect.forced_named = "<|channel|>commentary to=functions.$NAME <|constrain|>json<|message|>";
  return dialect;
}

Dialect Pythonic(std::string name, std::string opener, std::string closer) {
  Dialect dialect;
  dialect.name = std::move(name);
  dialect.syntax = CallSyntax::kPythonic;
  dialect.forced_any = absl::StrCat(opener, "[");
  dialect.forced_named = absl::StrCat(opener, "[$NAME(");
  dialect.openers = {std::move(opener)};
  dialect.closer = std::move(closer);
  return dialect;
}

// JSON between a function's tags, as Llama's custom calls are written.
void AddJsonFunctions(Dialect& dialect) {
  dialect.openers.push_back("<function=");
  dialect.function = {"<function=", "</function>", "<parameter=", "</parameter>", true};
}

Dialect PlainJson() {
  Dialect dialect;
  dialect.name = "llama3_json";
  dialect.syntax = CallSyntax::kPlainJson;
  dialect.openers = {"<|python_tag|>"};
  AddJsonFunctions(dialect);
  dialect.forced_any = "{\"name\": \"";
  dialect.forced_named = "{\"name\": \"$NAME\", \"parameters\": ";
  return dialect;
}

// Functionary 3.1, and prompts with Llama 3.1's custom calls.
Dialect JsonFunctions() {
  Dialect dialect = PlainJson();
  dialect.name = "json_functions";
  dialect.json_in_function = true;
  dialect.forced_any = "<function=";
  dialect.forced_named = "<function=$NAME>";
  return dialect;
}

Dialect Recipients() {
  Dialect dialect;
  dialect.name = "functionary_v3";
  dialect.syntax = CallSyntax::kRecipients;
  dialect.forced_named = "$NAME\n";
  return dialect;
}

Dialect NamedJson() {
  Dialect dialect;
  dialect.name = "glm4";
  dialect.syntax = CallSyntax::kNamedJson;
  dialect.forced_named = "$NAME\n";
  return dialect;
}

Dialect Solar() {
  Dialect dialect;
  dialect.name = "solar_open";
  dialect.syntax = CallSyntax::kSolar;
  dialect.section = {"<|calls|>", "<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>"};
  dialect.think_open = "<|think|>";
  dialect.think_close = "<|end|>";
  dialect.control = {"<|begin|>", "<|content|>", "<|tool_calls|>", "<|tool_call:name|>",
                     "<|flush|>"};
  dialect.ends = {"<|calls|>", "<|flush|>"};
  // The id is any ten letters and digits.
  dialect.forced_any = "<|tool_calls|><|tool_call:begin|>call000000<|tool_call:name|>";
  dialect.forced_named = absl::StrCat(dialect.forced_any, "$NAME<|tool_call:args|>");
  return dialect;
}

// Attributes name function and parameters; values may stand in CDATA.
Dialect MiniCpm() {
  Dialect dialect = Invoke("minicpm5", "<function ", "", "");
  dialect.function = {"<function ", "</function>", "<param ", "</param>", true, "<![CDATA[", "]]>"};
  dialect.forced_any = "<function name=\"";
  dialect.forced_named = "<function name=\"$NAME\">";
  return dialect;
}

// The template puts its tags together with a suffix.
Dialect Hunyuan(std::string_view chat_template) {
  constexpr std::string_view kSuffix = "HYTK = '";
  std::string suffix;
  const size_t at = chat_template.find(kSuffix);
  if (at != std::string_view::npos) {
    const std::string_view rest = chat_template.substr(at + kSuffix.size());
    suffix = rest.substr(0, rest.find('\''));
  }
  const auto tag = [&suffix](const char* name) { return absl::StrCat("<", name, suffix, ">"); };
  Dialect dialect = Tagged("hunyuan", tag("tool_call"), tag("/tool_call"));
  dialect.block_open = tag("tool_calls");
  dialect.block_close = tag("/tool_calls");
  dialect.openers.insert(dialect.openers.begin(), dialect.block_open);
  dialect.pair = {tag("arg_key"), tag("/arg_key"), tag("arg_value"), tag("/arg_value"),
                  tag("tool_sep")};
  dialect.think_open = tag("think");
  dialect.think_close = tag("/think");
  dialect.forced_any = absl::StrCat(dialect.block_open, "\n", tag("tool_call"));
  dialect.forced_named = absl::StrCat(dialect.forced_any, "$NAME", tag("tool_sep"), "\n");
  return dialect;
}

Dialect Phi() {
  Dialect dialect = TaggedList("phi4", "<|tool_call|>", "<|/tool_call|>");
  dialect.openers.push_back("functools");
  return dialect;
}

Dialect Cohere() {
  Dialect dialect = TaggedList("cohere", "<|START_ACTION|>", "<|END_ACTION|>");
  dialect.forced_any = R"(<|START_ACTION|>[{"tool_call_id": "0", "tool_name": ")";
  dialect.forced_named = absl::StrCat(dialect.forced_any, R"($NAME", "parameters": )");
  return dialect;
}

Dialect Apertus() {
  Dialect dialect = TaggedList("apertus", "<|tools_prefix|>", "<|tools_suffix|>");
  dialect.name_is_key = true;
  dialect.forced_any = "<|tools_prefix|>[{\"";
  dialect.forced_named = "<|tools_prefix|>[{\"$NAME\": ";
  return dialect;
}

// A chat template, asked for what stands in it.
class TemplateText {
 public:
  explicit TemplateText(std::string_view text) : text_(text) {}
  std::string_view text() const { return text_; }
  bool Has(std::string_view part) const { return text_.find(part) != std::string_view::npos; }
  bool HasAll(std::initializer_list<std::string_view> parts) const {
    return std::all_of(parts.begin(), parts.end(), [&](auto part) { return Has(part); });
  }
  bool HasAny(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [&](auto part) { return Has(part); });
  }

 private:
  std::string_view text_;
};

// V3.2 says function_calls, V4 tool_calls.
Dialect DeepSeekDsml(const TemplateText& in) {
  const std::string block =
      in.Has("tool_calls>") && !in.Has("function_calls>") ? "tool_calls" : "function_calls";
  return Invoke("deepseek_dsml", absl::StrCat("<｜DSML｜", block, ">"),
                absl::StrCat("</｜DSML｜", block, ">"), "｜DSML｜");
}

Dialect FunctionElements(const TemplateText& in) {
  const bool is_json = in.Has("</function>") && !in.HasAny({"<parameter=", "<tool_call>"});
  return is_json ? JsonFunctions() : Functions("qwen3_coder", "<tool_call>", "</tool_call>");
}

// Which template writes calls in which way.
struct TemplateRule {
  bool (*holds)(const TemplateText& in);
  Dialect (*dialect)(const TemplateText& in);
};

// The first that holds counts: what stands lower may be in templates of what stands above.
constexpr TemplateRule kTemplateRules[] = {
    {[](const TemplateText& in) {
       return in.HasAll({"<|channel|>", "<|message|>"});
     },
     [](const TemplateText&) { return Harmony(); }},
    {[](const TemplateText& in) { return in.Has("]<]minimax[>["); },
     [](const TemplateText&) { return MiniMaxM3("]<]minimax[>["); }},
    {[](const TemplateText& in) { return in.Has("<minimax:tool_call>"); },
     [](const TemplateText&) {
       return Invoke("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>", "");
     }},
    {[](const TemplateText& in) { return in.Has("｜DSML｜"); },
     [](const TemplateText& in) { return DeepSeekDsml(in); }},
    {[](const TemplateText& in) {
       return in.HasAll({"<|tool_call>", "<tool_call|>"});
     },
     [](const TemplateText&) { return Gemma("gemma4", "<|tool_call>", "<tool_call|>", "<|\"|>"); }},
    {[](const TemplateText& in) { return in.Has("<start_function_call>"); },
     [](const TemplateText&) {
       return Gemma("function_gemma", "<start_function_call>", "<end_function_call>", "<escape>");
     }},
    {[](const TemplateText& in) {
       return in.HasAll({"<|tool_call:begin|>", "<|tool_call:args|>"});
     },
     [](const TemplateText&) { return Solar(); }},
    {[](const TemplateText& in) { return in.Has("<arg_key{}>"); },
     [](const TemplateText& in) { return Hunyuan(in.text()); }},
    {[](const TemplateText& in) { return in.Has("<longcat_arg_key>"); },
     [](const TemplateText&) {
       return Pairs("longcat", "<longcat_tool_call>", "</longcat_tool_call>", "longcat_");
     }},
    {[](const TemplateText& in) { return in.Has("<arg_key>"); },
     [](const TemplateText&) { return Pairs("glm", "<tool_call>", "</tool_call>", ""); }},
    {[](const TemplateText& in) { return in.Has("<seed:tool_call>"); },
     [](const TemplateText&) {
       return Functions("seed_oss", "<seed:tool_call>", "</seed:tool_call>");
     }},
    // LFM2.5's template says no more of its calls than how it lists tools.
    {[](const TemplateText& in) {
       return in.HasAny({"<|tool_call_start|>", "<|tool_list_start|>", "List of tools: ["});
     },
     [](const TemplateText&) {
       return Pythonic("lfm2", "<|tool_call_start|>", "<|tool_call_end|>");
     }},
    {[](const TemplateText& in) { return in.Has("<function="); },
     [](const TemplateText& in) { return FunctionElements(in); }},
    {[](const TemplateText& in) {
       return in.HasAll({"<function name=", "<param name="});
     },
     [](const TemplateText&) { return MiniCpm(); }},
    // OLMo 3. Claude's and others' calls have elements within such tags, told by a prefix.
    {[](const TemplateText& in) { return in.Has("<function_calls>") && !in.Has("invoke name="); },
     [](const TemplateText&) {
       return Pythonic("olmo3", "<function_calls>", "</function_calls>");
     }},
    {[](const TemplateText& in) { return in.Has("<|tool_calls_section_begin|>"); },
     [](const TemplateText&) { return Kimi(); }},
    {[](const TemplateText& in) { return in.Has("[TOOL_CALLS]"); },
     [](const TemplateText& in) { return Mistral(in.text()); }},
    {[](const TemplateText& in) { return in.Has("<｜tool▁calls▁begin｜>"); },
     [](const TemplateText& in) { return DeepSeek(in.text()); }},
    {[](const TemplateText& in) { return in.Has("<TOOLCALL>"); },
     [](const TemplateText&) { return TaggedList("nemotron", "<TOOLCALL>", "</TOOLCALL>"); }},
    {[](const TemplateText& in) { return in.Has("<|tool_call|>") && !in.Has("<|/tool"); },
     [](const TemplateText&) { return Granite(); }},
    {[](const TemplateText& in) {
       return in.Has("<|tool_call|>") || in.HasAll({"<|tool|>", "<|/tool|>"});
     },
     [](const TemplateText&) { return Phi(); }},
    {[](const TemplateText& in) { return in.Has("functools["); },
     [](const TemplateText&) { return TaggedList("functools", "functools", ""); }},
    {[](const TemplateText& in) { return in.Has("<|START_ACTION|>"); },
     [](const TemplateText&) { return Cohere(); }},
    {[](const TemplateText& in) { return in.Has("<|tools_prefix|>"); },
     [](const TemplateText&) { return Apertus(); }},
    {[](const TemplateText& in) { return in.Has("<tool_calls>"); },
     [](const TemplateText&) { return Tagged("minimax_m1", "<tool_calls>", "</tool_calls>"); }},
    {[](const TemplateText& in) { return in.Has("<tool_call>"); },
     [](const TemplateText&) { return Tagged("hermes", "<tool_call>", "</tool_call>"); }},
    {[](const TemplateText& in) {
       return in.HasAny({"<|python_start|>", "[func_name1("});
     },
     [](const TemplateText&) {
       return Pythonic("llama4_pythonic", "<|python_start|>", "<|python_end|>");
     }},
    {[](const TemplateText& in) {
       return in.HasAny({"<|python_tag|>", "Environment: ipython"});
     },
     [](const TemplateText&) { return PlainJson(); }},
    {[](const TemplateText& in) {
       return in.HasAny({">>>${recipient}", "'>>>all\\n'"});
     },
     [](const TemplateText&) { return Recipients(); }},
    {[](const TemplateText& in) {
       return in.HasAll({"<|observation|>", "tools"});
     },
     [](const TemplateText&) { return NamedJson(); }},
};

Dialect ByTemplate(std::string_view text) {
  const TemplateText in(text);
  for (const TemplateRule& rule : kTemplateRules) {
    if (rule.holds(in)) return rule.dialect(in);
  }
  // How a template's calls look that names none of these is not known: they are not looked for.
  Dialect none;
  none.name = "none";
  return none;
}

struct ThinkTags {
  std::string_view open, close;
  bool anywhere;
};
constexpr ThinkTags kThinkTags[] = {
    {"<|channel>thought", "<channel|>", true},
    {"[THINK]", "[/THINK]", true},
    {"<seed:think>", "</seed:think>", false},
    {"<longcat_think>", "</longcat_think>", false},
    {"<mm:think>", "</mm:think>", false},
    {"<think>", "</think>", false},
    {"<|START_THINKING|>", "<|END_THINKING|>", false},
    {"<|inner_prefix|>", "<|inner_suffix|>", false},
};

void AddReasoning(std::string_view text, const HasToken& has_token, Dialect& dialect) {
  const auto use = [&dialect](const ThinkTags& tags) {
    dialect.think_open = tags.open;
    dialect.think_close = tags.close;
    dialect.thinks_anywhere = tags.anywhere;
  };
  for (const ThinkTags& tags : kThinkTags) {
    if (text.find(tags.close) != std::string_view::npos ||
        text.find(tags.open) != std::string_view::npos) {
      return use(tags);
    }
  }
  for (const ThinkTags& tags : kThinkTags) {
    if (has_token(tags.open) && has_token(tags.close)) return use(tags);
  }
}

// Granite 3.3's and Hunyuan's.
constexpr std::pair<std::string_view, std::string_view> kAnswerTags[] = {
    {"<response>", "</response>"}, {"<answer>", "</answer>"}};

void AddAnswerTags(std::string_view text, Dialect& dialect) {
  if (dialect.think_open.empty()) return;
  for (const auto& [open, close] : kAnswerTags) {
    if (text.find(open) == std::string_view::npos && text.find(close) == std::string_view::npos) {
      continue;
    }
    dialect.answer_open = open;
    dialect.answer_close = close;
    return;
  }
}

void AddControl(Dialect& dialect) {
  std::vector<std::string>& control = dialect.control;
  control.insert(control.end(), dialect.openers.begin(), dialect.openers.end());
  const SectionTokens& section = dialect.section;
  for (const std::string_view spelling :
       {std::string_view(dialect.closer), std::string_view(dialect.quote),
        std::string_view(section.section_end), std::string_view(section.call_begin),
        std::string_view(section.separator), std::string_view(section.call_end),
        std::string_view(section.other_section_end), std::string_view(dialect.block_open),
        std::string_view(dialect.block_close), std::string_view(dialect.pair.key_open),
        std::string_view(dialect.pair.key_close), std::string_view(dialect.pair.value_open),
        std::string_view(dialect.pair.value_close), std::string_view(dialect.pair.name_end),
        std::string_view(dialect.think_open), std::string_view(dialect.think_close)}) {
    control.emplace_back(spelling);
  }
  if (dialect.name == "gemma4") control.push_back("<|channel>");
  if (dialect.name == "lfm2") control.push_back("<|tool_list_start|>");
  std::sort(control.begin(), control.end());
  control.erase(std::unique(control.begin(), control.end()), control.end());
  std::erase(control, "");
}

}  // namespace

Dialect ChooseDialect(std::string_view chat_template, const HasToken& has_token) {
  Dialect dialect = ByTemplate(chat_template);
  // A family whose reasoning has no tags, or is known with its calls.
  const bool is_told = IsAllMarkup(dialect) || !dialect.think_open.empty();
  if (!is_told) AddReasoning(chat_template, has_token, dialect);
  AddAnswerTags(chat_template, dialect);
  AddControl(dialect);
  return dialect;
}

bool IsAllMarkup(const Dialect& dialect) {
  return dialect.syntax == CallSyntax::kHarmony || dialect.syntax == CallSyntax::kSolar;
}

bool OpensReasoning(const Dialect& dialect, std::string_view prompt_end) {
  if (dialect.think_open.empty()) return false;
  const size_t open = prompt_end.rfind(dialect.think_open);
  if (open == std::string_view::npos) return false;
  const std::string_view behind = prompt_end.substr(open + dialect.think_open.size());
  return std::all_of(behind.begin(), behind.end(), IsSpace);
}

bool ClosesReasoning(const Dialect& dialect, std::string_view prompt_end) {
  while (!prompt_end.empty() && IsSpace(prompt_end.back())) prompt_end.remove_suffix(1);
  return !dialect.think_close.empty() && prompt_end.ends_with(dialect.think_close);
}

std::string ForcedOpening(const Dialect& dialect, std::string_view name, uint32_t calls_before) {
  if (name.empty()) return dialect.forced_any;
  return absl::StrReplaceAll(
      dialect.forced_named, {{"$NAME", std::string(name)}, {"$INDEX", absl::StrCat(calls_before)}});
}

std::string ForcedClosing(const Dialect& dialect, bool ends_for_good) {
  if (dialect.syntax == CallSyntax::kHarmony) {
    return ends_for_good ? "<|end|><|start|>assistant<|channel|>final<|message|>"
                         : "<|end|><|start|>assistant";
  }
  if (dialect.syntax == CallSyntax::kSolar) {
    return ends_for_good ? "<|end|><|begin|>assistant<|content|>" : "<|end|><|begin|>assistant";
  }
  if (dialect.think_close.empty()) return "";
  return absl::StrCat("\n", dialect.think_close, "\n\n");
}

}  // namespace macrame::runtime::markup
