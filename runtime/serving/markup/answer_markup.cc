#include "runtime/serving/markup/answer_markup.h"

#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

std::shared_ptr<const Dialect> OrNone(std::shared_ptr<const Dialect> dialect) {
  return dialect != nullptr ? std::move(dialect) : std::make_shared<const Dialect>();
}

std::shared_ptr<const ToolSet> OrNone(std::shared_ptr<const ToolSet> tools) {
  return tools != nullptr ? std::move(tools) : std::make_shared<const ToolSet>();
}

}  // namespace

// In one place in memory, because readers refer to their neighbours.
struct AnswerMarkup::Parts {
  explicit Parts(const MarkupTraits& traits)
      : dialect(OrNone(traits.dialect)),
        tools(OrNone(traits.tools)),
        sink(traits.ids, traits.tools != nullptr),
        transcript{source,
                   sink,
                   *dialect,
                   *tools,
                   traits.tools != nullptr,
                   traits.opens_reasoning,
                   false,
                   IsAllMarkup(*dialect) || dialect->syntax == CallSyntax::kRecipients,
                   traits.follows_reasoning},
        reading(ReadAnswer(transcript)) {
    reading.StartOn(stack);
  }

  const std::shared_ptr<const Dialect> dialect;
  const std::shared_ptr<const ToolSet> tools;
  TextSource source;
  MarkupSink sink;
  Transcript transcript;
  ReadingStack stack;
  Reading<bool> reading;
};

AnswerMarkup::AnswerMarkup(const MarkupTraits& traits) : parts_(std::make_unique<Parts>(traits)) {}
AnswerMarkup::~AnswerMarkup() = default;
AnswerMarkup::AnswerMarkup(AnswerMarkup&&) noexcept = default;

std::vector<MarkupEvent> AnswerMarkup::Push(std::string_view text) {
  parts_->source.Append(text);
  parts_->stack.Run();
  return parts_->sink.Take();
}

std::vector<MarkupEvent> AnswerMarkup::Finish(bool is_cut) {
  parts_->transcript.is_cut = is_cut;
  parts_->source.End();
  parts_->stack.Run();
  parts_->sink.Finish();
  return parts_->sink.Take();
}

// A call may begin within reasoning, and ends it.
bool AnswerMarkup::is_reasoning() const {
  const Transcript& transcript = parts_->transcript;
  return transcript.is_reasoning && parts_->sink.calls_begun() == transcript.calls_before_reasoning;
}

bool AnswerMarkup::is_content() const { return !is_reasoning() && !parts_->transcript.is_header; }

bool AnswerMarkup::is_before_content() const {
  return !is_reasoning() && !parts_->sink.has_content() && parts_->sink.calls_begun() == 0;
}

uint32_t AnswerMarkup::calls_begun() const { return parts_->sink.calls_begun(); }
uint32_t AnswerMarkup::calls_ended() const { return parts_->sink.calls_ended(); }

}  // namespace macrame::runtime::markup
