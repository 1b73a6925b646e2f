#include "agentd/gateway/endpoints/openapi.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/gateway/dialects/dialect.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

ordered_json Ref(absl::string_view schema) {
  return {{"$ref", absl::StrCat("#/components/schemas/", schema)}};
}

ordered_json JsonContent(absl::string_view schema) {
  return {{"application/json", {{"schema", Ref(schema)}}}};
}

absl::string_view ErrorSchemaOf(absl::string_view path) {
  switch (DialectOfPath(path)) {
    case Dialect::kAnthropic:
      return "AnthropicError";
    case Dialect::kOllama:
      return "OllamaError";
    default:
      return "Error";
  }
}

bool HasBody(const PathDescription& about) { return !about.request.empty(); }
bool IsServed(const PathDescription& about) { return !HasBody(about) || !about.answer.empty(); }
bool Generates(const PathDescription& about) { return HasBody(about) && IsServed(about); }

// A status that a path may answer with beside 200, and what it means there.
struct Failure {
  absl::string_view status, meaning;
  bool (*is_possible)(const PathDescription& about);
};
bool Always(const PathDescription& /*about*/) { return true; }
bool NamesWhatMayBeMissing(const PathDescription& about) {
  return Generates(about) || !about.name.empty() || about.path == "/metrics";
}
bool IsOrderOfThePage(const PathDescription& about) {
  return HasBody(about) && absl::StartsWith(about.path, "/dashboard/");
}
constexpr std::array kFailures = {
    Failure{"400", "Malformed, or a field that can't be honoured; the error names it.", Always},
    Failure{"401", "No API key, or one that doesn't count.", Always},
    Failure{"403", "The key doesn't reach this, or the Host header names another machine.", Always},
    Failure{"404", "What the path or the body names is not there.", NamesWhatMayBeMissing},
    Failure{"413", "The body is too large.", HasBody},
    Failure{"415", "The body is not sent as application/json.", HasBody},
    Failure{"422", "It can't be done; the error says why, and what to do.", IsOrderOfThePage},
    Failure{"429", "Too many requests; retry-after says when to try again.", Generates},
    Failure{"431", "The request's head is too large.", Always},
    Failure{"500", "A fault inside; the agent's log has it.", Always},
    Failure{"501", "Not served; the error says what to do instead.",
            [](const PathDescription& about) { return !IsServed(about); }},
    Failure{"503", "Not at the moment; retry-after says when to try again.", Always},
    Failure{"504", "The model, or the cluster, was silent for too long.", Generates},
};

// A plain id of the operation: "post_v1_chat_completions".
std::string OperationId(absl::string_view method, absl::string_view path) {
  std::string id = absl::AsciiStrToLower(method);
  for (const char c : path) {
    id += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return id;
}

ordered_json OperationOf(absl::string_view method, const PathDescription& about) {
  ordered_json operation;
  operation["operationId"] = OperationId(method, about.path);
  operation["summary"] = std::string(about.summary);
  if (!about.name.empty()) {
    operation["parameters"].push_back({{"name", std::string(about.name)},
                                       {"in", "path"},
                                       {"required", true},
                                       {"schema", {{"type", "string"}}}});
  }
  if (!about.request.empty()) {
    operation["requestBody"] = {{"required", true}, {"content", JsonContent(about.request)}};
  }
  ordered_json& responses = operation["responses"];
  const bool has_content = method != "HEAD";
  if (IsServed(about)) {
    responses["200"]["description"] = "The answer.";
    if (has_content && !about.answer.empty()) {
      responses["200"]["content"] = JsonContent(about.answer);
    }
    if (has_content && !about.other_type.empty()) {
      // Without a schema: OpenAPI 3.1 has none for events.
      responses["200"]["content"][std::string(about.other_type)] = ordered_json::object();
    }
  }
  const auto fail = [&](absl::string_view status, absl::string_view meaning) {
    ordered_json& response = responses[std::string(status)];
    response["description"] = std::string(meaning);
    if (has_content) response["content"] = JsonContent(ErrorSchemaOf(about.path));
  };
  for (const Failure& failure : kFailures) {
    if (failure.is_possible(about)) fail(failure.status, failure.meaning);
  }
  fail("default", "What went wrong, and what to do.");
  return operation;
}

}  // namespace

std::string OpenApiText(const EndpointTable& table, absl::string_view version) {
  ordered_json text;
  text["openapi"] = "3.1.0";
  text["info"] = {{"title", "Macrame's HTTP gateway"}, {"version", std::string(version)}};
  text["security"] = {ordered_json::object(),
                      {{"bearer", ordered_json::array()}},
                      {{"api_key", ordered_json::array()}}};
  for (const Endpoint& endpoint : table.rows()) {
    const PathDescription* about = DescriptionOf(endpoint.path);
    if (about == nullptr) continue;
    std::string path(endpoint.path);
    if (!about->name.empty()) absl::StrAppend(&path, "{", about->name, "}");
    for (const absl::string_view method : absl::StrSplit(endpoint.methods, ", ")) {
      text["paths"][path][absl::AsciiStrToLower(method)] = OperationOf(method, *about);
    }
  }
  text["components"]["schemas"] = ordered_json::parse(kSchemasJson);
  text["components"]["securitySchemes"] = {
      {"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
      {"api_key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
  return text.dump();
}

}  // namespace macrame::agentd
