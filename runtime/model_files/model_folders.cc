#include "runtime/model_files/model_folders.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "proto/model_aliases.h"
#include "proto/model_fingerprint.h"
#include "proto/reasons.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model_files/name_match.h"
#include "transport/regular_file.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int kModelFilesMax = 4096;       // looked at in one model's folder
constexpr size_t kRevisionBytesMax = 128;  // a commit's hash has 40
constexpr std::string_view kHubPrefix = "models--";

std::string Expand(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || !absl::StartsWith(path, "~/")) return path;
  return absl::StrCat(home, path.substr(1));
}

// The same weights in forms that are not read where there are safetensors.
bool IsForeignWeights(const std::string& name) {
  for (const char* ending : {".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}) {
    if (absl::EndsWithIgnoreCase(name, ending)) return true;
  }
  return false;
}

// Files beside the weights that decide what the model computes, or what its text is.
bool ShapesModel(const std::string& name) {
  for (const char* ending : {".json", ".jinja", ".model", ".txt", ".tiktoken"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return false;
}

bool IsNamedBy(std::string_view fingerprint,
               const absl::StatusOr<v1::ModelDescription>& description) {
  return description.ok() && FingerprintNames(fingerprint, description->fingerprint());
}

// Names, sizes and times of the files that a description depends on, and their bytes.
std::string StampOf(const std::string& folder, uint64_t* size_bytes) {
  std::vector<std::string> parts;
  std::error_code error;
  int entries = 0;
  uint64_t beside = 0;  // weights that are not loaded, where others are
  bool has_weights = false;
  *size_bytes = 0;
  const auto add = [&](const fs::path& path, const std::string& name) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    const bool is_shard = absl::EndsWith(name, ".safetensors");
    const bool is_beside = is_shard ? engine::IsBesideWeights(name) : IsForeignWeights(name);
    has_weights = has_weights || (is_shard && !is_beside);
    (is_beside ? beside : *size_bytes) += static_cast<uint64_t>(info.st_size);
    if (!is_shard && !ShapesModel(name)) return;
    parts.push_back(absl::StrCat(name, ":", info.st_size, ":", info.st_mtime, ":", info.st_ino));
  };
  for (fs::directory_iterator it(folder, error), end;
       !error && it != end && entries < kModelFilesMax; it.increment(error), ++entries) {
    add(it->path(), it->path().filename().string());
  }
  add(fs::path(folder) / "1_Pooling" / "config.json", "1_Pooling/config.json");
  if (!has_weights) *size_bytes += beside;
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, "\n");
}

// "models--ORG--NAME" → "ORG/NAME"; empty for other names.
std::string HubId(const std::string& folder_name) {
  if (!absl::StartsWith(folder_name, std::string(kHubPrefix))) return "";
  return absl::StrReplaceAll(folder_name.substr(kHubPrefix.size()), {{"--", "/"}});
}

// What "refs/main" names; empty when it isn't there or holds more than a name.
std::string MainRevision(const fs::path& hub_folder) {
  const fs::path path = hub_folder / "refs" / "main";
  std::string revision = transport::ReadBeginning(path.string(), kRevisionBytesMax).value_or("");
  absl::StripAsciiWhitespace(&revision);
  const bool is_name = std::all_of(revision.begin(), revision.end(),
                                   [](unsigned char c) { return absl::ascii_isalnum(c); });
  return is_name ? revision : "";
}

// The revision that "main" points at, else the one that changed last; empty when there is none.
fs::path ChosenSnapshot(const fs::path& hub_folder) {
  std::error_code error;
  if (const std::string revision = MainRevision(hub_folder); !revision.empty()) {
    fs::path main = hub_folder / "snapshots" / revision;
    if (fs::exists(main / "config.json", error)) return main;
  }
  std::vector<std::pair<fs::file_time_type, fs::path>> snapshots;
  for (fs::directory_iterator it(hub_folder / "snapshots", error), end;
       !error && it != end && snapshots.size() < 64; it.increment(error)) {
    std::error_code ignored;
    if (!fs::exists(it->path() / "config.json", ignored)) continue;
    snapshots.emplace_back(fs::last_write_time(it->path(), ignored), it->path());
  }
  if (snapshots.empty()) return {};
  return std::max_element(snapshots.begin(), snapshots.end())->second;
}

absl::Status NotFound(const std::string& wanted, const std::string& alias,
                      const std::vector<std::string>& near,
                      const std::vector<std::string>& searched) {
  std::string message = absl::StrCat("no model '", wanted, "' on this node");
  if (!alias.empty()) {
    message = absl::StrCat("'", wanted, "' resolved to ", alias, ", which is not on this node");
  }
  if (!near.empty()) absl::StrAppend(&message, "; did you mean ", absl::StrJoin(near, ", "), "?");
  absl::StrAppend(
      &message, near.empty() ? "; it looks in " : " It looks in ",
      searched.empty() ? "no folders: model_folders is empty" : absl::StrJoin(searched, ", "));
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound, message);
}

