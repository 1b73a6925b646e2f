#include "agentd/gateway/fields/structure_fields.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "runtime/serving/structure/ignorable_keywords.h"

namespace macrame::agentd {
namespace {

constexpr size_t kFormatNameBytesMax = 64;

constexpr std::array<absl::string_view, 9> kStructureNames = {
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar",  "json_schema",        "regex",       "ebnf"};

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kFormatNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
         });
}

class StructureReader {
 public:
  StructureReader(RequestFields& fields, v1::GenerateRequest& request)
      : fields_(fields), request_(request) {}

  void Read(absl::string_view name, const Json& value) {
    if (name == "response_format") {
      ReadFormat(value);
    } else if (name == "structured_outputs") {
      ReadOutputs(value);
    } else if (name == "guided_json" || name == "json_schema") {
      ReadSchema(std::string(name), value);
    } else if (name == "guided_regex" || name == "regex") {
      ReadRegex(std::string(name), value);
    } else if (name == "guided_choice") {
      ReadChoices(std::string(name), value);
    } else {
      ReadGrammar(std::string(name), value);
    }
  }

 private:
  void Fail(const std::string& param, absl::string_view code, const std::string& what) {
    fields_.Fail(param, code, absl::StrCat("'", param, "' ", what));
  }

  // Null when it is missing or null.
  static const Json* Find(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  bool IsShort(const std::string& param, const std::string& text) {
    if (text.size() <= kStructureBytesMax) return true;
    Fail(param, "string_above_max_length",
         absl::StrCat("may have at most ", kStructureBytesMax, " bytes."));
    return false;
  }

  // An object, true, or the text of one.
  void ReadSchema(const std::string& param, const Json& value) {
    Json schema = value;
    if (value.is_string()) {
      const auto& given = value.get_ref<const std::string&>();
      if (!IsShort(param, given)) return;
      // The body's own bound does not look into its strings.
      switch (ShapeOfJson(given, kStructureDepthMax)) {
        case JsonShape::kFine:
          break;
        case JsonShape::kTooDeep:
          return Fail(param, "json_too_deep",
                      absl::StrCat("may be nested at most ", kStructureDepthMax, " deep."));
        case JsonShape::kTooManyMembers:
        case JsonShape::kTooManyValues:
          return Fail(param, "json_too_large",
                      "has too many values, or objects with too many members.");
      }
      schema = Json::parse(given, nullptr, false);
    }
    if (!schema.is_object() && schema != true) {
      return Fail(param, "invalid_type", "must be a JSON schema: an object.");
    }
    runtime::engine::DropIgnorableKeywords(&schema);
    std::string text = schema.dump();
    if (IsShort(param, text)) request_.mutable_structure()->set_json_schema(std::move(text));
  }

  void ReadRegex(const std::string& param, const Json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return Fail(param, "invalid_type", "must be a regular expression.");
    }
    const auto& text = value.get_ref<const std::string&>();
    if (IsShort(param, text)) request_.mutable_structure()->set_regex(text);
  }

