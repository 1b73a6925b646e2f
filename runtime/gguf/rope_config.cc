// The rotary form: its base, and how it is stretched. GGUF has a type with numbers, or a tensor of
// factors by frequency, which is Llama 3's or Phi's ("longrope") scaling.

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/gguf/architectures.h"
#include "runtime/gguf/block_forms.h"

namespace macrame::runtime::gguf {
namespace {

using nlohmann::json;

constexpr char kFactors[] = "rope_freqs.weight";
constexpr char kLongFactors[] = "rope_factors_long.weight";
constexpr char kShortFactors[] = "rope_factors_short.weight";

std::vector<double> FactorsOf(const GgufModel& model, const char* name, uint64_t dims) {
  const GgufModel::Tensor* tensor = model.FindTensor(name);
  if (tensor == nullptr) Broken(absl::StrCat("tensor '", name, "' is missing"));
  const BlockForm* form = FindBlockForm(tensor->type);
  if (form == nullptr || form->bits != 0 || tensor->rows != 1 || tensor->columns != dims / 2) {
    Broken(absl::StrCat("tensor '", name, "' has not a float for each pair of a head"));
  }
  std::vector<double> factors;
  for (uint64_t i = 0; i < tensor->columns; ++i) {
    factors.push_back(static_cast<double>(FloatAt(*form, tensor->data, i)));
  }
  return factors;
}

// The factors that Llama 3's scaling gives, by its published formula (config "rope_type":
// "llama3"): 1 for short waves, `factor` for long ones, a smooth change between.
double Llama3Factor(double wave, double factor, double original) {
  constexpr double kLow = 1.0, kHigh = 4.0;
  if (wave < original / kHigh) return 1.0;
  if (wave > original / kLow) return factor;
  const double smooth = (original / wave - kLow) / (kHigh - kLow);
  return 1.0 / ((1.0 - smooth) / factor + smooth);
}

bool IsLlama3(const std::vector<double>& factors, double base, double factor, double original) {
  for (size_t i = 0; i < factors.size(); ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(factors.size());
    const double wave = 2.0 * std::numbers::pi * std::pow(base, part);
    const double expected = Llama3Factor(wave, factor, original);
    // False of what is no number.
    const bool is_near = std::abs(factors[i] - expected) <= 1e-3 * expected;
    if (!is_near) return false;
  }
  return true;
}

json Llama3Scaling(const std::vector<double>& factors, double base) {
  const double factor = std::max(1.0, *std::max_element(factors.begin(), factors.end()));
  // Llama's own first, then powers of two from 16 on.
  for (int step = 0; step <= 17; ++step) {
    const int original = step == 0 ? 8192 : 8 << step;
    if (!IsLlama3(factors, base, factor, original)) continue;
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", original}};
  }
  Unsupported(absl::StrCat("tensor '", kFactors, "' is not Llama 3's scaling of 8,192 positions, ",
                           "nor of another power of two"));
}

// Factors by frequency for texts within the first context and beyond it.
json LongropeScaling(ImportContext& context, uint64_t dims) {
  const uint64_t original = context.keys.Size("rope.scaling.original_context_length");
  context.config["original_max_position_embeddings"] = original;
  json scaling = {{"rope_type", "longrope"}};
  for (const auto& [key, name] :
       {std::pair{"long_factor", kLongFactors}, std::pair{"short_factor", kShortFactors}}) {
    json list = json::array();
    for (const double factor : FactorsOf(context.model, name, dims)) {
      list.push_back(AsWritten(factor));
    }
    scaling[key] = std::move(list);
  }
  const auto attention = context.keys.OptionalNumber("rope.scaling.attn_factor");
  const double stretch =
      context.config["max_position_embeddings"].get<double>() / static_cast<double>(original);
  const double usual =
      stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(original))) : 1;
  if (attention.has_value() && std::abs(*attention - usual) > 1e-4 * usual) {
    scaling["attention_factor"] = AsWritten(*attention);
  }
  return scaling;
}

json YarnScaling(ImportContext& context, double factor) {
  MetadataKeys& keys = context.keys;
  json scaling = {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings",
                   keys.Size("rope.scaling.original_context_length",
                             context.config["max_position_embeddings"].get<uint64_t>())}};
  for (const auto& [ours, theirs] :
       {std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
        std::pair{"beta_slow", "rope.scaling.yarn_beta_slow"},
        std::pair{"attention_factor", "rope.scaling.yarn_attn_factor"}}) {
    if (const auto number = keys.OptionalNumber(theirs); number.has_value()) {
      scaling[ours] = AsWritten(*number);
    }
  }
  if (const auto mix = keys.OptionalNumber("rope.scaling.yarn_ext_factor"); mix.has_value()) {
    if (*mix != 1.0)
      Unsupported(absl::StrCat(keys.Name("rope.scaling.yarn_ext_factor"), " is ", *mix,
                               "; 1 is implemented"));
  }
  const auto magnitude = keys.OptionalNumber("rope.scaling.yarn_log_multiplier");
  if (!magnitude.has_value()) return scaling;
  // DeepSeek's converter stores a tenth of it, and both of its numbers are the same.
  const bool is_deepseek = context.config.contains("kv_lora_rank");
  const double all = is_deepseek ? std::round(*magnitude * 1e7) / 1e6 : AsWritten(*magnitude);
  scaling["mscale_all_dim"] = all;
  scaling["mscale"] = is_deepseek ? all : 1.0;
  return scaling;
}

}  // namespace

void ReadRope(ImportContext& context, uint64_t dims) {
  MetadataKeys& keys = context.keys;
  json& config = context.config;
  const double base = AsWritten(keys.Number("rope.freq_base", 10000.0));
  config["rope_theta"] = base;
  const std::string kind = keys.Text("rope.scaling.type", "linear");
  keys.Ignore("rope.scaling.finetuned");
  keys.Ignore("rope.scaling.original_context_length");  // means something where others read it
  if (context.model.FindTensor(kFactors) != nullptr) {
    config["rope_scaling"] = Llama3Scaling(FactorsOf(context.model, kFactors, dims), base);
    return;
  }
  if (context.model.FindTensor(kLongFactors) != nullptr || kind == "longrope") {
    config["rope_scaling"] = LongropeScaling(context, dims);
    return;
  }
  const double legacy = keys.Number("rope.scale_linear", 1.0);
  const double factor =
      AsWritten(kind == "none" ? keys.OptionalNumber("rope.scaling.factor").value_or(1.0)
                               : keys.Number("rope.scaling.factor", legacy));
  if (kind == "none") return;
  if (kind == "yarn") {
    config["rope_scaling"] = YarnScaling(context, factor);
    return;
  }
  if (kind != "linear") {
    Unsupported(absl::StrCat("rope scaling '", absl::CHexEscape(kind),
                             "' is not implemented; linear, yarn and longrope are, and Llama 3's "
                             "factors"));
  }
  if (factor != 1.0) config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
}

}  // namespace macrame::runtime::gguf
