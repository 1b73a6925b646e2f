#pragma once

// ModelLibrary over this node's folders, looked after by a thread of its own because looking
// blocks.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/node/model_library.h"
#include "runtime/second_engine/mlx_lm.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::discovery {
class ProcessCommandRunner;
}  // namespace macrame::discovery

namespace macrame::runtime {
class ModelFolders;
}  // namespace macrame::runtime

namespace macrame::agentd {

class FolderModelLibrary final : public ModelLibrary {
 public:
  // `rankd` looks at the folders (agentd/node/model_describer.h); empty: the one beside this
  // program.
  FolderModelLibrary(transport::Dispatcher& dispatcher, std::vector<std::string> folders,
                     const std::string& rankd);
  // Ends the look that is under way.
  ~FolderModelLibrary() override;

  void Start(Duration interval,
             std::function<void(std::vector<v1::LocalModel>)> on_models) override;
  void Stop() override;
  void ExpectSecondEngine() override { awaits_second_engine_ = true; }
  void SetSecondEngine(runtime::SecondEngine second) override;
  void Resolve(const std::string& name_or_path, Described done) override;
  void Locate(const std::string& name_or_path, Located done) override;
  void Find(const v1::ModelDescription& model, Described done) override;
  bool has_looked() const override { return has_looked_; }
  const std::vector<v1::Reason>& broken() const override { return broken_; }

 private:
  void Scan();
  void Glance();
  void ScheduleGlance();
  void Took(std::vector<v1::LocalModel> models, std::vector<v1::Reason> broken);
  template <typename Found>
  void Run(std::function<absl::StatusOr<Found>()> work,
           std::function<void(absl::StatusOr<Found>)> done);

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
  bool has_looked_ = false;
  std::optional<runtime::SecondEngine> second_to_set_;  // the folders don't know it yet
  std::vector<v1::Reason> broken_;
  std::unique_ptr<transport::WorkerThread> worker_;
};

}  // namespace macrame::agentd
