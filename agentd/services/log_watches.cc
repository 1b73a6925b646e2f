#include "agentd/services/log_watches.h"

namespace macrame::agentd {
namespace {

bool Send(const transport::ServerStream& stream, std::string text) {
  v1::LogsChunk chunk;
  chunk.set_text(std::move(text));
  return stream.Write(chunk);
}

}  // namespace

void LogWatches::Add(const transport::Caller& caller, const v1::LogsRequest& request,
                     transport::ServerStream stream) {
  const std::shared_ptr<const WatchPlaces::Place> place =
      request.follow() ? places_.Take(caller) : nullptr;
  if (request.follow() && place == nullptr) {
    return stream.Finish(absl::ResourceExhaustedError("too many follow this node's log"));
  }
  transport::LogTail tail(path_);
  absl::StatusOr<std::string> last =
      tail.Last(request.lines() == 0 ? kLogLinesDefault : request.lines());
  if (!last.ok()) return stream.Finish(last.status());
  Send(stream, *std::move(last));
  if (!request.follow()) return stream.Finish(absl::OkStatus());
  auto gone = std::make_shared<bool>(false);
  stream.OnCancel([gone] { *gone = true; });
  watches_.push_back({std::move(stream), std::move(tail), place, std::move(gone)});
}

void LogWatches::Tick() {
  watches_.remove_if([](Watch& watch) {
    if (*watch.gone) return true;
    std::string text = watch.tail.New();
    return !text.empty() && !Send(watch.stream, std::move(text));
  });
}

}  // namespace macrame::agentd
