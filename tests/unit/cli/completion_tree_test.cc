// What completion offers at a place of a small option tree of its own; no agent is asked.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/completion.h"

namespace macrame::cli {
namespace {

using Words = std::vector<std::string>;

class CompletionTree : public ::testing::Test {
 protected:
  CompletionTree() {
    root_.add_option("-o,--output", text_, "How it is printed");
    root_.add_flag("-q,--quiet", flag_, "Say less");
    CLI::App* drain = Add(&root_, "drain");
    drain->add_option("node", text_);
    drain->add_option("--deadline", text_, "How long");
    CLI::App* links = Add(&root_, "links");
    links->add_option("node", text_);
    CLI::App* bench = Add(links, "bench");
    bench->add_option("nodes", texts_);
    CLI::App* model = Add(&root_, "model");
    CLI::App* load = Add(model, "load");
    load->add_option("name", text_);
    load->add_option("--nodes", texts_);
    load->add_option("--transport", text_);
    load->add_flag("--evict", flag_);
    load->add_option("-n", text_, "Only a short name");
    CLI::App* hidden = Add(&root_, "__complete");
    hidden->group("");
  }
  static CLI::App* Add(CLI::App* parent, const std::string& name) {
    return parent->add_subcommand(name, absl::StrCat("what ", name, " does"));
  }

  Candidates Of(const Words& typed) { return CandidatesFor(root_, typed); }
  // The words alone.
  std::string Offered(const Words& typed) {
    Words words;
    for (const Candidate& one : Of(typed).words) words.push_back(one.word);
    return absl::StrJoin(words, " ");
  }

  CLI::App root_{"a tool", "tool"};
  std::string text_;
  std::vector<std::string> texts_;
  bool flag_ = false;
};

struct Offer {
  Words typed;
  const char* offered;
};

TEST_F(CompletionTree, OffersWhatMayStandThere) {
  const Offer offers[] = {
      {{}, "drain links model"},
      {{""}, "drain links model"},
      {{"l"}, "links"},
      {{"nothing"}, ""},
      {{"model", ""}, "load"},
      {{"-q", "mo"}, "model"},
      {{"-o", "json", "dr"}, "drain"},
      {{"model", "load", "-"}, "--help --nodes --transport --evict -n --output --quiet"},
      {{"model", "load", "m", "--ev"}, "--evict"},
      {{"model", "load", "m", "--transport", ""}, "auto jaccl verbs ring"},
      {{"model", "load", "m", "--transport", "j"}, "jaccl"},
      {{"-o", ""}, "table json yaml"},
      {{"--output", "y"}, "yaml"},
      {{"drain", "-o", "t"}, "table"},
      {{"model", "load", "m", "--quiet", ""}, ""},
  };
  for (const Offer& offer : offers) {
    std::string offered = Offered(offer.typed);
    // Of the root's flags "--help" comes once more.
    if (absl::StrJoin(offer.typed, " ") == "model load -") {
      const size_t again = offered.rfind(" --help");
      ASSERT_NE(again, std::string::npos) << offered;
      if (again > 0) offered.erase(again, std::string(" --help").size());
    }
    EXPECT_EQ(offered, offer.offered) << "after: " << absl::StrJoin(offer.typed, " ");
  }
}

TEST_F(CompletionTree, NamesOfTheClusterStandWhereACommandTakesThem) {
  EXPECT_EQ(Of({"drain", ""}).live, LiveNames::kNodes);
  EXPECT_EQ(Of({"drain", "ada", ""}).live, LiveNames::kNone) << "it takes one";
  EXPECT_EQ(Of({"links", "bench", "ada", "bob", ""}).live, LiveNames::kNodes) << "it takes many";
  EXPECT_EQ(Of({"model", "load", ""}).live, LiveNames::kModels);
  EXPECT_EQ(Of({"model", "load", "--evict", ""}).live, LiveNames::kModels);
  EXPECT_EQ(Of({"model", ""}).live, LiveNames::kNone);
  EXPECT_EQ(Of({"drain", "--deadline", ""}).live, LiveNames::kNone) << "a time is no node";
  EXPECT_EQ(Of({"drain", "--deadline", "60s", ""}).live, LiveNames::kNodes);
}

TEST_F(CompletionTree, WhatIsTypedForAnOptionIsNoCommand) {
  EXPECT_EQ(Of({"-o", "drain", ""}).live, LiveNames::kNone);
  EXPECT_EQ(Offered({"-o", "drain", "dr"}), "drain");
  // A node that is called like a command.
  EXPECT_EQ(Of({"links", "ada", "bench", ""}).live, LiveNames::kNone);
  EXPECT_EQ(Offered({"links", "ada", "b"}), "");
}

TEST_F(CompletionTree, AListGoesOnBehindItsLastComma) {
  const Words begun = {"model", "load", "m", "--nodes"};
  const auto typed = [&](const std::string& last) {
    Words words = begun;
    words.push_back(last);
    return Of(words);
  };
  EXPECT_EQ(typed("a").prefix, "");
  EXPECT_EQ(typed("ada,b").prefix, "ada,");
  EXPECT_EQ(typed("ada,bob,").prefix, "ada,bob,");
  EXPECT_EQ(typed("ada,bob,").live, LiveNames::kNodes);
}

// bash hands "--deadline=60s" over as "--deadline", "=", "60s".
TEST_F(CompletionTree, AnEqualsSignOfItsOwnStandsBetweenAFlagAndItsValue) {
  EXPECT_EQ(Of({"drain", "--deadline", "=", "60s", ""}).live, LiveNames::kNodes);
  EXPECT_EQ(Offered({"-o", "=", "j"}), "json");
  EXPECT_EQ(Offered({"-o", "=", "json", "dr"}), "drain");
  EXPECT_EQ(Of({"model", "load", "m", "--nodes", "=", "ada,b"}).live, LiveNames::kNodes);
  // Whole, as zsh and fish do.
  EXPECT_EQ(Of({"drain", "--deadline=60s", ""}).live, LiveNames::kNodes);
}

TEST_F(CompletionTree, DescriptionsComeAlongAndOddWordsHarmNothing) {
  ASSERT_EQ(Of({"dra"}).words.size(), 1u);
  EXPECT_EQ(Of({"dra"}).words[0].description, "what drain does");
  for (const char* odd : {"-", "--", "---", "=", ",", "\x1b[2J", "\xff", "--no-such-flag"}) {
    for (const Words& before : {Words{}, {"drain"}, {"model", "load"}, {"-o"}}) {
      Words words = before;
      words.push_back(odd);
      for (const Candidate& one : Of(words).words) {
        EXPECT_EQ(one.word.rfind(odd, 0), 0u) << one.word << " does not begin so";
      }
      words.emplace_back("");
      EXPECT_NE(Offered(words).find('_'), 0u) << "a hidden command";
    }
  }
}

}  // namespace
}  // namespace macrame::cli
