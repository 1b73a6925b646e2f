#include "agentd/gateway/dialects/response_answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

std::string ItemId(const AnswerHead& head, const char* prefix, size_t index) {
  return absl::StrCat(prefix, head.id.substr(head.id.find('_') + 1), index);
}

ordered_json ReasoningItem(const AnswerHead& head, size_t index, const std::string& text,
                           const char* status) {
  ordered_json item;
  item["id"] = ItemId(head, "rs_", index);
  item["type"] = "reasoning";
  item["summary"] = ordered_json::array();
  item["content"] = ordered_json::array();
  if (!text.empty()) item["content"].push_back({{"type", "reasoning_text"}, {"text", text}});
  item["status"] = status;
  return item;
}

ordered_json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", ordered_json::array()},
          {"logprobs", ordered_json::array()}};
}

ordered_json MessageItem(const AnswerHead& head, size_t index, const std::string& text,
                         const char* status) {
  ordered_json item;
  item["id"] = ItemId(head, "msg_", index);
  item["type"] = "message";
  item["role"] = "assistant";
  item["status"] = status;
  item["content"] = ordered_json::array();
  if (!text.empty()) item["content"].push_back(TextPart(text));
  return item;
}

ordered_json CallItem(const AnswerHead& head, size_t index, const std::string& call_id,
                      const std::string& name, const std::string& arguments, const char* status) {
  ordered_json item;
  item["id"] = ItemId(head, "fc_", index);
  item["type"] = "function_call";
  item["call_id"] = call_id;
  const auto namespaced = head.response->namespaced.find(name);
  if (namespaced == head.response->namespaced.end()) {
    item["name"] = name;
  } else {
    item["namespace"] = namespaced->second.first;
    item["name"] = namespaced->second.second;
  }
  item["arguments"] = arguments;
  item["status"] = status;
  return item;
}

ordered_json ResponseUsage(const TokenCounts& counts) {
  ordered_json usage;
  usage["input_tokens"] = counts.prompt_tokens;
  usage["input_tokens_details"] = {{"cached_tokens", counts.cached_tokens},
                                   {"cache_write_tokens", 0}};
  usage["output_tokens"] = counts.completion_tokens;
  usage["output_tokens_details"] = {{"reasoning_tokens", counts.reasoning_tokens}};
  usage["total_tokens"] = uint64_t{counts.prompt_tokens} + counts.completion_tokens;
  return usage;
}

bool IsCut(const CollectedAnswer& answer) { return answer.finish == v1::FINISH_REASON_LENGTH; }

// `status`: "in_progress", "completed", "incomplete" or "failed".
ordered_json ResponseObject(const AnswerHead& head, const char* status, ordered_json output) {
  ordered_json body;
  body["id"] = head.id;
  body["object"] = "response";
  body["created_at"] = head.created_unix_seconds;
  body["status"] = status;
  body["background"] = false;
  body["error"] = nullptr;
  body["incomplete_details"] = nullptr;
  body["model"] = head.model;
  body["output"] = std::move(output);
  body["service_tier"] = "default";
  body["usage"] = nullptr;
  for (const auto& [name, value] : head.response->echo.items()) body[name] = value;
  return body;
}

ordered_json OutputOf(const AnswerHead& head, const CollectedAnswer& answer) {
  ordered_json output = ordered_json::array();
  if (!answer.reasoning.empty()) {
    output.push_back(ReasoningItem(head, output.size(), answer.reasoning, "completed"));
  }
  if (!answer.text.empty()) {
    output.push_back(MessageItem(head, output.size(), answer.text, "completed"));
  }
  for (const CollectedAnswer::Call& call : answer.calls) {
    output.push_back(
        CallItem(head, output.size(), call.id, call.name, call.arguments, "completed"));
  }
  // The last one was being written; reasoning that is cut has no such word.
  if (IsCut(answer) && !output.empty() && output.back()["type"] != "reasoning") {
    output.back()["status"] = "incomplete";
  }
  return output;
}

// The finished response; it is handed on to be kept.
ordered_json Finished(const AnswerHead& head, const CollectedAnswer& answer, ordered_json output) {
  const bool is_cut = IsCut(answer);
  ordered_json body = ResponseObject(head, is_cut ? "incomplete" : "completed", std::move(output));
  if (is_cut) body["incomplete_details"] = {{"reason", "max_output_tokens"}};
  body["usage"] = ResponseUsage(answer.counts);
  if (!head.response->keep) return body;
  ordered_json message = {{"role", "assistant"}, {"content", answer.text}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const CollectedAnswer::Call& call : answer.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  ordered_json messages = head.response->messages;
  messages.push_back(std::move(message));
  head.response->keep(Dump(body), Dump(messages));
  return body;
}

}  // namespace

std::string ResponseBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers) {
  const CollectedAnswer& answer = answers.at(0);
  return Dump(Finished(head, answer, OutputOf(head, answer)));
}

