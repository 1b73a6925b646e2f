#pragma once

// Loads models when they are asked for, and unloads those that nobody asks for; both off by
// default. Between the gateway and the router.
//
// A request for a model that is not loaded, but whose files a live node has, has it loaded as
// `clusterctl model load NAME` would, waits for it and is then answered. Where it does not fit,
// models that nobody uses go for it. What can't be loaded fails with the reason, and is not tried
// again for kFailedLoadPause. Owner thread, but for the InferenceBackend methods.

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agentd/cores/election.h"
#include "agentd/cores/idle_models.h"
#include "agentd/gangs/gang_controller.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/node/own_socket.h"
#include "agentd/services/status_reporter.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"

namespace macrame::agentd {

// Models that are loaded for requests at once; further ones wait for a later request.
inline constexpr size_t kDemandLoadsMax = 4;
inline constexpr size_t kDemandWaitersMax = 64;
// Below the silence after which a gateway gives a request up.
inline constexpr uint32_t kDemandLoadMs = 240'000;
inline constexpr Duration kFailedLoadPause = std::chrono::seconds(30);
inline constexpr Duration kIdleLook = std::chrono::seconds(2);

class ModelDemand : public InferenceBackend {
 public:
  struct Options {
    bool load_on_request = false;
    bool unload_for_requests = true;  // where what is asked for does not fit
    Duration idle_unload{};           // 0: never
  };
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    GangController& gang_controller;
    const StatusReporter& reporter;
    InferenceBackend& router;
    OwnSocket& own_socket;
    const DesiredState& desired;
  };

  ModelDemand(Parts parts, Options options);
  ~ModelDemand() override;

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override { return parts_.router.ListModels(); }
  std::map<std::string, std::string> Aliases() override { return parts_.router.Aliases(); }
  bool IsLooking() override { return parts_.router.IsLooking(); }

  // Each 100 ms or so.
  void Tick();
  // The coordinator's: models without a priority that nobody used for so long, the least recently
  // used first.
  std::vector<std::string> Unused(Duration unused_for);
  // Those that wait for a model end now.
  void EndAll(const absl::Status& why);

 private:
  class Call;
  struct Load {
    transport::CallHandle handle;
    std::list<std::shared_ptr<Call>> waiting;
  };
  struct Failure {
    absl::Status status;
    MonotonicTime at;
  };

  // The router has no such model: true when the call waits for it now.
  bool Await(const std::shared_ptr<Call>& call);
  bool HasFiles(const std::string& model) const;
  void StartLoad(const std::string& model);
  void OnLoaded(const std::string& model, const absl::Status& status);
  // One of those that wait has left, and takes nobody's place: without any the load is given up.
  void OnLeft(const std::string& model);
  void Unload(const std::string& model);

  Parts parts_;
  const Options options_;
  std::map<std::string, Load> loads_;
  std::map<std::string, Failure> failures_;
  IdleModels idle_;
  MonotonicTime looked_at_;
};

}  // namespace macrame::agentd
