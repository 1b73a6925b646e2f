// What was measured: bench, traces, timings, links, files.

#include <gtest/gtest.h>

#include <map>

#include "cli/format/bench_view.h"
#include "cli/format/chrome_trace.h"
#include "cli/format/links_view.h"
#include "cli/format/timings_view.h"
#include "cli/format/verify_view.h"
#include "proto/log_histogram.h"
#include "proto/reason_codes.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BenchReport Report() {
  BenchReport report;
  report.model = "tiny";
  report.client_version = "0.1.0";
  report.agent.set_version("0.2.0");
  const v1::ClusterStatus cluster = HealthyCluster();
  report.deployment = cluster.deployments(0);
  for (const v1::NodeStatus& node : cluster.nodes()) report.nodes.push_back(node);
  BenchRow row;
  row.asked.users = 4;
  row.requests = 8;
  row.ttft_p50_ms = 9.876;
  row.tpot_p50_ms = 12.6;
  row.decode_rate = 144.4;
  report.rows.push_back(row);
  return report;
}

TEST(BenchView, SaysOnWhatItWasMeasured) {
  const std::string text = BenchView(Report(), 140, Style());
  EXPECT_EQ(text.rfind("tiny: pipeline over 3 via ring; clusterctl 0.1.0, agentd 0.2.0\n", 0), 0u)
      << text;
  EXPECT_TRUE(Has(text, "  rank 0: mini-1, Apple M4 Pro, 64.0 GiB, macOS 26.4.1\n")) << text;
  EXPECT_TRUE(Has(text, "9.88 ms")) << text;
  EXPECT_TRUE(Has(text, "13 ms")) << text;
  EXPECT_TRUE(Has(text, "0 of 8")) << text;
  BenchReport report = Report();
  report.agent.set_mlx_version("0.32");
  report.nodes.clear();
  const std::string unknown = BenchView(report, 140, Style());
  EXPECT_TRUE(Has(unknown, ", MLX 0.32\n")) << unknown;
  EXPECT_TRUE(Has(unknown, "  rank 0: a1b2c3d1\n")) << "a node that is not listed: " << unknown;
}

TEST(BenchView, AnErrorIsCountedAndQuoted) {
  BenchReport report = Report();
  report.rows[0].errors = 1;
  report.rows[0].first_error = "the model is gone\x1b[2J";
  const std::string text = BenchView(report, 140, Style());
  EXPECT_TRUE(Has(text, "1 of 8")) << text;
  EXPECT_TRUE(Has(text, "error with 4 users: the model is gone?[2J\n")) << text;
}

TEST(BenchDocument, HasTheFiguresAndTheMachines) {
  const Json document = BenchDocument(Report());
  EXPECT_EQ(document["kind"], "BenchReport");
  EXPECT_EQ(document["ranks"].size(), 3u);
  EXPECT_EQ(document["ranks"][2]["hostname"], "mini-3");
  EXPECT_EQ(document["cases"][0]["tokens_per_second"]["decode"], 144.4);
  BenchReport report = Report();
  report.nodes.clear();
  EXPECT_EQ(BenchDocument(report)["ranks"][0]["hostname"], "");
  EXPECT_EQ(BenchDocument(report)["ranks"][0]["memory_total_bytes"], 0);
}

// Two ranks, of which the second began 5 µs later.
v1::TraceModelResponse Trace() {
  v1::TraceModelResponse trace;
  trace.set_deployment("tiny");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::RankTrace& one = *trace.add_ranks();
    one.set_rank(rank);
    one.set_node_id(rank == 0 ? "a" : "b");
    one.set_begun_unix_us(1'000'000 + 5 * rank);
    one.set_dropped(rank);
  }
  return trace;
}

v1::TraceSpan& AddSpan(v1::TraceModelResponse& trace, int rank, v1::TracePart part,
                       uint64_t begin_ns, uint64_t duration_ns) {
  v1::TraceSpan& span = *trace.mutable_ranks(rank)->add_spans();
  span.set_part(part);
  span.set_begin_ns(begin_ns);
  span.set_duration_ns(duration_ns);
  return span;
}

