#pragma once

// This node's models. FolderModelLibrary (folder_model_library.h) finds them in folders; a
// simulation has its own. Owner thread for all calls and callbacks.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/node.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::runtime {
struct SecondEngine;
}  // namespace macrame::runtime

namespace macrame::agentd {

struct DescribedModel {
  v1::ModelDescription description;  // path: on this node
  std::string note;                  // what a name was taken for; empty when it was exact
};

// Where a model's files are, whether or not it can be loaded.
struct LocatedModel {
  std::string name;
  std::string path;
  v1::Reason broken;  // why it can't; unset: it can
};

class ModelLibrary {
 public:
  using Located = std::function<void(absl::StatusOr<LocatedModel>)>;
  using Described = std::function<void(absl::StatusOr<DescribedModel>)>;

  virtual ~ModelLibrary() = default;

  // `on_models` after the first scan, and after each that found something else than the last one.
  // Scans each `interval`, and within seconds of a change of the folders.
  virtual void Start(Duration interval,
                     std::function<void(std::vector<v1::LocalModel>)> on_models) = 0;
  virtual void Stop() = 0;

  // Models that rankd doesn't know are not complained of before SetSecondEngine.
  virtual void ExpectSecondEngine() = 0;
  // What serves models that rankd doesn't; all models are looked at anew.
  virtual void SetSecondEngine(runtime::SecondEngine second) = 0;

  // By name or path as people give it.
  virtual void Resolve(const std::string& name_or_path, Described done) = 0;
  // The same; also of one that can't be described.
  virtual void Locate(const std::string& name_or_path, Located done) = 0;
  // The very model that another node described. `path` is tried when no folder has it.
  virtual void Find(const v1::ModelDescription& model, Described done) = 0;

  // Whether it has looked through its folders since it was started: before, a model that it does
  // not know may be there all the same.
  virtual bool has_looked() const { return true; }
  // Models that are there and can't be used.
  virtual const std::vector<v1::Reason>& broken() const = 0;
};

}  // namespace macrame::agentd
