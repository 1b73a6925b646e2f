#pragma once

// Which answers' tokens the device may choose (model/step/row_choice.h): those that need nothing of
// the host for each token. Pure.

#include <optional>

#include "runtime/model/step/row_choice.h"
#include "runtime/serving/generation_job.h"

namespace macrame::runtime::engine {

// How the job's first token is chosen, and with `position` raised by one each those behind it;
// unset: the host has to look at each row. It has to for penalties, biases, a least number of
// tokens, a structure, log probabilities, typical-p, and where tokens may be put in the model's
// mouth (a call that must be made, reasoning that is cut off).
std::optional<RowChoice> DeviceChoiceOf(const GenerationJob& job);

}  // namespace macrame::runtime::engine
