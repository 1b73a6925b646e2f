#pragma once

// Documents of clusterctl as JSON and YAML: messages as proto/message_json.h writes them, under a
// version and a kind. Pure.

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/message_json.h"

namespace macrame::cli {

using Json = nlohmann::ordered_json;

inline constexpr char kApiVersion[] = "macrame/v1";

using macrame::MessageToJson;
// {"apiVersion", "kind", and the message's own fields}.
Json Document(const std::string& kind, const google::protobuf::Message& message);
// {"apiVersion", "kind"}, to be filled.
Json Document(const std::string& kind);

// Two spaces of indent, a closing line break. With `compact` on one line.
std::string ToJsonText(const Json& document, bool compact = false);
std::string ToYamlText(const Json& document);

}  // namespace macrame::cli
