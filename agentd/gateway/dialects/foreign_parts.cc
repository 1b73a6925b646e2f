#include "agentd/gateway/dialects/foreign_parts.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

// Members whose text is for people; others hold ids, types and what is encoded.
constexpr std::array<absl::string_view, 12> kTold = {"text",    "title",   "url",     "uri",
                                                     "content", "output",  "query",   "stdout",
                                                     "stderr",  "snippet", "results", "error_code"};
constexpr size_t kDepthMax = 8;
constexpr size_t kToldBytesMax = 64 * 1024;

void AppendTexts(const Json& part, size_t depth, std::string* text) {
  if (depth > kDepthMax || text->size() > kToldBytesMax) return;
  if (part.is_string()) {
    absl::StrAppend(text, text->empty() ? "" : "\n", part.get_ref<const std::string&>());
  } else if (part.is_array()) {
    for (const Json& one : part) AppendTexts(one, depth + 1, text);
  } else if (part.is_object()) {
    for (const auto& [name, value] : part.items()) {
      if (std::find(kTold.begin(), kTold.end(), name) != kTold.end()) {
        AppendTexts(value, depth + 1, text);
      }
    }
  }
}

}  // namespace

std::string LeftOutSentence(absl::string_view type) {
  if (IsImagePart(type)) return "[An image was here. This model reads text only.]";
  return absl::StrCat("[A part of type '", type.substr(0, 64),
                      "' was here. This model reads text only.]");
}

bool IsImagePart(absl::string_view type) {
  return type == "image" || type == "image_url" || type == "input_image" ||
         type == "computer_screenshot";
}

bool IsSealedPart(absl::string_view type) {
  return type == "redacted_thinking" || type == "item_reference" || type == "container_upload";
}

std::string TextsWithin(const Json& part) {
  std::string text;
  AppendTexts(part, 0, &text);
  return text;
}

std::string ServerCallSentence(const std::string& name, const Json& input) {
  return absl::StrCat("[The tool ", name, " was called with ",
                      input.dump(-1, ' ', false, Json::error_handler_t::replace), "]");
}

std::string ServerResultSentence(absl::string_view type, const Json& result) {
  const std::string text = TextsWithin(result);
  return text.empty() ? absl::StrCat("[", type.substr(0, 64), " had no text]")
                      : absl::StrCat("[", type.substr(0, 64), ":\n", text, "]");
}

}  // namespace macrame::agentd
