#include "agentd/services/model_demand.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr Duration kUnloadLimit = std::chrono::seconds(30);
constexpr Duration kLoadSlack = std::chrono::seconds(20);
constexpr size_t kFailuresKept = 64;

bool IsMissing(const absl::Status& status) {
  return absl::IsNotFound(status) && ReasonOf(status).code() == reasons::kModelNotLoaded;
}

}  // namespace

// A request that may be sent twice: before its model is loaded, and after. Owner thread, but for
// Cancel, Route and chunks, which come while a call of the router's is under way and pass on_chunk_
// by.
class ModelDemand::Call : public GenerateCall, public std::enable_shared_from_this<Call> {
 public:
  Call(ModelDemand& demand, v1::GenerateRequest request, ChunkCallback on_chunk,
       DoneCallback on_done)
      : demand_(demand),
        request_(std::move(request)),
        on_chunk_(std::move(on_chunk)),
        on_done_(std::move(on_done)) {}

  void Cancel() override {
    demand_.parts_.dispatcher.Post([self = shared_from_this()] {
      self->cancelled_ = true;
      if (self->inner_ != nullptr) return self->inner_->Cancel();
      self->Finish(absl::CancelledError("cancelled while its model was loaded"));
      self->demand_.OnLeft(self->model());
    });
  }

  CallRoute Route() const override {
    std::lock_guard<std::mutex> lock(route_mutex_);
    return routed_ == nullptr ? CallRoute() : routed_->Route();
  }

  void Send() {
    if (on_done_ == nullptr) return;
    if (cancelled_) return Finish(absl::CancelledError("cancelled before it began"));
    inner_ = demand_.parts_.router.StartGenerate(
        request_, on_chunk_.Behind([self = shared_from_this()](const v1::GenerateChunk& chunk) {
          if (self->on_chunk_) self->on_chunk_(chunk);
        }),
        [self = shared_from_this()](absl::Status status) {
          self->demand_.parts_.dispatcher.Post(
              [self, status = std::move(status)] { self->OnDone(status); });
        });
    if (!request_.timings()) return;
    std::lock_guard<std::mutex> lock(route_mutex_);
    routed_ = inner_;
  }

  void Finish(const absl::Status& status) {
    const DoneCallback done = std::exchange(on_done_, nullptr);
    inner_.reset();
    on_chunk_ = nullptr;
    if (done) done(status);
  }

  const std::string& model() const { return request_.deployment(); }
  bool is_over() const { return on_done_ == nullptr; }

 private:
  void OnDone(const absl::Status& status) {
    inner_.reset();
    const bool may_wait = IsMissing(status) && !cancelled_ && !std::exchange(has_waited_, true);
    if (may_wait && demand_.Await(shared_from_this())) return;
    Finish(status);
  }

  ModelDemand& demand_;
  const v1::GenerateRequest request_;
  ChunkCallback on_chunk_;
  DoneCallback on_done_;
  std::shared_ptr<GenerateCall> inner_;
  bool cancelled_ = false;
  bool has_waited_ = false;
  mutable std::mutex route_mutex_;
  std::shared_ptr<const GenerateCall> routed_;  // the last one that was sent, also when it is over
};

ModelDemand::ModelDemand(Parts parts, Options options)
    : parts_(std::move(parts)), options_(std::move(options)), idle_(options_.idle_unload) {}

ModelDemand::~ModelDemand() = default;

std::shared_ptr<GenerateCall> ModelDemand::StartGenerate(v1::GenerateRequest request,
                                                         ChunkCallback on_chunk,
                                                         DoneCallback on_done) {
  if (!options_.load_on_request) {
    return parts_.router.StartGenerate(std::move(request), std::move(on_chunk), std::move(on_done));
  }
  auto call =
      std::make_shared<Call>(*this, std::move(request), std::move(on_chunk), std::move(on_done));
  parts_.dispatcher.Post([call] { call->Send(); });
  return call;
}

bool ModelDemand::HasFiles(const std::string& model) const {
  const v1::ListModelsResponse models = parts_.reporter.Models();
  for (const v1::ModelEntry& entry : models.models()) {
    if (entry.name() == model && entry.node_ids_size() > 0) return true;
  }
  return false;
}

