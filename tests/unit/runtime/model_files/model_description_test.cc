#include "runtime/model_files/model_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>

#include "proto/model_fingerprint.h"
#include "proto/reasons.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model_files/model_writer.h"

namespace macrame::runtime {
namespace {

using testing::HasSubstr;

std::string CodeOf(const std::string& folder) {
  return ReasonOf(DescribeModel(folder).status()).code();
}
std::string MessageOf(const std::string& folder) {
  return std::string(DescribeModel(folder).status().message());
}

TEST(ModelDescription, CountsBytesAsTheFilesSay) {
  const std::string folder = MakeFolder("plain");
  WriteModel(folder, SmallConfig(), SmallTensors());
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name(), "plain");
  EXPECT_EQ(model->path(), folder);
  EXPECT_EQ(model->architecture(), "llama");
  EXPECT_EQ(model->layer_count(), 2u);
  EXPECT_EQ(model->head_dim(), 16u);
  EXPECT_EQ(model->kv_heads(), 2u);
  EXPECT_EQ(model->context_length_max(), 512u);
  EXPECT_EQ(model->dtype(), "bfloat16");
  EXPECT_EQ(model->quantization().bits(), 0u);
  EXPECT_EQ(model->embedding_bytes(), 100u * 64 * 2);
  EXPECT_EQ(model->head_bytes(), 100u * 64 * 2);
  EXPECT_EQ(model->final_norm_bytes(), 128u);
  const uint64_t divisible = 2 * (64 * 64 * 2 + 2 * 32 * 64 + 3 * 128 * 64);
  ASSERT_EQ(model->layer_bytes_size(), 2);
  EXPECT_EQ(model->layer_divisible_bytes(0), divisible);
  EXPECT_EQ(model->layer_bytes(1), divisible + 2 * 128);
  EXPECT_EQ(model->parameter_count(), 2 * 6400 + 64 + 2 * (divisible / 2 + 128));
  EXPECT_EQ(model->fingerprint().size(), 65u);
}

// A hang is what this test fails by: no program ever writes into the pipes.
TEST(ModelDescription, APipeInThePlaceOfAFileIsNamedAtOnce) {
  for (const std::string name :
       {"config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json",
        "modules.json", "1_Pooling/config.json", "generation_config.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja", "merges.txt"}) {
    const std::string folder = MakeFolder("pipes");
    WriteModel(folder, SmallConfig(), SmallTensors());
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(MessageOf(folder), HasSubstr(path.string() + " is a pipe, not a file"));
  }
  const std::string adapter = MakeFolder("adapter");
  ASSERT_EQ(::mkfifo((adapter + "/adapter_config.json").c_str(), 0600), 0);
  EXPECT_THAT(MessageOf(adapter), HasSubstr("adapter_config.json is a pipe, not a file"));
  const std::string endless = MakeFolder("endless");
  WriteModel(endless, SmallConfig(), SmallTensors());
  std::filesystem::create_symlink("/dev/zero", endless + "/chat_template.jinja");
  EXPECT_THAT(MessageOf(endless), HasSubstr("chat_template.jinja is a device, not a file"));
}

// A checkpoint that was saved without its head is described like any other.
TEST(ModelDescription, TellsHowAModelMakesEmbeddings) {
  const std::string chat = MakeFolder("chat");
  WriteModel(chat, SmallConfig(), SmallTensors());
  EXPECT_EQ(DescribeModel(chat)->pooling(), "");

  TestTensors bare;
  for (const auto& [name, tensor] : SmallTensors()) {
    if (name != "lm_head.weight") bare[name.substr(std::string("model.").size())] = tensor;
  }
  const std::string folder = MakeFolder("bare");
  WriteModel(folder, SmallConfig(), bare);
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->pooling(), "last");
  EXPECT_EQ(model->embedding_bytes(), 100u * 64 * 2);
  EXPECT_EQ(model->head_bytes(), 0u);
  EXPECT_EQ(model->layer_bytes(0), DescribeModel(chat)->layer_bytes(0));
  std::filesystem::create_directories(folder + "/1_Pooling");
  WriteFile(folder + "/1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(DescribeModel(folder)->pooling(), "mean");
  WriteFile(folder + "/1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_EQ(CodeOf(folder), "MODEL_FORMAT_UNSUPPORTED");
}

// Names that a vision tower's checkpoint gives its text tensors are not those in its files.
TEST(ModelDescription, SamplesTensorsUnderTheirStoredNames) {
  TestTensors inner;
  for (const auto& [name, tensor] : SmallTensors()) inner["language_model." + name] = tensor;
  const std::string folder = MakeFolder("inner");
  WriteModel(folder, SmallConfig(), inner);
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string plain = MakeFolder("plain-names");
  WriteModel(plain, SmallConfig(), SmallTensors());
  EXPECT_EQ(model->fingerprint(), DescribeModel(plain)->fingerprint());
}

// What planning goes by: how many bytes of a layer are experts', and that routers are on all ranks.
TEST(ModelDescription, TellsExpertsApart) {
  nlohmann::json config = SmallConfig();
  config.update({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  TestTensors tensors = SmallTensors();
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const char* map : {"gate_proj", "up_proj", "down_proj"}) {
      const TestTensor dense = tensors.at(prefix + "mlp." + map + ".weight");
      tensors.erase(prefix + "mlp." + map + ".weight");
      tensors[prefix + "block_sparse_moe.switch_mlp." + map + ".weight"] = {
          "BF16", {4, dense.shape[0], dense.shape[1]}};
    }
    tensors[prefix + "block_sparse_moe.gate.weight"] = {"BF16", {4, 64}};
  }
  const std::string folder = MakeFolder("mixture");
  WriteModel(folder, config, tensors);
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->architecture(), "mixtral");
  EXPECT_EQ(model->experts(), 4u);
  EXPECT_EQ(model->experts_active(), 2u);
  EXPECT_EQ(model->intermediate_size(), 128u);
  const uint64_t experts = 4 * 3 * 128 * 64 * 2, attention = (64 * 64 * 2 + 2 * 32 * 64) * 2;
  ASSERT_EQ(model->layer_expert_bytes_size(), 2);
  EXPECT_EQ(model->layer_expert_bytes(1), experts);
  EXPECT_EQ(model->layer_divisible_bytes(1), experts + attention);
  EXPECT_EQ(model->layer_bytes(1), experts + attention + 4 * 64 * 2 + 2 * 128);
}

// All experts of a layer in two tensors, as Qwen publishes them.
TEST(ModelDescription, FusedExpertsCountAsOthersDo) {
  nlohmann::json config = SmallConfig();
  config.update({{"model_type", "qwen3_vl_moe"}, {"text_config", SmallConfig()}});
  config["text_config"].update({{"num_experts", 4},
                                {"num_experts_per_tok", 2},
                                {"head_dim", 16},
                                {"moe_intermediate_size", 48}});
  for (const bool turned : {false, true}) {
    TestTensors tensors = SmallTensors();
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      for (const char* map : {"gate_proj", "up_proj", "down_proj"}) {
        tensors.erase(prefix + "mlp." + map + ".weight");
      }
      for (const char* norm : {"q_norm", "k_norm"}) {
        tensors[prefix + "self_attn." + norm + ".weight"] = {"BF16", {16}};
      }
      tensors[prefix + "mlp.gate.weight"] = {"BF16", {4, 64}};
      using Shape = std::vector<int64_t>;
      tensors[prefix + "mlp.experts.gate_up_proj"] = {"BF16",
                                                      turned ? Shape{4, 64, 96} : Shape{4, 96, 64}};
      tensors[prefix + "mlp.experts.down_proj"] = {"BF16",
                                                   turned ? Shape{4, 48, 64} : Shape{4, 64, 48}};
    }
    const std::string folder = MakeFolder("fused");
    WriteModel(folder, config, tensors);
    const auto model = DescribeModel(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    const uint64_t experts = 4 * 3 * 48 * 64 * 2, attention = (64 * 64 * 2 + 2 * 32 * 64) * 2;
    EXPECT_EQ(model->layer_expert_bytes(1), experts);
    EXPECT_EQ(model->layer_divisible_bytes(1), experts + attention);
    EXPECT_EQ(model->layer_bytes(1), experts + attention + 4 * 64 * 2 + 2 * 128 + 2 * 32);
    tensors["model.layers.1.mlp.experts.down_proj"].shape = {4, 64, 47};
    WriteModel(folder, config, tensors);
    EXPECT_THAT(DescribeModel(folder).status().message(),
                testing::HasSubstr("tensor 'model.layers.1.mlp.experts.down_proj' is [4, 64, 47], "
                                   "config.json implies [4, 48, 64]"));
  }
}

// Kimi's experts: their biases are made of their scales, and take as much.
TEST(ModelDescription, PackedNumbersCountAsTheyWillBeHeld) {
  nlohmann::json config = SmallConfig();
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}, {"group_size", 32}}}}}}}};
  TestTensors tensors;
  for (const auto& [name, tensor] : SmallTensors()) {
    if (name.find("_proj.weight") == std::string::npos) {
      tensors[name] = tensor;
      continue;
    }
    tensors[name + "_packed"] = {"I32", {tensor.shape[0], tensor.shape[1] / 8}};
    tensors[name + "_scale"] = {"BF16", {tensor.shape[0], tensor.shape[1] / 32}};
    tensors[name + "_shape"] = {"I32", {2}};
  }
  const std::string folder = MakeFolder("packed");
  WriteModel(folder, config, tensors);
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  const uint64_t weights = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 128 * 64;
  EXPECT_EQ(model->layer_divisible_bytes(0), weights / 2 + weights / 32 * 4);
  EXPECT_EQ(model->layer_bytes(0), weights / 2 + weights / 32 * 4 + 2 * 128);
  EXPECT_EQ(model->quantization().bits(), 4u);
  EXPECT_EQ(model->quantization().group_size(), 32u);
  EXPECT_EQ(model->dtype(), "bfloat16");
  EXPECT_EQ(model->parameter_count(), 2 * weights + 2 * 100 * 64 + 5 * 64);
}

