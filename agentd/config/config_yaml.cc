// Settings from YAML and back.

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "agentd/config/config.h"

namespace macrame::agentd {
namespace {

// Deeper nesting than any setting has is refused before the parser recurses into it.
constexpr int kNestingMax = 16;

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

absl::Status At(const std::string& path, int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", what));
}

// Flow brackets and block indentation, counted roughly and from above. Lines of comments don't
// count; a bracket that one hides from here meets the parser's own limit.
int Nesting(const std::string& text) {
  int open = 0;
  int deepest = 0;
  int indent_levels = 0;
  size_t column = 0;
  bool leading = true;
  bool is_comment = false;
  for (const char c : text) {
    if (c == '\n') {
      column = 0;
      leading = true;
      is_comment = false;
      continue;
    }
    is_comment = is_comment || (leading && indent_levels == 0 && c == '#');
    if (is_comment) continue;
    ++column;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++open);
    if ((c == ']' || c == '}') && open > 0) --open;
    // "- - - -" nests once for each dash.
    if (leading && (c == '-' || c == '?')) indent_levels = static_cast<int>(column / 2) + 1;
    if (leading && c != ' ' && c != '-' && c != '?') leading = false;
    deepest = std::max(deepest, indent_levels);
    if (!leading) indent_levels = 0;
  }
  return deepest;
}

// `line`: the key's. What is not there has a line of its own: where the next thing stands.
absl::Status ApplyOne(const ConfigKey& key, const YAML::Node& node, const std::string& path,
                      int line, LoadedConfig* config) {
  const std::string origin = absl::StrCat("file ", path, ":", line);
  const bool is_list = std::holds_alternative<std::vector<std::string> Config::*>(key.field);
  if (is_list && node.IsSequence()) {
    std::vector<std::string> entries;
    for (const YAML::Node& entry : node) {
      if (!entry.IsScalar()) {
        return At(path, line, absl::StrCat(View(key.name), " must be a list of texts"));
      }
      entries.push_back(entry.Scalar());
    }
    absl::Status status = SetFromList(key, std::move(entries), origin, config);
    return status.ok() ? status : At(path, line, status.message());
  }
  if (!node.IsScalar() && !node.IsNull()) {
    return At(path, line, absl::StrCat(View(key.name), " must be a single value"));
  }
  const std::string text = node.IsNull() ? "" : node.Scalar();
  absl::Status status = SetFromText(key, text, origin, config);
  return status.ok() ? status : At(path, line, status.message());
}

absl::Status ApplyMap(const YAML::Node& root, const std::string& path, LoadedConfig* config) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return At(path, 1, "the file must hold 'key: value' lines");
  std::set<std::string> seen;
  for (const auto& pair : root) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) return At(path, line, "a key must be a plain text");
    const std::string name = pair.first.Scalar();
    const ConfigKey* key = FindConfigKey(name);
    if (key == nullptr) {
      const std::string nearest = NearestConfigKey(name);
      return At(path, line,
                absl::StrCat("unknown key '", name.substr(0, 64), "'",
                             nearest.empty() ? "; 'agentd --print-config' lists all"
                                             : absl::StrCat("; did you mean '", nearest, "'?")));
    }
    if (!seen.insert(name).second) return At(path, line, absl::StrCat(name, " is given twice"));
    absl::Status status = ApplyOne(*key, pair.second, path, line, config);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      quoted += "\\x";
      quoted.push_back(kDigits[c >> 4]);
      quoted.push_back(kDigits[c & 15]);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string ValueText(const ConfigKey& key, const Config& values) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.field)) {
    return Quoted(values.**text);
  }
  if (const auto* number = std::get_if<int64_t Config::*>(&key.field)) {
    return absl::StrCat(values.**number);
  }
  if (const auto* truth = std::get_if<bool Config::*>(&key.field)) {
    return values.**truth ? "true" : "false";
  }
  std::vector<std::string> quoted;
  for (const std::string& entry : values.*std::get<std::vector<std::string> Config::*>(key.field)) {
    quoted.push_back(Quoted(entry));
  }
  return absl::StrCat("[", absl::StrJoin(quoted, ", "), "]");
}

}  // namespace

absl::Status ApplyYaml(const std::string& text, const std::string& path, LoadedConfig* config) {
  if (text.size() > kConfigFileBytesMax) {
    return At(path, 1, absl::StrCat("the file has more than ", kConfigFileBytesMax, " bytes"));
  }
  if (Nesting(text) > kNestingMax) return At(path, 1, "the file is nested too deeply");
  try {
    return ApplyMap(YAML::Load(text), path, config);
  } catch (const YAML::Exception& error) {
    return At(path, std::max(0, error.mark.line) + 1, error.msg);
  }
}

std::string PrintConfig(const LoadedConfig& config) {
  const LoadedConfig defaults = DefaultConfig();
  std::string out =
      "# Effective settings of agentd. Precedence: flag, environment, file, default.\n";
  for (const ConfigKey& key : ConfigKeys()) {
    absl::StrAppend(&out, "\n# ", View(key.text));
    if (!key.unit.empty()) absl::StrAppend(&out, " [", View(key.unit), "]");
    if (std::holds_alternative<int64_t Config::*>(key.field)) {
      absl::StrAppend(&out, ", ", key.min, " to ", key.max);
    }
    if (!key.choices.empty()) {
      std::vector<std::string> choices(key.choices.begin(), key.choices.end());
      absl::StrAppend(&out, ": ", absl::StrJoin(choices, ", "));
    }
    absl::StrAppend(&out, "\n# default ", ValueText(key, defaults.values), "; ", FlagName(key),
                    ", ", EnvironmentName(key), "\n");
    const auto origin = config.origins.find(key.name);
    const std::string from = origin == config.origins.end() ? "default" : origin->second;
    absl::StrAppend(&out, "# from: ", absl::StrReplaceAll(from, {{"\n", " "}}), "\n");
    absl::StrAppend(&out, View(key.name), ": ", ValueText(key, config.values), "\n");
  }
  return out;
}

}  // namespace macrame::agentd
