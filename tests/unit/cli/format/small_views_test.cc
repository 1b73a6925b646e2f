// Drains, events, profiles, diagnoses, errors; and the laws of texts and tables.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "absl/strings/ascii.h"
#include "cli/format/doctor_view.h"
#include "cli/format/drain_view.h"
#include "cli/format/event_view.h"
#include "cli/format/profile_view.h"
#include "cli/format/reason_text.h"
#include "cli/format/redaction.h"
#include "cli/format/table.h"
#include "proto/reasons.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- drains

std::string IdOf(const v1::ClusterStatus& status, int node) {
  return status.nodes(node).identity().node_id();
}

TEST(DrainOf, CountsRanksModelsAndWhoMayTakeThem) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes(0)->set_ranks_running(1);
  const Draining left = DrainOf(status, IdOf(status, 0));
  EXPECT_EQ(left.ranks, 1u);
  EXPECT_EQ(left.models, std::vector<std::string>{"tiny"});
  EXPECT_TRUE(left.has_other);
  EXPECT_FALSE(left.is_empty());
  EXPECT_EQ(left.Why(), "1 rank left, of tiny");
}

TEST(DrainOf, NobodyTakesRanksWhoIsCordonedDrainingOrGone) {
  for (const int how : {0, 1, 2, 3}) {
    v1::ClusterStatus status = HealthyCluster();
    for (const int other : {1, 2}) {
      v1::NodeStatus& node = *status.mutable_nodes(other);
      if (how == 0) node.set_state(v1::NODE_STATE_DEAD);
      if (how == 1) node.set_draining(true);
      if (how == 2) node.mutable_cordon();
      if (how == 3) node.set_state(v1::NODE_STATE_LEFT);
    }
    EXPECT_FALSE(DrainOf(status, IdOf(status, 0)).has_other) << how;
    status.mutable_nodes(2)->Clear();
    status.mutable_nodes(2)->set_state(v1::NODE_STATE_SUSPECT);
    EXPECT_TRUE(DrainOf(status, IdOf(status, 0)).has_other) << "silent for a moment only";
  }
}

TEST(DrainOf, ANodeThatIsGoneHoldsNothing) {
  for (const v1::NodeState state : {v1::NODE_STATE_DEAD, v1::NODE_STATE_LEFT}) {
    v1::ClusterStatus status = HealthyCluster();
    status.mutable_nodes(0)->set_state(state);
    status.mutable_nodes(0)->set_ranks_running(3);
    EXPECT_TRUE(DrainOf(status, IdOf(status, 0)).is_empty());
  }
  EXPECT_TRUE(DrainOf(v1::ClusterStatus(), "nobody").is_empty());
}

TEST(DrainLines, SayWhatIsLeftAndWhy) {
  Draining left;
  left.ranks = 2;
  EXPECT_EQ(DrainLine(left, "mini-1"), "mini-1: 2 ranks left, which finish their answers\n");
  EXPECT_EQ(left.Why(), "2 ranks left, of the answers of gangs that moved");
  left.models = {"a", "b"};
  left.reason = "no room";
  EXPECT_EQ(DrainLine(left, "mini-1"), "mini-1: a, b are to be launched elsewhere\n");
  EXPECT_EQ(left.Why(), "2 ranks left, of a, b (no room)");
  left.models = {"a"};
  EXPECT_EQ(DrainLine(left, "mini-1"), "mini-1: a is to be launched elsewhere\n");
}

// ---- events

TEST(EventLine, IsUniversalTimeWithItsReason) {
  v1::Event event;
  event.set_at_unix_ms(1'764'081'005'999);
  event.set_kind("node");
  event.set_subject("mini-2");
  event.set_message("is dead");
  EXPECT_EQ(EventLine(event, Style()), "2025-11-25T14:30:05Z  node         mini-2 is dead\n");
  event.mutable_reason()->set_code(std::string(reasons::kNodeDead));
  EXPECT_TRUE(Has(EventLine(event, Style()), "mini-2 is dead: NODE_DEAD\n"))
      << "a reason without words is its code";
  event.mutable_reason()->set_message("silent for 3 s");
  EXPECT_TRUE(Has(EventLine(event, Style()), "is dead: silent for 3 s\n"));
}

