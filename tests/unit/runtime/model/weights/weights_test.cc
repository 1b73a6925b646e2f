// A model folder against its config: what is refused, and with which words.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status CheckFolder(const std::string& folder, ShardPlace place = {0, 2}) {
  const auto config = LoadModelConfig(folder);
  if (!config.ok()) return config.status();
  const auto files = WeightFiles::Open(folder);
  if (!files.ok()) return files.status();
  return CheckWeights(*config, place, **files);
}

std::string Code(const absl::Status& status) { return ReasonOf(status).code(); }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

absl::Status CheckWith(const std::string& config) {
  return CheckFolder(
      WriteFolder({{"config.json", config}, {"model.safetensors", Safetensors(TinyLlama())}}));
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(WeightsTest, AMatchingFolderPasses) {
  EXPECT_TRUE(CheckWith(TinyLlamaConfig()).ok()) << CheckWith(TinyLlamaConfig()).ToString();
}

TEST(WeightsTest, ContradictionsNameTheTensorAndBothShapes) {
  const auto status =
      CheckWith(Replaced(TinyLlamaConfig(), "\"vocab_size\": 96", "\"vocab_size\": 97"));
  EXPECT_EQ(Code(status), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(Text(status), AllOf(HasSubstr("'model.embed_tokens.weight'"), HasSubstr("[96, 64]"),
                                  HasSubstr("[97, 64]")));
}

TEST(WeightsTest, TooManyOrTooFewLayersAreNoticed) {
  const auto fewer = CheckFolder(
      WriteFolder({{"config.json", Replaced(TinyLlamaConfig(), "\"num_hidden_layers\": 2",
                                            "\"num_hidden_layers\": 1")},
                   {"model.safetensors", Safetensors(TinyLlama())}}),
      {0, 1});
  EXPECT_THAT(Text(fewer), HasSubstr("config.json says 1 layers, the weights have 2"));
  const auto more = CheckFolder(
      WriteFolder({{"config.json", Replaced(TinyLlamaConfig(), "\"num_hidden_layers\": 2",
                                            "\"num_hidden_layers\": 3")},
                   {"model.safetensors", Safetensors(TinyLlama())}}),
      {0, 3});
  EXPECT_EQ(Code(more), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(Text(more), AllOf(HasSubstr("model.layers.2."), HasSubstr("is in no weights file"),
                                HasSubstr("and 4 more")));
}

TEST(WeightsTest, AMissingShardIsNamed) {
  const std::string folder =
      WriteFolder({{"config.json", TinyLlamaConfig()},
                   {"model-00001-of-00002.safetensors", Safetensors(TinyLlama())},
                   {"model.safetensors.index.json",
                    R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                           "b": "model-00002-of-00002.safetensors"}})"}});
  const auto status = CheckFolder(folder);
  EXPECT_EQ(Code(status), "MODEL_FILE_MISSING");
  EXPECT_THAT(Text(status), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST(WeightsTest, AnIndexCanNotPointOutOfTheFolder) {
  const auto status = CheckFolder(
      WriteFolder({{"config.json", TinyLlamaConfig()},
                   {"model.safetensors.index.json", R"({"weight_map": {"a": "../../x"}})"}}));
  EXPECT_EQ(Code(status), "MODEL_FILE_BROKEN");
}

TEST(WeightsTest, ATruncatedFileIsBroken) {
  const std::string whole = Safetensors(TinyLlama());
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    const auto status = CheckFolder(WriteFolder(
        {{"config.json", TinyLlamaConfig()}, {"model.safetensors", whole.substr(0, size)}}));
    EXPECT_EQ(Code(status), "MODEL_FILE_BROKEN") << size << ": " << Text(status);
  }
}

TEST(WeightsTest, NoTensorSplitIsRefused) {
  const std::string folder = WriteFolder(
      {{"config.json", TinyLlamaConfig()}, {"model.safetensors", Safetensors(TinyLlama())}});
  EXPECT_TRUE(CheckFolder(folder, {0, 2, 2, 1, 1, 2, 2}).ok());
  EXPECT_TRUE(CheckFolder(folder, {0, 2, 4, 0, 0, 1, 4}).ok()) << "half of the ranks have no heads";
  EXPECT_TRUE(CheckFolder(folder, {0, 2, 2, 1, 4, 7, 7}).ok());
}

ModelShape FewExperts(const std::string& architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.experts = 3;
  shape.inner = 64;
  return shape;
}

TEST(WeightsTest, AMissingExpertIsNamed) {
  ModelShape shape = FewExperts("qwen3_moe");
  shape.stacked = false;
  auto files = RandomModel(shape);
  EXPECT_TRUE(CheckFolder(WriteFolder(files)).ok()) << CheckFolder(WriteFolder(files)).ToString();
  std::string& weights = files["model.safetensors"];
  const std::string name = "model.layers.1.mlp.experts.2.up_proj.weight";
  weights.replace(weights.find(name), name.size(), "model.layers.1.mlp.experts.2.no_proj.weight");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("'" + name + "' [64, 64] is in no weights file"));
}

TEST(WeightsTest, StackedExpertsAreCheckedInWhole) {
  auto files = RandomModel(FewExperts("mixtral"));
  EXPECT_TRUE(CheckFolder(WriteFolder(files)).ok()) << CheckFolder(WriteFolder(files)).ToString();
  std::string& config = files["config.json"];
  config = Replaced(config, "\"num_local_experts\":3", "\"num_local_experts\":4");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              AllOf(HasSubstr("'model.layers.0.block_sparse_moe.gate.weight' is [3, 64]"),
                    HasSubstr("switch_mlp.gate_proj.weight' is [3, 64, 64], config.json implies "
                              "[4, 64, 64]")));
}

ModelShape GptOss(bool blocks) {
  ModelShape shape = FewExperts("gpt_oss");
  shape.mxfp4 = true;
  shape.blocks = blocks;
  shape.biases = true;
  return shape;
}

TEST(WeightsTest, EachFaultOfGptOssHasItsOwnSentence) {
  const std::string layer = "model.layers.1.";
  for (const bool blocks : {false, true}) {
    const auto whole = RandomModel(GptOss(blocks));
    EXPECT_TRUE(CheckFolder(WriteFolder(whole)).ok()) << CheckFolder(WriteFolder(whole)).ToString();
    // A tensor under another name is as if it were not there.
    const auto without = [&](const std::string& name) {
      auto files = whole;
      std::string& weights = files["model.safetensors"];
      weights[weights.find('"' + name + '"') + name.size()] = '_';
      return Text(CheckFolder(WriteFolder(files)));
    };
    EXPECT_THAT(without(layer + "self_attn.sinks"),
                HasSubstr("'" + layer + "self_attn.sinks' [6] is in no weights file"));
    EXPECT_THAT(without(layer + "mlp.router.bias"),
                HasSubstr("'" + layer + "mlp.router.bias' [3] is in no weights file"));
    const std::string bias =
        layer + "mlp.experts." + (blocks ? "gate_up_proj_bias" : "up_proj.bias");
    EXPECT_THAT(without(bias), HasSubstr("'" + bias + (blocks ? "' [3, 128]" : "' [3, 64]") +
                                         " is in no weights file"));
    if (!blocks) continue;
    EXPECT_THAT(without(layer + "mlp.experts.down_proj_scales"),
                HasSubstr("mlp.experts.down_proj_scales' [3, 64, 2] is in no weights file"));
    // Neither MLX's tensors nor OpenAI's are there.
    EXPECT_THAT(without(layer + "mlp.experts.down_proj_blocks"),
                HasSubstr("'" + layer + "mlp.experts.down_proj.weight' [3, 64, 64] is in no"));
  }
}

TEST(WeightsTest, ScalesOfEightBitFloatsAreHeldAgainstTheWeight) {
  const auto whole = FamilyModel({"phi3 fp8"});
  EXPECT_TRUE(CheckFolder(WriteFolder(whole)).ok()) << CheckFolder(WriteFolder(whole));
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  auto files = whole;
  std::string& weights = files["model.safetensors"];
  weights[weights.find(name + "_scale_inv") + name.size()] = '-';
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("'" + name + "' is stored as F8_E4M3, and its scales, '" + name +
                        "_scale_inv' or '" + name + "_scale', are in no weights file"));
  files = whole;
  files["config.json"] = Replaced(files["config.json"], "[48,40]", "[32,40]");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("nor one for each row or block of 32 x 40"));
  const auto refusal = [&](const std::string& quantisation) {
    auto other = whole;
    json config = json::parse(other["config.json"]);
    config["quantization_config"] = json::parse(quantisation);
    other["config.json"] = config.dump();
    return Text(CheckFolder(WriteFolder(other)));
  };
  EXPECT_THAT(refusal(R"({"quant_method": "fp8", "fmt": "e5m2"})"), HasSubstr("form 'e5m2'"));
  EXPECT_THAT(
      refusal(R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"})"),
      HasSubstr("compressed-tensors, nvfp4-pack-quantized, which is not implemented"));
  EXPECT_THAT(refusal(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"),
              HasSubstr("modelopt, NVFP4, which is not implemented"));
  EXPECT_THAT(refusal(R"({"quant_method": "awq"})"), HasSubstr("quantised with \"awq\""));
}

TEST(WeightsTest, EachFaultOfPackedNumbersHasItsOwnSentence) {
  const auto whole = SymmetricModel("phi3", /*packed=*/true);
  const auto checked = [&](const std::string& from, const std::string& to) {
    auto files = whole;
    auto& bytes = files["model.safetensors"];
    if (!from.empty()) bytes.replace(bytes.find(from), from.size(), to);
    const std::string folder = WriteFolder(files);
    return Text(CheckWeights(*LoadModelConfig(folder), {0, 2}, **WeightFiles::Open(folder)));
  };
  EXPECT_EQ(checked("", ""), "");
  EXPECT_THAT(checked("down_proj.weight_scale", "down_proj.weight_other"),
              HasSubstr("tensor 'model.layers.0.mlp.down_proj.weight_scale' [64, 11] is in no "
                        "weights file"));
  EXPECT_THAT(checked(R"("dtype":"I32")", R"("dtype":"U32")"), HasSubstr("is stored as U32"));
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return Text(ParseModelConfig(Replaced(whole.at("config.json"), from, to), "m").status());
  };
  const std::string bits = "\"num_bits\":4", group = "\"group_size\":32";
  EXPECT_THAT(refusal(bits, "\"num_bits\":3"), HasSubstr("packed int of 3 bits by group"));
  EXPECT_THAT(refusal(group, group + ",\"strategy\":\"channel\""), HasSubstr("by channel"));
  EXPECT_THAT(refusal("\"symmetric\":true", "\"symmetric\":false"),
              HasSubstr("with zero points; symmetric int of 4 or 8 bits by group is implemented"));
  EXPECT_THAT(refusal(group, group + ",\"actorder\":\"weight\""),
              HasSubstr("in an order of their own"));
  EXPECT_THAT(refusal(group, "\"group_size\":48"), HasSubstr("groups of 48"));
  EXPECT_THAT(refusal("\"config_groups\"", "\"groups\""), HasSubstr("names no 'config_groups'"));
}