std::vector<Json> EventsNamed(const Json& document, const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : document["traceEvents"]) {
    if (event["name"] == name) found.push_back(event);
  }
  return found;
}

Json Chrome(const v1::TraceModelResponse& trace) {
  return ChromeTrace(trace, [](const std::string& id) { return "node-" + id; });
}

TEST(ChromeTrace, RanksAreLaidSideBySideByTheirClocks) {
  v1::TraceModelResponse trace = Trace();
  AddSpan(trace, 0, v1::TRACE_PART_LOGITS, 2'000, 1'500);
  AddSpan(trace, 1, v1::TRACE_PART_LOGITS, 2'000, 1'500);
  const Json document = Chrome(trace);
  const std::vector<Json> spans = EventsNamed(document, "logits");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["ts"], 2.0);
  EXPECT_EQ(spans[1]["ts"], 7.0);
  EXPECT_EQ(spans[1]["dur"], 1.5);
  EXPECT_EQ(spans[0]["pid"], 0);
  EXPECT_EQ(spans[1]["pid"], 1);
  EXPECT_EQ(document["otherData"]["dropped_spans"], 1);
  EXPECT_EQ(EventsNamed(document, "process_name")[1]["args"]["name"], "rank 1 (node-b)");
}

TEST(ChromeTrace, ARequestIsASpanWithABeginAndAnEnd) {
  v1::TraceModelResponse trace = Trace();
  AddSpan(trace, 0, v1::TRACE_PART_REQUEST_DECODE, 1'000, 9'000).set_number(7);
  const std::vector<Json> spans = EventsNamed(Chrome(trace), "decode");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["ph"], "b");
  EXPECT_EQ(spans[1]["ph"], "e");
  EXPECT_EQ(spans[0]["id"], "request 7");
  EXPECT_EQ(spans[0]["id"], spans[1]["id"]);
  EXPECT_EQ(spans[1]["ts"], 10.0);
}

TEST(ChromeTrace, StepsSayWhatTheyComputedAndCollectivesHaveATrackOfTheirOwn) {
  v1::TraceModelResponse trace = Trace();
  v1::TraceSpan& prefill = AddSpan(trace, 0, v1::TRACE_PART_STEP, 0, 1);
  prefill.set_prefill_tokens(512);
  AddSpan(trace, 0, v1::TRACE_PART_STEP, 0, 1).set_decode_tokens(3);
  AddSpan(trace, 0, v1::TRACE_PART_COLLECTIVE, 0, 1);
  AddSpan(trace, 0, v1::TRACE_PART_LAYER, 0, 1).set_number(11);
  const Json document = Chrome(trace);
  EXPECT_EQ(EventsNamed(document, "prefill step")[0]["args"]["prefill_tokens"], 512);
  EXPECT_EQ(EventsNamed(document, "decode step")[0]["args"]["decode_tokens"], 3);
  EXPECT_NE(EventsNamed(document, "collective")[0]["tid"],
            EventsNamed(document, "layer 11")[0]["tid"]);
}

TEST(ChromeTrace, APartOfANewerRankKeepsItsTime) {
  v1::TraceModelResponse trace = Trace();
  AddSpan(trace, 0, static_cast<v1::TracePart>(99), 3'000, 1'000);
  ASSERT_EQ(EventsNamed(Chrome(trace), "part 99").size(), 1u);
  EXPECT_EQ(EventsNamed(Chrome(trace), "part 99")[0]["ts"], 3.0);
  EXPECT_EQ(Chrome(v1::TraceModelResponse())["traceEvents"], Json::array());
}

v1::DeploymentStatus Timed() {
  const v1::ClusterStatus cluster = HealthyCluster();
  v1::DeploymentStatus model = cluster.deployments(0);
  LogHistogram values;
  for (int i = 0; i < 100; ++i) values.Add(2000);
  for (v1::RankStatus& rank : *model.mutable_ranks()) {
    rank.set_epoch(1);
    *rank.mutable_timings()->mutable_queue_us() = values.ToMessage();
    *rank.mutable_timings()->mutable_collective_us() = values.ToMessage();
  }
  return model;
}

