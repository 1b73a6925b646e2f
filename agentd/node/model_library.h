#pragma once

// This node's models, looked after by a thread of its own because looking blocks. Owner thread for
// all calls and callbacks.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/node.pb.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::discovery {
class ProcessCommandRunner;
}  // namespace macrame::discovery

namespace macrame::runtime {
class ModelFolders;
struct SecondEngine;
}  // namespace macrame::runtime

namespace macrame::agentd {

struct DescribedModel {
  v1::ModelDescription description;  // path: on this node
  std::string note;                  // what a name was taken for; empty when it was exact
};

class ModelLibrary {
 public:
  using Described = std::function<void(absl::StatusOr<DescribedModel>)>;

  // `rankd` looks at the folders (agentd/node/model_describer.h); empty: the one beside this
  // program.
  ModelLibrary(transport::Dispatcher& dispatcher, std::vector<std::string> folders,
               const std::string& rankd);
  // Ends the look that is under way.
  ~ModelLibrary();

  // `on_models` after each scan that found something else than the last one. Scans each `interval`,
  // and within seconds of a change of the folders.
  void Start(Duration interval, std::function<void(std::vector<v1::LocalModel>)> on_models);
  void Stop();

  // Models that rankd doesn't know are not complained of before SetSecondEngine.
  void ExpectSecondEngine() { awaits_second_engine_ = true; }
  // What serves models that rankd doesn't; all models are looked at anew.
  void SetSecondEngine(runtime::SecondEngine second);

  // By name or path as people give it.
  void Resolve(const std::string& name_or_path, Described done);
  // The very model that another node described. `path` is tried when no folder has it.
  void Find(const v1::ModelDescription& model, Described done);

  // Models that are there and can't be used.
  const std::vector<v1::Reason>& broken() const { return broken_; }

 private:
  void Scan();
  void Glance();
  void ScheduleGlance();
  void Took(std::vector<v1::LocalModel> models, std::vector<v1::Reason> broken);
  void Run(std::function<absl::StatusOr<DescribedModel>()> work, Described done);

  transport::Dispatcher& dispatcher_;
  // Runs what looks at folders; Stop ends that at once.
  std::shared_ptr<discovery::ProcessCommandRunner> runner_;
  // Used by the worker only, which is stopped before it goes.
  std::shared_ptr<runtime::ModelFolders> folders_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Duration interval_{};
  MonotonicTime scanned_at_;
  transport::Dispatcher::TimerId timer_ = 0;
  std::function<void(std::vector<v1::LocalModel>)> on_models_;
  std::string last_models_;
  bool awaits_second_engine_ = false;
  std::vector<v1::Reason> broken_;
  std::unique_ptr<transport::WorkerThread> worker_;
};

}  // namespace macrame::agentd
