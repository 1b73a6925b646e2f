#include "agentd/config/config_secrets.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace macrame::agentd {
namespace {

std::string ShellQuoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string OwnUser() {
  const passwd* user = ::getpwuid(::geteuid());
  return user != nullptr ? std::string(user->pw_name) : absl::StrCat(::geteuid());
}

// The settings of the file that are secrets, by name.
std::vector<std::string> SecretsOf(const LoadedConfig& config) {
  std::vector<std::string> names;
  for (const auto& [name, value] :
       {std::pair("alert_webhook", config.values.alert_webhook),
        std::pair("alert_webhook_authorization", config.values.alert_webhook_authorization)}) {
    const auto origin = config.origins.find(name);
    const bool is_of_file =
        origin != config.origins.end() && absl::StartsWith(origin->second, "file ");
    if (is_of_file && !value.empty()) names.emplace_back(name);
  }
  return names;
}

}  // namespace

std::string ExposedSecretsWarning(const std::string& path, const LoadedConfig& config) {
  const std::vector<std::string> secrets = SecretsOf(config);
  struct stat info {};
  if (secrets.empty() || ::stat(path.c_str(), &info) != 0) return "";
  const bool is_own = info.st_uid == ::geteuid();
  if ((info.st_mode & (is_own ? S_IRWXG | S_IRWXO : S_IRWXO)) == 0) return "";
  const std::string file = ShellQuoted(path);
  const std::string remedy =
      is_own ? absl::StrCat("chmod 600 ", file)
             : absl::StrCat("sudo chown ", OwnUser(), " ", file, " && sudo chmod 600 ", file);
  return absl::StrCat("other users of this machine may read ", path, ", which holds ",
                      absl::StrJoin(secrets, " and "), "; run: ", remedy);
}

}  // namespace macrame::agentd
