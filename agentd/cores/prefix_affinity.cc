#include "agentd/cores/prefix_affinity.h"

#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace macrame::agentd {
namespace {

class StepWriter {
 public:
  explicit StepWriter(absl::string_view tenant) : hash_(absl::HashOf(tenant)) {}

  void Add(absl::string_view text) {
    while (!text.empty() && steps_.size() < kStepsMax) {
      const absl::string_view piece = text.substr(0, kStepBytes);
      text.remove_prefix(piece.size());
      hash_ = absl::HashOf(hash_, piece);
      bytes_ += piece.size();
      steps_.push_back({hash_, bytes_});
    }
  }
  std::vector<PromptStep> Take() { return std::move(steps_); }

 private:
  uint64_t hash_;
  size_t bytes_ = 0;
  std::vector<PromptStep> steps_;
};

}  // namespace

std::vector<PromptStep> PromptSteps(const v1::GenerateRequest& request) {
  if (request.has_tokenize()) return {};
  StepWriter writer(request.cache_salt());
  // Templates put the tools before the conversation.
  writer.Add(request.tools().tools_json());
  for (const v1::ChatMessage& message : request.messages()) {
    writer.Add(message.SerializeAsString());
  }
  writer.Add(request.prompt());
  const auto& ids = request.prompt_token_ids();
  writer.Add(absl::string_view(reinterpret_cast<const char*>(ids.data()),
                               static_cast<size_t>(ids.size()) * sizeof(int32_t)));
  return writer.Take();
}

size_t PrefixMemory::Matched(const std::vector<PromptStep>& steps) const {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (young_.contains(step->hash) || old_.contains(step->hash)) return step->bytes;
  }
  return 0;
}

void PrefixMemory::Note(const std::vector<PromptStep>& steps) {
  for (const PromptStep& step : steps) young_.insert(step.hash);
  if (young_.size() < kStepsRemembered) return;
  old_ = std::exchange(young_, {});
}

}  // namespace macrame::agentd
