#pragma once

// What an answer's text turns out to be: content, reasoning and tool calls, in the order in which
// they come. White space around reasoning and calls, and at both ends of an answer between tags, is
// markup too and is dropped; an answer that has none of these is given out byte for byte.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace macrame::runtime::markup {

struct MarkupEvent {
  enum class Kind {
    kContent,    // `text`
    kReasoning,  // `text`
    kCallBegin,  // of call `call`: its `id`, and its name as `text`
    kArguments,  // of call `call`: a piece of a JSON object as `text`
    kCallEnd,    // of call `call`
  };
  Kind kind = Kind::kContent;
  uint32_t call = 0;  // from 0 in each answer
  std::string text;
  std::string id;

  bool operator==(const MarkupEvent&) const = default;
};

// How ids of calls look.
enum class CallIdStyle {
  kCall,   // "call_" and 24 hexadecimal digits
  kNine,   // nine letters and digits: Mistral's templates refuse others
  kIndex,  // "functions.NAME:INDEX", counted through the conversation: Kimi K2 was trained so
};

struct CallIds {
  CallIdStyle style = CallIdStyle::kCall;
  std::string salt;           // one for each request: what makes the ids unique
  uint32_t calls_before = 0;  // in the conversation so far
};

std::string MakeCallId(const CallIds& ids, uint32_t call, std::string_view name);
// An id of another server in the nine letters and digits that Mistral's templates take.
std::string NineLetterId(std::string_view id);

class MarkupSink {
 public:
  // `reads_calls`: calls are looked for, so white space may turn out to stand before one.
  MarkupSink(CallIds ids, bool reads_calls) : ids_(std::move(ids)), holds_space_(reads_calls) {}

  void Content(std::string_view text);
  void Reasoning(std::string_view text);
  void EndReasoning();
  // The tags that the content stands between.
  void OpenAnswer();
  void CloseAnswer();
  void BeginCall(std::string_view name);
  void Arguments(std::string_view text);
  void EndCall();
  // The answer is over.
  void Finish();

  // What has come since the last time; neighbours of one kind are one event.
  std::vector<MarkupEvent> Take();

  bool has_content() const { return has_content_; }
  bool has_reasoning() const { return has_reasoning_; }
  uint32_t calls_begun() const { return calls_begun_; }
  uint32_t calls_ended() const { return calls_ended_; }

 private:
  void Add(MarkupEvent::Kind kind, std::string_view text);

  const CallIds ids_;
  std::vector<MarkupEvent> events_;
  bool holds_space_;        // of content, until it is clear what it stands before
  std::string held_space_;  // of content
  std::string held_reasoning_space_;
  bool has_content_ = false;  // other than white space
  bool has_reasoning_ = false;
  bool drops_space_ = false;  // white space of content that comes next
  uint32_t calls_begun_ = 0;
  uint32_t calls_ended_ = 0;
};

}  // namespace macrame::runtime::markup
