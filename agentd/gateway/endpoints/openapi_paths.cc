// What OpenAPI is told of each path, and the schemas of bodies: the fields that have to be there
// and the commonest others; README.md has them all.

#include <array>

#include "agentd/gateway/endpoints/openapi.h"

namespace macrame::agentd {
namespace {

constexpr absl::string_view kEvents = "text/event-stream";
constexpr absl::string_view kLines = "application/x-ndjson";
constexpr absl::string_view kText = "text/plain", kPage = "text/html";

constexpr std::array kPaths = {
    PathDescription{"/v1/chat/completions", "", "OpenAI: an answer to a chat", "ChatRequest",
                    "Completion", kEvents},
    PathDescription{"/v1/completions", "", "OpenAI: text prompts continued", "TextRequest",
                    "Completion", kEvents},
    PathDescription{"/v1/embeddings", "", "OpenAI: embeddings of texts", "EmbeddingRequest", "List",
                    ""},
    PathDescription{"/v1/models", "", "OpenAI: the models that are loaded", "", "List", ""},
    PathDescription{"/v1/models/", "model", "OpenAI: one model", "", "Model", ""},
    PathDescription{"/health", "", "Whether the gateway runs", "", "Status", ""},
    PathDescription{"/version", "", "The product's version", "", "Version", ""},
    PathDescription{"/v1/messages", "", "Anthropic: an answer to messages", "MessagesRequest",
                    "Message", kEvents},
    PathDescription{"/v1/messages/count_tokens", "", "Anthropic: how many tokens messages have",
                    "CountTokensRequest", "TokenCount", ""},
    PathDescription{"/v1/responses", "", "OpenAI: an answer to items", "ResponseRequest",
                    "Response", kEvents},
    PathDescription{"/v1/responses/", "response_id", "OpenAI: a response that this node keeps", "",
                    "StoredResponse", ""},
    PathDescription{"/api/chat", "", "Ollama: an answer to a chat", "OllamaChatRequest",
                    "OllamaAnswer", kLines},
    PathDescription{"/api/generate", "", "Ollama: an answer to a prompt", "OllamaGenerateRequest",
                    "OllamaAnswer", kLines},
    PathDescription{"/api/embed", "", "Ollama: embeddings of texts", "OllamaEmbedRequest",
                    "OllamaEmbeddings", ""},
    PathDescription{"/api/embeddings", "", "Ollama: the embedding of one text",
                    "OllamaEmbeddingRequest", "OllamaEmbedding", ""},
    PathDescription{"/api/show", "", "Ollama: one model", "OllamaModelName", "OllamaModel", ""},
    PathDescription{"/api/tags", "", "Ollama: the models that are loaded", "", "OllamaModels", ""},
    PathDescription{"/api/ps", "", "Ollama: the models that are loaded", "", "OllamaModels", ""},
    PathDescription{"/api/version", "", "The product's version", "", "Version", ""},
    PathDescription{"/api/pull", "", "Not served: says what to do instead", "OllamaModelName", "",
                    ""},
    PathDescription{"/api/push", "", "Not served: says what to do instead", "OllamaModelName", "",
                    ""},
    PathDescription{"/api/create", "", "Not served: says what to do instead", "OllamaModelName", "",
                    ""},
    PathDescription{"/api/copy", "", "Not served: says what to do instead", "OllamaCopyRequest", "",
                    ""},
    PathDescription{"/api/delete", "", "Not served: says what to do instead", "OllamaModelName", "",
                    ""},
    PathDescription{"/api/blobs/", "digest", "Not served: says what to do instead", "Bytes", "",
                    ""},
    PathDescription{"/tokenize", "", "vLLM: a prompt's token ids", "TokenizeRequest", "Tokens", ""},
    PathDescription{"/detokenize", "", "vLLM: the text of token ids", "DetokenizeRequest",
                    "TokenText", ""},
    PathDescription{"/openapi.json", "", "This description", "", "Object", ""},
    PathDescription{"/metrics", "", "Prometheus: what this agent counts", "", "", kText},
    PathDescription{"/dashboard/api/snapshot", "", "The dashboard: the cluster's status", "",
                    "Object", ""},
    PathDescription{"/dashboard/api/events", "", "The dashboard: the status at each change", "", "",
                    kEvents},
    PathDescription{"/dashboard/api/latency", "", "How long tokens took in the last ten minutes",
                    "", "Object", ""},
    PathDescription{"/dashboard/api/access", "", "The dashboard: what the key may do", "", "Access",
                    ""},
    PathDescription{"/dashboard/api/plan", "", "What loading a model would do", "LoadOrder",
                    "Object", ""},
    PathDescription{"/dashboard/api/load", "", "Loads a model; answered when it has begun",
                    "LoadOrder", "Object", ""},
    PathDescription{"/dashboard/api/unload", "", "Unloads a model", "UnloadOrder", "Object", ""},
    PathDescription{"/dashboard/api/cordon", "", "Cordons, drains or uncordons a node",
                    "CordonOrder", "Object", ""},
    PathDescription{"/dashboard/api/keys", "", "The keys, without their secrets", "", "Object", ""},
    PathDescription{"/dashboard/api/keys/create", "", "Makes a key; it is told this once",
                    "KeyOrder", "Object", ""},
    PathDescription{"/dashboard/api/keys/revoke", "", "Ends a key", "KeyName", "Object", ""},
    PathDescription{"/dashboard/api/audit", "", "The last lines of this agent's audit log", "",
                    "Object", ""},
    PathDescription{"/", "", "The dashboard; HEAD: whether the gateway runs", "", "", kPage},
};

}  // namespace

const PathDescription* DescriptionOf(absl::string_view path) {
  for (const PathDescription& about : kPaths) {
    if (about.path == path) return &about;
  }
  return nullptr;
}

const char* const kSchemasJson = R"json(
{
"Object": {"type": "object"},
"Bytes": {},
"Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
  "required": ["message", "type", "param", "code"], "properties": {"message": {"type": "string"},
  "type": {"type": "string"}, "param": {"type": ["string", "null"]},
  "code": {"type": ["string", "null"]}}}}},
