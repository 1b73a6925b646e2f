#include "cli/format/doctor_view.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

// Words that people meet elsewhere, and the code that they stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOtherWords = {{
    {"controller unable to pair", reasons::kTb4Controller},
    {"rdma not supported", reasons::kTb4Controller},
    {"couldn't allocate protection domain", reasons::kPortDown},
    {"errno 22", reasons::kNoIpv4Gid},
    {"errno 96", reasons::kGidIndexShifted},
    {"error: 60", reasons::kCoordinator},
    {"error 60", reasons::kCoordinator},
    {"bridge100", reasons::kInternetSharing},
    {"mdma", reasons::kTransportFallback},
}};

std::string SeverityText(v1::Severity severity, const Style& style) {
  switch (severity) {
    case v1::SEVERITY_ERROR:
      return style.Bad("error");
    case v1::SEVERITY_DEGRADED:
      return style.Warn("degraded");
    case v1::SEVERITY_WARNING:
      return style.Warn("warning");
    default:
      return style.Dim("note");
  }
}

void AppendEvidence(const google::protobuf::RepeatedPtrField<v1::Evidence>& evidence,
                    const char* indent, std::string* out) {
  for (const v1::Evidence& one : evidence) {
    absl::StrAppend(out, indent, one.hostname().empty() ? "" : Printable(one.hostname()) + ", ",
                    Printable(one.source()), ": ", Printable(one.text()), "\n");
  }
}

void AppendFinding(const v1::Finding& finding, const Style& style, std::string* out) {
  absl::StrAppend(out, "\n", SeverityText(finding.severity(), style), " ",
                  style.Bold(Printable(finding.reason().code())), "  ",
                  Printable(finding.reason().message()), "\n");
  const auto line = [&](const char* title, const std::string& text) {
    if (!text.empty()) absl::StrAppend(out, "  ", title, Printable(text), "\n");
  };
  if (finding.symptom() != finding.reason().message()) line("symptom:  ", finding.symptom());
  if (finding.cause() != finding.reason().message()) line("cause:    ", finding.cause());
  line("links:    ", absl::StrJoin(finding.subjects(), "; "));
  if (!finding.evidence().empty()) absl::StrAppend(out, "  evidence:\n");
  AppendEvidence(finding.evidence(), "    ", out);
  if (finding.steps().empty()) return;
  const std::string& who = finding.reason().who();
  absl::StrAppend(out, "  to do", who.empty() ? "" : absl::StrCat(" (", Printable(who), ")"),
                  ":\n");
  int number = 0;
  for (const std::string& step : finding.steps()) {
    absl::StrAppend(out, "    ", ++number, ". ", Printable(step), "\n");
  }
}

}  // namespace

v1::Severity WorstOf(const v1::Diagnosis& diagnosis) {
  v1::Severity worst = v1::SEVERITY_UNSPECIFIED;
  for (const v1::Finding& finding : diagnosis.findings()) {
    worst = std::max(worst, finding.severity());
  }
  return worst;
}

std::string DoctorText(const v1::Diagnosis& diagnosis, const Style& style) {
  std::string out = absl::StrCat(Printable(diagnosis.conclusion()), "\n");
  if (!diagnosis.lowest_failing_layer().empty()) {
    absl::StrAppend(&out, "Lowest failing layer: ", Printable(diagnosis.lowest_failing_layer()),
                    "\n");
  }
  int notes = 0;
  for (const v1::Finding& finding : diagnosis.findings()) {
    if (finding.severity() <= v1::SEVERITY_INFO) {
      ++notes;
    } else {
      AppendFinding(finding, style, &out);
    }
  }
  if (notes > 0) absl::StrAppend(&out, "\nNot known, and nothing concluded from it:\n");
  for (const v1::Finding& finding : diagnosis.findings()) {
    if (finding.severity() > v1::SEVERITY_INFO) continue;
    absl::StrAppend(&out, "  ", Printable(finding.reason().message()), "\n");
  }
  if (!diagnosis.ruled_out().empty()) absl::StrAppend(&out, "\nRuled out:\n");
  for (const v1::RuledOut& ruled : diagnosis.ruled_out()) {
    absl::StrAppend(&out, "  ", Printable(ruled.hypothesis()), "\n");
    AppendEvidence(ruled.evidence(), "    ", &out);
  }
  if (!diagnosis.retry_triggers().empty()) {
    absl::StrAppend(&out, "\nRDMA is not tried again until:\n");
  }
  for (const std::string& trigger : diagnosis.retry_triggers()) {
    absl::StrAppend(&out, "  - ", Printable(trigger), "\n");
  }
  return out;
}

std::string ExplainText(const std::string& code_or_words, const Style& style) {
  const std::string lower = absl::AsciiStrToLower(code_or_words);
  std::string code = absl::AsciiStrToUpper(code_or_words);
  for (const auto& [words, meant] : kOtherWords) {
    if (absl::StrContains(lower, absl::string_view(words.data(), words.size()))) {
      code = std::string(meant);
    }
  }
  const ReasonCode* known = FindReasonCode(code);
  if (known == nullptr) return "";
  std::string out =
      absl::StrCat(style.Bold(code), "\n  means:  ", std::string(known->meaning), "\n");
  if (!known->remedy.empty()) absl::StrAppend(&out, "  to do:  ", std::string(known->remedy), "\n");
  if (!known->who.empty()) absl::StrAppend(&out, "  who:    ", std::string(known->who), "\n");
  if (known->remedy.empty()) absl::StrAppend(&out, "  to do:  nothing\n");
  return out;
}

}  // namespace macrame::cli
