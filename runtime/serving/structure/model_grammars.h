#pragma once

// From what a request says of its answer's structure to the constraint that it is held to, for one
// model. Any thread.
//
// The engine of the model's vocabulary is made when the first structure is asked for: it takes a
// part of a second and memory that a model without such requests has no use for.

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/sampling/token_constraint.h"
#include "runtime/text/grammar.h"
#include "runtime/text/tokenizer.h"

namespace macrame::runtime::engine {

class ModelGrammars {
 public:
  // `tokenizer` outlives it.
  explicit ModelGrammars(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // STRUCTURE_REFUSED with what is wrong with the structure.
  absl::StatusOr<std::shared_ptr<const TokenConstraint>> Compile(
      const v1::Structure& structure) const;

 private:
  absl::StatusOr<const text::GrammarEngine*> Engine() const;

  const text::Tokenizer& tokenizer_;
  mutable absl::Mutex mutex_;
  mutable std::optional<text::GrammarEngine> engine_ ABSL_GUARDED_BY(mutex_);  // set once
};

// The grammar that a structure stands for; STRUCTURE_REFUSED when it names none.
absl::StatusOr<text::Grammar> GrammarOf(const v1::Structure& structure);

}  // namespace macrame::runtime::engine
