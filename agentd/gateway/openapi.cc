#include "agentd/gateway/openapi.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/gateway/dialect.h"
#include "agentd/gateway/routes.h"

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
  const bool has_body = method != "HEAD";
  if (!about.answer.empty() || about.request.empty()) {
    responses["200"]["description"] = "The answer.";
    if (has_body && !about.answer.empty()) {
      responses["200"]["content"] = JsonContent(about.answer);
    }
    if (!about.stream.empty()) {
      responses["200"]["content"][std::string(about.stream)] = {{"schema", {{"type", "string"}}}};
    }
  }
  responses["default"]["description"] = "What went wrong, and what to do.";
  if (has_body) responses["default"]["content"] = JsonContent(ErrorSchemaOf(about.path));
  return operation;
}

}  // namespace

std::string OpenApiText(absl::string_view version) {
  ordered_json text;
  text["openapi"] = "3.1.0";
  text["info"] = {{"title", "Macrame's HTTP gateway"}, {"version", std::string(version)}};
  text["security"] = {ordered_json::object(),
                      {{"bearer", ordered_json::array()}},
                      {{"api_key", ordered_json::array()}}};
  for (const Route& route : Routes()) {
    const PathDescription* about = DescriptionOf(route.path);
    if (about == nullptr) continue;
    std::string path(route.path);
    if (!about->name.empty()) absl::StrAppend(&path, "{", about->name, "}");
    for (const absl::string_view method : absl::StrSplit(route.methods, ", ")) {
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
