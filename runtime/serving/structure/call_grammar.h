#pragma once

// The grammar of a tool call. One that an answer must make: behind the opening that is put in the
// model's mouth. One that the model makes by itself: behind the token that opens it. There come the
// name, where any tool will do, arguments by the tool's schema, and the end. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/serving/markup/dialect.h"

namespace macrame::runtime::engine {

struct ForcedCall {
  std::string lark;
  bool is_strict = false;  // a tool that may be called asks for its schema to be kept
};

// `tools_json`: OpenAI's list. `name`: of the tool that must be called; empty: any. `special`:
// tokens that are no text, by how they are spelled. Unset for families that don't write arguments
// as JSON.
std::optional<ForcedCall> GrammarOfForcedCall(const markup::Dialect& dialect,
                                              const std::string& tools_json,
                                              const std::string& name, uint32_t calls_before,
                                              const std::map<int32_t, std::string>& special);

// Of each call that the model makes by itself, behind `opener`. Tools that don't ask for their
// schema to be kept have any object as arguments. Unset where no tool asks for it, where a call's
// end is not its own (several share one block), and where arguments are no JSON.
std::optional<std::string> GrammarOfOwnCall(const markup::Dialect& dialect,
                                            const std::string& tools_json,
                                            const std::string& opener,
                                            const std::map<int32_t, std::string>& special);

}  // namespace macrame::runtime::engine
