#include "agentd/gateway/dialects/messages_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/dialect.h"
#include "agentd/gateway/dialects/ollama_answer.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

ordered_json ModelObject(const ServedModel& model) {
  return {{"type", "model"},
          {"id", model.id},
          {"display_name", model.id},
          {"created_at", UtcTime(model.created_unix_seconds)},
          {"max_input_tokens", model.context_length}};
}

std::string NamedEvent(const ordered_json& data) {
  return absl::StrCat("event: ", data["type"].get_ref<const std::string&>(), "\ndata: ", Dump(data),
                      "\n\n");
}

ordered_json MessageUsage(const TokenCounts& counts) {
  ordered_json usage;
  // What was cached is counted apart.
  usage["input_tokens"] =
      counts.prompt_tokens - std::min(counts.prompt_tokens, counts.cached_tokens);
  usage["cache_creation_input_tokens"] = 0;
  usage["cache_read_input_tokens"] = counts.cached_tokens;
  usage["output_tokens"] = counts.completion_tokens;
  return usage;
}

ordered_json StopReason(v1::FinishReason finish, bool has_calls, const std::string& stop_string) {
  if (finish == v1::FINISH_REASON_LENGTH) return "max_tokens";
  if (!stop_string.empty()) return "stop_sequence";
  return has_calls ? "tool_use" : "end_turn";
}

ordered_json StopSequence(const std::string& stop_string) {
  return stop_string.empty() ? ordered_json(nullptr) : ordered_json(stop_string);
}

ordered_json MessageObject(const AnswerHead& head) {
  ordered_json message;
  message["id"] = head.id;
  message["type"] = "message";
  message["role"] = "assistant";
  message["model"] = head.model;
  message["content"] = ordered_json::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  return message;
}

std::string Signature(const AnswerHead& head) { return absl::StrCat("sig_", head.id); }

}  // namespace

std::string MessagesBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers) {
  const CollectedAnswer& answer = answers.at(0);
  ordered_json message = MessageObject(head);
  ordered_json& content = message["content"];
  if (!answer.reasoning.empty() && !head.excludes_reasoning) {
    content.push_back(
        {{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", Signature(head)}});
  }
  if (!answer.text.empty()) content.push_back({{"type", "text"}, {"text", answer.text}});
  for (const CollectedAnswer::Call& call : answer.calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", call.id},
                       {"name", call.name},
                       {"input", ArgumentsObject(call.arguments)}});
  }
  message["stop_reason"] = StopReason(answer.finish, !answer.calls.empty(), answer.stop_string);
  message["stop_sequence"] = StopSequence(answer.stop_string);
  message["usage"] = MessageUsage(answer.counts);
  return Dump(message);
}

std::string MessagesStream::Start() {
  if (started_) return "";
  started_ = true;
  ordered_json message = MessageObject(head_);
  message["usage"] = MessageUsage(counts_);
  return NamedEvent({{"type", "message_start"}, {"message", std::move(message)}});
}

std::string MessagesStream::EndBlock() {
  std::string events;
  if (block_ == Block::kThinking) events = Delta("signature_delta", "signature", Signature(head_));
  if (block_ != Block::kNone) {
    events += NamedEvent({{"type", "content_block_stop"}, {"index", index_}});
  }
  block_ = Block::kNone;
  return events;
}

std::string MessagesStream::Enter(Block block) {
  if (block_ == block) return "";
  std::string events = EndBlock();
  block_ = block;
  ++index_;
  ordered_json begin;
  if (block == Block::kThinking) {
    begin = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  } else {
    begin = {{"type", "text"}, {"text", ""}};
  }
  return events + NamedEvent({{"type", "content_block_start"},
                              {"index", index_},
                              {"content_block", std::move(begin)}});
}

std::string MessagesStream::Delta(const char* type, const char* member,
                                  const std::string& text) const {
  return NamedEvent({{"type", "content_block_delta"},
                     {"index", index_},
                     {"delta", {{"type", type}, {member, text}}}});
}

std::string MessagesStream::CallEvents(const v1::ToolCallDelta& call) {
  std::string events;
  if (!call.name().empty()) {
    has_calls_ = true;
    events = EndBlock();
    block_ = Block::kCall;
    ++index_;
    const ordered_json begin = {{"type", "tool_use"},
                                {"id", call.id()},
                                {"name", call.name()},
                                {"input", ordered_json::object()}};
    events +=
        NamedEvent({{"type", "content_block_start"}, {"index", index_}, {"content_block", begin}});
  }
  if (!call.arguments().empty()) {
    events += Delta("input_json_delta", "partial_json", call.arguments());
  }
  return events;
}

std::string AnthropicModelBody(const ServedModel& model) { return Dump(ModelObject(model)); }

std::string AnthropicModelListBody(const std::vector<ServedModel>& models) {
  ordered_json body;
  body["data"] = ordered_json::array();
  for (const ServedModel& model : models) body["data"].push_back(ModelObject(model));
  body["has_more"] = false;
  body["first_id"] = models.empty() ? ordered_json(nullptr) : ordered_json(models.front().id);
  body["last_id"] = models.empty() ? ordered_json(nullptr) : ordered_json(models.back().id);
  return Dump(body);
}

std::string MessagesStream::Chunk(const v1::GenerateChunk& chunk, uint32_t /*choice*/) {
  UpdateCounts(chunk, &counts_);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    finish_ = chunk.finish_reason();
    stop_string_ = chunk.stop_string();
  }
  std::string events = Start();
  if (!chunk.reasoning().empty() && !head_.excludes_reasoning) {
    events += Enter(Block::kThinking);
    events += Delta("thinking_delta", "thinking", chunk.reasoning());
  }
  if (!chunk.text().empty()) {
    events += Enter(Block::kText);
    events += Delta("text_delta", "text", chunk.text());
  }
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) events += CallEvents(call);
  return events;
}

std::string MessagesStream::End(const absl::Status& status, uint32_t /*choice*/) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  if (finish_ == v1::FINISH_REASON_CANCELLED) return Fail(EndedByCluster());
  ended_ = true;
  std::string events = absl::StrCat(Start(), EndBlock());
  events += NamedEvent({{"type", "message_delta"},
                        {"delta",
                         {{"stop_reason", StopReason(finish_, has_calls_, stop_string_)},
                          {"stop_sequence", StopSequence(stop_string_)}}},
                        {"usage", MessageUsage(counts_)}});
  return events + NamedEvent({{"type", "message_stop"}});
}

std::string MessagesStream::Fail(const ApiError& error) {
  ended_ = true;
  return absl::StrCat("event: error\ndata: ",
                      DialectErrorBody(Dialect::kAnthropic, error, head_.request_id), "\n\n");
}

std::string MessagesStream::KeepAlive() { return Start() + NamedEvent({{"type", "ping"}}); }

}  // namespace macrame::agentd
