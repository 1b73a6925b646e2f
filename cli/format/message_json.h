#pragma once

// Messages as JSON and YAML for programs: a versioned contract (cli/README.md). Pure.
//
// Field names are those of the .proto files. 64-bit integers are numbers (protobuf's own JSON makes
// them strings, which jq can't add up), enums lower-case words without their prefix ("alive";
// "unknown" for unspecified), bytes lower-case hex. Fields without a value are there with their
// zero; messages that are not set are left out; lists are always there.

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace macrame::cli {

using Json = nlohmann::ordered_json;

inline constexpr char kApiVersion[] = "macrame/v1";

Json MessageToJson(const google::protobuf::Message& message);
// {"apiVersion", "kind", and the message's own fields}.
Json Document(const std::string& kind, const google::protobuf::Message& message);
// {"apiVersion", "kind"}, to be filled.
Json Document(const std::string& kind);

// Two spaces of indent, a closing line break. With `compact` on one line.
std::string ToJsonText(const Json& document, bool compact = false);
std::string ToYamlText(const Json& document);

}  // namespace macrame::cli