TEST(WeightsTest, GptOssOfOtherSizesIsRefused) {
  const auto refusal = [](bool blocks, const std::string& from, const std::string& to) {
    auto files = RandomModel(GptOss(blocks));
    files["config.json"] = Replaced(files["config.json"], from, to);
    return Text(CheckFolder(WriteFolder(files)));
  };
  EXPECT_THAT(refusal(true, "\"num_local_experts\":3", "\"num_local_experts\":4"),
              HasSubstr("mlp.experts.gate_up_proj_blocks' is [3, 128, 2, 16], config.json implies "
                        "[4, 128, 2, 16]"));
  EXPECT_THAT(refusal(false, "\"intermediate_size\":64", "\"intermediate_size\":96"),
              HasSubstr("mlp.experts.gate_proj.weight' is [3, 64, 8], config.json implies "
                        "[3, 96, 8]"));
  EXPECT_THAT(refusal(true, "\"mxfp4\"", "\"mxfp6\""), HasSubstr("quantised with \"mxfp6\""));
  EXPECT_THAT(refusal(false, "mxfp4", "nvfp6"),
              HasSubstr("quantisation mode \"nvfp6\" is not implemented; affine, mxfp4, mxfp8 and "
                        "nvfp4 are"));
  EXPECT_THAT(
      refusal(false, "mxfp4", "nvfp4"),
      HasSubstr("nvfp4 with 4 bits in groups of 32; the format has 4 bits in groups of 16"));
  EXPECT_THAT(
      refusal(false, "mxfp4", "mxfp8"),
      HasSubstr("mxfp8 with 4 bits in groups of 32; the format has 8 bits in groups of 32"));
  EXPECT_THAT(refusal(false, "\"mode\":\"mxfp4\"",
                      R"("mode":"mxfp4","lm_head":{"mode":"nvfp4","global_scale":true})"),
              HasSubstr("'quantization.lm_head': nvfp4 with a global scale is not implemented"));
  EXPECT_THAT(
      refusal(false, "\"sliding_window\":12", R"("sliding_window":12,"quantize_activations":true)"),
      HasSubstr("'quantize_activations' is true: activations that are quantised"));
  EXPECT_THAT(
      refusal(false, "\"group_size\":32", "\"group_size\":64"),
      HasSubstr("mxfp4 with 4 bits in groups of 64; the format has 4 bits in groups of 32"));
  EXPECT_THAT(refusal(false, "\"sliding_window\":12",
                      R"("sliding_window":12,"layer_types":["full_attention","linear_attention"])"),
              HasSubstr("'layer_types' names \"linear_attention\""));
}