// Of models with residual streams.
TEST(ModelDescription, TellsStreamsAndWhatCompressedAttentionKeeps) {
  const std::string folder = MakeFolder("streams");
  const auto files = engine::ModelOfConfig(engine::CompressedConfig());
  for (const auto& [name, content] : files) WriteFile(folder + "/" + name, content);
  WriteFile(folder + "/tokenizer.json", "{}");
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  // Three streams, what they are weighed by, an entry of 64 and eight choices.
  EXPECT_EQ(model->residual_streams(), (3 * 64 + 3 + 64 + 8 + 63u) / 64);
  EXPECT_EQ(model->kv_heads(), 4u);
  // Windows of 32 in each of five layers; two that make entries of 64, and a stage's third. In
  // groups of 32.
  EXPECT_EQ(model->kv_latent_width(), 96u);
  EXPECT_GT(model->layer_expert_bytes(0), 0u);
  EXPECT_EQ(model->engine(), "");
}

TEST(ModelDescription, TellsWhatChoosingBlocksTakes) {
  const std::string folder = MakeFolder("blocks");
  for (const auto& [name, content] : engine::FamilyModel({"minimax_m3_vl"})) {
    WriteFile(folder + "/" + name, content);
  }
  WriteFile(folder + "/tokenizer.json", "{}");
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->architecture(), "minimax_m3_vl");
  EXPECT_EQ(model->engine(), "");
  EXPECT_EQ(model->kv_heads(), 3u);
  EXPECT_EQ(model->experts_active(), 2u);
  EXPECT_EQ(model->layer_expert_bytes(0), 0u) << "a dense layer";
  EXPECT_GT(model->layer_expert_bytes(1), 0u);
  // Queries of the indexer are cut, its key and the norms are not.
  const uint64_t norms = 4 * (2 * 64 + 4 * 32), key = 4 * 32 * 64;
  const uint64_t router = 4 * (5 * 64 + 5);
  EXPECT_EQ(model->layer_bytes(1) - model->layer_divisible_bytes(1), norms + key + router);
}

