// Sessions of agents: hundreds of calls, hundreds of tools.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/text/chat_template.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

// In the style of templates that look through the whole history for each message.
constexpr char kThorough[] =
    "{%- if tools is iterable and tools|length > 0 %}{% for tool in tools %}{{ "
    "tool|tojson(indent=2) }}"
    "{% for name, spec in tool.function.parameters.properties|items %}{{ name }}: {{ spec.type }}"
    "{% endfor %}{% endfor %}{% endif %}"
    "{%- for message in messages %}{%- set ns = namespace(last=-1) %}"
    "{%- for other in messages[loop.index0:] %}{%- if other.role == 'user' and ns.last < 0 %}"
    "{%- set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "<{{ message.role }} {{ ns.last }}>{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}{{ call.function.name }}"
    "({{ call.function.arguments|tojson }}){% endfor %}{% endfor %}";

std::string Session(int calls) {
  std::string json = R"([{"role":"user","content":"Go on."})";
  for (int i = 0; i < calls; ++i) {
    const std::string id = "\"call" + std::to_string(i) + "\"";
    json += R"(,{"role":"assistant","content":"","tool_calls":[{"type":"function","id":)" + id +
            R"(,"function":{"name":"read","arguments":{"path":"file","line":)" + std::to_string(i) +
            R"(}}}]},{"role":"tool","tool_call_id":)" + id + R"(,"content":")" +
            std::string(200, 'x') + "\"}";
  }
  return json + R"(,{"role":"user","content":"Thanks"}])";
}

TEST(LongSession, AThousandCallsRender) {
  const auto loaded = ChatTemplate::Load(TemplateFolder("thorough", kThorough));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const int calls : {200, 1000}) {
    const std::string messages = Session(calls);
    ChatPrompt prompt;
    prompt.messages_json = messages;
    const auto text = loaded->Render(prompt);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, ::testing::EndsWith("<user 0>Thanks"));
  }
}

TEST(LongSession, FiveHundredToolsRender) {
  std::string tools = "[";
  for (int i = 0; i < 512; ++i) {
    tools += std::string(i == 0 ? "" : ",") + R"({"type":"function","function":{"name":"tool)" +
             std::to_string(i) + R"(","description":")" + std::string(300, 'd') +
             R"(","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":)" +
             R"({"type":["integer","null"]},"c":{"type":"array","items":{"type":"string"}}}}}})";
  }
  tools += "]";
  const auto loaded = ChatTemplate::Load(TemplateFolder("thorough", kThorough));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ChatPrompt prompt;
  prompt.messages_json = R"([{"role":"user","content":"Hi"}])";
  prompt.tools_json = tools;
  const auto text = loaded->Render(prompt);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, ::testing::HasSubstr("tool511"));
}

}  // namespace
}  // namespace macrame::runtime::text
