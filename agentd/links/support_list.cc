#include "agentd/links/support_list.h"

#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "transport/regular_file.h"

namespace macrame::agentd {
namespace {

std::vector<std::string> ListOf(const YAML::Node& node) {
  return node ? node.as<std::vector<std::string>>() : std::vector<std::string>();
}

bool IsDate(const std::string& text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const size_t i : {0, 1, 2, 3, 5, 6, 8, 9}) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  return true;
}

v1::SupportEntry EntryOf(const YAML::Node& node) {
  v1::SupportEntry entry;
  entry.set_subject(node["subject"].as<std::string>());
  for (std::string& model : ListOf(node["machine_models"])) entry.add_machine_models(model);
  for (std::string& chip : ListOf(node["chips"])) entry.add_chips(chip);
  entry.set_os_version_min(node["os_version_min"].as<std::string>(""));
  entry.set_mlx_version_min(node["mlx_version_min"].as<std::string>(""));
  entry.set_supported(node["supported"].as<bool>());
  entry.set_source(node["source"].as<std::string>(""));
  return entry;
}

}  // namespace

absl::StatusOr<v1::SupportList> ParseSupportList(const std::string& text, const std::string& path) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (text.size() > kSupportListBytesMax) return wrong("more than 256 KiB");
  try {
    const YAML::Node file = YAML::Load(text);
    v1::SupportList list;
    if (!file.IsMap()) return wrong("must be a map with 'date' and 'entries'");
    list.set_date(file["date"].as<std::string>(""));
    if (!IsDate(list.date())) return wrong("'date' must be YYYY-MM-DD");
    for (const YAML::Node& node : file["entries"]) {
      if (list.entries_size() >= kSupportListEntriesMax) return wrong("too many entries");
      *list.add_entries() = EntryOf(node);
    }
    return list;
  } catch (const YAML::Exception& error) {
    return wrong(error.what());
  }
}

absl::StatusOr<v1::SupportList> ReadSupportList(const std::string& path) {
  const auto text = transport::ReadBeginning(path, kSupportListBytesMax + 1);
  if (absl::IsNotFound(text.status())) return absl::NotFoundError(absl::StrCat("no file ", path));
  if (!text.ok()) return text.status();
  return ParseSupportList(*text, path);
}

}  // namespace macrame::agentd
