// What clients hold answers to: schemas, expressions, grammars, lists of choices. The first byte
// chooses the kind ('1' to '5'). Each compiles to a matcher or is refused in a sentence, within its
// bounds; a matcher's masks leave tokens that it then takes.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "proto/reasons.h"
#include "runtime/text/grammar.h"

namespace {

using namespace macrame::runtime::text;

constexpr int kTokensMax = 12;

struct Model {
  Tokenizer tokenizer;
  GrammarEngine engine;
};

// The tests run in the root of the tree.
const Model& TheModel() {
  static const std::unique_ptr<const Model> model = [] {
    auto tokenizer = Tokenizer::Load("tests/unit/runtime/text/testdata/byte_level");
    if (!tokenizer.ok()) abort();
    auto engine = GrammarEngine::Make(*tokenizer);
    if (!engine.ok()) abort();
    return std::make_unique<const Model>(Model{*std::move(tokenizer), *std::move(engine)});
  }();
  return *model;
}

// Not what the library itself got wrong, and no bound of the process.
void CheckRefusal(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) abort();
  if (status.message().empty() || status.message().find('\n') != std::string::npos) abort();
}

int32_t AnyOf(const std::vector<uint32_t>& bits, size_t choice) {
  std::vector<int32_t> set;
  for (size_t i = 0; i < bits.size() * 32; ++i) {
    if ((bits[i / 32] >> i % 32 & 1U) != 0) set.push_back(static_cast<int32_t>(i));
  }
  if (set.empty()) abort();
  return set[choice % set.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || data[0] < '1' || data[0] > '5') return 0;
  const Model& model = TheModel();
  Grammar grammar;
  grammar.kind = static_cast<GrammarKind>(data[0] - '0');
  grammar.source.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto matcher = model.engine.Compile(grammar);
  if (!matcher.ok()) {
    CheckRefusal(matcher.status());
    return 0;
  }
  std::vector<uint32_t> bits((model.engine.size() + 31) / 32);
  for (int i = 0; i < kTokensMax; ++i) {
    const absl::Status masked = matcher->Mask({}, bits);
    if (!masked.ok()) {
      CheckRefusal(masked);
      return 0;
    }
    const int32_t token = AnyOf(bits, size * 31 + static_cast<size_t>(i) * 7);
    const std::vector<int32_t> next = {token};
    if (!model.tokenizer.EosIds().contains(token) && matcher->Admitted(next) != 1) abort();
    const auto is_over = matcher->Take(token);
    if (!is_over.ok()) CheckRefusal(is_over.status());
    if (!is_over.ok() || *is_over) return 0;
  }
  return 0;
}
