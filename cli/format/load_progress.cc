#include "cli/format/load_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/model_view.h"
#include "cli/format/reason_text.h"
#include "proto/phase_words.h"

namespace macrame::cli {
namespace {

constexpr int kNameWidth = 16;

// How far a rank is, over all phases: loading is nearly all of the time.
double Overall(const v1::RankStatus& rank) {
  switch (rank.phase()) {
    case v1::RANK_PHASE_CONNECTING:
      return 0.02;
    case v1::RANK_PHASE_LOADING:
      return 0.05 + 0.9 * rank.progress();
    case v1::RANK_PHASE_WARMING_UP:
      return 0.97;
    case v1::RANK_PHASE_READY:
      return 1;
    default:
      return 0;
  }
}

std::string HostOf(const v1::DeploymentStatus& status, uint32_t rank) {
  for (const auto& assignment : status.plan().assignments()) {
    if (assignment.rank() == rank) return Printable(assignment.hostname());
  }
  return "";
}

const v1::RankStatus* RankOf(const v1::DeploymentStatus& status, uint32_t rank) {
  for (const auto& known : status.ranks()) {
    if (known.rank() == rank) return &known;
  }
  return nullptr;
}

std::string LoadedBytes(const v1::RankStatus& rank) {
  if (rank.phase() != v1::RANK_PHASE_LOADING || rank.bytes_total() == 0) return "";
  return absl::StrCat("  ", GiB(rank.bytes_loaded()), " of ", GiB(rank.bytes_total()));
}

std::string StateLine(const v1::DeploymentStatus& status, bool with_failure = true) {
  std::string out =
      absl::StrCat(Printable(status.deployment().name()), ": ", DeploymentWord(status.state()));
  if (status.plan().world_size() > 0) absl::StrAppend(&out, ", ", ShapeText(status.plan()));
  if (status.epoch() > 0) absl::StrAppend(&out, ", epoch ", status.epoch());
  const bool failed = status.state() != v1::DEPLOYMENT_STATE_READY;
  if (with_failure && failed && !status.failure().code().empty()) {
    absl::StrAppend(&out, " (", ReasonSentence(status.failure()), ")");
  }
  return out;
}

}  // namespace

std::string ProgressBars(const v1::LoadModelProgress& progress, int width, const Style& style) {
  const v1::DeploymentStatus& status = progress.status();
  std::string out = CutToWidth(StateLine(status), width - 1) + "\n";
  const int bar_width = std::clamp(width - 60, 12, 40);
  // As many as are assigned: a number alone, of whatever size, draws nothing.
  const auto assigned = static_cast<uint32_t>(status.plan().assignments_size());
  const uint32_t ranks = std::min(status.plan().world_size(), assigned);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const v1::RankStatus* known = RankOf(status, rank);
    const std::string host = CutToWidth(HostOf(status, rank), kNameWidth);
    const std::string padding(kNameWidth - std::min(DisplayWidth(host), kNameWidth), ' ');
    std::string line = absl::StrFormat("  rank %-2d ", rank) + host + padding + " " +
                       Bar(known == nullptr ? 0 : Overall(*known), bar_width) + " ";
    line += known == nullptr ? "starting" : PhaseWord(known->phase()) + LoadedBytes(*known);
    const bool failed = known != nullptr && known->phase() == v1::RANK_PHASE_FAILED;
    line = CutToWidth(line, width - 1);
    out += (failed ? style.Bad(line) : line) + "\n";
  }
  return out;
}

std::string ProgressLines::Update(const v1::LoadModelProgress& progress) {
  const v1::DeploymentStatus& status = progress.status();
  std::string out;
  // Of launches that fail alike the reason is said once.
  const std::string& failure = status.failure().message();
  if (const std::string line = StateLine(status); line != said_of_all_) {
    said_of_all_ = line;
    absl::StrAppend(&out, StateLine(status, failure != said_failure_), "\n");
    if (!status.failure().code().empty()) said_failure_ = failure;
  }
  for (const v1::RankStatus& rank : status.ranks()) {
    std::string line = PhaseWord(rank.phase());
    if (rank.phase() == v1::RANK_PHASE_LOADING) {
      // What is no share at all counts as none.
      const double share = rank.progress() >= 0 ? std::min(rank.progress(), 1.0) : 0;
      absl::StrAppend(&line, " ", static_cast<int>(share * 4) * 25, "%");
    }
    if (rank.phase() == v1::RANK_PHASE_FAILED) {
      const v1::Reason& why = rank.failure();
      absl::StrAppend(&line, ": ",
                      why.message() == said_failure_ ? Printable(why.code()) : ReasonSentence(why));
    }
    const std::string key = absl::StrCat(rank.epoch(), " ", line);
    if (said_[rank.rank()] == key) continue;
    said_[rank.rank()] = key;
    absl::StrAppend(&out, "  rank ", rank.rank(), " ", HostOf(status, rank.rank()), ": ", line,
                    "\n");
  }
  return out;
}

}  // namespace macrame::cli