TEST(EventsView, SaysWhoseAreMissingAlsoWhenThereAreNone) {
  v1::ListEventsResponse events;
  events.add_missing()->set_message("mini-3 does not answer");
  const std::string text = EventsView(events, Style());
  EXPECT_TRUE(Has(text, "Nothing happened that the agents still know of.\n")) << text;
  EXPECT_TRUE(Has(text, "not asked: mini-3 does not answer\n")) << text;
}

// ---- profiles

TEST(ProfileLine, SaysAllThatIsSetAndNothingElse) {
  EXPECT_EQ(ProfileLine("qwen", nullptr), "qwen: no profile\n");
  v1::ModelProfile profile;
  EXPECT_EQ(ProfileLine("qwen", &profile), "qwen: no profile\n");
  profile.mutable_sampling()->set_temperature(0);
  EXPECT_EQ(ProfileLine("qwen", &profile), "qwen: temperature 0\n") << "nought is a value";
  profile.mutable_reasoning()->set_enabled(true);
  profile.mutable_reasoning()->set_tokens_max(0);
  profile.set_pinned(true);
  EXPECT_EQ(ProfileLine("qwen", &profile),
            "qwen: temperature 0, thinking on, thinking_tokens 0, pinned\n");
}

TEST(ProfileLine, LengthsHaveTheLargestUnitThatIsWhole) {
  struct Case {
    uint32_t seconds;
    const char* text;
  };
  const Case cases[] = {{0, "never unloaded for want of use"},
                        {1, "unloaded after 1 s without a request"},
                        {60, "unloaded after 1 min without a request"},
                        {90, "unloaded after 90 s without a request"},
                        {7200, "unloaded after 2 h without a request"},
                        {5400, "unloaded after 90 min without a request"}};
  for (const Case& one : cases) {
    v1::ModelProfile profile;
    profile.set_idle_unload_s(one.seconds);
    EXPECT_EQ(ProfileLine("m", &profile), std::string("m: ") + one.text + "\n");
  }
}

// ---- diagnoses

TEST(DoctorText, FindingsComeBeforeWhatIsNotKnown) {
  v1::Diagnosis diagnosis;
  diagnosis.set_conclusion("RDMA does not work");
  v1::Finding& note = *diagnosis.add_findings();
  note.set_severity(v1::SEVERITY_INFO);
  note.mutable_reason()->set_message("kernel lines could not be read");
  v1::Finding& error = *diagnosis.add_findings();
  error.set_severity(v1::SEVERITY_ERROR);
  error.mutable_reason()->set_code(std::string(reasons::kPortDown));
  error.mutable_reason()->set_message("the port is down");
  error.mutable_reason()->set_who("hands");
  error.set_symptom("the port is down");
  error.set_cause("no cable");
  error.add_steps("plug it in");
  error.add_steps("look again");
  const std::string text = DoctorText(diagnosis, Style());
  EXPECT_EQ(text.rfind("RDMA does not work\n", 0), 0u) << text;
  EXPECT_TRUE(Has(text, "error PORT_DOWN  the port is down\n")) << text;
  EXPECT_FALSE(Has(text, "symptom:")) << "not twice: " << text;
  EXPECT_TRUE(Has(text, "  cause:    no cable\n")) << text;
  EXPECT_TRUE(Has(text, "  to do (hands):\n    1. plug it in\n    2. look again\n")) << text;
  EXPECT_GT(text.find("kernel lines"), text.find("look again")) << text;
}

TEST(WorstOf, IsTheWorstWhateverTheOrder) {
  v1::Diagnosis diagnosis;
  EXPECT_EQ(WorstOf(diagnosis), v1::SEVERITY_UNSPECIFIED);
  for (const v1::Severity severity :
       {v1::SEVERITY_WARNING, v1::SEVERITY_ERROR, v1::SEVERITY_INFO, v1::SEVERITY_DEGRADED}) {
    diagnosis.add_findings()->set_severity(severity);
  }
  EXPECT_EQ(WorstOf(diagnosis), v1::SEVERITY_ERROR);
}

