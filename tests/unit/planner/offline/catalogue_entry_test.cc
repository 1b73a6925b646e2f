#include "planner/offline/catalogue_entry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "planner/advice.h"
#include "planner/offline/catalogue.h"
#include "planner/served_by.h"

namespace macrame::planner {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::vector<CatalogueEntry>& Entries() {
  static const std::vector<CatalogueEntry> entries = *CatalogueWith("");
  return entries;
}

// A dense model of two layers, with `more` keys.
std::string Entry(const std::string& more) {
  return absl::StrCat(
      "models:\n- {name: x, layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, "
      "intermediate: 128, vocab: 1000, context: 4096",
      more.empty() ? "" : ", ", more, "}\n");
}

std::string ErrorOf(const std::string& yaml) {
  return std::string(ReadCatalogue(yaml).status().message());
}

TEST(CatalogueFaults, NameTheEntryAndTheKey) {
  struct Case {
    std::string yaml;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"", {"do not begin with 'models:'", "deploy/catalogue/models.yaml"}},
      {"models: 5", {"'models' is a list"}},
      {"models:\n- {layers: 2}\n", {"model entry 1 has no 'name'"}},
      {"models:\n- {name: '', layers: 2}\n", {"model entry 1 has no 'name'"}},
      {"models:\n- x\n", {"model entry 1 has no 'name'"}},
      {Entry("layer: 3"), {"the entry of x", "'layer' is not a key", "layers"}},
      {Entry("hidden: 65"), {"the entry of x", "'hidden' stands there twice"}},
      {Entry("experts: many"), {"line 2, column ", "wrong kind"}},
      {Entry("experts: -1"), {"line 2", "wrong kind"}},
      {Entry("latent: {kv_rnk: 512}"), {"the entry of x", "latent: 'kv_rnk' is not", "kv_rank"}},
      {Entry("latent: 512"), {"the entry of x", "'latent' holds keys"}},
      {Entry("latent: {kv_rank: 1, kv_rank: 2}"), {"latent: 'kv_rank' stands there twice"}},
      {Entry("bytes: 61000000000"), {"the entry of x", "'bytes' holds keys"}},
      {Entry("bytes: [4, 8]"), {"the entry of x", "'bytes' holds keys"}},
      {Entry("bytes: {4: many}"), {"line 2", "wrong kind"}},
      {Entry("experts: 8, active: 9"), {"'active' (9) is more than 'experts' (8)"}},
      {Entry("parameters: 1, active_parameters: 2"), {"'active_parameters' (2) is more than"}},
      {Entry("experts: 8, active: 2, dense_layers: 3"), {"'dense_layers' (3) is more than"}},
      {"models:\n- {name: x, layers: 2, hidden: 8, heads: 2, kv_heads: 4, head_dim: 4, "
       "intermediate: 8}\n",
       {"'kv_heads' (4) is more than 'heads' (2)"}},
      {Entry("bits: 1"), {"'bits' of a weight are between 2 and 32"}},
      {Entry("group: 0"), {"the entry of x"}},
      {Entry("aliases: one"), {"line 2", "wrong kind"}},
      {Entry("rest_bits: .nan"), {"'rest_bits' is larger"}},
      {"models: [", {"model entries: line "}},
  };
  for (const Case& one : cases) {
    const std::string error = ErrorOf(one.yaml);
    for (const std::string& part : one.says) {
      EXPECT_TRUE(Has(error, part)) << "expected: " << part << "\nsaid: " << error << "\n"
                                    << one.yaml;
    }
    EXPECT_FALSE(Has(error, "line 0")) << error;
  }
  EXPECT_EQ(ErrorOf(Entry("")), "");
  EXPECT_EQ(ErrorOf(Entry("experts: 8, active: 8, expert_width: 32")), "");
  EXPECT_EQ(ErrorOf("models: []"), "");
}

TEST(Catalogue, AnEntryOfOnesOwnComesFirst) {
  const auto entries = CatalogueWith(
      "models:\n- {name: Llama-3.1-8B-Instruct, layers: 2, hidden: 8, active_parameters: 1}\n");
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ((*FindEntry(*entries, "llama-3.1-8b"))->layers, 2u);
  EXPECT_FALSE(CatalogueWith("models: 5").ok());
}

