#pragma once

// What a node knows of its second engine, as one line of text: for a process that describes models
// and need not ask Python again. Pure.

#include <optional>
#include <string>

#include "runtime/second_engine/mlx_lm.h"

namespace macrame::runtime {

std::string SecondEngineText(const SecondEngine& second);
// None for text that is none of the above's.
std::optional<SecondEngine> ParseSecondEngine(const std::string& text);

}  // namespace macrame::runtime
