#include "agentd/config/membership_record.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "transport/regular_file.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kKey[] = "cluster_secret_file";
constexpr size_t kRecordBytesMax = 64 * 1024;

std::string TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool HasTrust(const std::string& secret_file) {
  std::error_code error;
  return fs::exists(secret_file, error) ||
         fs::exists(transport::NodeMembershipPath(secret_file), error);
}

}  // namespace

std::string MembershipRecordPath(const std::string& state_folder) {
  return absl::StrCat(state_folder, "/membership.json");
}

std::optional<MembershipRecord> ReadMembershipRecord(const std::string& state_folder) {
  if (state_folder.empty()) return std::nullopt;
  const auto text = transport::ReadRegularFile(MembershipRecordPath(state_folder), kRecordBytesMax);
  if (!text.ok()) return std::nullopt;
  const json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  MembershipRecord record{TextOf(object, kKey), TextOf(object, "cluster_name")};
  if (record.secret_file.empty() || record.secret_file[0] != '/') return std::nullopt;
  return record;
}

absl::Status WriteMembershipRecord(const std::string& state_folder, MembershipRecord record) {
  if (state_folder.empty()) return absl::OkStatus();
  std::error_code error;
  const fs::path whole = fs::absolute(record.secret_file, error).lexically_normal();
  if (!error) record.secret_file = whole.string();
  const auto before = ReadMembershipRecord(state_folder);
  if (before.has_value() && before->secret_file == record.secret_file &&
      before->cluster_name == record.cluster_name) {
    return absl::OkStatus();
  }
  const std::string path = MembershipRecordPath(state_folder), fresh = path + ".new";
  const json object = {{kKey, record.secret_file}, {"cluster_name", record.cluster_name}};
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file << object.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(fresh, " can't be written"));
  fs::rename(fresh, path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

void RecallSecretFile(LoadedConfig* config) {
  const auto origin = config->origins.find(kKey);
  if (origin == config->origins.end() || origin->second != "default") return;
  const auto record = ReadMembershipRecord(config->values.state_folder);
  if (!record.has_value() || record->secret_file == config->values.cluster_secret_file) return;
  const bool is_made_anew =
      HasTrust(config->values.cluster_secret_file) && !HasTrust(record->secret_file);
  if (is_made_anew) return;
  config->values.cluster_secret_file = record->secret_file;
  origin->second = MembershipRecordPath(config->values.state_folder);
}

}  // namespace macrame::agentd
