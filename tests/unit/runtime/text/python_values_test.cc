// Jinja with the values of Python. The whole table is held against Jinja itself by
// tests/conformance/text; these are the rules that real templates met.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "runtime/text/chat_template.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> RenderSource(const std::string& source) {
  auto loaded = ChatTemplate::Load(TemplateFolder("values", source));
  if (!loaded.ok()) return loaded.status();
  ChatPrompt prompt;
  prompt.messages_json =
      R"([{"role":"user","content":"Hi","n":[null],"f":2.0,"i":18446744073709551615}])";
  prompt.local_unix_s = 1'763'596'800;
  return loaded->Render(prompt);
}

struct Case {
  std::string source;
  std::string text;
};

void ExpectTexts(const std::vector<Case>& cases) {
  for (const auto& [source, text] : cases) {
    const auto rendered = RenderSource(source);
    ASSERT_TRUE(rendered.ok()) << source << ": " << rendered.status();
    EXPECT_EQ(*rendered, text) << source;
  }
}

void ExpectRefused(const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    const auto rendered = RenderSource(source);
    EXPECT_FALSE(rendered.ok()) << source << ": " << rendered.value_or("");
  }
}

TEST(PythonValues, ATestWithoutToolsIsFalse) {
  ExpectTexts(
      {{"{% if tools is iterable and tools|length > 0 %}a{% else %}b{% endif %}", "b"},
       {"{{ none is iterable }} {{ nothing is iterable }} {{ none is sequence }}",
        "False True False"},
       {"{{ true is number }} {{ true is integer }} {{ {} is sequence }}", "True False True"}});
}

TEST(PythonValues, EveryWayToTextIsPythons) {
  ExpectTexts({{"{{ true ~ none ~ 1.0 ~ [true] }}", "TrueNone1.0[True]"},
               {"{{ (1, 'a') }}{{ (1,) }}{{ () }}", "(1, 'a')(1,)()"},
               {"{{ [none, 1.5]|join('-') }}", "None-1.5"},
               {"{{ '%s %5.1f|%-4d|%x' % (none, 3.14159, 7, 255) }}", "None   3.1|7   |ff"},
               {"{{ '{:>5}|{:,}|{!r}'.format('a', 1234567, 'b') }}", "    a|1,234,567|'b'"},
               {"{{ none|upper }}{{ true|lower }}{{ 1.0|replace('.', ',') }}", "NONEtrue1,0"},
               {"{{ messages[0].n[0] }}{{ messages[0].f }}{{ messages[0].i }}",
                "None2.018446744073709551615"}});
}

TEST(PythonValues, NumbersKeepApart) {
  ExpectTexts(
      {{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 4 / 2 }} {{ 2 ** -1 }}", "3 -4 2 2.0 0.5"},
       {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }}", "True False True"},
       {"{{ [[1, 2], [3, [4, 5]]].1.1.0 }}", "4"},
       {"{{ 2.5|round }} {{ 5|round }} {{ '42.9'|int }} {{ 1e16 }}", "2.0 5 42 1e+16"}});
}

TEST(PythonValues, MacrosSeeAndSetNamespaces) {
  ExpectTexts({{"{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
                "{% endmacro %}{{ m() }}{{ m() }}{{ ns.n }}",
                "122"},
               {"{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
                "{{ m(1, 3, 4, x=5) }}",
                "13(4,){'x': 5}"}});
}

TEST(PythonValues, WhiteSpaceAndLineEnds) {
  ExpectTexts({{"a\r\n{% if true %}\r\n  b\r\n  {% endif %}\r\nc\r\n", "a\n  b\nc"},
               {"{{ 'abcdef'[1:4] }}{{ 'abc'[::-1] }}{{ [1, 2, 3][-2:] }}", "bcdcba[2, 3]"}});
}

TEST(PythonValues, WhatJinjaRefusesIsRefused) {
  ExpectRefused({"{{ [].append(1) }}", "{{ nothing.a }}", "{{ nothing + 1 }}", "{{ none|length }}",
                 "{{ 'a' + 1 }}", "{{ {}.a.b }}", "{{ 1 / 0 }}", "{{ nothing|tojson }}",
                 "{% set d = {} %}{% set d.a = 1 %}", "{% for a, b in [1] %}{% endfor %}",
                 "{{ ''.join([1]) }}", "{{ namespace(_a=1) }}", "{% break %}", "{{ x|nope }}"});
}

TEST(PythonValues, WhatIsNotSupportedIsRefusedAtTheLoadByName) {
  for (const std::string& source :
       {std::string("{% include 'x' %}"), std::string("{{ [1]|random }}"),
        std::string("{% if false %}{{ 'a'|wordwrap }}{% endif %}"),
        std::string("{{ 'a'.encode() }}")}) {
    const auto loaded = ChatTemplate::Load(TemplateFolder("unsupported", source));
    EXPECT_EQ(ReasonOf(loaded.status()).code(), "TOKENIZER_INVALID") << source;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("not supported")) << source;
  }
}

}  // namespace
}  // namespace macrame::runtime::text
