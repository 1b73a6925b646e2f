#include "runtime/serving/preparation_lanes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/serving/markup/json_text.h"
#include "runtime/text/text_worker.h"

namespace macrame::runtime::engine {
namespace {

// The code unit that four hex digits at the beginning name.
std::optional<uint32_t> CodeUnit(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  uint32_t unit = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + 4, unit, 16);
  return end == text.data() + 4 ? std::optional(unit) : std::nullopt;
}

// JSON with each escape as the character that it stands for: what a template makes of its strings.
std::string WithoutEscapes(std::string_view json) {
  constexpr std::string_view kLetters = "bfnrt", kControls = "\b\f\n\r\t";
  std::string text;
  text.reserve(json.size());
  uint32_t high = 0;  // the first half of a pair, just read
  while (!json.empty()) {
    const char c = json[0];
    const char escaped = c == '\\' && json.size() > 1 ? json[1] : '\0';
    const auto unit = escaped == 'u' ? CodeUnit(json.substr(2)) : std::nullopt;
    json.remove_prefix(unit.has_value() ? 6 : (escaped != '\0' ? 2 : 1));
    const uint32_t before = std::exchange(high, 0);
    if (!unit.has_value()) {
      const size_t letter = escaped == '\0' ? std::string_view::npos : kLetters.find(escaped);
      text.push_back(letter != std::string_view::npos ? kControls[letter]
                                                      : (escaped != '\0' ? escaped : c));
    } else if (*unit >= 0xd800 && *unit < 0xdc00) {
      high = *unit;
    } else if (*unit < 0xdc00 || *unit > 0xdfff) {
      markup::AppendUtf8(*unit, text);
    } else if (before != 0) {
      markup::AppendUtf8(0x10000 + ((before - 0xd800) << 10) + (*unit - 0xdc00), text);
    }
  }
  return text;
}

bool IsIn(const std::string& json, std::string_view word) {
  const absl::string_view wanted(word.data(), word.size());
  return absl::StrContains(json, wanted) ||
         (absl::StrContains(json, '\\') && absl::StrContains(WithoutEscapes(json), wanted));
}

// Of a call that must be made the arguments are held to the tool's schema.
bool NeedsGrammar(const v1::GenerateRequest& request) {
  const v1::ToolChoiceKind choice = request.tools().choice();
  return request.has_structure() || choice == v1::TOOL_CHOICE_KIND_REQUIRED ||
         choice == v1::TOOL_CHOICE_KIND_NAMED || IsIn(request.tools().tools_json(), "\"strict\"");
}

// Templates print it as it is, or what it says.
bool IsTameJson(const std::string& json) {
  return text::IsTame(json) &&
         (!absl::StrContains(json, '\\') || text::IsTame(WithoutEscapes(json)));
}

bool IsTame(const v1::ToolCall& call) {
  return text::IsTame(call.id()) && text::IsTame(call.name()) && IsTameJson(call.arguments());
}

bool IsTame(const v1::ChatMessage& message) {
  for (const std::string* part : {&message.role(), &message.content(), &message.tool_call_id(),
                                  &message.name(), &message.reasoning()}) {
    if (!text::IsTame(*part)) return false;
  }
  return std::all_of(message.tool_calls().begin(), message.tool_calls().end(),
                     [](const v1::ToolCall& call) { return IsTame(call); });
}

// All text that preparing it reads, but for what a grammar is made of.
bool IsTame(const v1::GenerateRequest& request) {
  return text::IsTame(request.prompt()) && IsTameJson(request.tools().tools_json()) &&
         text::IsTame(request.tools().name()) && IsTameJson(request.template_arguments_json()) &&
         std::all_of(request.messages().begin(), request.messages().end(),
                     [](const v1::ChatMessage& message) { return IsTame(message); });
}

}  // namespace

Lane LaneOf(const v1::GenerateRequest& request) {
  if (request.ByteSizeLong() > kShortRequestBytesMax || !IsTame(request)) return Lane::kLong;
  return NeedsGrammar(request) ? Lane::kStructure : Lane::kShort;
}

std::string_view LaneKeyOf(const v1::GenerateRequest& request) {
  const std::string_view key = request.fairness_key();
  return key.substr(0, key.find('/'));
}

bool PreparationLanes::Add(Lane lane, std::string_view key, size_t bytes,
                           std::function<void(bool in_time)> work) {
  bytes = std::max<size_t>(bytes, 1);  // each piece counts in what its key holds
  const auto held = held_.find(key);
  const size_t others = held_.size() - (held == held_.end() ? 0 : 1);
  const Share share{held == held_.end() ? 0 : held->second, bytes_, others, kPreparingBytesMax};
  if (lane == Lane::kLong && !share.Fits(bytes)) return false;
  bytes_ += bytes;
  held_[std::string(key)] += bytes;
  const LaneQueue::WorkId id = ++last_id_;
  LaneState& state = StateOf(lane);
  state.waiting[id] = {std::string(key), bytes, dispatcher_.Now() + kPreparationWaitMax,
                       std::move(work)};
  state.queue.Add(key, id);
  Begin(lane);
  return true;
}

std::optional<size_t> PreparationLanes::IdleThread(Lane lane) {
  LaneState& state = StateOf(lane);
  if (!state.idle.empty()) {
    const size_t thread = state.idle.back();
    state.idle.pop_back();
    return thread;
  }
  if (state.threads.size() == kLaneThreads[static_cast<size_t>(lane)]) return std::nullopt;
  state.threads.push_back(std::make_unique<transport::WorkerThread>());
  return state.threads.size() - 1;
}

void PreparationLanes::Begin(Lane lane) {
  LaneState& state = StateOf(lane);
  while (const auto thread = IdleThread(lane)) {
    const auto id = state.queue.Next();
    if (!id.has_value()) return state.idle.push_back(*thread);
    const auto found = state.waiting.find(*id);
    Work work = std::move(found->second);
    state.waiting.erase(found);
    const MonotonicTime begun = dispatcher_.Now();
    state.threads[*thread]->Add([this, lane, thread = *thread, work = std::move(work), begun,
                                 alive = std::weak_ptr<bool>(is_alive_)] {
      work.run(begun <= work.last);
      dispatcher_.Post([this, lane, thread, key = work.key, bytes = work.bytes, begun, alive] {
        if (alive.expired()) return;
        OnDone(lane, thread, key, bytes, dispatcher_.Now() - begun);
      });
    });
  }
}

void PreparationLanes::OnDone(Lane lane, size_t thread, const std::string& key, size_t bytes,
                              Duration taken) {
  bytes_ -= bytes;
  const auto held = held_.find(key);
  held->second -= bytes;
  if (held->second == 0) held_.erase(held);
  LaneState& state = StateOf(lane);
  state.idle.push_back(thread);
  state.queue.Done(key, taken);
  Begin(lane);
}

}  // namespace macrame::runtime::engine