bool ModelDemand::Await(const std::shared_ptr<Call>& call) {
  const std::string& model = call->model();
  const auto failed = failures_.find(model);
  if (failed != failures_.end()) {
    if (parts_.dispatcher.Now() - failed->second.at < kFailedLoadPause) {
      call->Finish(failed->second.status);
      return true;
    }
    failures_.erase(failed);
  }
  auto load = loads_.find(model);
  if (load == loads_.end()) {
    if (!HasFiles(model)) return false;
    if (loads_.size() >= kDemandLoadsMax) {
      call->Finish(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                                absl::StrCat("'", model, "' is loaded when ", kDemandLoadsMax,
                                             " other models are; try again in a moment")));
      return true;
    }
    StartLoad(model);
    load = loads_.find(model);
  }
  std::list<std::shared_ptr<Call>>& waiting = load->second.waiting;
  if (waiting.size() >= kDemandWaitersMax) {
    call->Finish(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                              absl::StrCat("'", model, "' is being loaded, and ", kDemandWaitersMax,
                                           " requests wait for it already")));
    return true;
  }
  waiting.push_back(call);
  return true;
}

void ModelDemand::StartLoad(const std::string& model) {
  spdlog::info("model '{}' is loaded: a request asks for it", model);
  v1::LoadModelRequest request;
  request.set_name_or_path(model);
  request.set_timeout_ms(kDemandLoadMs);
  request.set_unload_unused(options_.unload_for_requests);
  Load& load = loads_[model];
  load.handle = parts_.own_socket.channel().Stream(
      kLoadModel, request, std::chrono::milliseconds(kDemandLoadMs) + kLoadSlack,
      [](const v1::LoadModelProgress&) {},
      [this, model](const absl::Status& status) { OnLoaded(model, status); });
}

void ModelDemand::OnLoaded(const std::string& model, const absl::Status& status) {
  const auto found = loads_.find(model);
  if (found == loads_.end()) return;
  const Load load = std::move(found->second);
  loads_.erase(found);
  if (!status.ok()) {
    spdlog::warn("model '{}' was not loaded for the requests that ask for it: {}", model,
                 LogText(status));
    if (failures_.size() >= kFailuresKept) failures_.clear();
    failures_[model] = {status, parts_.dispatcher.Now()};
  }
  for (const std::shared_ptr<Call>& call : load.waiting) {
    if (status.ok()) {
      call->Send();
    } else {
      call->Finish(status);
    }
  }
}

void ModelDemand::OnLeft(const std::string& model) {
  const auto found = loads_.find(model);
  if (found == loads_.end()) return;
  found->second.waiting.remove_if([](const auto& one) { return one->is_over(); });
  if (!found->second.waiting.empty()) return;
  const transport::CallHandle handle = found->second.handle;
  loads_.erase(found);
  handle.Cancel();
}

void ModelDemand::Unload(const std::string& model) {
  spdlog::info(
      "model {} is unloaded: nobody has asked for it for as long as its profile or "
      "model_idle_unload_s says",
      model);
  v1::UnloadModelRequest request;
  request.set_name(model);
  parts_.own_socket.channel().Call(
      kUnloadModel, request, kUnloadLimit,
      [model](const absl::StatusOr<v1::UnloadModelResponse>& response) {
        if (response.ok()) return;
        spdlog::warn("model {} is not unloaded: {}", model, LogText(response.status()));
      });
}

void ModelDemand::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (now - looked_at_ < kIdleLook) return;
  looked_at_ = now;
  // Of a cluster that takes no requests, what nobody asks for says nothing.
  const bool is_paused = parts_.desired.pause() != nullptr;
  if (is_paused || !parts_.election.Leading(now).has_value()) return idle_.Forget();
  for (const std::string& model :
       idle_.Look(parts_.gang_controller.Statuses(), now, parts_.desired.profiles())) {
    Unload(model);
  }
}

std::vector<std::string> ModelDemand::Unused(Duration unused_for) {
  const MonotonicTime now = parts_.dispatcher.Now();
  idle_.Look(parts_.gang_controller.Statuses(), now, parts_.desired.profiles());
  return idle_.LeastRecentlyUsed(now, unused_for);
}

void ModelDemand::EndAll(const absl::Status& why) {
  const auto loads = std::exchange(loads_, {});
  for (const auto& [model, load] : loads) {
    for (const std::shared_ptr<Call>& call : load.waiting) call->Finish(why);
    load.handle.Cancel();
  }
}

}  // namespace macrame::agentd
