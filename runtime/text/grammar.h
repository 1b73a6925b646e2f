#pragma once

// Grammars that answers are held to, over a model's own vocabulary: which tokens may come next.
//
// A GrammarEngine stands for the vocabulary. It never changes and may be used by any number of
// threads at once. Making one takes a part of a second for a large vocabulary, and some ten MiB: it
// is made when the first grammar is asked for (serving/structure). A GrammarMatcher belongs to one
// answer and one thread at a time.
//
// Grammars come from clients. Beyond 128 KiB of text, and beyond bounds of work, memory and time
// (5 s; in a text worker if need be, text_worker.h), one is refused with STRUCTURE_REFUSED. So is a
// large one, and an answer that a large one is followed for, while all that an engine's grammars
// and matchers hold exceeds 512 MiB. What holds up to 4 MiB always has its place.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/text/tokenizer.h"

// Of the C ABI, macrame_text.h.
struct MacrameTextGrammarEngineHandle;
struct MacrameTextMatcherHandle;

namespace macrame::runtime::text {

struct GrammarEngineDeleter {
  void operator()(MacrameTextGrammarEngineHandle* handle) const;
};
struct MatcherDeleter {
  void operator()(MacrameTextMatcherHandle* handle) const;
};

enum class GrammarKind : uint32_t {
  kJsonSchema = 1,  // keywords that are not known are refused by name; oneOf is read as anyOf
  kJsonObject = 2,  // any; the source is not looked at
  kRegex = 3,       // of the whole answer, in the syntax of Rust's crate regex
  kLark = 4,        // as llguidance reads it
  kChoice = 5,      // a list of texts in JSON
};

struct Grammar {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string source;
};

class GrammarMatcher {
 public:
  // A matcher at the same place that goes on by itself. Matchers that were asked for nothing yet
  // share what was compiled: a fork of such a one costs nothing, and its first use may be refused.
  GrammarMatcher Fork() const;

  // Sets the bits of the tokens that may stand behind what was taken and `ahead`, clears all
  // others: bit i of word j stands for token 32 j + i. `ahead` must be Admitted. Nothing is taken.
  absl::Status Mask(std::span<const int32_t> ahead, std::span<uint32_t> bits);
  // The answer goes on with the token, which must be Admitted. True: nothing may follow.
  absl::StatusOr<bool> Take(int32_t token);
  // How many of the tokens may follow, one after the other.
  size_t Admitted(std::span<const int32_t> tokens);

 private:
  friend class GrammarEngine;
  explicit GrammarMatcher(MacrameTextMatcherHandle* handle) : handle_(handle) {}

  std::unique_ptr<MacrameTextMatcherHandle, MatcherDeleter> handle_;
};

class GrammarEngine {
 public:
  static absl::StatusOr<GrammarEngine> Make(const Tokenizer& tokenizer);

  // A matcher of an answer that has not begun. The last few grammars are kept. STRUCTURE_REFUSED
  // with what is wrong with the grammar.
  absl::StatusOr<GrammarMatcher> Compile(const Grammar& grammar) const;

  // Masks tell of the tokens below it; those beyond never have a place.
  size_t size() const { return size_; }

 private:
  GrammarEngine() = default;

  std::unique_ptr<MacrameTextGrammarEngineHandle, GrammarEngineDeleter> handle_;
  size_t size_ = 0;
};

}  // namespace macrame::runtime::text
