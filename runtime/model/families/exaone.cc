// EXAONE 4: norms only behind its half layers. Where layers take turns, those that look at a window
// turn their heads, and those that see all positions know none.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// As "layer_types" says, or by "LLLG": three local layers, a global one, over and over.
void ReadExaoneWindows(const json& config, ModelConfig& out) {
  if (ReadInt(config, "sliding_window", 0, 0) == 0) return;  // all see everything, and turn
  if (FindField(config, "layer_types") != nullptr) {
    ReadSlidingWindows(config, out.layer_count, out);
    for (const int window : out.sliding_windows) {
      out.rope_uses.push_back(window > 0 ? RopeUse::kGlobal : RopeUse::kNone);
    }
    return;
  }
  const std::string pattern = ReadText(config, "sliding_window_pattern", "");
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

}  // namespace

void ReadExaone4(const json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.qk_norm = true;
  out.norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
  ReadExaoneWindows(config, out);
}

}  // namespace macrame::runtime::engine