TEST(ModelConfigTest, AModulesOwnModeIsAffineUnlessItSaysOtherwise) {
  const auto config = ParseModelConfig(
      Replaced(RandomModel(GptOss(false)).at("config.json"), "\"mode\":\"mxfp4\"",
               R"("mode":"mxfp4","lm_head":{"bits":8,"group_size":64},"model.embed_tokens":{},)"
               R"("model.layers.0.self_attn.q_proj":{"mode":"nvfp4"},)"
               R"("model.layers.0.self_attn.k_proj":{"mode":"mxfp8","bits":8,"group_size":32})"),
      "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, (QuantizationTraits{4, 32, QuantizationMode::kMxfp4}));
  EXPECT_EQ(config->QuantizationOf("lm_head"), (QuantizationTraits{8, 64}));
  EXPECT_EQ(config->QuantizationOf("model.embed_tokens"), (QuantizationTraits{4, 64}));
  EXPECT_EQ(config->QuantizationOf("model.layers.0.self_attn.q_proj"),
            (QuantizationTraits{4, 16, QuantizationMode::kNvfp4}));
  EXPECT_EQ(config->QuantizationOf("model.layers.0.self_attn.k_proj"),
            (QuantizationTraits{8, 32, QuantizationMode::kMxfp8}));
  EXPECT_EQ(config->sliding_windows, (std::vector<int>{12, 0})) << "every other layer";
  EXPECT_TRUE(config->attention_sinks);
}

ModelShape WithLatent() {
  ModelShape shape = FewExperts("deepseek_v3");
  shape.experts = 4;
  shape.latent = 32;
  shape.query_latent = 48;
  return shape;
}

TEST(WeightsTest, MapsOfALatentCacheAreCheckedInBothForms) {
  auto files = RandomModel(WithLatent());
  EXPECT_TRUE(CheckFolder(WriteFolder(files)).ok()) << CheckFolder(WriteFolder(files)).ToString();
  files["config.json"] =
      Replaced(files["config.json"], "\"kv_lora_rank\":32", "\"kv_lora_rank\":40");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              AllOf(HasSubstr("self_attn.kv_a_proj_with_mqa.weight' is [48, 64]"),
                    HasSubstr("embed_q.weight' is [6, 32, 32], config.json implies [6, 40, 32]")));
  ModelShape together = WithLatent();
  together.by_head = false;
  files = RandomModel(together);
  EXPECT_TRUE(CheckFolder(WriteFolder(files)).ok()) << CheckFolder(WriteFolder(files)).ToString();
  files["config.json"] = Replaced(files["config.json"], "\"v_head_dim\":32", "\"v_head_dim\":34");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("kv_b_proj.weight' is [384, 32], config.json implies [396, 32]"));
}

