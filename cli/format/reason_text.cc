#include "cli/format/reason_text.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

// Lines of a text stay lines, below their first one: none begins where lines of ours do.
constexpr char kBelowError[] = "\n       ";
constexpr char kBelowSaid[] = "\n           ";

// Ids of nodes have 32 digits, of which 8 tell them apart and are taken wherever a node is named.
std::string WithShortIds(std::string_view text) {
  constexpr size_t kIdDigits = 32, kShownDigits = 8;
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  std::string out;
  while (!text.empty()) {
    const size_t word =
        std::find_if_not(text.begin(), text.end(), absl::ascii_isalnum) - text.begin();
    const bool is_id =
        word == kIdDigits && std::all_of(text.begin(), text.begin() + kIdDigits, is_digit);
    out.append(text.substr(0, is_id ? kShownDigits : std::max<size_t>(word, 1)));
    text.remove_prefix(std::max<size_t>(word, 1));
  }
  return out;
}

// Of a status without words its code, so that there is something to look for.
v1::Reason SaidReasonOf(const absl::Status& status) {
  v1::Reason reason = ReasonOf(status);
  if (reason.message().empty()) {
    reason.set_message(
        absl::StrCat("no reason is given (", absl::StatusCodeToString(status.code()), ")"));
  }
  return reason;
}

}  // namespace

std::string ReasonSentence(const v1::Reason& reason) {
  std::string text =
      WithShortIds(Printable(reason.message().empty() ? reason.code() : reason.message()));
  if (text.empty()) text = "no reason is given";
  if (!reason.remedy().empty())
    absl::StrAppend(&text, "; ", WithShortIds(Printable(reason.remedy())));
  return text;
}

std::string ErrorBlock(const absl::Status& status, const Style& style) {
  const v1::Reason reason = SaidReasonOf(status);
  const std::string message =
      absl::StrReplaceAll(WithShortIds(Printable(reason.message(), true)), {{"\n", kBelowError}});
  std::string out = absl::StrCat(style.Bad("error:"), " ", message, "\n");
  const auto line = [&](const char* title, const std::string& text) {
    if (!text.empty()) absl::StrAppend(&out, "  ", title, WithShortIds(Printable(text)), "\n");
  };
  if (reason.code() != reasons::kInternal) line("reason: ", reason.code());
  line("node:   ", reason.node_id());
  // What a machine printed may be lines; they stay lines.
  if (!reason.evidence().empty()) {
    absl::StrAppend(&out, "  it said: ",
                    absl::StrReplaceAll(Printable(reason.evidence(), true), {{"\n", kBelowSaid}}),
                    "\n");
  }
  line("next:   ", reason.remedy());
  return out;
}

Json ErrorDocument(const absl::Status& status) {
  const v1::Reason reason = SaidReasonOf(status);
  Json error = Json::object();
  error["code"] = reason.code();
  error["message"] = reason.message();
  error["hint"] = reason.remedy();
  error["node"] = reason.node_id();
  error["evidence"] = reason.evidence();
  Json document = Json::object();
  document["error"] = std::move(error);
  return document;
}

}  // namespace macrame::cli
