#include "runtime/serving/preparation_lanes.h"

#include <utility>

#include "absl/strings/match.h"

namespace macrame::runtime::engine {
namespace {

// Of a call that must be made the arguments are held to the tool's schema.
bool NeedsGrammar(const v1::GenerateRequest& request) {
  const v1::ToolChoiceKind choice = request.tools().choice();
  return request.has_structure() || choice == v1::TOOL_CHOICE_KIND_REQUIRED ||
         choice == v1::TOOL_CHOICE_KIND_NAMED ||
         absl::StrContains(request.tools().tools_json(), "\"strict\"");
}

}  // namespace

Lane LaneOf(const v1::GenerateRequest& request) {
  if (request.ByteSizeLong() > kShortRequestBytesMax) return Lane::kLong;
  return NeedsGrammar(request) ? Lane::kStructure : Lane::kShort;
}

bool PreparationLanes::Add(Lane lane, size_t bytes, std::function<void(bool in_time)> work) {
  if (lane == Lane::kLong && bytes_ + bytes > kPreparingBytesMax) return false;
  auto& thread = threads_[static_cast<size_t>(lane)];
  if (thread == nullptr) thread = std::make_unique<transport::WorkerThread>();
  bytes_ += bytes;
  const MonotonicTime last = clock_.Now() + kPreparationWaitMax;
  const bool added = thread->Add([this, bytes, last, work = std::move(work)] {
    work(clock_.Now() <= last);
    bytes_ -= bytes;
  });
  if (!added) bytes_ -= bytes;
  return added;
}

}  // namespace macrame::runtime::engine
