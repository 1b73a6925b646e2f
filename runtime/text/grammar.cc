#include "runtime/text/grammar.h"

#include <vector>

#include "proto/check.h"
#include "proto/reason_codes.h"
#include "runtime/text/abi_bridge.h"

namespace macrame::runtime::text {
namespace {

constexpr FailureReasons kReasons = {reasons::kStructureRefused, reasons::kStructureRefused,
                                     reasons::kStructureRefused};

// Ids are never negative here: they are a vocabulary's own.
const uint32_t* Unsigned(std::span<const int32_t> tokens) {
  return reinterpret_cast<const uint32_t*>(tokens.data());
}

}  // namespace

void GrammarEngineDeleter::operator()(MacrameTextGrammarEngineHandle* handle) const {
  macrame_text_grammar_engine_free(handle);
}

void MatcherDeleter::operator()(MacrameTextMatcherHandle* handle) const {
  macrame_text_matcher_free(handle);
}

GrammarMatcher GrammarMatcher::Fork() const {
  MacrameTextMatcherHandle* fork = nullptr;
  const auto status = macrame_text_matcher_fork(handle_.get(), &fork, nullptr);
  MACRAME_CHECK(status == 0) << "a matcher that was moved away has no fork";
  return GrammarMatcher(fork);
}

absl::Status GrammarMatcher::Mask(std::span<const int32_t> ahead, std::span<uint32_t> bits) {
  MacrameTextBytes error{};
  const auto status = macrame_text_matcher_mask(handle_.get(), Unsigned(ahead), ahead.size(),
                                                bits.data(), bits.size(), &error);
  return TakeStatus(status, error, kReasons);
}

absl::StatusOr<bool> GrammarMatcher::Take(int32_t token) {
  bool is_over = false;
  MacrameTextBytes error{};
  const auto status =
      macrame_text_matcher_take(handle_.get(), static_cast<uint32_t>(token), &is_over, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return is_over;
}

size_t GrammarMatcher::Admitted(std::span<const int32_t> tokens) {
  size_t count = 0;
  const auto status = macrame_text_matcher_admitted(handle_.get(), Unsigned(tokens), tokens.size(),
                                                    &count, nullptr);
  return status == 0 ? count : 0;
}

absl::StatusOr<GrammarEngine> GrammarEngine::Make(const Tokenizer& tokenizer) {
  GrammarEngine engine;
  MacrameTextGrammarEngineHandle* handle = nullptr;
  MacrameTextBytes error{};
  const auto status =
      macrame_text_grammar_engine_new(tokenizer.handle_.get(), &handle, &engine.size_, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  engine.handle_.reset(handle);
  return engine;
}

absl::StatusOr<GrammarMatcher> GrammarEngine::Compile(const Grammar& grammar) const {
  MacrameTextMatcherHandle* matcher = nullptr;
  MacrameTextBytes error{};
  const auto status = macrame_text_grammar_compile(
      handle_.get(), static_cast<uint32_t>(grammar.kind), Lend(grammar.source), &matcher, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return GrammarMatcher(matcher);
}

}  // namespace macrame::runtime::text