TEST(ExplainText, KnowsEachCodeInEitherCase) {
  for (const ReasonCode& code : AllReasonCodes()) {
    const std::string name(code.code);
    const std::string text = ExplainText(name, Style());
    EXPECT_TRUE(Has(text, std::string(code.meaning))) << name;
    EXPECT_TRUE(Has(text, "to do:")) << name;
    EXPECT_EQ(ExplainText(absl::AsciiStrToLower(name), Style()), text) << name;
  }
}

TEST(ExplainText, KnowsTheWordsOfOtherTools) {
  struct Case {
    const char* words;
    std::string_view code;
  };
  const Case cases[] = {
      {"jaccl: Couldn't allocate protection domain", reasons::kPortDown},
      {"[jaccl] errno 22", reasons::kNoIpv4Gid},
      {"Changing queue pair to RTR failed with errno 96", reasons::kGidIndexShifted},
      {"controller unable to pair", reasons::kTb4Controller},
      {"bridge100", reasons::kInternetSharing}};
  for (const Case& one : cases) {
    const std::string text = ExplainText(one.words, Style());
    EXPECT_EQ(text.rfind(std::string(one.code) + "\n", 0), 0u) << one.words << "\n" << text;
  }
  EXPECT_EQ(ExplainText("", Style()), "");
  EXPECT_EQ(ExplainText("no such thing", Style()), "");
}

// ---- errors

// 32 digits are no help to people; the first eight name the node in every command.
TEST(ErrorBlock, IdsOfNodesAreShortInWhatPeopleRead) {
  const std::string id = "33c07c0f77d5d5e2d19aab7434849e3d";
  v1::Reason reason =
      MakeReason(reasons::kNodeDead, "node " + id + " is gone; sha256 " + id + id, id);
  reason.set_remedy("clusterctl nodes forget " + id);
  EXPECT_EQ(ErrorBlock(ReasonStatus(absl::StatusCode::kInternal, reason), Style()),
            "error: node 33c07c0f is gone; sha256 " + id + id +
                "\n  reason: NODE_DEAD\n  node:   33c07c0f\n"
                "  next:   clusterctl nodes forget 33c07c0f\n");
  EXPECT_EQ(ReasonSentence(reason),
            "node 33c07c0f is gone; sha256 " + id + id + "; clusterctl nodes forget 33c07c0f");
  // Programs get it whole.
  EXPECT_EQ(ErrorDocument(ReasonStatus(absl::StatusCode::kInternal, reason))["error"]["node"], id);
}

TEST(ErrorBlock, SaysWhatWhereWhatTheMachineSaidAndWhatNext) {
  v1::Reason reason = MakeReason(reasons::kRankExited, "rank 1 ended", "node-7");
  reason.set_evidence("first line\nsecond line");
  reason.set_remedy("look at its log");
  EXPECT_EQ(ErrorBlock(ReasonStatus(absl::StatusCode::kInternal, reason), Style()),
            "error: rank 1 ended\n  reason: RANK_EXITED\n  node:   node-7\n"
            "  it said: first line\n           second line\n  next:   look at its log\n");
}

TEST(ErrorBlock, NeverIsAnErrorWithoutWords) {
  for (const absl::StatusCode code : {absl::StatusCode::kUnimplemented, absl::StatusCode::kInternal,
                                      absl::StatusCode::kUnknown, absl::StatusCode::kCancelled}) {
    const std::string block = ErrorBlock(absl::Status(code, ""), Style());
    EXPECT_FALSE(Has(block, "error: \n")) << block;
    EXPECT_EQ(ErrorDocument(absl::Status(code, ""))["error"]["message"].get<std::string>().empty(),
              false);
  }
}

// ---- redaction

