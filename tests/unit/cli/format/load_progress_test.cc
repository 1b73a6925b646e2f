#include "cli/format/load_progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "proto/reason_codes.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A load of two ranks that has just begun.
v1::LoadModelProgress TwoRanks() {
  v1::LoadModelProgress progress;
  v1::DeploymentStatus& status = *progress.mutable_status();
  status.mutable_deployment()->set_name("tiny");
  status.set_state(v1::DEPLOYMENT_STATE_LAUNCHING);
  status.set_epoch(1);
  status.mutable_plan()->set_world_size(2);
  status.mutable_plan()->set_pp(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::Assignment& part = *status.mutable_plan()->add_assignments();
    part.set_rank(rank);
    part.set_hostname("mini-" + std::to_string(rank + 1));
    v1::RankStatus& known = *status.add_ranks();
    known.set_rank(rank);
    known.set_epoch(1);
    known.set_phase(v1::RANK_PHASE_LOADING);
  }
  return progress;
}

v1::RankStatus& RankOf(v1::LoadModelProgress& progress, int rank) {
  return *progress.mutable_status()->mutable_ranks(rank);
}

TEST(ProgressLines, EachQuarterIsSaidOnce) {
  ProgressLines lines;
  v1::LoadModelProgress progress = TwoRanks();
  const std::string first = lines.Update(progress);
  EXPECT_TRUE(Has(first, "tiny: loading, pipeline over 2, epoch 1\n")) << first;
  EXPECT_TRUE(Has(first, "  rank 0 mini-1: loading 0%\n")) << first;
  std::string said;
  for (int percent = 0; percent <= 100; ++percent) {
    RankOf(progress, 0).set_progress(percent / 100.0);
    said += lines.Update(progress);
  }
  EXPECT_EQ(said,
            "  rank 0 mini-1: loading 25%\n  rank 0 mini-1: loading 50%\n"
            "  rank 0 mini-1: loading 75%\n  rank 0 mini-1: loading 100%\n");
}

TEST(ProgressLines, NothingNewIsNoLine) {
  ProgressLines lines;
  lines.Update(TwoRanks());
  EXPECT_EQ(lines.Update(TwoRanks()), "");
}

TEST(ProgressLines, AProgressThatIsNoShareIsNoNonsense) {
  for (const double progress_of_rank : {std::nan(""), -1.0, 7.0, HUGE_VAL}) {
    ProgressLines lines;
    v1::LoadModelProgress progress = TwoRanks();
    RankOf(progress, 0).set_progress(progress_of_rank);
    const std::string text = lines.Update(progress);
    EXPECT_TRUE(Has(text, "rank 0 mini-1: loading 0%\n") ||
                Has(text, "rank 0 mini-1: loading 100%\n"))
        << text;
  }
}

TEST(ProgressLines, ALaunchAnewIsToldAgain) {
  ProgressLines lines;
  v1::LoadModelProgress progress = TwoRanks();
  lines.Update(progress);
  progress.mutable_status()->set_epoch(2);
  for (int rank = 0; rank < 2; ++rank) RankOf(progress, rank).set_epoch(2);
  const std::string again = lines.Update(progress);
  EXPECT_TRUE(Has(again, "epoch 2\n")) << again;
  EXPECT_TRUE(Has(again, "rank 1 mini-2: loading 0%\n")) << again;
}

