#pragma once

// Messages as JSON for programs: a contract (cli/README.md). Pure.
//
// Field names are those of the .proto files. 64-bit integers are numbers (protobuf's own JSON makes
// them strings, which jq can't add up), enums lower-case words without their prefix ("alive";
// "unknown" for unspecified), bytes lower-case hex. Fields without a value are there with their
// zero; messages that are not set are left out; lists are always there.

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace macrame {

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);

}  // namespace macrame