int64_t ChangedAt(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) return -1;
#ifdef __APPLE__
  return int64_t{info.st_mtimespec.tv_sec} * 1'000'000'000 + info.st_mtimespec.tv_nsec;
#else
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
#endif
}

}  // namespace

ModelFolders::ModelFolders(std::vector<std::string> folders, Describe describe,
                           std::function<MonotonicTime()> now)
    : describe_(std::move(describe)), now_(std::move(now)) {
  for (const std::string& folder : folders) folders_.push_back(Expand(folder));
}

void ModelFolders::SetSecondEngine(SecondEngine second) {
  second_ = std::move(second);
  entries_.clear();
}

std::vector<v1::LocalModel> ModelFolders::Scan() {
  std::map<std::string, Entry> found;
  scan_ends_ = now_() + kScanLimit;
  watched_.clear();
  for (const std::string& folder : folders_) ScanFolder(folder, &found);
  entries_ = std::move(found);
  return Models();
}

bool ModelFolders::LooksChanged() const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const auto& one) { return ChangedAt(one.first) != one.second; });
}

void ModelFolders::Watch(const std::string& folder) {
  if (watched_.size() < kFoldersWatchedMax) watched_.emplace_back(folder, ChangedAt(folder));
}

std::vector<v1::LocalModel> ModelFolders::Models() const {
  std::vector<v1::LocalModel> models;
  for (const auto& [name, entry] : entries_) {
    if (!entry.description.ok()) continue;
    v1::LocalModel model;
    model.set_name(name);
    model.set_path(entry.path);
    model.set_fingerprint(entry.description->fingerprint());
    model.set_size_bytes(entry.size_bytes);
    models.push_back(std::move(model));
  }
  return models;
}

std::vector<v1::Reason> ModelFolders::Broken() const {
  std::vector<v1::Reason> reasons;
  for (const auto& [name, entry] : entries_) {
    if (!entry.description.ok()) reasons.push_back(ReasonOf(entry.description.status()));
  }
  return reasons;
}

// Breadth first, so that what lies near the top is found when a bound cuts the search short.
void ModelFolders::ScanFolder(const std::string& folder, std::map<std::string, Entry>* found) {
  struct Level {
    fs::path path;
    int depth;
    std::string org;  // the folder above, when it may be an organisation
  };
  std::deque<Level> queue = {{folder, 0, ""}};
  std::set<std::string> seen;
  int looked_at = 0;
  while (!queue.empty()) {
    const Level level = queue.front();
    queue.pop_front();
    std::error_code error;
    Watch(level.path.string());
    const std::string real = fs::canonical(level.path, error).string();
    if (error || !seen.insert(real).second) continue;
    const std::string own = level.path.lexically_normal().filename().string();
    if (fs::exists(level.path / "config.json", error)) {
      Take(level.org.empty() ? own : absl::StrCat(level.org, "/", own), level.path.string(), found);
      continue;
    }
    if (const std::string id = HubId(own); !id.empty()) {
      const fs::path snapshot = ChosenSnapshot(level.path);
      if (!snapshot.empty()) Take(id, snapshot.string(), found);
      continue;
    }
    if (level.depth >= kModelFolderDepthMax) continue;
    std::vector<fs::path> below;
    for (fs::directory_iterator it(level.path, error), end;
         !error && it != end && looked_at < kModelFolderEntriesMax; it.increment(error)) {
      ++looked_at;
      std::error_code ignored;
      const std::string name = it->path().filename().string();
      if (!absl::StartsWith(name, ".") && it->is_directory(ignored)) below.push_back(it->path());
    }
    std::sort(below.begin(), below.end());
    for (fs::path& path : below) {
      queue.push_back({std::move(path), level.depth + 1, level.depth == 0 ? "" : own});
    }
  }
}

void ModelFolders::Take(const std::string& name, const std::string& path,
                        std::map<std::string, Entry>* found) {
  if (found->count(name) > 0 || found->size() >= static_cast<size_t>(kModelsMax)) return;
  Entry entry;
  entry.name = name;
  entry.path = path;
  entry.stamp = StampOf(path, &entry.size_bytes);
  const auto known = entries_.find(name);
  // What could not be asked is asked again; what was answered stays until the files change.
  const bool is_known = known != entries_.end() && known->second.path == path &&
                        known->second.stamp == entry.stamp &&
                        !absl::IsUnavailable(known->second.description.status());
  if (is_known) {
    entry.description = known->second.description;
  } else {
    entry.description = DescribeInTime(path);
    if (entry.description.ok()) entry.description->set_name(name);
  }
  found->emplace(name, std::move(entry));
}

