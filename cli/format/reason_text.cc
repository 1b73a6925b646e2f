#include "cli/format/reason_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

// Lines of a text stay lines, below their first one: none begins where lines of ours do.
constexpr char kBelowError[] = "\n       ";
constexpr char kBelowSaid[] = "\n           ";

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
  std::string text = Printable(reason.message().empty() ? reason.code() : reason.message());
  if (text.empty()) text = "no reason is given";
  if (!reason.remedy().empty()) absl::StrAppend(&text, "; ", Printable(reason.remedy()));
  return text;
}

std::string ErrorBlock(const absl::Status& status, const Style& style) {
  const v1::Reason reason = SaidReasonOf(status);
  const std::string message =
      absl::StrReplaceAll(Printable(reason.message(), true), {{"\n", kBelowError}});
  std::string out = absl::StrCat(style.Bad("error:"), " ", message, "\n");
  const auto line = [&](const char* title, const std::string& text) {
    if (!text.empty()) absl::StrAppend(&out, "  ", title, Printable(text), "\n");
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
