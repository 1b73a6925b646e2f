#include "agentd/services/verify_service.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/model_integrity.h"
#include "agentd/services/gathering.h"
#include "agentd/services/remote_models.h"
#include "proto/reasons.h"
#include "proto/replicas.h"
#include "runtime/model_files/file_integrity.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;
using transport::ServerStream;

// A terabyte from a disk that reads 100 MB/s takes three.
constexpr Duration kVerifyLimit = std::chrono::hours(6);
constexpr Duration kProgressPause = std::chrono::milliseconds(500);

}  // namespace

// What the nodes said so far.
struct VerifyService::Gathering {
  v1::ModelVerification told;
  std::map<NodeId, int> places;  // in `told`
  std::set<NodeId> awaited;
  ServerStream stream;
  std::vector<transport::CallHandle> handles;

  void Take(const NodeId& node, v1::NodeModelFiles files) {
    v1::NodeModelFiles& own = *told.mutable_nodes(places.at(node));
    own = std::move(files);
    own.set_node_id(node.value());
    v1::ModelVerification progress = told;
    for (v1::NodeModelFiles& each : *progress.mutable_nodes()) each.clear_files();
    if (!stream.Write(progress)) Cancel();
  }

  // Nobody waits any more.
  void Cancel() {
    for (const transport::CallHandle& handle : handles) handle.Cancel();
  }

  void End(const NodeId& node, const absl::Status& status) {
    if (awaited.erase(node) == 0) return;
    if (!status.ok()) {
      v1::NodeModelFiles& own = *told.mutable_nodes(places.at(node));
      own.clear_files();
      v1::Reason& why = *own.mutable_failure();
      why = ReasonOf(status);
      if (absl::IsUnavailable(status) && why.code() == reasons::kInternal) {
        why.set_code(reasons::kEntryUnreachable);
        why.set_node_id(node.value());
      }
    }
    if (awaited.empty()) Finish();
  }

  void Finish() {
    JudgeModelFiles(told);
    told.set_finished(true);
    stream.Write(told);
    stream.Finish(absl::OkStatus());
  }
};

VerifyService::~VerifyService() { *stopping_ = true; }

void VerifyService::RegisterAgent(RpcServer& server) {
  server.HandleStream(kVerifyFiles,
                      [this](const Caller&, v1::VerifyFilesRequest request, ServerStream stream) {
                        auto handle = std::make_shared<transport::CallHandle>();
                        *handle = ReadHere(
                            request.name_or_path(),
                            [stream, handle](const v1::NodeModelFiles& files) {
                              if (!stream.Write(files)) handle->Cancel();
                            },
                            [stream](const absl::Status& status) { stream.Finish(status); });
                        stream.OnCancel([handle] { handle->Cancel(); });
                      });
}

void VerifyService::RegisterCluster(RpcServer& server) {
  server.HandleStream(kVerifyModel, [this](const Caller& caller, v1::VerifyModelRequest request,
                                           ServerStream stream) {
    absl::StatusOr<std::string> model =
        ModelNameFrom(caller, request.name_or_path(),
                      parts_.views == nullptr ? std::vector<NodeFacts>() : parts_.views->All());
    if (!model.ok()) return stream.Finish(model.status());
    request.set_name_or_path(*std::move(model));
    Verify(request, std::move(stream));
  });
}

transport::CallHandle VerifyService::ReadHere(const std::string& name, OnFiles on_files,
                                              Done done) {
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto read = [this, cancelled, on_files = std::move(on_files),
                     done](absl::StatusOr<LocatedModel> located) {
    if (!located.ok()) return done(located.status());
    if (reader_ == nullptr) reader_ = std::make_unique<transport::WorkerThread>();
    // Kept on this side: what they hold belongs to the owner thread.
    auto kept = std::make_shared<std::pair<OnFiles, Done>>(on_files, done);
    const bool added = reader_->Add([&dispatcher = parts_.dispatcher, stopping = stopping_,
                                     cancelled, kept, model = *std::move(located)]() mutable {
      MonotonicTime told_at = dispatcher.Now();
      auto files = runtime::ReadModelFiles(
          model.name, model.path, [&](uint64_t bytes_read, uint64_t bytes_total) {
            if (*stopping || *cancelled) return false;
            if (dispatcher.Now() - told_at < kProgressPause) return true;
            told_at = dispatcher.Now();
            v1::NodeModelFiles progress;
            progress.set_model(model.name);
            progress.set_path(model.path);
            progress.set_bytes_read(bytes_read);
            progress.set_bytes_total(bytes_total);
            dispatcher.Post([kept, progress] { kept->first(progress); });
            return true;
          });
      if (files.ok() && !model.broken.code().empty()) *files->mutable_broken() = model.broken;
      dispatcher.Post([kept = std::move(kept), files = std::move(files)] {
        if (files.ok()) kept->first(*files);
        kept->second(files.status());
      });
    });
    if (!added) {
      done(ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull,
                        "too many models are being verified on this node"));
    }
  };
  parts_.library.Locate(name, read);
  return transport::CallHandle([cancelled] { *cancelled = true; });
}

std::string VerifyService::ModelOf(const std::string& name) const {
  const v1::Deployment* deployment =
      parts_.replicator.desired().FindDeployment(DeploymentOfReplica(name));
  return deployment == nullptr ? name : deployment->model_name();
}

void VerifyService::Verify(const v1::VerifyModelRequest& request, ServerStream stream) {
  std::set<NodeId> nodes = parts_.members.Live();
  nodes.insert(parts_.self);
  if (!request.node_ids().empty()) {
    std::set<NodeId> asked;
    for (const std::string& id : request.node_ids()) asked.insert(NodeId(id));
    nodes = std::move(asked);
  }
  auto gathering = std::make_shared<Gathering>();
  gathering->stream = stream;
  gathering->awaited = nodes;
  for (const NodeId& node : nodes) {
    gathering->places[node] = gathering->told.nodes_size();
    gathering->told.add_nodes()->set_node_id(node.value());
  }
  v1::VerifyFilesRequest wanted;
  wanted.set_name_or_path(ModelOf(request.name_or_path()));
  for (const NodeId& node : nodes) {
    const auto take = [gathering, node](v1::NodeModelFiles files) {
      gathering->Take(node, std::move(files));
    };
    const auto done = [gathering, node](const absl::Status& status) {
      gathering->End(node, status);
    };
    if (node == parts_.self) {
      gathering->handles.push_back(ReadHere(wanted.name_or_path(), take, done));
      continue;
    }
    transport::PeerChannel* channel = parts_.channels.For(node);
    if (channel == nullptr) {
      done(Unreached(node));
      continue;
    }
    gathering->handles.push_back(channel->Stream(kVerifyFiles, wanted, kVerifyLimit, take, done));
  }
  stream.OnCancel([gathering] { gathering->Cancel(); });
}

}  // namespace macrame::agentd