TEST(TimingsView, QueuesAreOfTheEntryRankAndWaitsOfEach) {
  const std::string text = TimingsView(HealthyCluster(), Timed(), 140, Style());
  size_t queues = 0;
  for (size_t at = 0; (at = text.find("request in the queue", at)) != std::string::npos; ++at) {
    ++queues;
  }
  EXPECT_EQ(queues, 1u) << text;
  for (const char* rank : {"rank 0 (mini-1)", "rank 1 (mini-2)", "rank 2 (mini-3)"}) {
    EXPECT_TRUE(Has(text, std::string("waited in collectives, ") + rank)) << text;
  }
  EXPECT_TRUE(Has(text, "2.0 ms")) << text;
}

TEST(TimingsView, WhatAnEarlierEpochMeasuredIsLeftOut) {
  v1::DeploymentStatus model = Timed();
  model.set_epoch(2);
  EXPECT_TRUE(Has(TimingsView(HealthyCluster(), model, 140, Style()), "no steps yet\n"));
  EXPECT_EQ(TimingsJson(model)["ranks"], Json::array());
}

TEST(TimingsView, DraftsArePutDownToWhoMadeThem) {
  v1::DeploymentStatus model = Timed();
  v1::RankStatus& entry = *model.mutable_ranks(0);
  entry.set_draft_tokens_total(100);
  entry.set_accepted_tokens_total(40);
  EXPECT_TRUE(Has(TimingsView(HealthyCluster(), model, 140, Style()),
                  "  drafts looked up: 40 of 100 right (40 %)\n"));
  v1::DraftModelStatus& draft = *entry.mutable_draft_model();
  draft.set_name("small");
  draft.set_draft_tokens_total(60);
  draft.set_accepted_tokens_total(30);
  draft.set_off_reason("it is slower");
  EXPECT_TRUE(Has(TimingsView(HealthyCluster(), model, 140, Style()),
                  "looked up: 10 of 40 right (25 %); draft model small: 30 of 60 right (50 %); "
                  "off: it is slower\n"))
      << TimingsView(HealthyCluster(), model, 140, Style());
}

// The two counts come from a process that goes on counting: a part may be ahead of its whole.
TEST(TimingsView, APartAheadOfItsWholeIsNoHugeNumber) {
  v1::DeploymentStatus model = Timed();
  v1::RankStatus& entry = *model.mutable_ranks(0);
  entry.set_draft_tokens_total(10);
  entry.mutable_draft_model()->set_draft_tokens_total(12);
  entry.mutable_draft_model()->set_accepted_tokens_total(3);
  const std::string text = TimingsView(HealthyCluster(), model, 140, Style());
  EXPECT_TRUE(Has(text, "drafts looked up: none;")) << text;
  EXPECT_FALSE(Has(text, "1844674")) << text;
}

TEST(TimingsView, PreemptionsAreSaidWhereThereWereSome) {
  v1::DeploymentStatus model = Timed();
  EXPECT_FALSE(Has(TimingsView(HealthyCluster(), model, 140, Style()), "preempted"));
  model.mutable_ranks(0)->set_preemptions_total(1);
  model.mutable_ranks(0)->set_recomputed_tokens_total(512);
  EXPECT_TRUE(Has(TimingsView(HealthyCluster(), model, 140, Style()),
                  "answers preempted for KV memory: 1 time, 512 tokens computed again\n"));
}

