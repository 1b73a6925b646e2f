#include "cli/format/message_json.h"

#include <string>

namespace macrame::cli {
namespace {

using google::protobuf::Message;

std::string Scalar(const Json& value) {
  // A JSON string is a YAML double-quoted one.
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsBlock(const Json& value) { return value.is_structured() && !value.empty(); }

void AppendYaml(const Json& value, int indent, std::string* out) {
  const std::string pad(indent, ' ');
  if (value.is_array()) {
    for (const Json& item : value) {
      if (!IsBlock(item)) {
        *out += pad + "- " + Scalar(item) + "\n";
        continue;
      }
      std::string block;
      AppendYaml(item, indent + 2, &block);
      block.replace(indent, 2, "- ");
      *out += block;
    }
    return;
  }
  for (const auto& [name, item] : value.items()) {
    *out += pad + name + ":";
    if (IsBlock(item)) {
      *out += "\n";
      AppendYaml(item, indent + 2, out);
    } else {
      *out += " " + Scalar(item) + "\n";
    }
  }
}

}  // namespace

Json Document(const std::string& kind) {
  Json document = Json::object();
  document["apiVersion"] = kApiVersion;
  document["kind"] = kind;
  return document;
}

Json Document(const std::string& kind, const Message& message) {
  Json document = Document(kind);
  const Json fields = MessageToJson(message);
  for (const auto& [name, value] : fields.items()) document[name] = value;
  return document;
}

std::string ToJsonText(const Json& document, bool compact) {
  return document.dump(compact ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ToYamlText(const Json& document) {
  if (!IsBlock(document)) return Scalar(document) + "\n";
  std::string out;
  AppendYaml(document, 0, &out);
  return out;
}

}  // namespace macrame::cli
