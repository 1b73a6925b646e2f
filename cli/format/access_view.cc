#include "cli/format/access_view.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/format/power_text.h"
#include "cli/format/reason_text.h"
#include "cli/format/table.h"
#include "proto/bytes.h"

namespace macrame::cli {
namespace {

Cell StateOf(const v1::ApiKey& key, uint64_t now_unix_ms) {
  if (key.revoked_unix_ms() != 0) return {"revoked", Tone::kDim};
  if (key.expires_unix_ms() != 0 && key.expires_unix_ms() <= now_unix_ms) {
    return {"expired", Tone::kDim};
  }
  return {"valid", Tone::kGood};
}

std::string Word(const Json& entry, const char* name) {
  const auto found = entry.find(name);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string OutcomeOf(const Json& entry) {
  const auto left_out = entry.find("left_out");
  const bool more = left_out != entry.end() && left_out->is_number_unsigned();
  return absl::StrCat(Word(entry, "outcome"),
                      more ? absl::StrCat(" (and ", left_out->get<uint64_t>(), " before it)") : "");
}

std::string LengthText(uint32_t seconds) {
  constexpr uint32_t kDay = 86'400;
  if (seconds % kDay == 0 && seconds > kDay) return absl::StrCat(seconds / kDay, "d");
  if (seconds % 3600 == 0) return absl::StrCat(seconds / 3600, "h");
  if (seconds % 60 == 0) return absl::StrCat(seconds / 60, "m");
  return absl::StrCat(seconds, "s");
}

std::vector<std::string> TextsOfRetention(const v1::TenantLimits& tenant) {
  std::vector<std::string> texts;
  if (tenant.has_retention_s() && tenant.retention_s() == 0) {
    texts.emplace_back("no answers stored");
  } else if (tenant.has_retention_s()) {
    texts.push_back(absl::StrCat("answers kept ", LengthText(tenant.retention_s())));
  }
  if (tenant.memory_only()) texts.emplace_back("memory only");
  return texts;
}

// Of a key, or of a tenant. `more`: what else there is to say of it.
template <typename Limited>
std::string TextOfLimits(const Limited& limited, const std::vector<std::string>& more = {}) {
  std::vector<std::string> limits;
  if (limited.requests_per_minute() > 0) {
    limits.push_back(absl::StrCat(limited.requests_per_minute(), " requests/min"));
  }
  if (limited.tokens_per_minute() > 0) {
    limits.push_back(absl::StrCat(limited.tokens_per_minute(), " tokens/min"));
  }
  if (limited.concurrent_requests() > 0) {
    limits.push_back(absl::StrCat(limited.concurrent_requests(), " at once"));
  }
  limits.insert(limits.end(), more.begin(), more.end());
  return limits.empty() ? "none" : absl::StrJoin(limits, ", ");
}

std::map<std::string, double> JoulesByKey(const v1::GetKeyEnergyResponse& energy) {
  std::map<std::string, double> joules;
  for (const v1::KeyEnergy& key : energy.keys()) joules[key.key_id()] = key.joules();
  return joules;
}

std::string KeylessLine(const v1::GetKeyEnergyResponse& energy) {
  for (const v1::KeyEnergy& key : energy.keys()) {
    if (!key.key_id().empty()) continue;
    return absl::StrCat("Requests without a key took ", WattHours(key.joules()), ".\n");
  }
  return "";
}

// A sum that lacks some is told as one.
std::string MissingLine(const v1::GetKeyEnergyResponse& energy) {
  if (energy.missing().empty() || energy.keys().empty()) return "";
  return absl::StrCat("The energy lacks ", Plural(energy.missing_size(), "gateway"),
                      " that could not be asked.\n");
}

}  // namespace

std::string TimeText(uint64_t unix_ms) {
  constexpr uint64_t kLastUnixMs = 253'402'300'799'999;  // of the year 9999
  if (unix_ms == 0 || unix_ms > kLastUnixMs) return "never";
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixMillis(static_cast<int64_t>(unix_ms)),
                          absl::UTCTimeZone());
}

std::string LimitsText(const v1::ApiKey& key) {
  return key.has_access_file() ? "access file" : TextOfLimits(key);
}
std::string LimitsText(const v1::TenantLimits& tenant) {
  return TextOfLimits(tenant, TextsOfRetention(tenant));
}

std::string ErasureView(const v1::EraseTenantResponse& erased, int width, const Style& style) {
  uint64_t answers = 0;
  uint64_t missing = 0;
  std::vector<std::vector<Cell>> rows;
  for (const v1::ErasedAnswers& node : erased.nodes()) {
    const std::string name = node.hostname().empty() ? node.node_id() : node.hostname();
    if (node.has_failure()) {
      ++missing;
      rows.push_back({name, Cell("not asked", Tone::kBad), "", ReasonSentence(node.failure())});
      continue;
    }
    answers += node.answers();
    rows.push_back({name, absl::StrCat(node.answers()), FormatBytes(Bytes(node.bytes())), ""});
  }
  const uint64_t asked = rows.size() - missing;
  std::string text = RenderTable(
      {{"NODE", false, 9}, {"DROPPED", true, 9}, {"SIZE", true, 7}, {"WHY NOT", false, 5, 20}},
      rows, width, style);
  absl::StrAppend(&text, "tenant ", Printable(erased.name()), ": ",
                  Plural(answers, "stored answer"), " dropped at ", Plural(asked, "node"));
  if (missing > 0) {
    absl::StrAppend(&text, "; ", Plural(missing, "node"), missing == 1 ? " was" : " were",
                    " not asked: erase again once they are back");
  }
  absl::StrAppend(&text,
                  "\nNot reached: blocks of prompts on disk and in loaded models, see "
                  "'clusterctl tenant erase --help'.\n");
  return text;
}

std::string TenantsView(const v1::ListTenantsResponse& tenants, int width, const Style& style) {
  if (tenants.tenants().empty()) {
    return "No tenant has limits. Set some with 'clusterctl tenant set NAME --limit 60'.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::TenantLimits& tenant : tenants.tenants()) {
    rows.push_back({tenant.name(), LimitsText(tenant)});
  }
  return RenderTable({{"TENANT", false, 8, 10}, {"LIMITS AT EACH GATEWAY", false, 7, 10}}, rows,
                     width, style);
}

std::string KeysView(const v1::ListKeysResponse& keys, const v1::GetKeyEnergyResponse& energy,
                     uint64_t now_unix_ms, int width, const Style& style) {
  if (keys.keys().empty()) {
    return absl::StrCat(
        "No keys: the HTTP API serves this machine without one.\n"
        "Make one with 'clusterctl key create'.\n",
        KeylessLine(energy));
  }
  const std::map<std::string, double> joules = JoulesByKey(energy);
  std::vector<std::vector<Cell>> rows;
  for (const v1::ApiKey& key : keys.keys()) {
    rows.push_back({key.id(), key.name(), StateOf(key, now_unix_ms),
                    absl::StrJoin(key.scopes(), ","), TimeText(key.expires_unix_ms()),
                    LimitsText(key),
                    key.models().empty() ? "all" : absl::StrJoin(key.models(), ","), key.tenant()});
    if (joules.empty()) continue;
    const auto took = joules.find(key.id());
    rows.back().push_back(took == joules.end() ? "-" : WattHours(took->second));
  }
  std::vector<Column> columns = {{"ID", false, 9, 12}, {"NAME", false, 8},    {"STATE", false, 9},
                                 {"SCOPES", false, 7}, {"EXPIRES", false, 4}, {"LIMITS", false, 3},
                                 {"MODELS", false, 5}, {"TENANT", false, 2}};
  if (!joules.empty()) columns.push_back({"ENERGY", true, 6});
  return absl::StrCat(RenderTable(columns, rows, width, style), KeylessLine(energy),
                      MissingLine(energy));
}

std::string AuditView(const std::vector<Json>& entries, int width, const Style& style) {
  if (entries.empty()) return "Nothing in that time.\n";
  std::vector<std::vector<Cell>> rows;
  for (const Json& entry : entries) {
    if (!entry.is_object()) {
      rows.push_back({"", Cell("not a line of the log", Tone::kBad), "", "", "", ""});
      continue;
    }
    const bool is_ok = Word(entry, "outcome") == "ok";
    rows.push_back({Word(entry, "time"), Word(entry, "who"), Word(entry, "what"),
                    Word(entry, "target"), Word(entry, "from"),
                    Cell(OutcomeOf(entry), is_ok ? Tone::kGood : Tone::kWarn)});
  }
  return RenderTable({{"TIME", false, 8, 20},
                      {"WHO", false, 7},
                      {"WHAT", false, 9},
                      {"TARGET", false, 6},
                      {"FROM", false, 4},
                      {"OUTCOME", false, 9}},
                     rows, width, style);
}

}  // namespace macrame::cli