TEST(ProgressLines, OfLaunchesThatFailAlikeTheReasonIsSaidOnce) {
  ProgressLines lines;
  v1::LoadModelProgress progress = TwoRanks();
  v1::Reason reason;
  reason.set_code(std::string(reasons::kRankExited));
  reason.set_message("rank 1 ended with 9");
  progress.mutable_status()->set_state(v1::DEPLOYMENT_STATE_BACKING_OFF);
  *progress.mutable_status()->mutable_failure() = reason;
  RankOf(progress, 1).set_phase(v1::RANK_PHASE_FAILED);
  *RankOf(progress, 1).mutable_failure() = reason;
  std::string all = lines.Update(progress);
  for (uint64_t epoch = 2; epoch < 6; ++epoch) {
    progress.mutable_status()->set_epoch(epoch);
    for (int rank = 0; rank < 2; ++rank) RankOf(progress, rank).set_epoch(epoch);
    all += lines.Update(progress);
  }
  size_t times = 0;
  for (size_t at = 0; (at = all.find("rank 1 ended with 9", at)) != std::string::npos; ++at) {
    ++times;
  }
  EXPECT_EQ(times, 1u) << all;
  EXPECT_TRUE(Has(all, "epoch 5\n")) << all;
  reason.set_message("rank 1 ended with 11");
  *progress.mutable_status()->mutable_failure() = reason;
  EXPECT_TRUE(Has(lines.Update(progress), "(rank 1 ended with 11)")) << "another one is said";
}

TEST(ProgressBars, AreWithinTheWindowAndHaveALineForEachRank) {
  v1::LoadModelProgress progress = TwoRanks();
  progress.mutable_status()->mutable_deployment()->set_name(std::string(300, 'n'));
  RankOf(progress, 0).set_bytes_total(uint64_t{1} << 36);
  RankOf(progress, 0).set_bytes_loaded(uint64_t{1} << 35);
  RankOf(progress, 0).set_progress(0.5);
  for (const int width : {40, 60, 80, 120, 300}) {
    std::istringstream lines(ProgressBars(progress, width, Style()));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_LT(DisplayWidth(line), width) << line;
    }
    EXPECT_EQ(count, 3);
  }
  EXPECT_TRUE(Has(ProgressBars(progress, 120, Style()), "loading  32.0 GiB of 64.0 GiB"));
}

TEST(ProgressBars, WideNamesKeepTheBarsInOneColumn) {
  v1::LoadModelProgress progress = TwoRanks();
  progress.mutable_status()->mutable_plan()->mutable_assignments(0)->set_hostname(
      "\xE3\x83\x9F\xE3\x83\x8B");
  std::istringstream lines(ProgressBars(progress, 100, Style()));
  std::string head, wide, plain;
  std::getline(lines, head);
  std::getline(lines, wide);
  std::getline(lines, plain);
  EXPECT_EQ(DisplayWidth(wide.substr(0, wide.find('['))),
            DisplayWidth(plain.substr(0, plain.find('['))));
}

TEST(ProgressBars, GoOnlyForwardThroughThePhases) {
  v1::LoadModelProgress progress = TwoRanks();
  size_t last = 0;
  const auto full = [&] {
    const std::string text = ProgressBars(progress, 120, Style());
    const std::string line = text.substr(text.find("rank 0"), 200);
    const std::string bar = line.substr(0, line.find(']'));
    return static_cast<size_t>(std::count(bar.begin(), bar.end(), '#'));
  };
  for (const v1::RankPhase phase :
       {v1::RANK_PHASE_UNSPECIFIED, v1::RANK_PHASE_STAGING, v1::RANK_PHASE_CONNECTING,
        v1::RANK_PHASE_LOADING, v1::RANK_PHASE_WARMING_UP, v1::RANK_PHASE_READY}) {
    RankOf(progress, 0).set_phase(phase);
    for (const double share : {0.0, 0.3, 1.0}) {
      RankOf(progress, 0).set_progress(share);
      const size_t now = full();
      EXPECT_GE(now, last) << phase << " at " << share;
      last = now;
    }
  }
  EXPECT_EQ(last, 38u) << "all of the bar";
  RankOf(progress, 0).set_phase(v1::RANK_PHASE_FAILED);
  EXPECT_TRUE(Has(ProgressBars(progress, 120, Style(true)), "\x1b[31m  rank 0"));
}

}  // namespace
}  // namespace macrame::cli