TEST(ModelDescription, ReadsQuantisationFromTheFiles) {
  for (const int bits : {4, 6, 8}) {
    const std::string folder = MakeFolder("q");
    nlohmann::json config = SmallConfig();
    config["quantization"] = {{"bits", bits}, {"group_size", 32}};
    WriteModel(folder, config, QuantizedTensors(bits, 32));
    const auto model = DescribeModel(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->quantization().bits(), static_cast<uint32_t>(bits));
    EXPECT_EQ(model->quantization().group_size(), 32u);
    // Packed weights, and 16 bits of scale and of bias a group.
    EXPECT_EQ(model->embedding_bytes(), 100u * 64 * bits / 8 + 2u * 100 * 2 * 2);
  }
}

// Of MLX's modes with a byte for a scale: they stay as they are stored, whatever computes them.
TEST(ModelDescription, PackedFloatsCountAsTheyAreStored) {
  struct Mode {
    const char* name;
    uint32_t bits, group;
  };
  for (const Mode& mode : {Mode{"mxfp4", 4, 32}, Mode{"mxfp8", 8, 32}, Mode{"nvfp4", 4, 16}}) {
    nlohmann::json config = SmallConfig();
    config["quantization"] = {{"bits", mode.bits}, {"group_size", mode.group}, {"mode", mode.name}};
    TestTensors tensors =
        QuantizedTensors(static_cast<int>(mode.bits), static_cast<int>(mode.group));
    for (auto it = tensors.begin(); it != tensors.end();) {
      if (it->first.ends_with(".scales")) it->second.dtype = "U8";
      it = it->first.ends_with(".biases") ? tensors.erase(it) : std::next(it);
    }
    const std::string folder = MakeFolder("packed-floats");
    WriteModel(folder, config, tensors);
    const auto model = DescribeModel(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    const uint64_t weights = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 128 * 64;
    const uint64_t stored = weights * mode.bits / 8 + weights / mode.group;
    EXPECT_EQ(model->layer_divisible_bytes(0), stored) << mode.name;
    EXPECT_EQ(model->layer_bytes(0), stored + 2 * 128) << mode.name;
    EXPECT_EQ(model->embedding_bytes(), 6400 * mode.bits / 8 + 6400 / mode.group) << mode.name;
    EXPECT_EQ(model->quantization().bits(), mode.bits);
    EXPECT_EQ(model->quantization().group_size(), mode.group);
    EXPECT_EQ(model->parameter_count(), 2 * weights + 2 * 6400 + 5 * 64);
  }
}

// rankd keeps every position that a context has, so a plan must have memory for them all.
TEST(ModelDescription, AWindowSavesNoMemory) {
  for (const char* architecture : {"mistral", "qwen2"}) {
    nlohmann::json config = SmallConfig();
    config["model_type"] = architecture;
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 0;
    config["sliding_window"] = 64;
    TestTensors tensors = SmallTensors();
    for (int layer = 0; config["model_type"] == "qwen2" && layer < 2; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
      tensors[prefix + "q_proj.bias"] = {"BF16", {64}};
      tensors[prefix + "k_proj.bias"] = {"BF16", {32}};
      tensors[prefix + "v_proj.bias"] = {"BF16", {32}};
    }
    const std::string folder = MakeFolder("windowed");
    WriteModel(folder, config, tensors);
    const auto model = DescribeModel(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->sliding_window(), 0u) << architecture;
  }
}

TEST(ModelDescription, AConfigThatContradictsTheWeightsIsInvalid) {
  const std::string folder = MakeFolder("m");
  nlohmann::json config = SmallConfig();
  config["quantization"] = {{"bits", 8}, {"group_size", 32}};
  WriteModel(folder, config, QuantizedTensors(4, 32));
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID") << "8 bits said, 4 stored";
  config = SmallConfig();
  config["num_hidden_layers"] = 3;
  WriteModel(folder, config, SmallTensors());
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(MessageOf(folder), HasSubstr("model.layers.2"));
  config["num_hidden_layers"] = 1;
  WriteConfig(folder, config);
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID") << "a layer too many";
  config = SmallConfig();
  config["vocab_size"] = 99;
  WriteConfig(folder, config);
  EXPECT_THAT(MessageOf(folder), HasSubstr("model.embed_tokens.weight"));
}

TEST(ModelDescription, ConfigsThatAreNotOne) {
  const std::string folder = MakeFolder("m");
  WriteSafetensors(folder + "/model.safetensors", SmallTensors());
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID") << "missing";
  for (const char* text : {"", "{", "[]", "null", "{\"model_type\": 3}"}) {
    WriteFile(folder + "/config.json", text);
    EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID") << text;
  }
  WriteFile(folder + "/config.json", std::string(500'000, '['));
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID");
  WriteFile(folder + "/config.json",
            "{\"a\":" + std::string(400'000, '[') + std::string(400'000, ']') + "}");
  EXPECT_EQ(CodeOf(folder), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(MessageOf(folder), HasSubstr("nested too deeply"));
}

TEST(ModelDescription, UnknownArchitecturesListTheKnownOnes) {
  const std::string folder = MakeFolder("m");
  nlohmann::json config = SmallConfig();
  config["model_type"] = "mamba";
  WriteModel(folder, config, SmallTensors());
  EXPECT_EQ(CodeOf(folder), "MODEL_ARCHITECTURE_UNKNOWN");
  EXPECT_THAT(MessageOf(folder), HasSubstr("mamba"));
  EXPECT_THAT(MessageOf(folder), HasSubstr("llama, mistral, qwen2, qwen3"));
}

TEST(ModelDescription, ForeignFormatsSayWhatWasFound) {
  const std::string gguf = MakeFolder("g");
  WriteConfig(gguf, SmallConfig());
  WriteFile(gguf + "/model-Q4_K_M.gguf", "GGUF");
  EXPECT_EQ(CodeOf(gguf), "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_THAT(MessageOf(gguf), HasSubstr("model import " + gguf + "/model-Q4_K_M.gguf"));
  EXPECT_EQ(CodeOf(gguf + "/model-Q4_K_M.gguf"), "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_THAT(MessageOf(gguf + "/model-Q4_K_M.gguf"), HasSubstr("model import "));
  const std::string pickle = MakeFolder("p");
  WriteConfig(pickle, SmallConfig());
  WriteFile(pickle + "/pytorch_model.bin", "x");
  EXPECT_THAT(MessageOf(pickle), HasSubstr("PyTorch"));
  const std::string gptq = MakeFolder("q");
  TestTensors tensors = SmallTensors();
  tensors["model.layers.0.self_attn.q_proj.qweight"] = {"U32", {8, 64}};
  WriteModel(gptq, SmallConfig(), tensors);
  EXPECT_EQ(CodeOf(gptq), "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_THAT(MessageOf(gptq), HasSubstr("GPTQ"));
  nlohmann::json config = SmallConfig();
  config["quantization_config"] = {{"quant_method", "awq"}};
  WriteConfig(gptq, config);
  EXPECT_THAT(MessageOf(gptq), HasSubstr("awq"));
}

// 8-bit floats take two bytes each once they are in memory, and their scales none.
TEST(ModelDescription, EightBitFloatsCountAsTheyWillBeHeld) {
  const std::string plain = MakeFolder("plain"), small = MakeFolder("small");
  TestTensors tensors = SmallTensors();
  for (auto& [name, tensor] : tensors) tensor.dtype = "BF16";
  WriteModel(plain, SmallConfig(), tensors);
  const TestTensors floats = tensors;
  for (const auto& [name, tensor] : floats) {
    if (name.find("_proj.weight") == std::string::npos) continue;
    tensors[name].dtype = "F8_E4M3";
    tensors[name + "_scale_inv"] = {"F32", {1, 1}};
  }
  nlohmann::json config = SmallConfig();
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  WriteModel(small, config, tensors);
  const auto held = DescribeModel(plain), stored = DescribeModel(small);
  ASSERT_TRUE(held.ok() && stored.ok()) << stored.status();
  for (int layer = 0; layer < static_cast<int>(held->layer_count()); ++layer) {
    EXPECT_EQ(stored->layer_bytes(layer), held->layer_bytes(layer));
    EXPECT_EQ(stored->layer_divisible_bytes(layer), held->layer_divisible_bytes(layer));
  }
  EXPECT_EQ(stored->parameter_count(), held->parameter_count());
  EXPECT_EQ(stored->dtype(), "bfloat16");
  EXPECT_EQ(stored->quantization().bits(), 0U);
}

TEST(ModelDescription, AFolderWithoutTokenizerJsonIsRefusedWithWhatToDo) {
  const std::string folder = MakeFolder("kimi");
  WriteModel(folder, SmallConfig(), SmallTensors());
  ASSERT_TRUE(DescribeModel(folder).ok());
  std::filesystem::remove(folder + "/tokenizer.json");
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_MISSING");
  EXPECT_THAT(MessageOf(folder), HasSubstr(folder + " has no tokenizer.json"));
  EXPECT_THAT(MessageOf(folder), HasSubstr("transformers' AutoTokenizer writes"));
  WriteFile(folder + "/tiktoken.model", "");
  EXPECT_THAT(MessageOf(folder), HasSubstr("only tiktoken's table"));
}

TEST(ModelDescription, ATokenizerThatIsNoJsonIsRefusedBeforeAnythingIsLaunched) {
  const std::string folder = MakeFolder("cut");
  WriteModel(folder, SmallConfig(), SmallTensors());
  for (const char* broken : {"", "{\"model\": {\"vocab\": {\"a\"", "version https://git-lfs"}) {
    WriteFile(folder + "/tokenizer.json", broken);
    EXPECT_EQ(CodeOf(folder), "TOKENIZER_INVALID") << broken;
    EXPECT_THAT(MessageOf(folder), HasSubstr(folder + "/tokenizer.json is not JSON"));
  }
}

TEST(ModelDescription, MissingAndBrokenFiles) {
  EXPECT_EQ(CodeOf("/nonexistent"), "MODEL_NOT_FOUND");
  const std::string folder = MakeFolder("m");
  WriteConfig(folder, SmallConfig());
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_MISSING");
  WriteSafetensors(folder + "/a.safetensors", SmallTensors());
  WriteFile(folder + "/model.safetensors.index.json",
            R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_MISSING");
  EXPECT_THAT(MessageOf(folder), HasSubstr("b.safetensors"));
  WriteFile(folder + "/model.safetensors.index.json",
            R"({"weight_map": {"x": "../../etc/passwd"}})");
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_BROKEN");
  WriteFile(folder + "/model.safetensors.index.json", "{");
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_BROKEN");
  std::filesystem::remove(folder + "/model.safetensors.index.json");
  EXPECT_TRUE(DescribeModel(folder).ok());
  std::filesystem::resize_file(folder + "/a.safetensors", 5000);
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_BROKEN");
  WriteFile(folder + "/a.safetensors", std::string(8, '\xff'));
  EXPECT_EQ(CodeOf(folder), "MODEL_FILE_BROKEN");
}

TEST(ModelDescription, FingerprintsTellModelsApartAndNothingElse) {
  const std::string folder = MakeFolder("a");
  WriteModel(folder, SmallConfig(), SmallTensors());
  const std::string one = DescribeModel(folder)->fingerprint();
  // The same model: other layout of config.json, two shards.
  const std::string sharded = MakeFolder("b");
  nlohmann::json config = SmallConfig();
  config["transformers_version"] = "4.99";
  WriteFile(sharded + "/config.json", config.dump());
  TestTensors first, second;
  int index = 0;
  for (const auto& [name, tensor] : SmallTensors()) (index++ % 2 ? first : second)[name] = tensor;
  WriteSafetensors(sharded + "/1.safetensors", first);
  WriteSafetensors(sharded + "/2.safetensors", second);
  EXPECT_EQ(DescribeModel(sharded)->fingerprint(), one);
  // Other weights of the same shape; another setting.
  WriteModel(folder, SmallConfig(), SmallTensors(), 2);
  EXPECT_NE(DescribeModel(folder)->fingerprint(), one);
  config["rope_theta"] = 5e5;
  WriteModel(folder, config, SmallTensors());
  EXPECT_NE(DescribeModel(folder)->fingerprint(), one);
}

// A corrected chat template is another model to whoever talks to it.
TEST(ModelDescription, FingerprintsCountWhatShapesText) {
  const std::string folder = MakeFolder("a");
  WriteModel(folder, SmallConfig(), SmallTensors());
  WriteFile(folder + "/tokenizer_config.json", R"({"eos_token": "</s>", "chat_template": "x"})");
  const auto before = DescribeModel(folder);
  ASSERT_TRUE(before.ok()) << before.status();
  // Layout, stamps and files that shape no text count for nothing.
  WriteFile(
      folder + "/tokenizer_config.json",
      "{\"chat_template\": \"x\",\n \"transformers_version\": \"5\", \"eos_token\": \"</s>\"}");
  WriteFile(folder + "/README.md", "hello");
  EXPECT_EQ(DescribeModel(folder)->fingerprint(), before->fingerprint());
  std::string last = before->fingerprint();
  const std::pair<const char*, const char*> changes[] = {
      {"tokenizer_config.json", R"({"eos_token": "</s>", "chat_template": "y"})"},
      {"chat_template.jinja", "z"},
      {"generation_config.json", R"({"temperature": 0.5})"},
      {"special_tokens_map.json", R"({"bos_token": "<s>"})"},
      {"tokenizer.json", R"({"model": 1})"},
  };
  for (const auto& [name, content] : changes) {
    WriteFile(folder + "/" + name, content);
    const auto after = DescribeModel(folder);
    ASSERT_TRUE(after.ok()) << name << ": " << after.status();
    EXPECT_TRUE(DifferInTextAlone(after->fingerprint(), last)) << name;
    last = after->fingerprint();
  }
}

TEST(ModelDescription, AnAdapterByItselfIsNamed) {
  const std::string folder = MakeFolder("lora");
  WriteFile(folder + "/adapter_config.json", R"({"base_model_name_or_path": "ORG/BASE"})");
  WriteFile(folder + "/adapter_model.safetensors", "x");
  const v1::Reason reason = ReasonOf(DescribeModel(folder).status());
  EXPECT_EQ(reason.code(), "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_NE(reason.message().find("adapter"), std::string::npos);
  EXPECT_NE(reason.remedy().find("--model ORG/BASE"), std::string::npos) << reason.remedy();
}

TEST(ModelDescription, ATokenizerIsReadAsPythonReadsIt) {
  const std::string folder = MakeFolder("a");
  WriteModel(folder, SmallConfig(), SmallTensors());
  WriteFile(folder + "/tokenizer.json", "\xEF\xBB\xBF{\"score\": -Infinity, \"n\": 1e999}");
  EXPECT_TRUE(DescribeModel(folder).ok()) << DescribeModel(folder).status();
}

// Of layers with a state: which layers attend, and what the others keep of a sequence instead.
TEST(ModelDescription, LayersWithAState) {
  nlohmann::json config = engine::FamilyConfig({"qwen3_next"});
  const auto describe = [](const nlohmann::json& of) {
    const std::string folder = MakeFolder("m");
    for (const auto& [name, bytes] : engine::ModelOfConfig(of)) {
      WriteFile(folder + "/" + name, bytes);
    }
    WriteFile(folder + "/tokenizer.json", "{}");
    const auto model = DescribeModel(folder);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *model : v1::ModelDescription();
  };
  config["num_hidden_layers"] = 5;
  const v1::ModelDescription regular = describe(config);
  EXPECT_EQ(regular.full_attention_every(), 2u);
  EXPECT_EQ(regular.attention_layers_size(), 0);
  // Three inputs of 240 channels, and a matrix of 24 x 16 for each of six heads.
  EXPECT_EQ(regular.fixed_state_bytes(), 4u * (3 * 240 + 6 * 24 * 16));
  EXPECT_GT(regular.layer_divisible_bytes(0), regular.layer_bytes(0) / 2);
  config["layer_types"] = {"full_attention", "linear_attention", "linear_attention",
                           "full_attention", "linear_attention"};
  const v1::ModelDescription other = describe(config);
  EXPECT_EQ(other.full_attention_every(), 0u);
  ASSERT_EQ(other.attention_layers_size(), 2);
  EXPECT_EQ(other.attention_layers(0), 0u);
  EXPECT_EQ(other.attention_layers(1), 3u);
}

// Gemma 4: layers with heads of two sizes, of which the last ones read what earlier ones keep.
TEST(ModelDescription, LayersThatShareKeysAndValues) {
  const std::string folder = MakeFolder("shared");
  for (const auto& [name, content] : engine::FamilyModel({"gemma4"})) {
    WriteFile(folder + "/" + name, content);
  }
  WriteFile(folder + "/tokenizer.json", "{}");
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->kv_heads(), 2u);
  EXPECT_EQ(model->head_dim(), 48u) << "of those that keep most";
  EXPECT_THAT(model->attention_layers(), testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(model->fixed_state_bytes(), 0u);
  EXPECT_EQ(model->full_attention_every(), 0u);
  // Hidden states of 64, inputs of up to two layers of 32, keys and values of 2 x 32 and 2 x 48.
  EXPECT_EQ(model->residual_streams(), (64u + 2 * 32 + 2 * (2 * 32 + 2 * 48) + 63) / 64);
  EXPECT_FALSE(model->tied_embeddings()) << "the head is a part of what is embedded with";
  EXPECT_EQ(model->head_bytes(), 101u * 64 * 4);
  EXPECT_EQ(model->embedding_bytes(), 4u * (101 * 64 + 101 * 5 * 32 + 5 * 32 * 64 + 32));
  EXPECT_GT(model->layer_divisible_bytes(4), model->layer_divisible_bytes(2))
      << "twice as wide, without keys and values";
}

TEST(ModelDescription, TheBundledModel) {
  const std::string folder = "deploy/models/knot-5m-4bit";
  if (!std::filesystem::exists(folder + "/config.json")) GTEST_SKIP() << "not there yet";
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->quantization().bits(), 4u);
  EXPECT_EQ(model->layer_count() % 6, 0u) << "two and three stages divide it";
  EXPECT_EQ(model->kv_heads() % 4, 0u);
  EXPECT_TRUE(model->tied_embeddings());
  EXPECT_EQ(model->head_bytes(), 0u);
}

}  // namespace
}  // namespace macrame::runtime