TEST(WeightsTest, AMissingExpertOrCorrectionOfALatentModelIsNamed) {
  auto files = RandomModel(WithLatent());
  std::string& weights = files["model.safetensors"];
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  weights.replace(weights.find(name), name.size(), std::string(name.size() - 1, 'x') + "y");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("'" + name + "' [4] is in no weights file"));
  ModelShape apart = WithLatent();
  apart.stacked = false;
  files = RandomModel(apart);
  std::string& one = files["model.safetensors"];
  const std::string expert = "model.layers.1.mlp.experts.3.down_proj.weight";
  one.replace(one.find(expert), expert.size(), "model.layers.1.mlp.experts.3.gone_proj.weight");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files))),
              HasSubstr("'" + expert + "' [64, 64] is in no weights file"));
}

// Layers that draft further tokens stand behind the last one.
TEST(WeightsTest, LayersThatDraftTokensAreIgnored) {
  auto files = RandomModel(WithLatent());
  files["config.json"] =
      Replaced(files["config.json"], "\"num_hidden_layers\":2", "\"num_hidden_layers\":1");
  EXPECT_THAT(Text(CheckFolder(WriteFolder(files), {0, 1})), HasSubstr("the weights have 2"));
  files["config.json"] = Replaced(files["config.json"], "{", "{\"num_nextn_predict_layers\":1,");
  EXPECT_TRUE(CheckFolder(WriteFolder(files), {0, 1}).ok());
}

