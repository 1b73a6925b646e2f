#pragma once

// Tells an answer's content, reasoning and tool calls apart while its text comes.
//
// The text holds the spellings of the dialect's control tokens. However it is cut into pieces, the
// events are the same, but for where one event of a kind is cut into several. A beginning of a
// marker is held back until it is clear. Calls that are malformed before their name is known come
// out as content; later their arguments are what stands there. Pure; one thread.

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/serving/markup/dialect.h"
#include "runtime/serving/markup/markup_sink.h"
#include "runtime/serving/markup/tool_set.h"

namespace macrame::runtime::markup {

struct MarkupTraits {
  std::shared_ptr<const Dialect> dialect;  // unset: all text is content
  std::shared_ptr<const ToolSet> tools;    // unset: calls are not looked for
  bool opens_reasoning = false;            // the prompt ends within reasoning
  bool follows_reasoning = false;          // the prompt ends with closed reasoning
  CallIds ids;
};

class AnswerMarkup {
 public:
  explicit AnswerMarkup(const MarkupTraits& traits);
  ~AnswerMarkup();
  AnswerMarkup(AnswerMarkup&&) noexcept;

  std::vector<MarkupEvent> Push(std::string_view text);
  // The answer is over. `is_cut`: not by the model; what is open stays open.
  std::vector<MarkupEvent> Finish(bool is_cut);

  // The next text is reasoning, as far as is known.
  bool is_reasoning() const;
  // The next text is content, as far as is known: neither reasoning nor a message's header. A call
  // that has begun counts as content.
  bool is_content() const;
  // Nothing but reasoning and white space has come.
  bool is_before_content() const;
  uint32_t calls_begun() const;
  uint32_t calls_ended() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace macrame::runtime::markup
