#include "runtime/serving/prompt_parts.h"

#include <algorithm>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

// Around the place where two prompts begin to differ, to find its line.
constexpr uint32_t kTokensBefore = 32;
constexpr uint32_t kTokensBehind = 16;
constexpr size_t kRoleLettersMax = 16;

size_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::mismatch(
      a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<size_t>(end.first - a.begin());
}

// Roles are a client's words, and this goes to terminals and logs.
std::string NameOfMessage(const v1::ChatMessage& message, int number) {
  std::string role = message.role().substr(0, kRoleLettersMax);
  std::erase_if(role, [](unsigned char c) { return !absl::ascii_isalnum(c); });
  if (number == 1 && (role == "system" || role == "developer")) return role + " message";
  return absl::StrCat("message ", number, " (", role, ")");
}

const char* KindName(PrefixMiss::Kind kind) {
  switch (kind) {
    case PrefixMiss::Kind::kNone:
      return "";
    case PrefixMiss::Kind::kEmpty:
      return "empty";
    case PrefixMiss::Kind::kDiffers:
      return "differs";
    case PrefixMiss::Kind::kEnds:
      return "ends";
    case PrefixMiss::Kind::kEvicted:
      return "evicted";
    case PrefixMiss::Kind::kState:
      return "state";
  }
  return "";
}

std::string VaryingAt(const ModelText& text, std::span<const int32_t> prompt, uint32_t position) {
  const uint32_t begin = position - std::min(position, kTokensBefore);
  const auto end = std::min<size_t>(prompt.size(), size_t{position} + kTokensBehind);
  auto before = text.tokenizer.Decode(prompt.subspan(begin, position - begin), true);
  auto behind = text.tokenizer.Decode(prompt.subspan(position, end - position), true);
  if (!before.ok() || !behind.ok()) return "";
  const size_t line = before->rfind('\n');
  if (line != std::string::npos) before->erase(0, line + 1);
  const size_t next = behind->find('\n');
  if (next != std::string::npos) behind->erase(next);
  return VaryingPart(*before + *behind, before->size());
}

}  // namespace

std::string PartAt(std::span<const v1::ChatMessage* const> messages,
                   std::span<const int32_t> prompt, uint32_t position,
                   const RenderMessages& render) {
  // The first `low` messages end at or before `position`, the first `high` beyond it. What lies up
  // to `tried` was looked at, or refused by the template.
  const int count = static_cast<int>(messages.size());
  int low = 0, tried = 0, high = count + 1;
  while (high - tried > 1) {
    const int middle = tried + (high - tried) / 2;
    const auto rendered = render(middle);
    if (rendered.ok() && CommonTokens(prompt, *rendered) > position) {
      high = middle;
      continue;
    }
    tried = middle;
    if (rendered.ok()) low = middle;
  }
  if (low == count) return "the opening of the answer";
  const int last = std::min(high, count);
  if (last == low + 1) return NameOfMessage(*messages[static_cast<size_t>(low)], last);
  return absl::StrCat("messages ", low + 1, " to ", last);
}

std::string VaryingPart(std::string_view line, size_t at) {
  static const std::regex billing(R"(^\s*x-[a-z0-9-]*billing[a-z0-9-]*\s*:)", std::regex::icase);
  static const std::regex date(
      R"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}:\d{2}(:\d{2})?|\d{1,2}[./]\d{1,2}[./]\d{2,4})"
      R"(|\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b)"
      R"(|\b\d{1,2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*)"
      R"(|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{1,2})");
  static const std::regex id(
      R"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,}\b)",
      std::regex::icase);
  const std::string whole(line.substr(0, 512));
  if (std::regex_search(whole, billing)) return "a billing header";
  const auto covers = [&](const std::regex& pattern) {
    const auto end = std::sregex_iterator();
    for (auto found = std::sregex_iterator(whole.begin(), whole.end(), pattern); found != end;
         ++found) {
      const auto from = static_cast<size_t>(found->position());
      const size_t to = from + static_cast<size_t>(found->length());
      if (from <= at + 1 && at < to + 1) return true;
    }
    return false;
  };
  if (covers(date)) return "a date or time";
  if (covers(id)) return "an id";
  return "";
}

v1::PrefixMiss ExplainMiss(const PrefixMiss& miss, const v1::GenerateRequest& request,
                           const ModelText& text, std::span<const int32_t> prompt,
                           int64_t local_unix_s) {
  v1::PrefixMiss explained;
  explained.set_kind(KindName(miss.kind));
  explained.set_position(miss.position);
  std::string sentence = DescribeMiss(miss);
  const bool lies_somewhere =
      miss.kind == PrefixMiss::Kind::kDiffers || miss.kind == PrefixMiss::Kind::kEnds ||
      miss.kind == PrefixMiss::Kind::kEvicted || miss.kind == PrefixMiss::Kind::kState;
  if (lies_somewhere && request.messages_size() > 0) {
    const std::vector<const v1::ChatMessage*> messages(request.messages().pointer_begin(),
                                                       request.messages().pointer_end());
    explained.set_part(PartAt(messages, prompt, miss.position, [&](int count) {
      return EncodeMessages(request, count, text, local_unix_s, /*opens_answer=*/false);
    }));
    absl::StrAppend(&sentence, ": ", explained.part());
  }
  if (miss.kind == PrefixMiss::Kind::kDiffers && miss.position < prompt.size()) {
    explained.set_varying(VaryingAt(text, prompt, miss.position));
    if (!explained.varying().empty()) {
      absl::StrAppend(&sentence, ", in ", explained.varying());
    }
  }
  explained.set_text(sentence);
  return explained;
}

}  // namespace macrame::runtime::engine