v1::LinksView Links() {
  v1::LinksView view;
  for (const char* id : {"aaaaaaaaaaaa", "bbbbbbbbbbbb"}) {
    v1::NodeIdentity& identity = *view.add_identities();
    identity.set_node_id(id);
    identity.set_hostname(std::string("mini-") + id[0]);
  }
  for (const bool back : {false, true}) {
    v1::NodePath& path = *view.mutable_links()->add_paths();
    path.set_from_node_id(back ? "bbbbbbbbbbbb" : "aaaaaaaaaaaa");
    path.set_to_node_id(back ? "aaaaaaaaaaaa" : "bbbbbbbbbbbb");
    path.set_round_trip_us(back ? 12'345 : 300);
    path.set_bandwidth_bytes_per_second(back ? 117e6 : 1.25e9);
    path.set_kind(v1::INTERFACE_KIND_THUNDERBOLT);
  }
  return view;
}

TEST(LinksText, EachPairIsShownOnceAndOfANodeItsOwnWay) {
  const std::string all = LinksText(Links(), "", false, 140, Style());
  EXPECT_TRUE(Has(all, "mini-a  mini-b  Thunderbolt")) << all;
  EXPECT_FALSE(Has(all, "mini-b  mini-a")) << all;
  EXPECT_TRUE(Has(all, "300 us  1.25 GB/s")) << all;
  const std::string own = LinksText(Links(), "bbbbbbbbbbbb", false, 140, Style());
  EXPECT_TRUE(Has(own, "mini-b  mini-a")) << own;
  EXPECT_TRUE(Has(own, "12.3 ms   117 MB/s")) << own;
  EXPECT_TRUE(Has(LinksText(Links(), "cccccccc", false, 140, Style()), "No other node"));
}

TEST(LinksText, EachReasonIsToldOnceAndOnlyOfTheNodeThatWasAskedFor) {
  v1::LinksView view = Links();
  for (int i = 0; i < 3; ++i) {
    v1::LinkVerdict& link = *view.mutable_links()->add_links();
    link.mutable_a()->set_node_id("aaaaaaaaaaaa");
    link.mutable_b()->set_node_id(i == 2 ? "cccccccccccc" : "bbbbbbbbbbbb");
    v1::Reason& reason = *link.add_reasons();
    reason.set_code(std::string(reasons::kPortDown));
    reason.set_message(i == 2 ? "another port is down" : "the port is down");
    reason.set_who("hands");
  }
  const std::string text = LinksText(view, "", false, 140, Style());
  const size_t first = text.find("the port is down [hands]");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("the port is down", first + 1), std::string::npos) << text;
  EXPECT_FALSE(Has(LinksText(view, "bbbbbbbbbbbb", false, 140, Style()), "another port"));
}

TEST(LinksText, AGroupThatNobodyJudgedIsNotKnown) {
  EXPECT_TRUE(
      Has(LinksText(Links(), "", false, 140, Style()), "All live nodes together: not known\n"));
  EXPECT_EQ(NetworkStatsText(Links(), 140, Style()), "No link has been measured yet.\n");
}

TEST(LinksText, TheFirmwareIsADetailOfNodesThatToldIt) {
  v1::LinksView view = Links();
  for (const char* id : {"aaaaaaaaaaaa", "bbbbbbbbbbbb"}) {
    v1::NodeLinks& node = *view.add_nodes();
    node.set_node_id(id);
    if (id[0] == 'a') node.mutable_facts()->set_system_firmware("13822.81.10\x1b[2J");
  }
  const std::string text = LinksText(view, "", true, 140, Style());
  EXPECT_TRUE(Has(text, "\nmini-a: firmware 13822.81.10")) << text;
  EXPECT_FALSE(Has(text, "\x1b")) << "nothing that a terminal would act on";
  EXPECT_FALSE(Has(text, "mini-b: firmware")) << text;
  EXPECT_FALSE(Has(LinksText(view, "", false, 140, Style()), "firmware"));
  EXPECT_FALSE(Has(LinksText(view, "bbbbbbbbbbbb", true, 140, Style()), "firmware"));
}

TEST(NameIn, IsTheHostnameOrTheIdsBegin) {
  v1::LinksView view = Links();
  EXPECT_EQ(NameIn(view, "aaaaaaaaaaaa"), "mini-a");
  view.mutable_identities(0)->clear_hostname();
  EXPECT_EQ(NameIn(view, "aaaaaaaaaaaa"), "aaaaaaaa");
}