// GLM-5.3 is the beginning of GLM-5.3-Flash's name, and another model.
TEST(Catalogue, AModelWhoseNameAnotherContainsHasItsOwnEntry) {
  for (const char* name : {"GLM-5.3", "GLM-5.3-Flash", "MiMo-V2.5", "MiMo-V2.5-Pro", "Hy4"}) {
    const auto found = FindEntry(Entries(), name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ((*found)->name, name);
  }
}

TEST(Catalogue, SaysWhatServesTheNewerModels) {
  struct Case {
    const char* name;
    const char* engine;  // empty: rankd's own
    bool is_served, splits_tensor;
  };
  const Case cases[] = {
      {"Qwen3.8-27B", "", true, true},
      {"GLM-5.1", "", true, true},
      {"GLM-5.2", "", false, true},
      {"GLM-5.3-8bit", "", false, true},
      {"Qwen3.8-Flash-Next", "", false, true},
      {"Hy3-preview", "", false, true},
      {"Hy4-preview", "", false, true},
      {"Inkling-2-Small", "", false, true},
      {"Step-3.7-Flash", "", false, true},
      {"Mistral-Large-4", "", false, true},
      {"MiMo-V2.6-Flash", "", false, true},
      {"MiMo-V2-Flash", "mlx-lm", true, false},
      {"Ling-3.0-flash", "mlx-lm", true, false},
      {"Mistral-Small-4", "mlx-lm", true, false},
      {"Muse-Glimmer-30B", "mlx-lm", true, false},
      {"Spark-X2.5-4B", "mlx-lm", true, false},
      {"Step-3.5-Flash", "mlx-lm", true, true},
      {"Muse-Spark-Open", "mlx-lm", true, true},
      {"Kimi-K3", "mlx-lm", true, true},
  };
  for (const Case& one : cases) {
    const auto found = FindEntry(Entries(), one.name);
    ASSERT_TRUE(found.ok()) << found.status();
    const v1::ModelDescription model = DescribeEntry(**found, 4);
    EXPECT_EQ(model.engine(), one.engine) << one.name;
    EXPECT_EQ(WhyNotServed(model).empty(), one.is_served) << one.name;
    EXPECT_EQ(SplitsOf(model).tensor(), one.splits_tensor) << one.name;
  }
}

// Of each model that is shipped, with each number of bits: sizes follow from each other.
TEST(DescribeEntry, MakesModelsWhosePartsAreNoLargerThanTheWhole) {
  for (const CatalogueEntry& entry : Entries()) {
    uint64_t before = 0;
    for (const uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u, 16u}) {
      const v1::ModelDescription model = DescribeEntry(entry, bits);
      ASSERT_EQ(model.layer_bytes_size(), static_cast<int>(entry.layers)) << entry.name;
      ASSERT_EQ(model.layer_divisible_bytes_size(), model.layer_bytes_size()) << entry.name;
      for (int i = 0; i < model.layer_bytes_size(); ++i) {
        EXPECT_GT(model.layer_bytes(i), 0u) << entry.name << " " << i;
        EXPECT_LE(model.layer_divisible_bytes(i), model.layer_bytes(i)) << entry.name;
        if (i < model.layer_expert_bytes_size()) {
          EXPECT_LE(model.layer_expert_bytes(i), model.layer_bytes(i)) << entry.name;
        }
      }
      EXPECT_GT(model.attention_heads(), 0u) << entry.name;
      EXPECT_LE(model.experts_active(), std::max(1u, model.experts())) << entry.name;
      EXPECT_EQ(model.has_quantization(), bits < 16) << entry.name;
      if (entry.bytes.count(bits) > 0) continue;  // a published build has its own size
      const uint64_t bytes = ModelBytes(model);
      EXPECT_GT(bytes, before) << entry.name << ": more bits are no less, " << bits;
      before = bytes;
    }
  }
}

// Where the makers state how many parameters there are, the shapes say about as many.
TEST(DescribeEntry, AgreesWithWhatTheMakersCount) {
  int compared = 0;
  for (const CatalogueEntry& entry : Entries()) {
    if (entry.parameters <= 0 || entry.bytes.count(16) > 0) continue;
    const double shaped = static_cast<double>(ModelBytes(DescribeEntry(entry, 16))) / 2e9;
    EXPECT_NEAR(shaped / entry.parameters, 1, 0.13) << entry.name << ": " << shaped;
    ++compared;
  }
  EXPECT_GT(compared, 30);
}