absl::StatusOr<v1::ModelDescription> ModelFolders::DescribeInTime(const std::string& path) const {
  if (now_() < scan_ends_) return describe_(path, second_);
  v1::Reason reason =
      MakeReason(reasons::kNotReady,
                 absl::StrCat(path, " was not looked at yet: other model folders took the ",
                              std::chrono::duration_cast<std::chrono::seconds>(kScanLimit).count(),
                              " s that one look at all of them may take"));
  reason.set_remedy("wait for the next look, half a minute later, or remove what takes so long");
  return ReasonStatus(absl::StatusCode::kUnavailable, reason);
}

absl::StatusOr<ResolvedModel> ModelFolders::Resolved(const Entry& entry, std::string note) const {
  if (!entry.description.ok()) return entry.description.status();
  ResolvedModel resolved;
  resolved.description = *entry.description;
  resolved.model.set_name(entry.name);
  resolved.model.set_path(entry.path);
  resolved.model.set_fingerprint(entry.description->fingerprint());
  resolved.model.set_size_bytes(entry.size_bytes);
  resolved.note = std::move(note);
  return resolved;
}

absl::StatusOr<ModelFolders::Entry> ModelFolders::FindPath(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(Expand(path), error);
  if (error) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                        absl::StrCat("there is no folder ", path, " on this node"));
  }
  // The same folder under its known name, when a scan finds it.
  Scan();
  for (const auto& [name, entry] : entries_) {
    if (fs::canonical(entry.path, error) == real && !error) return entry;
  }
  Entry entry;
  entry.path = real.string();
  entry.name = real.filename().string();
  StampOf(entry.path, &entry.size_bytes);
  entry.description = describe_(entry.path, second_);
  return entry;
}

absl::StatusOr<ResolvedModel> ModelFolders::Resolve(const std::string& name_or_path) {
  std::string note;
  const absl::StatusOr<Entry> entry = FindEntry(name_or_path, &note);
  if (!entry.ok()) return entry.status();
  return Resolved(*entry, std::move(note));
}

absl::StatusOr<ModelFolders::Located> ModelFolders::Locate(const std::string& name_or_path) {
  std::string note;
  const absl::StatusOr<Entry> entry = FindEntry(name_or_path, &note);
  if (!entry.ok()) return entry.status();
  return Located{entry->name, entry->path, entry->description.status()};
}

absl::StatusOr<ModelFolders::Entry> ModelFolders::FindEntry(const std::string& name_or_path,
                                                            std::string* note) {
  if (IsModelPath(name_or_path)) return FindPath(name_or_path);
  Scan();
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  NameMatch match = MatchName(name_or_path, names);
  std::string alias;
  // A whole name wins over an alias, an alias over a part of a name.
  const bool whole = match.fits.size() == 1 &&
                     (absl::EqualsIgnoreCase(match.fits[0], name_or_path) ||
                      absl::EndsWithIgnoreCase(match.fits[0], absl::StrCat("/", name_or_path)));
  if (!whole) {
    alias = std::string(HubIdOfAlias(name_or_path));
    if (!alias.empty()) match = MatchName(alias, names);
    if (!alias.empty() && match.fits.empty()) {
      match = MatchName(alias.substr(alias.find('/') + 1), names);
    }
  }
  if (match.fits.size() == 1) {
    const std::string& name = match.fits[0];
    if (!match.exact || !alias.empty()) {
      *note = absl::StrCat("'", name_or_path, "' resolved to ", name);
    }
    return entries_.at(name);
  }
  if (match.fits.size() > 1) {
    return ReasonStatus(
        absl::StatusCode::kFailedPrecondition, reasons::kModelAmbiguous,
        absl::StrCat("'", name_or_path, "' may be any of ", absl::StrJoin(match.fits, ", ")));
  }
  return NotFound(name_or_path, alias, SuggestedNames(name_or_path, names), folders_);
}

absl::StatusOr<ResolvedModel> ModelFolders::Find(std::string_view name,
                                                 std::string_view fingerprint) {
  Scan();
  const auto found = entries_.find(std::string(name));
  if (found != entries_.end() && IsNamedBy(fingerprint, found->second.description)) {
    return Resolved(found->second, "");
  }
  // The same files under another name serve as well.
  for (const auto& [other, entry] : entries_) {
    if (IsNamedBy(fingerprint, entry.description)) return Resolved(entry, "");
  }
  std::string message = absl::StrCat("this node has no model ", std::string(name));
  if (found != entries_.end()) {
    message = found->second.description.ok()
                  ? absl::StrCat("this node's ", std::string(name),
                                 " has other files than the model that is asked for")
                  : std::string(found->second.description.status().message());
  }
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotOnNode, message);
}

}  // namespace macrame::runtime