TEST(Redaction, ASecretGoesWhereverItStandsInALine) {
  const std::string secret = "s3cr3t-0123456789";
  for (const std::string before : {"token=", "\"token\": \"", "TOKEN: ", "api_key = '",
                                   "ssh_key:", "x passphrase: ", "a=1, password="}) {
    const char* closing = before.back() == '\'' ? "'" : "\"";
    const std::string redacted = Redacted(before + secret + closing + " and more");
    EXPECT_FALSE(Has(redacted, "s3cr3t")) << before << " -> " << redacted;
    EXPECT_TRUE(Has(redacted, "and more")) << before << " -> " << redacted;
  }
}

TEST(Redaction, OfALogOfJsonTheQuotedHeaderGoesToo) {
  const std::string line = R"({"msg":"sent {\"authorization\": \"Basic dXNlcjpwYXNz\"}"})";
  EXPECT_FALSE(Has(Redacted(line), "dXNlcjpwYXNz")) << Redacted(line);
}

TEST(Redaction, WhatIsRedactedTwiceIsTheSame) {
  for (const char* line : {"api_key: abcdefgh1234", "Authorization: Bearer sk-0123456789abcdef",
                           "-----BEGIN X-----\na\n-----END X-----\nb", "nothing"}) {
    EXPECT_EQ(Redacted(Redacted(line)), Redacted(line)) << line;
  }
}

TEST(Redaction, ABlockThatNeverEndsTakesTheRest) {
  EXPECT_EQ(Redacted("a\n-----BEGIN PRIVATE KEY-----\nMIGH\nMIGI"), "a\n[redacted]\n");
}

// ---- texts and tables

TEST(Text, RoundingNeverGivesAThousandOfAUnit) {
  EXPECT_EQ(Milliseconds(0), "0 ms");
  EXPECT_EQ(Milliseconds(999.4), "999 ms");
  EXPECT_EQ(Milliseconds(999.6), "1.0 s");
  EXPECT_EQ(GiB((uint64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(GiB((uint64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(GiB(1023), "1023 B");
  EXPECT_EQ(GiB(UINT64_MAX), "16384.0 PiB");
}

TEST(Text, CutTextsAreNeverWiderAndSayThatTheyAreCut) {
  std::mt19937 random(7);
  const std::string pieces[] = {"a", "\xE4\xB8\xAD", "e\xCC\x81", "\xF0\x9F\x9A\x80", "\xFF", " "};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) text += pieces[random() % 6];
    const int width = static_cast<int>(random() % 14);
    const std::string cut = CutToWidth(text, width);
    ASSERT_LE(DisplayWidth(cut), width);
    if (cut == text) continue;
    ASSERT_TRUE(width == 0 || cut.back() == '~') << cut;
    ASSERT_EQ(text.rfind(cut.substr(0, cut.empty() ? 0 : cut.size() - 1), 0), 0u) << cut;
  }
}

// Rows are as wide as their table, columns stand below each other, and a window that has room for
// what must stay is never exceeded.
TEST(Table, HoldsItsWidthForEveryTable) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<Column> columns;
    const size_t count = 1 + random() % 7;
    int least = -2;
    for (size_t i = 0; i < count; ++i) {
      Column column;
      column.title = std::string(1 + random() % 9, static_cast<char>('A' + i));
      column.right = random() % 2 == 0;
      column.keep = static_cast<int>(random() % 10);
      column.width_min = 1 + static_cast<int>(random() % 6);
      columns.push_back(column);
      if (column.keep > 0) least += column.width_min + 2;
    }
    std::vector<std::vector<Cell>> rows(random() % 5);
    for (std::vector<Cell>& row : rows) {
      for (size_t i = random() % (count + 2); i > 0; --i) {
        row.emplace_back(std::string(random() % 20, 'x') +
                         (random() % 3 == 0 ? "\xE4\xB8\xAD" : ""));
      }
    }
    const int width = static_cast<int>(random() % 90);
    std::istringstream lines(RenderTable(columns, rows, width, Style()));
    size_t drawn = 0;
    for (std::string line; std::getline(lines, line); ++drawn) {
      ASSERT_LE(DisplayWidth(line), std::max(width, least)) << line;
      ASSERT_TRUE(line.empty() || line.back() != ' ') << line;
    }
    ASSERT_EQ(drawn, rows.size() + 1);
  }
}

}  // namespace
}  // namespace macrame::cli
