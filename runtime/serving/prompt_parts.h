#pragma once

// Which part of a chat a token of its prompt lies in, for people who wonder why the prefix cache
// ended there; and whether what stands there is known to change from turn to turn. Pure.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/cache/prefix_index.h"
#include "runtime/serving/generation_job.h"

namespace macrame::runtime::engine {

// The first `count` messages as a prompt of their own, without the opening of an answer.
using RenderMessages = std::function<absl::StatusOr<std::vector<int32_t>>(int count)>;

// "system message", "message 3 (user)", "messages 2 to 3", "the opening of the answer". What the
// first k messages render to is compared with the whole prompt: the part is that of the first k
// whose common beginning reaches beyond `position`. A template that refuses some k makes the answer
// a range. By halves: a few renderings, however long the chat.
std::string PartAt(std::span<const v1::ChatMessage* const> messages,
                   std::span<const int32_t> prompt, uint32_t position,
                   const RenderMessages& render);

// What of `line` changes by itself: "a billing header", "a date or time", "an id"; or nothing.
// `at`: where in the line two prompts began to differ.
std::string VaryingPart(std::string_view line, size_t at);

// All that is known, for the answer's usage. Empty messages: a plain prompt, no part is named.
v1::PrefixMiss ExplainMiss(const PrefixMiss& miss, const v1::GenerateRequest& request,
                           const ModelText& text, std::span<const int32_t> prompt,
                           int64_t local_unix_s);

}  // namespace macrame::runtime::engine