TEST(VerifyProgress, IsAShareOfWhatThereIs) {
  v1::ModelVerification progress;
  EXPECT_EQ(VerifyProgressLine(progress), "looking for the model's files");
  v1::NodeModelFiles& node = *progress.add_nodes();
  node.set_bytes_total(uint64_t{4} << 30);
  node.set_bytes_read(uint64_t{1} << 30);
  progress.add_nodes();  // one that has not begun
  EXPECT_EQ(VerifyProgressLine(progress), "reading on 1 node: 25 % of 4.0 GiB");
  node.set_bytes_read(uint64_t{9} << 30);  // a file grew meanwhile
  EXPECT_EQ(VerifyProgressLine(progress), "reading on 1 node: 100 % of 4.0 GiB");
}

std::string Verified(const v1::ModelVerification& verification) {
  return VerifyView(verification, HealthyCluster(), 140, Style());
}

TEST(VerifyView, NamesWhatFetchesTheBadFilesAgain) {
  v1::ModelVerification damaged = DamagedModel();
  EXPECT_TRUE(Has(Verified(damaged),
                  "  on mini-2: hf download org/m model-00001-of-00002.safetensors "
                  "model-00002-of-00002.safetensors vocab.json --local-dir /models/org/m "
                  "--force-download\n"))
      << Verified(damaged);
  damaged.mutable_nodes(1)->set_path("/home/ada/.cache/huggingface/hub/models--org--m/snapshots/1");
  EXPECT_FALSE(Has(Verified(damaged), "--local-dir")) << "the cache finds its own place";
}

TEST(VerifyView, CommandsAreMadeOfPlainWordsOnly) {
  for (const char* odd : {"org/m; rm -rf ~", "org/$(id)", "org/a b"}) {
    v1::ModelVerification damaged = DamagedModel();
    damaged.mutable_nodes(1)->set_model(odd);
    EXPECT_FALSE(Has(Verified(damaged), "hf download")) << Verified(damaged);
    EXPECT_TRUE(Has(Verified(damaged), "fetch the files named above again, into /models/org/m"));
  }
  for (const char* local : {"m", "/models/m", "a/b/c", ""}) {
    v1::ModelVerification damaged = DamagedModel();
    damaged.mutable_nodes(1)->set_model(local);
    EXPECT_FALSE(Has(Verified(damaged), "hf download")) << local;
  }
}

TEST(VerifyView, OfManyBadFilesAllAreFetched) {
  v1::ModelVerification damaged = DamagedModel();
  for (int i = 0; i < 9; ++i) {
    v1::ModelFile& file = *damaged.mutable_nodes(1)->add_files();
    file.set_name("part-" + std::to_string(i));
    file.set_state(v1::MODEL_FILE_STATE_TRUNCATED);
  }
  EXPECT_TRUE(Has(Verified(damaged), "hf download org/m --local-dir")) << Verified(damaged);
}

TEST(VerifyView, WhatDiffersIsNotFetchedForNobodyKnowsWhichIsRight) {
  v1::ModelVerification verification = DamagedModel();
  verification.mutable_nodes(1)->clear_files();
  v1::ModelFile& file = *verification.mutable_nodes(1)->add_files();
  file.set_name("config.json");
  file.set_state(v1::MODEL_FILE_STATE_DIFFERS);
  EXPECT_TRUE(Has(Verified(verification), "config.json is different on other nodes"));
  EXPECT_FALSE(Has(Verified(verification), "Next:"));
}

TEST(VerifyView, AFileThatNobodyLookedAtIsBad) {
  v1::ModelFile file;
  EXPECT_TRUE(IsBad(file));
  file.set_state(v1::MODEL_FILE_STATE_READ);
  EXPECT_FALSE(IsBad(file));
  file.set_state(static_cast<v1::ModelFileState>(90));
  EXPECT_TRUE(IsBad(file)) << "of a newer agent";
}

}  // namespace
}  // namespace macrame::cli
