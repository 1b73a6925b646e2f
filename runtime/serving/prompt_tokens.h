#pragma once

// What is told of a prompt without running the model: its tokens, how many they are, or the text
// that tokens stand for.

#include <cstdint>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/generation_job.h"

namespace macrame::runtime::engine {

// The only chunk of a request with TokenizeOptions. Any thread. BAD_REQUEST for ids outside of the
// vocabulary, TEMPLATE_REFUSED and the like as PrepareJob; a prompt may be longer than the context.
absl::StatusOr<v1::GenerateChunk> TellTokens(const v1::GenerateRequest& request,
                                             const ModelText& text, int vocab_size,
                                             int64_t local_unix_s);

}  // namespace macrame::runtime::engine
