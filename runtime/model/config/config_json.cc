#include "runtime/model/config/config_json.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

std::string WithoutInfinities(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"Infinity", "1e308"},
                                                                      {"NaN", "null"}};
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    const auto word = std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& known) {
      return !quoted && text.substr(i, known.first.size()) == known.first;
    });
    if (word == std::end(kWords)) {
      out += text[i];
    } else {
      out += word->second;
      i += word->first.size() - 1;
    }
  }
  return out;
}

json Parse(std::string_view text, bool* too_deep) {
  const auto is_shallow = [&](int depth, json::parse_event_t, json&) {
    *too_deep = *too_deep || depth > kConfigDepthMax;
    return !*too_deep;
  };
  json parsed = json::parse(WithoutInfinities(text), is_shallow, /*allow_exceptions=*/false);
  return *too_deep ? json(json::value_t::discarded) : parsed;
}

}  // namespace

json ParseConfigJson(std::string_view text) {
  bool too_deep = false;
  return Parse(text, &too_deep);
}

absl::StatusOr<json> ParseConfigObject(std::string_view text, const std::string& folder) {
  bool too_deep = false;
  json parsed = Parse(text, &too_deep);
  if (parsed.is_object()) return parsed;
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                      absl::StrCat(folder, "/config.json is ",
                                   too_deep ? "nested too deeply" : "not a JSON object"));
}

}  // namespace macrame::runtime::engine
