#pragma once

// The fields of a request that hold its answer to a structure: OpenAI's `response_format`, and what
// clients of vLLM, SGLang and llama.cpp send instead. Pure.

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/fields/request_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kStructureBytesMax = 128 << 10;
inline constexpr size_t kStructureChoicesMax = 4096;
inline constexpr size_t kStructureDepthMax = 64;  // of a schema that is given as text

// At most one of `response_format`, `structured_outputs`, `guided_json`, `guided_regex`,
// `guided_choice`, `guided_grammar`, `json_schema`, `regex` and `ebnf`. Members of an answer are
// written in the order that the schema has them in. To be called when tools and
// min_tokens were read. Whether a schema can be used is the entry rank's to say, which knows the
// vocabulary.
void ReadStructure(RequestFields& fields, v1::GenerateRequest& request);
// Whether the above reads this field.
bool IsStructureField(absl::string_view name);

}  // namespace macrame::agentd
