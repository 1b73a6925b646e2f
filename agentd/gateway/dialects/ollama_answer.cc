#include "agentd/gateway/dialects/ollama_answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/dialects/dialect.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

// Models stay until somebody unloads them.
constexpr char kNever[] = "9999-12-31T23:59:59Z";

uint64_t Nanoseconds(double ms) { return ms > 0 ? static_cast<uint64_t>(ms * 1e6) : 0; }

// The number of the call within the answer stands where Ollama has it, and where LiteLLM looks.
ordered_json CallObject(const CollectedAnswer::Call& call, size_t index) {
  return {
      {"index", index},
      {"id", call.id},
      {"function",
       {{"index", index}, {"name", call.name}, {"arguments", ArgumentsObject(call.arguments)}}}};
}

// One line or body, with these pieces of the answer; `calls_before`: of the answer's earlier lines.
ordered_json Piece(const AnswerHead& head, const std::string& text, const std::string& reasoning,
                   const std::vector<CollectedAnswer::Call>& calls, size_t calls_before = 0) {
  ordered_json piece;
  piece["model"] = head.model;
  piece["created_at"] = UtcTime(head.created_unix_seconds);
  const bool is_chat = head.form == AnswerForm::kOllamaChat;
  ordered_json message;
  if (is_chat) message["role"] = "assistant";
  message[is_chat ? "content" : "response"] = text;
  if (!reasoning.empty() && !head.excludes_reasoning) message["thinking"] = reasoning;
  for (size_t i = 0; i < calls.size(); ++i) {
    message["tool_calls"].push_back(CallObject(calls[i], calls_before + i));
  }
  if (is_chat) {
    piece["message"] = std::move(message);
  } else {
    piece.update(message);
  }
  piece["done"] = false;
  return piece;
}

void AddEnd(const CollectedAnswer& answer, ordered_json* piece) {
  const TokenCounts& counts = answer.counts;
  (*piece)["done"] = true;
  (*piece)["done_reason"] = answer.finish == v1::FINISH_REASON_LENGTH ? "length" : "stop";
  (*piece)["total_duration"] = Nanoseconds(counts.prefill_ms + counts.decode_ms);
  (*piece)["load_duration"] = 0;
  (*piece)["prompt_eval_count"] = counts.prompt_tokens;
  (*piece)["prompt_eval_duration"] = Nanoseconds(counts.prefill_ms);
  (*piece)["eval_count"] = counts.completion_tokens;
  (*piece)["eval_duration"] = Nanoseconds(counts.decode_ms);
}

std::string Line(const ordered_json& piece) { return Dump(piece) + "\n"; }

// Clients with strict parsers want each of these. What the gateway does not know of a model Ollama
// itself calls unknown.
ordered_json Details() {
  return {{"parent_model", ""},          {"format", "safetensors"},
          {"family", "unknown"},         {"families", {"unknown"}},
          {"parameter_size", "unknown"}, {"quantization_level", "unknown"}};
}

ordered_json Named(const ServedModel& model) {
  ordered_json entry;
  entry["name"] = model.id;
  entry["model"] = model.id;
  // Of the name and the time: one that is loaded anew has another.
  entry["digest"] = DigestOf("model", absl::StrCat(model.id, "@", model.created_unix_seconds));
  entry["size"] = model.weight_bytes;
  entry["details"] = Details();
  return entry;
}

}  // namespace

std::string UtcTime(int64_t unix_seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(unix_seconds),
                          absl::UTCTimeZone());
}

std::string OllamaBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers) {
  const CollectedAnswer& answer = answers.at(0);
  ordered_json body = Piece(head, answer.text, answer.reasoning, answer.calls);
  AddEnd(answer, &body);
  return Dump(body);
}

std::string OllamaLoadBody(const AnswerHead& head) {
  ordered_json body = Piece(head, "", "", {});
  body["done"] = true;
  body["done_reason"] = "load";
  return Dump(body);
}

std::string OllamaTagsBody(const std::vector<ServedModel>& models) {
  ordered_json body;
  body["models"] = ordered_json::array();
  for (const ServedModel& model : models) {
    ordered_json entry = Named(model);
    entry["modified_at"] = UtcTime(model.created_unix_seconds);
    body["models"].push_back(std::move(entry));
  }
  return Dump(body);
}

std::string OllamaProcessesBody(const std::vector<ServedModel>& models) {
  ordered_json body;
  body["models"] = ordered_json::array();
  for (const ServedModel& model : models) {
    if (model.is_stopped) continue;
    ordered_json entry = Named(model);
    entry["expires_at"] = kNever;
    entry["size_vram"] = model.weight_bytes;
    entry["context_length"] = model.context_length;
    body["models"].push_back(std::move(entry));
  }
  return Dump(body);
}

std::string OllamaModelBody(const ServedModel& model, const ModelAbilities& abilities) {
  ordered_json body;
  body["modified_at"] = UtcTime(model.created_unix_seconds);
  // Readers with strict fields want these; the gateway has no Modelfile.
  for (const char* field : {"modelfile", "parameters", "template"}) body[field] = "";
  body["details"] = Details();
  body["model_info"] = {{"general.architecture", "macrame"},
                        {"general.basename", model.id},
                        {"macrame.context_length", model.context_length}};
  body["capabilities"] = ordered_json::array({"completion"});
  if (abilities.takes_tools) body["capabilities"].push_back("tools");
  if (abilities.thinks) body["capabilities"].push_back("thinking");
  return Dump(body);
}

std::string OllamaStream::Chunk(const v1::GenerateChunk& chunk, uint32_t /*choice*/) {
  UpdateCounts(chunk, &answer_.counts);
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED)
    answer_.finish = chunk.finish_reason();
  std::vector<CollectedAnswer::Call> ended;
  for (const v1::ToolCallDelta& delta : chunk.tool_calls()) {
    if (!delta.name().empty()) {
      if (has_call_) ended.push_back(std::exchange(call_, {}));
      call_.id = delta.id();
      call_.name = delta.name();
      has_call_ = true;
    }
    call_.arguments += delta.arguments();
    if (!delta.ended() || !has_call_) continue;
    ended.push_back(std::exchange(call_, {}));
    has_call_ = false;
  }
  const bool shows_reasoning = !chunk.reasoning().empty() && !head_.excludes_reasoning;
  if (chunk.text().empty() && !shows_reasoning && ended.empty()) return "";
  const size_t calls_before = std::exchange(calls_, calls_ + ended.size());
  return Line(Piece(head_, chunk.text(), chunk.reasoning(), ended, calls_before));
}

std::string OllamaStream::End(const absl::Status& status, uint32_t /*choice*/) {
  if (!status.ok()) return Fail(ApiErrorFromStatus(status));
  if (answer_.finish == v1::FINISH_REASON_CANCELLED) return Fail(EndedByCluster());
  ended_ = true;
  std::vector<CollectedAnswer::Call> rest;
  if (has_call_) rest.push_back(std::exchange(call_, {}));
  ordered_json piece = Piece(head_, "", "", rest, calls_);
  AddEnd(answer_, &piece);
  return Line(piece);
}

std::string OllamaStream::Fail(const ApiError& error) {
  ended_ = true;
  return absl::StrCat(DialectErrorBody(Dialect::kOllama, error, ""), "\n");
}

std::string OllamaStream::KeepAlive() { return Line(Piece(head_, "", "", {})); }

}  // namespace macrame::agentd
