// A diagnosis as a document that can be handed on: secrets and names of people taken out.

#include <algorithm>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "transport/links/diagnosis.h"

namespace macrame::transport {
namespace {

constexpr const char* kSeverities[] = {"", "note", "warning", "degraded", "error"};

void AppendEvidence(const google::protobuf::RepeatedPtrField<v1::Evidence>& evidence,
                    std::string* out) {
  for (const v1::Evidence& one : evidence) {
    absl::StrAppend(out, "  - ", one.hostname().empty() ? "" : absl::StrCat(one.hostname(), ", "),
                    one.source(), ": `", absl::StrReplaceAll(CutSecrets(one.text()), {{"`", "'"}}),
                    "`\n");
  }
}

// Of a table: a bar in it would begin the next one.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

void AppendFacts(const v1::Diagnosis& diagnosis, std::string* out) {
  absl::StrAppend(
      out, "## Machines and versions\n\n",
      "| node | machine | system | MLX | RDMA devices |\n| --- | --- | --- | --- | --- |\n");
  for (const v1::LinkFacts& facts : diagnosis.facts()) {
    std::vector<std::string> devices;
    for (const v1::RdmaDevice& device : facts.rdma_devices()) devices.push_back(device.name());
    absl::StrAppend(
        out, "| ", Cell(facts.hostname()), " | ",
        Cell(absl::StrCat(facts.machine_model(), " ", facts.chip())), " | ",
        Cell(absl::StrCat(facts.os_name(), " ", facts.os_version(), " (", facts.os_build(), ")",
                          facts.system_firmware().empty() ? "" : ", firmware ",
                          facts.system_firmware())),
        " | ", Cell(facts.mlx_version()), " | ",
        facts.rdma_devices_listed() != v1::FACT_YES ? "not known"
        : devices.empty()                           ? "none"
                                                    : Cell(absl::StrJoin(devices, ", ")),
        " |\n");
  }
}

void AppendFindings(const v1::Diagnosis& diagnosis, std::string* out) {
  absl::StrAppend(out, "\n## Findings\n");
  if (diagnosis.findings().empty()) absl::StrAppend(out, "\nNone.\n");
  for (const v1::Finding& finding : diagnosis.findings()) {
    const int severity = std::clamp(static_cast<int>(finding.severity()), 0, 4);
    absl::StrAppend(out, "\n### ", finding.reason().code(), " (", kSeverities[severity], ")\n\n",
                    CutSecrets(finding.reason().message()),
                    "\n\n- symptom: ", CutSecrets(finding.symptom()),
                    "\n- cause: ", CutSecrets(finding.cause()), "\n");
    if (!finding.subjects().empty()) {
      absl::StrAppend(out, "- links: ", absl::StrJoin(finding.subjects(), "; "), "\n");
    }
    if (!finding.evidence().empty()) absl::StrAppend(out, "- evidence:\n");
    AppendEvidence(finding.evidence(), out);
    if (!finding.steps().empty()) {
      absl::StrAppend(
          out, "- to do",
          finding.reason().who().empty() ? "" : absl::StrCat(" (", finding.reason().who(), ")"),
          ":\n");
    }
    for (const std::string& step : finding.steps()) absl::StrAppend(out, "  1. ", step, "\n");
  }
}

}  // namespace

std::string CutSecrets(std::string text) {
  static const std::regex mac(R"(\b([0-9a-fA-F]{1,2}:){5}[0-9a-fA-F]{1,2}\b)");
  // Nothing that is JSON's own with them: a document stays one.
  static const std::regex serial(R"rx((serial[^\n:=]*[:=]\s*(?:\\?")?)[^\s"\\,;{}\[\]]+)rx",
                                 std::regex::icase);
  static const std::regex uuid(R"(\b[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b)");
  static const std::regex home(R"(/(Users|home)/[^/\s"\\]+)");
  text = std::regex_replace(text, mac, "[MAC]");
  text = std::regex_replace(text, serial, "$1[cut]");
  text = std::regex_replace(text, uuid, "[UUID]");
  return std::regex_replace(text, home, "/$1/[user]");
}

std::string DiagnosisMarkdown(const v1::Diagnosis& diagnosis) {
  std::vector<std::string> names;
  for (const v1::LinkFacts& facts : diagnosis.facts()) names.push_back(facts.hostname());
  std::string out = absl::StrCat("# Links of ", absl::StrJoin(names, ", "), "\n\n",
                                 "Objective: one machine of these nodes, over the fastest link "
                                 "that they allow.\n\n",
                                 "Conclusion: ", CutSecrets(diagnosis.conclusion()), "\n\n");
  if (!diagnosis.lowest_failing_layer().empty()) {
    absl::StrAppend(&out, "Lowest failing layer: ", diagnosis.lowest_failing_layer(), "\n\n");
  }
  absl::StrAppend(&out, "Verdict: ", diagnosis.group().verdict(),
                  "; graph of cables: ", diagnosis.group().graph(), "\n\n");
  AppendFacts(diagnosis, &out);
  AppendFindings(diagnosis, &out);
  if (!diagnosis.ruled_out().empty()) absl::StrAppend(&out, "\n## Ruled out\n\n");
  for (const v1::RuledOut& ruled : diagnosis.ruled_out()) {
    absl::StrAppend(&out, "- ", ruled.hypothesis(), "\n");
    AppendEvidence(ruled.evidence(), &out);
  }
  if (!diagnosis.retry_triggers().empty()) {
    absl::StrAppend(&out, "\n## Default state and when it is looked at again\n\n",
                    "The ring serves; RDMA is not tried again until:\n\n");
  }
  for (const std::string& trigger : diagnosis.retry_triggers()) {
    absl::StrAppend(&out, "- ", trigger, "\n");
  }
  return out;
}

}  // namespace macrame::transport
