#include "runtime/gang/side_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

absl::Status Lost(uint32_t rank, absl::string_view what) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kConnectFailed,
                      absl::StrCat("exchanging queue pairs: rank ", rank, ": ", what));
}

// Receives exactly `into.size()` bytes of `rank`.
absl::Status Receive(uint32_t rank, transport::SealedSocket& line, std::span<char> into) {
  const auto frame = line.ReceiveFrame();
  if (!frame.ok()) return Lost(rank, frame.status().message());
  if (frame->size() != into.size()) {
    return Lost(rank, absl::StrCat(frame->size(), " bytes came instead of ", into.size(),
                                   ": the ranks' libraries differ"));
  }
  std::ranges::copy(*frame, into.begin());
  return absl::OkStatus();
}

absl::Status Send(uint32_t rank, transport::SealedSocket& line, std::string_view bytes) {
  const absl::Status sent = line.SendFrame(bytes);
  return sent.ok() ? sent : Lost(rank, sent.message());
}

}  // namespace

SideChannel::SideChannel(uint32_t rank, std::vector<transport::SealedSocket> lines,
                         std::chrono::milliseconds limit)
    : rank_(rank), lines_(std::move(lines)) {
  for (const transport::SealedSocket& line : lines_) {
    if (line.open()) line.SetReceiveLimit(limit);
  }
}

absl::Status SideChannel::AllGather(std::string_view own, std::span<char> all) {
  if (rank_ == 0) return Gather(own, all);
  const absl::Status sent = Send(0, lines_.front(), own);
  return sent.ok() ? Receive(0, lines_.front(), all) : sent;
}

absl::Status SideChannel::Gather(std::string_view own, std::span<char> all) {
  std::ranges::copy(own, all.begin());
  for (uint32_t rank = 1; rank < lines_.size(); ++rank) {
    const absl::Status got =
        Receive(rank, lines_[rank], all.subspan(rank * own.size(), own.size()));
    if (!got.ok()) return got;
  }
  for (uint32_t rank = 1; rank < lines_.size(); ++rank) {
    const absl::Status sent = Send(rank, lines_[rank], {all.data(), all.size()});
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

}  // namespace macrame::runtime::engine