TEST(ModelConfigTest, ReadsLatentAttention) {
  const std::string base = RandomModel(WithLatent()).at("config.json");
  const auto config = ParseModelConfig(base, "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->latent.width(), 48);
  EXPECT_EQ(config->value_dim(), 32);
  EXPECT_EQ(config->has_experts, (std::vector<bool>{false, true}));
  EXPECT_EQ(config->experts.groups, 2);
  EXPECT_TRUE(config->rope.interleaved);
  EXPECT_EQ(config->rope.dims, 16);
  const auto message = [&](const std::string& added) {
    return Text(ParseModelConfig(Replaced(base, "{", "{" + added + ","), "m").status());
  };
  EXPECT_THAT(message(R"("scoring_func":"softmax")"),
              HasSubstr("scoring_func 'softmax' is not implemented; sigmoid is"));
  EXPECT_THAT(message(R"("topk_method":"greedy")"),
              HasSubstr("topk_method 'greedy' is not implemented; noaux_tc is"));
  EXPECT_THAT(
      Text(ParseModelConfig(Replaced(base, "\"n_group\":2", "\"n_group\":3"), "m").status()),
      HasSubstr("'n_group' 3"));
  EXPECT_THAT(Text(ParseModelConfig(Replaced(base, "\"kv_lora_rank\":32,", ""), "m").status()),
              HasSubstr("'kv_lora_rank' is missing"));
  const auto kimi =
      ParseModelConfig(R"({"model_type": "kimi_k25", "text_config": )" + base + "}", "m");
  ASSERT_TRUE(kimi.ok()) << kimi.status();
  EXPECT_EQ(kimi->latent.kv_rank, 32);
}

TEST(ModelConfigTest, ReadsExperts) {
  const auto config_of = [](const std::string& architecture) {
    return RandomModel(FewExperts(architecture)).at("config.json");
  };
  const auto qwen = ParseModelConfig(config_of("qwen3_moe"), "m");
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->has_experts, (std::vector<bool>{false, true}));
  EXPECT_EQ(qwen->experts.count, 3);
  EXPECT_TRUE(qwen->qk_norm);
  const auto mixtral = ParseModelConfig(config_of("mixtral"), "m");
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  EXPECT_EQ(mixtral->has_experts, (std::vector<bool>{true, true}));
  EXPECT_TRUE(mixtral->experts.normalized);
  EXPECT_EQ(mixtral->experts.down_name, "w2");
  const auto message = [&](const std::string& from, const std::string& to) {
    return Text(ParseModelConfig(Replaced(config_of("qwen3_moe"), from, to), "m").status());
  };
  EXPECT_THAT(message("\"num_experts_per_tok\":2", "\"num_experts_per_tok\":4"),
              HasSubstr("'num_experts_per_tok' is 4, but there are 3 experts"));
  EXPECT_THAT(message("\"mlp_only_layers\":[0]", "\"mlp_only_layers\":[7]"),
              HasSubstr("'mlp_only_layers' names layer 7"));
  EXPECT_THAT(message("\"num_experts\":3", "\"num_experts\":99999"), HasSubstr("above 4096"));
}

