#pragma once

// `rankd --generate`: one prompt through the engine, on the terminal, without an agent. For
// debugging and for the conformance tests.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/rank.pb.h"
#include "runtime/gang/gang_link.h"
#include "runtime/process/engine_overrides.h"

namespace macrame::runtime::engine {

struct GenerateOptions {
  v1::LaunchSpec spec;          // of rank 0 of any gang; the other ranks are started beside it
  v1::GenerateRequest request;  // prompt or messages, sampling, max_tokens
  std::vector<int32_t> prompt_tokens;  // instead of a text; no tokenizer is needed then
  std::string logits_file;             // float32 rows of vocab_size, one for each position
  // Instead of an answer: float32 numbers of the prompt's embedding.
  std::string embedding_file{};
  bool json = false;             // one JSON object instead of the text
  int prefill_chunk_tokens = 0;  // 0: the engine's own
  EngineOverrides types{};
  BoundSockets bound{};  // of the spec's addresses
};

// Returns the process's exit code.
int RunGenerateCommand(const GenerateOptions& options);

}  // namespace macrame::runtime::engine
