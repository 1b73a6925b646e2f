#pragma once

// Some copies of MiniMax M3 hold the expert that every token takes as one more of a layer's stacked
// experts, and gates above what goes up in one tensor; some keep a dense layer's feed-forward where
// others have experts. Here each part gets the name that other copies give it: views of the same
// bytes, nothing is copied. Pure.

#include <functional>
#include <map>
#include <string>

#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

using TensorsByName = std::map<std::string, StoredTensor, std::less<>>;

TensorsByName SplitJoinedExperts(const TensorsByName& tensors);

}  // namespace macrame::runtime::engine
