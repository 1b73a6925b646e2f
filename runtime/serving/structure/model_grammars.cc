#include "runtime/serving/structure/model_grammars.h"

#include <nlohmann/json.hpp>

#include "proto/reasons.h"
#include "runtime/serving/structure/grammar_constraint.h"

namespace macrame::runtime::engine {

using text::Grammar;
using text::GrammarKind;

absl::StatusOr<Grammar> GrammarOf(const v1::Structure& structure) {
  switch (structure.form_case()) {
    case v1::Structure::kJsonSchema:
      return Grammar{GrammarKind::kJsonSchema, structure.json_schema()};
    case v1::Structure::kJsonObject:
      return Grammar{GrammarKind::kJsonObject, ""};
    case v1::Structure::kRegex:
      return Grammar{GrammarKind::kRegex, structure.regex()};
    case v1::Structure::kLark:
      return Grammar{GrammarKind::kLark, structure.lark()};
    case v1::Structure::kChoices: {
      const auto& texts = structure.choices().texts();
      const nlohmann::json list = std::vector<std::string>(texts.begin(), texts.end());
      return Grammar{GrammarKind::kChoice,
                     list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
    }
    case v1::Structure::FORM_NOT_SET:
      break;
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kStructureRefused,
                      "the answer's structure names neither a schema nor a grammar");
}

absl::StatusOr<const text::GrammarEngine*> ModelGrammars::Engine() const {
  absl::MutexLock lock(&mutex_);
  if (!engine_.has_value()) {
    auto made = text::GrammarEngine::Make(tokenizer_);
    if (!made.ok()) return made.status();
    engine_ = *std::move(made);
  }
  return &*engine_;
}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> ModelGrammars::Compile(
    const v1::Structure& structure) const {
  const auto grammar = GrammarOf(structure);
  if (!grammar.ok()) return grammar.status();
  const auto engine = Engine();
  if (!engine.ok()) return engine.status();
  auto matcher = (*engine)->Compile(*grammar);
  if (!matcher.ok()) return matcher.status();
  return std::make_shared<const GrammarConstraint>(*std::move(matcher), (*engine)->size());
}

}  // namespace macrame::runtime::engine