std::string ResponseStream::Event(const char* type, ordered_json fields) {
  ordered_json data;
  data["type"] = type;
  data["sequence_number"] = sequence_++;
  for (auto& [name, value] : fields.items()) data[name] = std::move(value);
  return absl::StrCat("event: ", type, "\ndata: ", Dump(data), "\n\n");
}

std::string ResponseStream::Open() {
  const ordered_json response = ResponseObject(head_, "in_progress", ordered_json::array());
  std::string events = Event("response.created", {{"response", response}});
  return events + Event("response.in_progress", {{"response", response}});
}

ordered_json ResponseStream::Place(bool has_part) const {
  ordered_json place;
  place["item_id"] = current_["id"];
  place["output_index"] = output_.size();
  if (has_part) place["content_index"] = 0;
  return place;
}

std::string ResponseStream::Enter(Item item, const v1::ToolCallDelta* call) {
  if (item_ == item && call == nullptr) return "";
  std::string events = EndItem(/*is_cut=*/false);
  item_ = item;
  const size_t index = output_.size();
  if (item == Item::kReasoning) {
    current_ = ReasoningItem(head_, index, "", "in_progress");
  } else if (item == Item::kMessage) {
    current_ = MessageItem(head_, index, "", "in_progress");
  } else {
    current_ = CallItem(head_, index, call->id(), call->name(), "", "in_progress");
  }
  events += Event("response.output_item.added", {{"output_index", index}, {"item", current_}});
  if (item == Item::kCall) return events;
  ordered_json fields = Place(true);
  fields["part"] = item == Item::kMessage ? TextPart("")
                                          : ordered_json{{"type", "reasoning_text"}, {"text", ""}};
  return events + Event("response.content_part.added", std::move(fields));
}

std::string ResponseStream::EndItem(bool is_cut) {
  if (item_ == Item::kNone) return "";
  std::string events;
  const char* status = is_cut ? "incomplete" : "completed";
  ordered_json fields = Place(item_ != Item::kCall);
  if (item_ == Item::kCall) {
    fields["name"] = current_["name"];
    fields["arguments"] = text_;
    events += Event("response.function_call_arguments.done", std::move(fields));
    current_["arguments"] = text_;
  } else {
    const bool is_message = item_ == Item::kMessage;
    const ordered_json part =
        is_message ? TextPart(text_) : ordered_json{{"type", "reasoning_text"}, {"text", text_}};
    ordered_json ended = fields;
    ended["text"] = text_;
    if (is_message) ended["logprobs"] = ordered_json::array();
    events += Event(is_message ? "response.output_text.done" : "response.reasoning_text.done",
                    std::move(ended));
    fields["part"] = part;
    events += Event("response.content_part.done", std::move(fields));
    current_["content"] = ordered_json::array({part});
    if (!is_message) status = "completed";
  }
  current_["status"] = status;
  events +=
      Event("response.output_item.done", {{"output_index", output_.size()}, {"item", current_}});
  output_.push_back(std::exchange(current_, ordered_json()));
  text_.clear();
  item_ = Item::kNone;
  return events;
}

std::string ResponseStream::Delta(const char* type, const std::string& text) {
  text_ += text;
  ordered_json fields = Place(item_ != Item::kCall);
  fields["delta"] = text;
  if (item_ == Item::kMessage) fields["logprobs"] = ordered_json::array();
  return Event(type, std::move(fields));
}

std::string ResponseStream::Chunk(const v1::GenerateChunk& chunk, uint32_t /*choice*/) {
  answer_.Add(chunk);
  std::string events;
  if (!chunk.reasoning().empty()) {
    events += Enter(Item::kReasoning, nullptr);
    events += Delta("response.reasoning_text.delta", chunk.reasoning());
  }
  if (!chunk.text().empty()) {
    events += Enter(Item::kMessage, nullptr);
    events += Delta("response.output_text.delta", chunk.text());
  }
  for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
    if (!call.name().empty()) events += Enter(Item::kCall, &call);
    if (!call.arguments().empty()) {
      events += Delta("response.function_call_arguments.delta", call.arguments());
    }
  }
  return events;
}

std::string ResponseStream::End(const absl::Status& status, uint32_t /*choice*/) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  if (answer_.finish == v1::FINISH_REASON_CANCELLED) return Fail(EndedByCluster());
  ended_ = true;
  std::string events = EndItem(IsCut(answer_));
  const char* type = IsCut(answer_) ? "response.incomplete" : "response.completed";
  return events + Event(type, {{"response", Finished(head_, answer_, std::move(output_))}});
}

std::string ResponseStream::Fail(const ApiError& error) {
  ended_ = true;
  ordered_json response = ResponseObject(head_, "failed", std::move(output_));
  const char* code = error.http_status == 429 ? "rate_limit_exceeded" : "server_error";
  response["error"] = {{"code", code}, {"message", error.message}};
  return Event("response.failed", {{"response", std::move(response)}});
}

}  // namespace macrame::agentd
