#include "proto/message_json.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace macrame {
namespace {

using Json = nlohmann::ordered_json;

// The names of fields and enums are views from Protobuf 30 on, and strings before: both become
// strings of our own.

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// "NODE_STATE_" for NodeState.
std::string EnumPrefix(const std::string& name) {
  std::string prefix;
  for (const char c : name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

Json EnumWord(const EnumValueDescriptor* value) {
  const std::string prefix = EnumPrefix(std::string(value->type()->name()));
  auto word = std::string(value->name());
  if (word.rfind(prefix, 0) == 0) word.erase(0, prefix.size());
  word = absl::AsciiStrToLower(word);
  return word == "unspecified" ? "unknown" : word;
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Text(const FieldDescriptor* field, const std::string& value) {
  return field->type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(value) : value;
}

Json Single(const Message& message, const Reflection& reflection, const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(reflection.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(reflection.GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(reflection.GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return Text(field, reflection.GetString(message, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection.GetMessage(message, field));
  }
  return nullptr;
}

Json Element(const Message& message, const Reflection& reflection, const FieldDescriptor* field,
             int i) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetRepeatedInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetRepeatedInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetRepeatedUInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetRepeatedUInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(reflection.GetRepeatedDouble(message, field, i));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(reflection.GetRepeatedFloat(message, field, i));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetRepeatedBool(message, field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(reflection.GetRepeatedEnum(message, field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return Text(field, reflection.GetRepeatedString(message, field, i));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection.GetRepeatedMessage(message, field, i));
  }
  return nullptr;
}

}  // namespace

Json MessageToJson(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const auto name = std::string(field->name());
    if (field->is_repeated()) {
      Json list = Json::array();
      for (int k = 0; k < reflection.FieldSize(message, field); ++k) {
        list.push_back(Element(message, reflection, field, k));
      }
      object[name] = std::move(list);
    } else if (!field->has_presence() || reflection.HasField(message, field)) {
      object[name] = Single(message, reflection, field);
    }
  }
  return object;
}

}  // namespace macrame