TEST(DescribeEntry, APublishedBuildIsAsLargeAsItIs) {
  int compared = 0;
  for (const CatalogueEntry& entry : Entries()) {
    for (const auto& [bits, bytes] : entry.bytes) {
      const double made = static_cast<double>(ModelBytes(DescribeEntry(entry, bits)));
      const double text = static_cast<double>(bytes - entry.vision_bytes);
      EXPECT_NEAR(made / text, 1, 1e-3) << entry.name << " of " << bits << " bits";
      ++compared;
    }
  }
  EXPECT_GT(compared, 5);
}

TEST(DescribeEntry, NumbersThatTogetherMakeNoSizeAreRefused) {
  // Each is within its own bound.
  const std::string error = ErrorOf(
      "models:\n- {name: x, layers: 1024, hidden: 1048576, heads: 1048576, kv_heads: 1048576, "
      "head_dim: 1048576, intermediate: 1048576, vocab: 16777216}\n");
  EXPECT_TRUE(Has(error, "the entry of x: its numbers make a layer of ")) << error;
  // The largest that is taken stays a number, with as many bits as can be asked for.
  const auto entries = ReadCatalogue(
      "models:\n- {name: x, layers: 1024, hidden: 1048576, heads: 256, kv_heads: 8, "
      "head_dim: 128, intermediate: 1048576, vocab: 16777216, context: 4294967295, "
      "experts: 24, active: 24, expert_width: 1048576}\n");
  ASSERT_TRUE(entries.ok()) << entries.status();
  const uint64_t bytes = ModelBytes(DescribeEntry(entries->front(), 32));
  EXPECT_GT(bytes, uint64_t{1} << 55);
  EXPECT_LT(bytes, uint64_t{1} << 62);
}

TEST(BitsInName, AreReadAsPeopleWriteThem) {
  struct Case {
    const char* name;
    std::optional<uint32_t> bits;
  };
  const Case cases[] = {{"MiniMax-M2.5-6bit", 6},
                        {"x-IQ4_XS", 4},
                        {"x-Q5_K_M", 5},
                        {"x-8-bits", 8},
                        {"mlx-community/x-bf16", 16},
                        {"x-MXFP4-Q8", 4},
                        {"x-int8", 8},
                        {"gemma-3-4b-it", std::nullopt},
                        {"x-1bit", std::nullopt},
                        {"x-99bit", std::nullopt},
                        {"x-q", std::nullopt},
                        {"qwq-32b", std::nullopt},
                        {"", std::nullopt},
                        {"/", std::nullopt},
                        {"4bit", 4}};
  for (const Case& one : cases) EXPECT_EQ(BitsInName(one.name), one.bits) << one.name;
}

TEST(BitsOf, GoByWhatIsAskedThenByTheNameThenByTheMakers) {
  CatalogueEntry entry;
  EXPECT_EQ(BitsOf(entry, "x", 0), 16u);
  entry.bits = 8;
  EXPECT_EQ(BitsOf(entry, "x", 0), 8u);
  EXPECT_EQ(BitsOf(entry, "x-4bit", 0), 4u);
  EXPECT_EQ(BitsOf(entry, "x-4bit", 6), 6u);
}

TEST(FindEntry, NeverGuessesBetweenTwo) {
  const auto entries = *ReadCatalogue(
      "models:\n- {name: Alpha-7B, layers: 2, hidden: 8, active_parameters: 1}\n"
      "- {name: Alpha-70B, layers: 2, hidden: 8, active_parameters: 1}\n");
  EXPECT_EQ((*FindEntry(entries, "alpha-70b-4bit"))->name, "Alpha-70B");
  const auto both = FindEntry(entries, "alpha");
  EXPECT_TRUE(absl::IsNotFound(both.status()));
  EXPECT_TRUE(Has(std::string(both.status().message()), "did you mean one of")) << both.status();
  for (const char* nothing : {"", "-", "///", "al", "\xFF\xFE"}) {
    EXPECT_TRUE(absl::IsNotFound(FindEntry(entries, nothing).status())) << nothing;
  }
}

}  // namespace
}  // namespace macrame::planner