  void ReadGrammar(const std::string& param, const Json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return Fail(param, "invalid_type", "must be a grammar.");
    }
    const auto& text = value.get_ref<const std::string&>();
    if (absl::StrContains(text, "::=")) {
      return Fail(param, "invalid_value",
                  "must be in Lark's notation (\"start: …\"); EBNF and GBNF (\"root ::= …\") "
                  "are not read.");
    }
    if (IsShort(param, text)) request_.mutable_structure()->set_lark(text);
  }

  void ReadChoices(const std::string& param, const Json& value) {
    if (!value.is_array() || value.empty() || value.size() > kStructureChoicesMax) {
      return Fail(param, "invalid_type",
                  absl::StrCat("must be a list of 1 to ", kStructureChoicesMax, " texts."));
    }
    v1::Structure::Choices choices;
    size_t bytes = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_string() || value[i].get_ref<const std::string&>().empty()) {
        return Fail(absl::StrCat(param, "[", i, "]"), "invalid_type",
                    "must be a text that is not empty.");
      }
      choices.add_texts(value[i].get<std::string>());
      bytes += choices.texts(static_cast<int>(i)).size() + 4;
    }
    if (bytes > kStructureBytesMax) {
      return Fail(param, "array_above_max_length",
                  absl::StrCat("may have at most ", kStructureBytesMax, " bytes in all."));
    }
    *request_.mutable_structure()->mutable_choices() = std::move(choices);
  }

  // {"type": "json_schema", "json_schema": {"name", "schema", "strict", "description"}}
  void ReadFormat(const Json& format) {
    const Json* type = format.is_object() ? Find(format, "type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      return Fail("response_format", "invalid_type", "must be an object with a 'type'.");
    }
    if (*type == "text") return;
    if (*type == "json_object") {
      // llama.cpp's and Fireworks' way to say a schema.
      const Json* schema = Find(format, "schema");
      if (schema != nullptr) return ReadSchema("response_format.schema", *schema);
      request_.mutable_structure()->set_json_object(true);
      return;
    }
    if (*type != "json_schema") {
      return Fail("response_format.type", "invalid_value",
                  "must be 'text', 'json_object' or 'json_schema'.");
    }
    ReadNamedSchema(format);
  }

  void ReadNamedSchema(const Json& format) {
    const std::string param = "response_format.json_schema";
    const Json* named = Find(format, "json_schema");
    if (named == nullptr || !named->is_object()) {
      return Fail(param, "missing_required_parameter", "must be an object with a 'schema'.");
    }
    const Json* name = Find(*named, "name");
    if (name == nullptr) {
      return Fail(param + ".name", "missing_required_parameter", "is missing.");
    }
    if (!name->is_string() || !IsName(name->get_ref<const std::string&>())) {
      return Fail(param + ".name", "invalid_value",
                  absl::StrCat("must have 1 to ", kFormatNameBytesMax,
                               " letters, digits, underscores and dashes."));
    }
    const Json* strict = Find(*named, "strict");
    if (strict != nullptr && !strict->is_boolean()) {
      return Fail(param + ".strict", "invalid_type", "must be true or false.");
    }
    const Json* schema = Find(*named, "schema");
    if (schema != nullptr) return ReadSchema(param + ".schema", *schema);
    request_.mutable_structure()->set_json_object(true);
  }

  // vLLM's: {"json" | "regex" | "choice" | "grammar" | "json_object": …}
  void ReadOutputs(const Json& outputs) {
    const std::string param = "structured_outputs";
    if (!outputs.is_object()) return Fail(param, "invalid_type", "must be an object.");
    int forms = 0;
    for (const char* name : {"json", "regex", "choice", "grammar", "json_object"}) {
      const Json* value = Find(outputs, name);
      if (value == nullptr || *value == false) continue;
      ++forms;
      const std::string path = absl::StrCat(param, ".", name);
      if (path == "structured_outputs.json") ReadSchema(path, *value);
      if (path == "structured_outputs.regex") ReadRegex(path, *value);
      if (path == "structured_outputs.choice") ReadChoices(path, *value);
      if (path == "structured_outputs.grammar") ReadGrammar(path, *value);
      if (path == "structured_outputs.json_object") {
        request_.mutable_structure()->set_json_object(true);
      }
    }
    if (forms != 1) {
      Fail(param, "invalid_value",
           "must have one of 'json', 'regex', 'choice', 'grammar' and 'json_object'.");
    }
  }

  RequestFields& fields_;
  v1::GenerateRequest& request_;
};

void CheckBeside(RequestFields& fields, absl::string_view name, v1::GenerateRequest& request) {
  const auto choice = request.tools().choice();
  if (choice == v1::TOOL_CHOICE_KIND_REQUIRED || choice == v1::TOOL_CHOICE_KIND_NAMED) {
    fields.Fail("tool_choice", "invalid_value",
                absl::StrCat("An answer that must call a tool can't be held to '", name, "'."));
  }
  if (request.min_tokens() > 0) {
    fields.Fail("min_tokens", "invalid_value",
                absl::StrCat("'min_tokens' and '", name, "' can't both say when an answer ends."));
  }
}

}  // namespace

void ReadStructure(RequestFields& fields, v1::GenerateRequest& request) {
  absl::string_view first;
  for (const absl::string_view name : kStructureNames) {
    const Json* value = fields.Find(name);
    if (value == nullptr) continue;
    StructureReader(fields, request).Read(name, *value);
    if (!request.has_structure()) continue;
    if (!first.empty()) {
      fields.Fail(name, "invalid_value",
                  absl::StrCat("'", first, "' and '", name, "' can't both hold; send one."));
    }
    first = name;
  }
  if (request.has_structure()) CheckBeside(fields, first, request);
}

bool IsStructureField(absl::string_view name) {
  return std::find(kStructureNames.begin(), kStructureNames.end(), name) != kStructureNames.end();
}

}  // namespace macrame::agentd
