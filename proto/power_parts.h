#pragma once

// What figures of power and energy cover, in words: nobody may take a processor for a machine.
// Pure; any thread.

#include <string>
#include <vector>

#include "macrame/v1/node.pb.h"

namespace macrame {

// "machine", "package", "package+memory", "cpu+gpu+ane"; empty: not known. For labels and people.
std::string CoversText(const std::vector<v1::PowerPart>& parts);
std::string CoversText(const google::protobuf::RepeatedField<int>& parts);
// Rising, each once.
std::vector<v1::PowerPart> PartsOf(const google::protobuf::RepeatedField<int>& parts);

}  // namespace macrame