"AnthropicError": {"type": "object", "required": ["type", "error", "request_id"], "properties": {
  "type": {"const": "error"}, "request_id": {"type": "string"}, "error": {"type": "object",
  "required": ["type", "message"], "properties": {"type": {"type": "string"},
  "message": {"type": "string"}}}}},
"OllamaError": {"type": "object", "required": ["error"],
  "properties": {"error": {"type": "string"}}},
"Status": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
"Version": {"type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}},
"Access": {"type": "object", "required": ["scopes", "key_id"], "properties": {
  "scopes": {"type": "array", "items": {"enum": ["infer", "read", "operate", "admin"]}},
  "key_id": {"type": ["string", "null"]}}},
"LoadOrder": {"type": "object", "required": ["model"], "additionalProperties": false,
  "properties": {"model": {"type": "string", "minLength": 1, "maxLength": 200},
  "ranks": {"type": "integer", "minimum": 1, "maximum": 1024},
  "context_length": {"type": "integer", "minimum": 1, "maximum": 16777216},
  "parallelism": {"enum": ["auto", "tensor", "pipeline"]}}},
"UnloadOrder": {"type": "object", "required": ["model"], "additionalProperties": false,
  "properties": {"model": {"type": "string", "minLength": 1, "maxLength": 200}}},
"CordonOrder": {"type": "object", "required": ["node", "order"], "additionalProperties": false,
  "properties": {"node": {"type": "string", "minLength": 1, "maxLength": 200},
  "order": {"enum": ["cordon", "drain", "uncordon"]}}},
"KeyOrder": {"type": "object", "required": ["scopes"], "additionalProperties": false,
  "properties": {"name": {"type": "string", "maxLength": 100},
  "scopes": {"type": "array", "minItems": 1, "items": {"enum": ["infer", "read", "operate",
  "admin"]}}, "expires_in_seconds": {"type": "integer", "minimum": 1}}},
"KeyName": {"type": "object", "required": ["key"], "additionalProperties": false,
  "properties": {"key": {"type": "string", "minLength": 1, "maxLength": 200}}},
"List": {"type": "object", "required": ["object", "data"],
  "properties": {"object": {"const": "list"},
  "data": {"type": "array", "items": {"type": "object"}}}},
"Model": {"type": "object", "required": ["id", "object"], "properties": {"id": {"type": "string"},
  "object": {"const": "model"}, "created": {"type": "integer"},
  "context_length": {"type": "integer"}}},
"ChatRequest": {"type": "object", "required": ["model", "messages"], "properties": {
  "model": {"type": "string", "minLength": 1}, "messages": {"type": "array", "minItems": 1,
  "items": {"$ref": "#/components/schemas/ChatMessage"}}, "stream": {"type": "boolean"},
  "return_progress": {"type": "boolean"},
  "max_tokens": {"type": "integer", "minimum": 1}, "temperature": {"type": "number",
  "minimum": 0, "maximum": 2},
  "top_p": {"type": "number", "minimum": 0, "maximum": 1}, "tools": {"type": "array",
  "items": {"type": "object"}}}},
"ChatMessage": {"type": "object", "required": ["role"],
  "anyOf": [{"required": ["content"]}, {"required": ["tool_calls"]}], "properties": {
  "role": {"enum": ["system", "developer", "user", "assistant", "tool"]}, "content": {"anyOf": [
  {"type": ["string", "null"]},
  {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TextPart"}}]},
  "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}},
  "tool_call_id": {"type": "string"}}},
"TextPart": {"type": "object", "required": ["type", "text"], "properties": {
  "type": {"const": "text"}, "text": {"type": "string"}}},
"ToolCall": {"type": "object", "required": ["id", "function"], "properties": {
  "id": {"type": "string", "minLength": 1}, "type": {"const": "function"}, "function": {
  "type": "object", "required": ["name", "arguments"],
  "properties": {"name": {"$ref": "#/components/schemas/ToolName"},
  "arguments": {"type": "string"}}}}},
"ToolName": {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,128}$"},
"TokenId": {"type": "integer", "minimum": 0, "maximum": 2147483647},
"TokenIds": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}},
"Text": {"type": "string", "minLength": 1},
"Texts": {"anyOf": [{"$ref": "#/components/schemas/Text"},
  {"$ref": "#/components/schemas/TokenIds"},
  {"type": "array", "minItems": 1, "maxItems": 32, "items": {"$ref": "#/components/schemas/Text"}},
  {"type": "array", "minItems": 1, "maxItems": 32,
  "items": {"$ref": "#/components/schemas/TokenIds"}}]},
"TextRequest": {"type": "object", "required": ["model", "prompt"], "properties": {
  "model": {"type": "string", "minLength": 1},
  "prompt": {"$ref": "#/components/schemas/Texts"}, "stream": {"type": "boolean"},
  "return_progress": {"type": "boolean"},
  "max_tokens": {"type": "integer", "minimum": 1}}},
"Completion": {"type": "object", "required": ["id", "object", "choices", "usage"], "properties": {
  "id": {"type": "string"}, "object": {"type": "string"}, "choices": {"type": "array"},
  "usage": {"type": "object"}}},
"EmbeddingRequest": {"type": "object", "required": ["model", "input"], "properties": {
  "model": {"type": "string", "minLength": 1},
  "input": {"$ref": "#/components/schemas/Texts"}, "encoding_format": {"enum": ["float", "base64"]},
  "dimensions": {"type": "integer", "minimum": 1}}},
"MessagesRequest": {"type": "object", "required": ["model", "messages", "max_tokens"],
  "properties": {
  "model": {"type": "string", "minLength": 1}, "max_tokens": {"type": "integer", "minimum": 1},
  "messages": {"type": "array", "minItems": 1,
  "items": {"$ref": "#/components/schemas/MessageParam"}},
  "system": {"anyOf": [{"type": "string"},
  {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}}]},
  "stream": {"type": "boolean"}, "tools": {"type": "array", "items": {"type": "object"}},
  "tool_choice": {"type": "object", "required": ["type"],
  "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}},
  "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": 16},
  "thinking": {"type": "object", "required": ["type"],
  "properties": {"type": {"enum": ["enabled", "disabled", "adaptive"]}}}}},
"CountTokensRequest": {"type": "object", "required": ["model", "messages"], "properties": {
  "model": {"type": "string", "minLength": 1},
  "messages": {"type": "array", "minItems": 1,
  "items": {"$ref": "#/components/schemas/MessageParam"}}}},
"MessageParam": {"type": "object", "required": ["role", "content"], "properties": {
  "role": {"enum": ["user", "assistant", "system"]}, "content": {"anyOf": [{"type": "string"},
  {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Block"}}]}}},
"Block": {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text",
  "thinking", "tool_use", "tool_result", "document"]}, "text": {"type": "string"},
  "thinking": {"type": "string"}, "id": {"type": "string"}, "tool_use_id": {"type": "string"},
  "name": {"$ref": "#/components/schemas/ToolName"}, "input": {"type": "object"},
  "content": {"anyOf": [{"type": "string"},
  {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}}]}},
  "anyOf": [{"required": ["text"]}, {"required": ["thinking"]}, {"required": ["id", "name"]},
  {"required": ["tool_use_id"]}, {"required": ["source"]}]},
"Message": {"type": "object", "required": ["id", "type", "role", "content", "stop_reason",
  "usage"], "properties": {
  "id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
  "content": {"type": "array", "items": {"type": "object"}}, "stop_reason": {"type": ["string",
  "null"]},
  "usage": {"type": "object"}}},
"TokenCount": {"type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer"}}},
"ResponseRequest": {"type": "object", "required": ["model", "input"], "properties": {
  "model": {"type": "string", "minLength": 1}, "input": {"anyOf": [{"type": "string"},
  {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Item"}}]},
  "instructions": {"type": ["string", "null"]}, "stream": {"type": "boolean"},
  "store": {"type": "boolean"},
  "previous_response_id": {"type": ["string", "null"]},
  "max_output_tokens": {"type": "integer", "minimum": 1},
  "tools": {"type": "array", "items": {"type": "object"}}}},
"Item": {"anyOf": [{"type": "object", "required": ["role", "content"], "properties": {
  "type": {"const": "message"}, "role": {"enum": ["user", "assistant", "system", "developer"]},
  "content": {"type": "string"}}},
  {"type": "object", "required": ["type", "call_id", "name", "arguments"], "properties": {
  "type": {"const": "function_call"}, "call_id": {"type": "string", "minLength": 1},
  "name": {"$ref": "#/components/schemas/ToolName"}, "arguments": {"type": "string"}}},
  {"type": "object", "required": ["type"], "properties": {"type": {"enum": [
  "message", "function_call_output", "reasoning"]}}}]},
"Response": {"type": "object", "required": ["id", "object", "status", "output"], "properties": {
  "id": {"type": "string"}, "object": {"const": "response"}, "status": {"type": "string"},
  "output": {"type": "array", "items": {"type": "object"}}}},
"StoredResponse": {"type": "object", "required": ["id", "object"], "properties": {
  "id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"type": "boolean"}}},
"OllamaChatRequest": {"type": "object", "required": ["model"], "properties": {
  "model": {"type": "string", "minLength": 1}, "messages": {"type": "array",
  "items": {"type": "object", "required": ["role"], "properties": {
  "role": {"enum": ["system", "user", "assistant", "tool"]}, "content": {"type": "string"}}}},
  "stream": {"type": "boolean"}, "options": {"type": "object"}, "format": {}, "think": {}}},
"OllamaGenerateRequest": {"type": "object", "required": ["model"], "properties": {
  "model": {"type": "string", "minLength": 1}, "prompt": {"type": "string"},
  "system": {"type": "string"},
  "raw": {"type": "boolean"}, "stream": {"type": "boolean"}, "options": {"type": "object"},
  "format": {}}},
"OllamaAnswer": {"type": "object", "required": ["model", "created_at", "done"], "properties": {
  "model": {"type": "string"}, "created_at": {"type": "string"}, "done": {"type": "boolean"}}},
"OllamaEmbedRequest": {"type": "object", "required": ["model", "input"], "properties": {
  "model": {"type": "string", "minLength": 1},
  "input": {"$ref": "#/components/schemas/Texts"}}},
"OllamaEmbeddingRequest": {"type": "object", "required": ["model", "prompt"], "properties": {
  "model": {"type": "string", "minLength": 1},
  "prompt": {"$ref": "#/components/schemas/Text"}}},
"OllamaEmbeddings": {"type": "object", "required": ["model", "embeddings"], "properties": {
  "embeddings": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}}},
"OllamaEmbedding": {"type": "object", "required": ["embedding"], "properties": {
  "embedding": {"type": "array", "items": {"type": "number"}}}},
"OllamaModelName": {"type": "object", "properties": {"model": {"type": "string"}}},
"OllamaCopyRequest": {"type": "object", "properties": {"source": {"type": "string"},
  "destination": {"type": "string"}}},
"OllamaModels": {"type": "object", "required": ["models"], "properties": {
  "models": {"type": "array", "items": {"type": "object", "required": ["name", "model"]}}}},
"OllamaModel": {"type": "object", "required": ["details", "model_info", "capabilities"],
  "properties": {
  "capabilities": {"type": "array", "items": {"type": "string"}},
  "model_info": {"type": "object"}}},
"TokenizeRequest": {"type": "object", "required": ["model"],
  "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}], "properties": {
  "model": {"type": "string", "minLength": 1}, "prompt": {"type": "string"},
  "messages": {"type": "array", "minItems": 1,
  "items": {"$ref": "#/components/schemas/ChatMessage"}},
  "add_special_tokens": {"type": "boolean"}, "add_generation_prompt": {"type": "boolean"}}},
"Tokens": {"type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
  "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
  "tokens": {"type": "array", "items": {"type": "integer"}}}},
"DetokenizeRequest": {"type": "object", "required": ["model", "tokens"], "properties": {
  "model": {"type": "string", "minLength": 1}, "tokens": {"type": "array",
  "items": {"$ref": "#/components/schemas/TokenId"}}}},
"TokenText": {"type": "object", "required": ["prompt"],
  "properties": {"prompt": {"type": "string"}}}
})json";

}  // namespace macrame::agentd
