// Templates that somebody else wrote to take a process down. Each gets an error within its
// bounds, and the process goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "runtime/text/chat_template.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

constexpr char kMessages[] = R"([{"role":"user","content":"x"}])";

absl::Status RenderHostile(const std::string& source) {
  auto loaded = ChatTemplate::Load(TemplateFolder("hostile", source));
  if (!loaded.ok()) return loaded.status();
  ChatPrompt prompt;
  prompt.messages_json = kMessages;
  return loaded->Render(prompt).status();
}

// Of this process; 0 where the system has no such file.
long ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  long all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void ExpectRefused(const std::string& source) {
  const auto begun = std::chrono::steady_clock::now();
  const absl::Status status = RenderHostile(source);
  EXPECT_FALSE(status.ok()) << source.substr(0, 200);
  EXPECT_NE(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

TEST(HostileTemplate, LoopsEnd) {
  ExpectRefused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  ExpectRefused("{% for a in range(9999999999) %}{% endfor %}");
}

TEST(HostileTemplate, RecursionEnds) {
  ExpectRefused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  ExpectRefused("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  ExpectRefused("{% include 'chat_template' %}");
}

TEST(HostileTemplate, AGigabyteIsNeverMade) {
  ExpectRefused("{{ 'x' * 1000000000 }}");
  ExpectRefused("{{ '%1000000000d' | format(1) }}");
  ExpectRefused("{% for a in range(99999) %}{{ messages | tojson * 100 }}{% endfor %}");
}

TEST(HostileTemplate, OutputIsBounded) {
  ExpectRefused("{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}");
}

TEST(HostileTemplate, DoublingIsStoppedBeforeMemoryIs) {
  ExpectRefused(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}done");
}

// One request with it takes nothing from the next one.
TEST(HostileTemplate, ATemplateThatBrokeItsBoundsGivesItsMemoryBack) {
  auto loaded = ChatTemplate::Load(TemplateFolder(
      "twice",
      "{% set s = messages[0].content * 9999999 %}{% set t = s ~ s ~ s ~ s ~ s ~ s ~ s "
      "~ s ~ s ~ s ~ s ~ s ~ s ~ s %}done"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ChatPrompt prompt;
  prompt.messages_json = kMessages;
  const long before = ResidentBytes();
  for (int i = 0; i < 12; ++i) {
    const absl::Status status = loaded->Render(prompt).status();
    // Not an exhaustion: asking again gives the same.
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("memory"));
  }
  EXPECT_LT(ResidentBytes() - before, 200 << 20);
}

TEST(HostileTemplate, DeepNestingOfSourceIsRefused) {
  ExpectRefused(std::string(100'000, '(') + "{{");
  ExpectRefused("{{ " + std::string(20'000, '(') + "1" + std::string(20'000, ')') + " }}");
  std::string ifs;
  for (int i = 0; i < 5000; ++i) ifs += "{% if 1 %}";
  ExpectRefused(ifs);
}

TEST(HostileTemplate, DeepValuesAreDroppedAlive) {
  // A hundred thousand lists inside each other: printing them is refused, dropping them works.
  const std::string nest =
      "{% set ns = namespace(l=[]) %}{% for a in range(99000) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}";
  EXPECT_TRUE(RenderHostile(nest + "done").ok());
  ExpectRefused(nest + "{{ ns.l }}");
  ExpectRefused(nest + "{{ ns.l | tojson }}");
}

TEST(HostileTemplate, ATemplateOfMegabytesIsRefused) {
  ExpectRefused(std::string((1 << 20) + 1, 'x'));
}

TEST(HostileTemplate, TheHostIsOutOfReach) {
  for (const std::string reach :
       {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}", "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os.popen('id') }}", "{{ lipsum.__globals__ }}"}) {
    auto loaded = ChatTemplate::Load(TemplateFolder("reach", reach));
    if (!loaded.ok()) continue;
    ChatPrompt prompt;
    prompt.messages_json = kMessages;
    const auto text = loaded->Render(prompt);
    EXPECT_EQ(text.value_or(""), "") << reach;
  }
}

}  // namespace
}  // namespace macrame::runtime::text
