#include "cli/format/access_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/format/table.h"

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

// Of a key, or of a tenant.
template <typename Limited>
std::string TextOfLimits(const Limited& limited) {
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
  return limits.empty() ? "none" : absl::StrJoin(limits, ", ");
}

}  // namespace

std::string TimeText(uint64_t unix_ms) {
  if (unix_ms == 0) return "never";
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixMillis(static_cast<int64_t>(unix_ms)),
                          absl::UTCTimeZone());
}

std::string LimitsText(const v1::ApiKey& key) { return TextOfLimits(key); }
std::string LimitsText(const v1::TenantLimits& tenant) { return TextOfLimits(tenant); }

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

std::string KeysView(const v1::ListKeysResponse& keys, uint64_t now_unix_ms, int width,
                     const Style& style) {
  if (keys.keys().empty()) {
    return "No keys: the HTTP API serves this machine without one.\n"
           "Make one with 'clusterctl key create'.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::ApiKey& key : keys.keys()) {
    rows.push_back({key.id(), key.name(), StateOf(key, now_unix_ms),
                    absl::StrJoin(key.scopes(), ","), TimeText(key.expires_unix_ms()),
                    LimitsText(key),
                    key.models().empty() ? "all" : absl::StrJoin(key.models(), ","), key.tenant()});
  }
  return RenderTable({{"ID", false, 9, 12},
                      {"NAME", false, 8},
                      {"STATE", false, 9},
                      {"SCOPES", false, 7},
                      {"EXPIRES", false, 4},
                      {"LIMITS", false, 3},
                      {"MODELS", false, 5},
                      {"TENANT", false, 2}},
                     rows, width, style);
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
