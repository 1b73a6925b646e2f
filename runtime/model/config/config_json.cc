#include "runtime/model/config/config_json.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/python_json.h"

namespace macrame::runtime::engine {

using nlohmann::json;

json ParseConfigJson(std::string_view text) { return ParsePythonJson(text, kConfigDepthMax); }

absl::StatusOr<json> ParseConfigObject(std::string_view text, const std::string& folder) {
  bool too_deep = false;
  json parsed = ParsePythonJson(text, kConfigDepthMax, &too_deep);
  if (parsed.is_object()) return parsed;
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                      absl::StrCat(folder, "/config.json is ",
                                   too_deep ? "nested too deeply" : "not a JSON object"));
}

}  // namespace macrame::runtime::engine
