// What white space is a text's own and what is markup, and how things become events.

#include "runtime/serving/markup/markup_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "runtime/serving/markup/text_source.h"

namespace macrame::runtime::markup {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = MarkupEvent::Kind;
using Random = std::mt19937_64;

// Words and white space, at times much of it.
std::string RandomText(Random& random) {
  std::string text;
  for (size_t i = random() % 6; i > 0; --i) {
    const bool is_space = random() % 2 == 0;
    const size_t size = random() % 8 == 0 ? 1 + random() % 3000 : 1 + random() % 4;
    for (size_t j = 0; j < size; ++j) text += is_space ? " \n\t\r"[random() % 4] : 'a';
  }
  return text;
}

std::string Stripped(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \n\t\r") - begin + 1);
}

// A sink, and all that it told of each kind.
class Heard {
 public:
  explicit Heard(bool reads_calls) : sink({CallIdStyle::kCall, "salt", 0}, reads_calls) {}

  void Say(const std::string& text, bool is_reasoning, Random& random) {
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 200;
      const std::string_view piece = std::string_view(text).substr(at, size);
      is_reasoning ? sink.Reasoning(piece) : sink.Content(piece);
      at += size;
      Take();
    }
  }
  void Take() {
    for (const MarkupEvent& event : sink.Take()) {
      EXPECT_FALSE(event.kind != Kind::kCallEnd && event.text.empty());
      if (event.kind == Kind::kContent) content += event.text;
      if (event.kind == Kind::kReasoning) reasoning += event.text;
    }
  }
  void Finish() {
    sink.Finish();
    Take();
  }

  MarkupSink sink;
  std::string content, reasoning;
};

TEST(MarkupSinkTest, AnAnswerWithoutMarkupIsGivenOutByteForByte) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::string text = RandomText(random);
    Heard heard(/*reads_calls=*/seed % 2 == 0);
    heard.Say(text, false, random);
    EXPECT_TRUE(text.starts_with(heard.content)) << "nothing is told before it is certain";
    EXPECT_LE(text.size() - heard.content.size(), 1024u) << "little is held back";
    heard.Finish();
    EXPECT_EQ(heard.content, text) << "seed " << seed;
  }
}

TEST(MarkupSinkTest, WhiteSpaceAroundReasoningIsDroppedAndThatWithinIsKept) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::string before = std::string(random() % 5, '\n');
    const std::string reasoning = RandomText(random), content = RandomText(random);
    Heard heard(seed % 2 == 0);
    heard.Say(before, false, random);
    heard.Say(reasoning, true, random);
    heard.sink.EndReasoning();
    heard.Say(content, false, random);
    heard.Finish();
    EXPECT_EQ(heard.reasoning, Stripped(reasoning)) << "seed " << seed;
    const size_t first = std::min(content.find_first_not_of(" \n\t\r"), content.size());
    // What was told already can't be taken back; reasoning that was none leaves it where it stood.
    const bool was_told = seed % 2 == 1 || Stripped(reasoning).empty();
    EXPECT_EQ(heard.content, (was_told ? before : "") + content.substr(first)) << "seed " << seed;
  }
}

TEST(MarkupSinkTest, WhiteSpaceBeforeACallIsMarkupUpToABound) {
  for (const size_t spaces : {size_t{0}, size_t{1}, size_t{1024}, size_t{1030}, size_t{5000}}) {
    Heard heard(/*reads_calls=*/true);
    heard.sink.Content("Look:");
    heard.sink.Content(std::string(spaces, ' '));
    heard.sink.BeginCall("f");
    heard.sink.EndCall();
    heard.Finish();
    const size_t kept = spaces > 1024 ? spaces - 1024 : 0;
    EXPECT_EQ(heard.content, "Look:" + std::string(kept, ' ')) << spaces;
  }
}

TEST(MarkupSinkTest, WhiteSpaceBehindTheLastCallIsDroppedUnlessTextFollows) {
  for (const bool follows : {false, true}) {
    Heard heard(true);
    heard.sink.BeginCall("f");
    heard.sink.EndCall();
    heard.sink.Content("\n\n");
    if (follows) heard.sink.Content("Done.\n");
    heard.Finish();
    EXPECT_EQ(heard.content, follows ? "\n\nDone." : "");
  }
}

