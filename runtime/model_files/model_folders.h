#pragma once

// The models whose files this node has, and what people mean when they name one.
//
// A model folder is searched for folders that hold config.json. Three layouts are understood:
//   NAME/config.json                                        plain
//   ORG/NAME/config.json                                    LM Studio and others; named "ORG/NAME"
//   models--ORG--NAME/snapshots/REVISION/config.json        Hugging Face's cache; named "ORG/NAME"
// A folder may also be a model itself. Symbolic links to folders are followed once, never in a
// circle.
//
// Not thread-safe: one thread owns an object. Scan touches the disk: hundreds of stat calls at most
// when nothing changed, the headers of new models otherwise.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/common.pb.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/node.pb.h"
#include "proto/monotonic_time.h"
#include "runtime/model_files/model_description.h"
#include "runtime/second_engine/mlx_lm.h"

namespace macrame::runtime {

inline constexpr int kModelFolderDepthMax = 4;       // below a model folder
inline constexpr int kModelFolderEntriesMax = 4096;  // looked at in one scan of one folder
inline constexpr int kModelsMax = 256;               // kept in all
inline constexpr size_t kFoldersWatchedMax = 256;    // between scans
// A scan begins to describe no further model after this long; the next one goes on from there. What
// people name is looked up between scans.
inline constexpr Duration kScanLimit = std::chrono::seconds(60);

struct ResolvedModel {
  v1::LocalModel model;
  v1::ModelDescription description;  // name = model.name, path = model.path
  // "kimmi-k2-1t-moe resolved to mlx-community/Kimi-K2-Instruct-4bit"; empty when the name was
  // exact.
  std::string note;
};

// DescribeModel as this machine's ranks would load it.
inline absl::StatusOr<v1::ModelDescription> DescribeHere(const std::string& folder,
                                                         const SecondEngine& second) {
  return DescribeModel(folder, second);
}

inline MonotonicTime SteadyNow() {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

class ModelFolders {
 public:
  using Describe = std::function<absl::StatusOr<v1::ModelDescription>(const std::string& folder,
                                                                      const SecondEngine& second)>;

  // Later folders lose to earlier ones when both have a model of one name. "~/" is the home folder.
  // `describe`: by a process of its own where the models are others' (agentd); DescribeModel else.
  // `now`: a steady clock.
  explicit ModelFolders(std::vector<std::string> folders, Describe describe = DescribeHere,
                        std::function<MonotonicTime()> now = SteadyNow);

  // What serves the models that rankd doesn't; models are looked at anew in the next scan.
  void SetSecondEngine(SecondEngine second);

  // What is there now, by name. A model whose files have not changed (names, sizes, times) is not
  // read again. Broken models, and those that kScanLimit left to the next scan, are left out and
  // listed by Broken().
  std::vector<v1::LocalModel> Scan();

  // What the last scan found.
  std::vector<v1::LocalModel> Models() const;

  // Something was added to or taken from the folders that the last scan looked into. One stat a
  // folder, of the first kFoldersWatchedMax.
  bool LooksChanged() const;

  // Models that the last scan found and could not describe: the reason, with the path in its
  // message.
  std::vector<v1::Reason> Broken() const;

  // `name_or_path`: a path when it begins with "/", "./", "../" or "~/"; else a name, looked up
  // among the models of a fresh scan and never joined to a path: exact, then without regard to
  // case, the part after "ORG/", a known alias, a unique beginning or end. MODEL_NOT_FOUND names
  // the folders that were searched, suggestions and what an alias was resolved to; MODEL_AMBIGUOUS
  // lists the candidates. A model that is there but can't be described gives its own error.
  absl::StatusOr<ResolvedModel> Resolve(const std::string& name_or_path);

  // The folder of what Resolve would answer, also where the model in it can't be described.
  struct Located {
    std::string name;
    std::string path;
    absl::Status described;  // why it can't be loaded
  };
  absl::StatusOr<Located> Locate(const std::string& name_or_path);

  // The same model as another node has it, its text files too: by name and fingerprint.
  // MODEL_NOT_ON_NODE when this node has none of that name, or one of another fingerprint (the
  // message tells the two apart).
  absl::StatusOr<ResolvedModel> Find(std::string_view name, std::string_view fingerprint);

 private:
  struct Entry {
    std::string name;
    std::string path;
    std::string stamp;  // names, sizes and times of the files that were read
    absl::StatusOr<v1::ModelDescription> description = absl::UnknownError("not read");
    uint64_t size_bytes = 0;
  };

  void Watch(const std::string& folder);
  void ScanFolder(const std::string& folder, std::map<std::string, Entry>* found);
  void Take(const std::string& name, const std::string& path, std::map<std::string, Entry>* found);
  absl::StatusOr<ResolvedModel> Resolved(const Entry& entry, std::string note) const;
  absl::StatusOr<Entry> FindEntry(const std::string& name_or_path, std::string* note);
  absl::StatusOr<Entry> FindPath(const std::string& path);

  std::vector<std::string> folders_;
  absl::StatusOr<v1::ModelDescription> DescribeInTime(const std::string& path) const;

  const Describe describe_;
  const std::function<MonotonicTime()> now_;
  MonotonicTime scan_ends_;
  SecondEngine second_;
  std::map<std::string, Entry> entries_;                  // by name
  std::vector<std::pair<std::string, int64_t>> watched_;  // folder, when it changed last
};

}  // namespace macrame::runtime