TEST(ModelConfigTest, RefusesWhatItDoesNotKnow) {
  const auto code = [](const std::string& from, const std::string& to) {
    return Code(ParseModelConfig(Replaced(TinyLlamaConfig(), from, to), "m").status());
  };
  EXPECT_EQ(code("\"llama\"", "\"mamba\""), "MODEL_ARCHITECTURE_UNKNOWN");
  EXPECT_EQ(code("\"hidden_size\": 64", "\"hidden_size\": -64"), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code("\"hidden_size\": 64", "\"hidden_size\": 1e300"), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code("\"hidden_size\": 64", "\"hidden_size\": 66"), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 999999"),
            "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
            "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code("}", R"(, "rope_scaling": {"rope_type": "spiral", "factor": 4}})"),
            "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_EQ(code("}", R"(, "quantization": {"bits": 7, "group_size": 64}})"),
            "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_EQ(code("}", R"(, "quantization_config": {"quant_method": "gptq"}})"),
            "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_EQ(Code(ParseModelConfig("{", "m").status()), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(Code(ParseModelConfig("[]", "m").status()), "MODEL_CONFIG_INVALID");
}

TEST(ModelConfigTest, ReadsArchitectureTraits) {
  const std::string base = TinyLlamaConfig();
  const auto qwen2 = ParseModelConfig(Replaced(base, "llama", "qwen2"), "m");
  ASSERT_TRUE(qwen2.ok());
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  const auto qwen3 = ParseModelConfig(Replaced(base, "llama", "qwen3"), "m");
  ASSERT_TRUE(qwen3.ok());
  EXPECT_TRUE(qwen3->qk_norm);
  const auto mistral = ParseModelConfig(
      Replaced(Replaced(base, "llama", "mistral"), "}", R"(, "sliding_window": 16})"), "m");
  ASSERT_TRUE(mistral.ok());
  EXPECT_EQ(mistral->sliding_windows, (std::vector<int>{16, 16}));
  const auto quantized =
      ParseModelConfig(Replaced(base, "}",
                                R"(, "quantization": {"bits": 4, "group_size": 32,
                   "lm_head": {"bits": 8, "group_size": 64}, "model.embed_tokens": false}})"),
                       "m");
  ASSERT_TRUE(quantized.ok()) << quantized.status().ToString();
  EXPECT_EQ(quantized->QuantizationOf("model.layers.0.mlp.up_proj"), (QuantizationTraits{4, 32}));
  EXPECT_EQ(quantized->QuantizationOf("lm_head"), (QuantizationTraits{8, 64}));
  EXPECT_EQ(quantized->QuantizationOf("model.embed_tokens"), QuantizationTraits{});
}

}  // namespace
}  // namespace macrame::runtime::engine
