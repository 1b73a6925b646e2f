#pragma once

// What whoever calls this agent may know of models (gateway/known_models.h), and a server that
// holds every answer to an access file's clusterctl against it. Owner thread.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/gateway/access/gateway_access.h"
#include "agentd/gateway/access/known_models.h"
#include "agentd/node/node_views.h"
#include "agentd/state/state_replicator.h"
#include "transport/guarded.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class CallerView {
 public:
  struct Parts {
    const StateReplicator& replicator;
    const NodeViews& views;
    std::shared_ptr<GatewayAccess> access;
  };
  explicit CallerView(Parts parts) : parts_(std::move(parts)) {}

  // Whoever may open this machine's socket, and members, know all: what a member is told it tells
  // on, and it is the agent that a person asked who holds it against what that person may know.
  KnownModels Of(const transport::Caller& caller) const { return Watch(caller)(); }
  // Likewise at any later time, from any thread: models come and go while it is answered, and its
  // rights may become fewer.
  std::function<KnownModels()> Watch(const transport::Caller& caller) const;
  // The desired state changed.
  void NoteState();

 private:
  // Of the access files' keys, by id.
  using Persons = std::map<std::string, Principal>;

  const Parts parts_;
  const std::shared_ptr<transport::Guarded<std::shared_ptr<const Persons>>> persons_ =
      std::make_shared<transport::Guarded<std::shared_ptr<const Persons>>>(
          std::make_shared<const Persons>());
};

// Registers at `server`, so that what services answer persons on other machines, and why they
// refuse them, passes what these may know. Both outlive it and the server's calls.
class ViewedServer : public transport::RpcServer {
 public:
  ViewedServer(transport::RpcServer& server, const CallerView& view)
      : server_(server), view_(view) {}

  void SetObserver(Observer observer) override { server_.SetObserver(std::move(observer)); }
  void SetMemberCheck(std::function<bool(const NodeId&)> is_member) override {
    server_.SetMemberCheck(std::move(is_member));
  }
  void SetPersonCheck(PersonCheck check) override { server_.SetPersonCheck(std::move(check)); }
  void RecheckPersons() override { server_.RecheckPersons(); }
  absl::StatusOr<int> StartTcp(const std::string& ip, int port,
                               std::shared_ptr<grpc::ServerCredentials> credentials,
                               bool plain) override;
  absl::Status UseCredentials(std::shared_ptr<grpc::ServerCredentials> credentials) override;
  void SetRevoked(std::set<NodeId> nodes) override { server_.SetRevoked(std::move(nodes)); }
  void SetKnownAddresses(std::set<std::string> addresses) override {
    server_.SetKnownAddresses(std::move(addresses));
  }
  std::string ListenerTrouble() const override { return server_.ListenerTrouble(); }
  absl::Status StartUnix(const std::string& path) override { return server_.StartUnix(path); }
  void Stop(Duration grace) override { server_.Stop(grace); }

 protected:
  void HandleAny(std::string_view method, Access access, Remote remote,
                 std::function<MessagePtr()> make, AnyHandler handler) override;

 private:
  transport::RpcServer& server_;
  const CallerView& view_;
};

}  // namespace macrame::agentd
