#include "cli/chat_session.h"

#include <gtest/gtest.h>

namespace macrame::cli {
namespace {

TEST(ChatLines, ALineIsAQuestion) {
  ChatLines lines;
  EXPECT_EQ(lines.Add("  Why? "), "Why?");
  EXPECT_EQ(lines.Add(""), "");
}

TEST(ChatLines, QuotesAndBackslashesHoldLinesTogether) {
  ChatLines lines;
  EXPECT_EQ(lines.Add("\"\"\"one"), std::nullopt);
  EXPECT_TRUE(lines.is_open());
  EXPECT_EQ(lines.Add("/bye \\"), std::nullopt);
  EXPECT_EQ(lines.Add("three\"\"\""), "one\n/bye \\\nthree");
  EXPECT_FALSE(lines.is_open());
  EXPECT_EQ(lines.Add("\"\"\"all in one line\"\"\""), "all in one line");
  EXPECT_EQ(lines.Add("first \\"), std::nullopt);
  EXPECT_EQ(lines.Add("second"), "first \nsecond");
  EXPECT_EQ(lines.Add("begun\\"), std::nullopt);
  lines.Drop();
  EXPECT_EQ(lines.Add("new"), "new");
}

TEST(ChatSession, EveryRequestHoldsWhatWasSaid) {
  ChatSettings settings;
  settings.system = "Be brief.";
  ChatSession session("m", settings);
  session.NoteAnswer("one?", "1");
  session.NoteAnswer("never answered", "");
  const v1::GenerateRequest request = session.Request("two?");
  EXPECT_EQ(request.deployment(), "m");
  ASSERT_EQ(request.messages_size(), 4);
  EXPECT_EQ(request.messages(0).role(), "system");
  EXPECT_EQ(request.messages(1).content(), "one?");
  EXPECT_EQ(request.messages(2).role(), "assistant");
  EXPECT_EQ(request.messages(3).content(), "two?");
  EXPECT_FALSE(request.sampling().has_temperature()) << "as the model says";
  EXPECT_TRUE(session.ForgetOldest());
  EXPECT_EQ(session.Request("x").messages_size(), 2);
  EXPECT_FALSE(session.ForgetOldest());
}

TEST(ChatSession, SettingsGoWithTheNextQuestion) {
  ChatSession session("m", {});
  for (const char* line :
       {"/set temperature 0.5", "/set top_p 0.9", "/set min_p 0.1", "/set top_k 40", "/set seed 7",
        "/set max_tokens 100", "/set thinking off", "/system Answer in Latin."}) {
    EXPECT_FALSE(session.Command(line).is_over);
  }
  v1::GenerateRequest request = session.Request("x");
  EXPECT_DOUBLE_EQ(request.sampling().temperature(), 0.5);
  EXPECT_EQ(request.sampling().top_k(), 40u);
  EXPECT_EQ(request.sampling().seed(), 7u);
  EXPECT_EQ(request.max_tokens(), 100u);
  EXPECT_FALSE(request.reasoning().enabled());
  EXPECT_EQ(request.messages(0).content(), "Answer in Latin.");
  const std::string shown = session.Command("/show").told;
  EXPECT_NE(shown.find("temperature  0.5\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("thinking     off\n"), std::string::npos) << shown;
  session.Command("/set temperature default");
  EXPECT_FALSE(session.Request("x").sampling().has_temperature());
}

TEST(ChatSession, WhatIsWrongChangesNothingAndSaysWhatIsRight) {
  ChatSession session("m", {});
  EXPECT_NE(session.Command("/set temperature 3").told.find("from 0 to 2"), std::string::npos);
  EXPECT_NE(session.Command("/set temprature 1").told.find("temperature"), std::string::npos);
  EXPECT_NE(session.Command("/set top_k -1").told.find("from 0"), std::string::npos);
  EXPECT_NE(session.Command("/set temperature").told.find("/set temperature 0.5"),
            std::string::npos);
  EXPECT_NE(session.Command("/claer").told.find("/clear"), std::string::npos);
  EXPECT_FALSE(session.Request("x").sampling().has_temperature());
}

TEST(ChatSession, ClearForgetsTheTalkAndKeepsTheRest) {
  ChatSession session("m", {});
  session.Command("/system Be brief.");
  session.NoteAnswer("one?", "1");
  session.Command("/clear");
  EXPECT_EQ(session.turns(), 0u);
  EXPECT_EQ(session.settings().system, "Be brief.");
  EXPECT_TRUE(session.Command("/bye").is_over);
  EXPECT_NE(session.Command("/help").told.find("/system"), std::string::npos);
}

}  // namespace
}  // namespace macrame::cli
