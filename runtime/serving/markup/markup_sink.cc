#include "runtime/serving/markup/markup_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/serving/markup/text_source.h"

namespace macrame::runtime::markup {
namespace {

// White space that may stand before a call is held back up to here.
constexpr size_t kHeldSpaceBytesMax = 1024;
constexpr std::string_view kLetters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// FNV-1a, mixed: ids must be the same on every machine and at every run, and need not be secret.
uint64_t Mixed(std::string_view text, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  hash ^= hash >> 31;
  hash *= 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::string Letters(uint64_t value, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kLetters[value % kLetters.size()];
    value /= kLetters.size();
  }
  return text;
}

size_t SpaceBefore(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsSpace(text[count])) ++count;
  return count;
}

size_t SpaceBehind(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsSpace(text[text.size() - 1 - count])) ++count;
  return count;
}

}  // namespace

std::string NineLetterId(std::string_view id) {
  const bool fits = id.size() == 9 && id.find_first_not_of(kLetters) == std::string_view::npos;
  return fits ? std::string(id) : Letters(Mixed(id, 9), 9);
}

std::string MakeCallId(const CallIds& ids, uint32_t call, std::string_view name) {
  const uint32_t number = ids.calls_before + call;
  if (ids.style == CallIdStyle::kIndex) {
    return absl::StrCat("functions.", std::string(name), ":", number);
  }
  const std::string key = absl::StrCat(ids.salt, "/", number);
  if (ids.style == CallIdStyle::kNine) return Letters(Mixed(key, 9), 9);
  return absl::StrCat("call_", absl::Hex(Mixed(key, 1), absl::kZeroPad16),
                      absl::Hex(Mixed(key, 2) & 0xffffffffULL, absl::kZeroPad8));
}

void MarkupSink::Add(MarkupEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool goes_on = !events_.empty() && events_.back().kind == kind;
  if (!goes_on) events_.push_back({kind, calls_begun_ == 0 ? 0 : calls_begun_ - 1, "", ""});
  if (kind == MarkupEvent::Kind::kContent || kind == MarkupEvent::Kind::kReasoning) {
    events_.back().call = 0;
  }
  events_.back().text.append(text);
}

void MarkupSink::Content(std::string_view text) {
  if (drops_space_) text.remove_prefix(SpaceBefore(text));
  if (text.empty()) return;
  drops_space_ = false;
  if (SpaceBehind(text) < text.size()) has_content_ = true;
  if (!holds_space_) return Add(MarkupEvent::Kind::kContent, text);
  held_space_.append(text);
  const size_t held = std::min(SpaceBehind(held_space_), kHeldSpaceBytesMax);
  const size_t certain = held_space_.size() - held;
  Add(MarkupEvent::Kind::kContent, std::string_view(held_space_).substr(0, certain));
  held_space_.erase(0, certain);
}

void MarkupSink::Reasoning(std::string_view text) {
  if (!has_reasoning_) text.remove_prefix(SpaceBefore(text));
  if (text.empty()) return;
  has_reasoning_ = true;
  if (!has_content_) held_space_.clear();
  const size_t behind = SpaceBehind(text);
  if (behind < text.size()) {
    Add(MarkupEvent::Kind::kReasoning, std::exchange(held_reasoning_space_, std::string()));
  }
  Add(MarkupEvent::Kind::kReasoning, text.substr(0, text.size() - behind));
  held_reasoning_space_.append(text.substr(text.size() - behind));
}

void MarkupSink::EndReasoning() {
  held_reasoning_space_.clear();
  if (!has_content_) drops_space_ = true;
}

void MarkupSink::OpenAnswer() {
  drops_space_ = true;
  holds_space_ = true;
}

void MarkupSink::CloseAnswer() {
  held_space_.clear();
  drops_space_ = true;
}

void MarkupSink::BeginCall(std::string_view name) {
  held_space_.clear();
  const uint32_t call = calls_begun_++;
  events_.push_back(
      {MarkupEvent::Kind::kCallBegin, call, std::string(name), MakeCallId(ids_, call, name)});
}

void MarkupSink::Arguments(std::string_view text) { Add(MarkupEvent::Kind::kArguments, text); }

void MarkupSink::EndCall() {
  if (calls_ended_ == calls_begun_) return;
  events_.push_back({MarkupEvent::Kind::kCallEnd, calls_begun_ - 1, "", ""});
  ++calls_ended_;
}

void MarkupSink::Finish() {
  if (calls_begun_ == 0) Add(MarkupEvent::Kind::kContent, held_space_);
  held_space_.clear();
}

std::vector<MarkupEvent> MarkupSink::Take() { return std::exchange(events_, {}); }

}  // namespace macrame::runtime::markup