TEST(MarkupSinkTest, NeighboursOfOneKindAreOneEventAndEachIsToldOnce) {
  MarkupSink sink({CallIdStyle::kCall, "salt", 0}, /*reads_calls=*/true);
  sink.Reasoning("a");
  sink.Reasoning("b ");
  sink.Reasoning("c");
  sink.EndReasoning();
  sink.Content("d");
  sink.Content("");
  sink.Content("e");
  sink.BeginCall("f");
  sink.Arguments("{");
  sink.Arguments("");
  sink.Arguments("}");
  sink.EndCall();
  sink.EndCall();  // it has ended
  sink.BeginCall("g");
  const std::vector<MarkupEvent> events = sink.Take();
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(events[0], (MarkupEvent{Kind::kReasoning, 0, "ab c", ""}));
  EXPECT_EQ(events[1], (MarkupEvent{Kind::kContent, 0, "de", ""}));
  EXPECT_EQ(events[2], (MarkupEvent{Kind::kCallBegin, 0, "f",
                                    MakeCallId({CallIdStyle::kCall, "salt", 0}, 0, "f")}));
  EXPECT_EQ(events[3], (MarkupEvent{Kind::kArguments, 0, "{}", ""}));
  EXPECT_EQ(events[4], (MarkupEvent{Kind::kCallEnd, 0, "", ""}));
  EXPECT_EQ(events[5].call, 1u);
  EXPECT_THAT(sink.Take(), IsEmpty());
  sink.Arguments("{");
  EXPECT_EQ(sink.Take().at(0), (MarkupEvent{Kind::kArguments, 1, "{", ""}));
  EXPECT_EQ(sink.calls_begun(), 2u);
  EXPECT_EQ(sink.calls_ended(), 1u);
}

TEST(MarkupSinkTest, WithoutACallThereIsNothingToEnd) {
  MarkupSink sink({}, true);
  sink.EndCall();
  sink.Finish();
  EXPECT_THAT(sink.Take(), IsEmpty());
  EXPECT_FALSE(sink.has_content());
  sink.Content(" \n");
  EXPECT_FALSE(sink.has_content()) << "white space is none";
}

// Ids are told apart by the request and by their number in the conversation, in every style, and
// are what a template of the family takes.
TEST(MarkupSinkTest, NoTwoCallsOfARequestHaveOneId) {
  for (const CallIdStyle style : {CallIdStyle::kCall, CallIdStyle::kNine, CallIdStyle::kIndex}) {
    std::set<std::string> ids;
    for (uint32_t before = 0; before < 300; before += 100) {
      for (uint32_t call = 0; call < 100; ++call) {
        const std::string id = MakeCallId({style, "request", before}, call, "f");
        EXPECT_TRUE(ids.insert(id).second) << id;
        EXPECT_EQ(id, MakeCallId({style, "request", before + call}, 0, "f"))
            << "counted through the conversation";
        if (style == CallIdStyle::kNine) {
          EXPECT_EQ(NineLetterId(id), id) << "such a template takes it as it is";
        }
      }
    }
    const bool is_same =
        MakeCallId({style, "other", 0}, 0, "f") == MakeCallId({style, "request", 0}, 0, "f");
    EXPECT_EQ(is_same, style == CallIdStyle::kIndex) << "an index knows no request";
  }
}

TEST(MarkupSinkTest, IdsOfOtherServersKeepApartInNineLetters) {
  std::set<std::string> nine;
  const std::vector<std::string> ids = {"",
                                        "a",
                                        "abc12345",
                                        "abc1234567",
                                        "abc-12345",
                                        "call_1",
                                        "call_2",
                                        "toolu_01A09q90",
                                        "äbc12345",
                                        "functions.f:0",
                                        "functions.f:1"};
  for (const std::string& id : ids) {
    const std::string made = NineLetterId(id);
    EXPECT_EQ(made.size(), 9u) << id;
    EXPECT_EQ(NineLetterId(made), made) << "it stays so from turn to turn";
    EXPECT_TRUE(nine.insert(made).second) << id;
  }
}

}  // namespace
}  // namespace macrame::runtime::markup
