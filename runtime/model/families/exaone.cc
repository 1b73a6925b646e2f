// EXAONE 4: norms only behind its half layers. Where layers take turns, those that look at a window
// turn their heads, and those that see all positions know none.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

using nlohmann::json;

void ReadExaoneWindows(const json& config, int pattern_unless_said, ModelConfig& out) {
  if (ReadInt(config, "sliding_window", 0, 0) == 0) return;  // all see everything, and turn
  if (FindField(config, "layer_types") != nullptr) {
    ReadSlidingWindows(config, out.layer_count, out);
    for (const int window : out.sliding_windows) {
      out.rope_uses.push_back(window > 0 ? RopeUse::kGlobal : RopeUse::kNone);
    }
    return;
  }
  const json* said = FindField(config, "sliding_window_pattern");
  std::string pattern;
  if (said != nullptr && said->is_string()) {
    pattern = said->get<std::string>();
  } else {
    // A number: of so many layers the last one is global.
    const int period = ReadInt(config, "sliding_window_pattern", pattern_unless_said, 0);
    if (period > kLayersMax) Invalid(absl::StrCat("'sliding_window_pattern' is ", period));
    if (period > 0) pattern = std::string(static_cast<size_t>(period) - 1, 'L') + 'G';
  }
  if (pattern.empty()) return;
  if (pattern.find_first_not_of("LG") != std::string::npos) {
    Invalid(absl::StrCat("'sliding_window_pattern' is '", pattern, "', not of L and G"));
  }
  const int window = ReadInt(config, "sliding_window", std::nullopt);
  for (size_t layer = 0; layer < static_cast<size_t>(out.layer_count); ++layer) {
    const bool local = pattern[layer % pattern.size()] == 'L';
    out.sliding_windows.push_back(local ? window : 0);
    out.rope_uses.push_back(local ? RopeUse::kGlobal : RopeUse::kNone);
  }
}

void ReadExaone4(const json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qk_norm = true;
  out.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
  ReadExaoneWindows(config, 0, out);
}

}  // namespace macrame::runtime::engine
