#pragma once

// The bodies of Ollama's /api/chat, /api/generate, /api/embed and /api/embeddings as those of a
// chat, a text prompt and embeddings. Pure.
//
// `options` that say how tokens are chosen are honoured; those that say how a model is loaded
// (num_ctx, num_gpu, …) are taken and named in `ignored`: a model is loaded by clusterctl.

#include <cstddef>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/embedding_request.h"

namespace macrame::agentd {

struct OllamaRequest {
  ChatRequest chat;  // its `generate` has a prompt instead of messages with "raw": true
  // There is no prompt: how Ollama's clients ask for a model to be loaded.
  bool is_load = false;
};

std::variant<OllamaRequest, ApiError> ParseOllamaChat(absl::string_view body,
                                                      size_t json_depth_max);
std::variant<OllamaRequest, ApiError> ParseOllamaGenerate(absl::string_view body,
                                                          size_t json_depth_max);
std::variant<EmbeddingRequest, ApiError> ParseOllamaEmbed(absl::string_view body,
                                                          size_t json_depth_max);
// The older path, with one `prompt`.
std::variant<EmbeddingRequest, ApiError> ParseOllamaEmbeddings(absl::string_view body,
                                                               size_t json_depth_max);

// Ollama's clients put ":latest" behind a name that has no tag.
std::string WithoutLatest(std::string model);

}  // namespace macrame::agentd
