#include "runtime/gang/gang_watch.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "macrame/v1/rank.pb.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;

// A frame is small and sent at once; one that does not come whole ends the line.
constexpr milliseconds kFrameLimit{500};

MonotonicTime Now() {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

Duration TimeOf(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

BeatMaker::Used UsedSoFar() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  return {TimeOf(usage.ru_utime) + TimeOf(usage.ru_stime), static_cast<uint64_t>(usage.ru_majflt)};
}

v1::GangBeat MessageOf(const Beat& beat) {
  v1::GangBeat message;
  v1::RankBeat& out = *message.mutable_beat();
  out.set_steps(beat.steps);
  out.set_marks(beat.marks);
  out.set_activity(static_cast<uint32_t>(beat.activity));
  out.set_standing_us(static_cast<uint64_t>(beat.standing.count()));
  out.set_resting_us(static_cast<uint64_t>(beat.resting.count()));
  out.set_gang_marks(beat.gang_marks);
  return message;
}

Beat BeatOf(const v1::RankBeat& message) {
  Beat beat;
  beat.steps = message.steps();
  beat.marks = message.marks();
  beat.activity =
      message.activity() > 2 ? RankActivity::kIdle : static_cast<RankActivity>(message.activity());
  beat.standing = Duration(static_cast<int64_t>(message.standing_us()));
  beat.resting = Duration(static_cast<int64_t>(message.resting_us()));
  beat.gang_marks = message.gang_marks();
  return beat;
}

}  // namespace

GangWatch::GangWatch(const GangWatchOptions& options, const ProgressBoard& board,
                     std::vector<transport::SealedSocket> lines, Hooks hooks)
    : options_(options),
      board_(board),
      lines_(std::move(lines)),
      hooks_(std::move(hooks)),
      monitor_(options.rank, options.world_size, options.knows_waits, options.limits, Now()),
      maker_(Now()) {
  if (options.rank != 0) monitor_.WatchOnly(0);
  for (const transport::SealedSocket& line : lines_) {
    if (line.open()) line.SetReceiveLimit(kFrameLimit);
  }
  thread_ = std::thread([this] { Run(); });
}

GangWatch::~GangWatch() {
  ending_ = true;
  thread_.join();
}

void GangWatch::Run() {
  while (!ending_ && !has_stalled_) {
    const MonotonicTime now = Now();
    Beat own = OwnBeat(now);
    monitor_.OnBeat(options_.rank, own);
    own.gang_marks = monitor_.gang_marks();
    NoteProgress();
    Tell(own);
    Listen(now + kBeatInterval);
    if (has_stalled_) return;
    if (options_.rank == 0) monitor_.SetExpected(board_.expected());
    const auto stall = monitor_.Check(Now());
    if (!stall.has_value() || ending_) continue;
    if (options_.rank == 0) TellStall(*stall);
    Stalled(*stall);
  }
}

Beat GangWatch::OwnBeat(MonotonicTime now) {
  const uint64_t bytes = hooks_.bytes_moved ? hooks_.bytes_moved() : 0;
  return maker_.Make(board_.steps(), board_.marks() + bytes, board_.activity(), UsedSoFar(), now);
}

void GangWatch::Listen(MonotonicTime end) {
  while (!ending_ && !has_stalled_) {
    const auto left = std::chrono::ceil<milliseconds>(end - Now());
    if (left <= milliseconds(0)) return;
    std::vector<pollfd> waits;
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < lines_.size(); ++rank) {
      if (!lines_[rank].open()) continue;
      waits.push_back({lines_[rank].fd(), POLLIN, 0});
      ranks.push_back(rank);
    }
    if (poll(waits.data(), waits.size(), static_cast<int>(left.count())) <= 0) continue;
    for (size_t i = 0; i < waits.size() && !has_stalled_; ++i) {
      if (waits[i].revents != 0) Read(ranks[i]);
    }
  }
}

void GangWatch::Read(uint32_t rank) {
  const auto frame = lines_[rank].ReceiveFrame();
  v1::GangBeat message;
  if (!frame.ok() || !message.ParseFromString(*frame)) {
    // It is gone, which the step channel says better; or it comes to be missed.
    lines_[rank].Close();
    return;
  }
  if (rank == 0 && !message.text().empty()) {
    Stall stall;
    if (message.has_stalled()) stall.rank = message.stalled().rank();
    stall.what = message.text();
    return Stalled(stall);
  }
  const Beat beat = BeatOf(message.beat());
  if (rank == 0) leader_gang_marks_ = beat.gang_marks;
  monitor_.OnBeat(rank, beat);
}

void GangWatch::Tell(const Beat& beat) {
  const std::string frame = MessageOf(beat).SerializeAsString();
  for (transport::SealedSocket& line : lines_) {
    if (line.open() && !line.SendFrame(frame).ok()) line.Close();
  }
}

void GangWatch::TellStall(const Stall& stall) {
  v1::GangBeat message;
  message.set_text(stall.what);
  if (stall.rank.has_value()) message.mutable_stalled()->set_rank(*stall.rank);
  const std::string frame = message.SerializeAsString();
  for (transport::SealedSocket& line : lines_) {
    if (line.open()) line.SendFrame(frame).IgnoreError();
  }
}

void GangWatch::NoteProgress() {
  const uint64_t marks = monitor_.gang_marks() + leader_gang_marks_;
  if (marks != std::exchange(gang_marks_, marks) && hooks_.on_progress) hooks_.on_progress();
}

void GangWatch::Stalled(const Stall& stall) {
  has_stalled_ = true;
  hooks_.on_stall(stall);
}

}  // namespace macrame::runtime::engine
