#include "agentd/services/caller_view.h"

#include <google/protobuf/message.h>

#include <map>
#include <set>
#include <utility>

namespace macrame::agentd {
namespace {

using google::protobuf::Message;
using google::protobuf::MessageLite;
using transport::Caller;
using transport::RpcServer;
using transport::ServerStream;

// What a caller is answered, without what it may not know.
class ViewedCall final : public ServerStream::Call {
 public:
  // `asked`: the request's text.
  ViewedCall(ServerStream stream, std::function<KnownModels()> known, std::string asked)
      : stream_(std::move(stream)), known_(std::move(known)), asked_(std::move(asked)) {}

  bool Write(const MessageLite& message) override { return stream_.Write(*Told(message)); }
  void Answer(const MessageLite& message) override { stream_.Answer(*Told(message)); }
  void Finish(const absl::Status& status) override {
    stream_.Finish(known_().Filter(status, asked_));
  }
  void OnCancel(std::function<void()> on_cancel) override {
    stream_.OnCancel(std::move(on_cancel));
  }

 private:
  std::shared_ptr<const MessageLite> Told(const MessageLite& message) const {
    const auto* whole = dynamic_cast<const Message*>(&message);
    // As it is: whoever writes it keeps it for as long as that takes.
    const std::shared_ptr<const MessageLite> as_it_is(std::shared_ptr<void>(), &message);
    if (whole == nullptr || KnownModels::IsLeftAlone(*whole)) return as_it_is;
    const KnownModels known = known_();
    if (known.knows_all()) return as_it_is;
    std::shared_ptr<Message> told(whole->New());
    told->CopyFrom(*whole);
    known.Filter(told.get());
    return told;
  }

  const ServerStream stream_;
  const std::function<KnownModels()> known_;
  const std::string asked_;
};

// Names of models are short; a prompt of megabytes is not looked through.
std::string TextOf(const MessageLite& request) {
  constexpr size_t kTextBytesMax = 1 << 16;
  const auto* whole = dynamic_cast<const Message*>(&request);
  if (whole == nullptr || whole->ByteSizeLong() > kTextBytesMax) return "";
  return whole->ShortDebugString();
}

// Servers take methods with their types alone from everybody else; what stands before a server
// hands on what it was itself given.
struct Door : RpcServer {
  using RpcServer::HandleAny;
};

}  // namespace

std::function<KnownModels()> CallerView::Watch(const Caller& caller) const {
  if (caller.key_id.empty()) return [] { return KnownModels::All(); };
  std::set<std::string> on_disk;
  for (const NodeFacts& facts : parts_.views.All()) {
    if (facts.inventory == nullptr) continue;
    for (const v1::LocalModel& model : facts.inventory->models()) on_disk.insert(model.name());
  }
  return [persons = persons_, key_id = caller.key_id, access = parts_.access,
          on_disk = std::move(on_disk)] {
    const std::shared_ptr<const Persons> present = persons->Get();
    const auto found = present->find(key_id);
    return KnownModels(found == present->end() ? Principal() : found->second, access->owners(),
                       on_disk);
  };
}

void CallerView::NoteState() {
  std::map<std::string, std::string> tenants;
  const DesiredState& desired = parts_.replicator.desired();
  for (const auto* models : {&desired.stopped(), &desired.deployments()}) {
    for (const auto& [name, deployment] : *models) tenants[name] = deployment.placement().tenant();
  }
  parts_.access->SetModels(std::move(tenants));
  Persons persons;
  for (const auto& [id, key] : desired.api_keys()) {
    if (key.has_access_file()) persons[id] = PrincipalOf(key);
  }
  persons_->Set(std::make_shared<const Persons>(std::move(persons)));
}

absl::StatusOr<int> ViewedServer::StartTcp(const std::string& ip, int port,
                                           std::shared_ptr<grpc::ServerCredentials> credentials,
                                           bool plain) {
  return server_.StartTcp(ip, port, std::move(credentials), plain);
}

absl::Status ViewedServer::UseCredentials(std::shared_ptr<grpc::ServerCredentials> credentials) {
  return server_.UseCredentials(std::move(credentials));
}

void ViewedServer::HandleAny(std::string_view method, Access access, Remote remote,
                             std::function<MessagePtr()> make, AnyHandler handler) {
  const auto handle_any = &Door::HandleAny;
  (server_.*handle_any)(method, access, remote, std::move(make),
                        [view = &view_, handler = std::move(handler)](
                            const Caller& caller, MessagePtr request, ServerStream stream) {
                          if (caller.key_id.empty())
                            return handler(caller, std::move(request), std::move(stream));
                          auto viewed = std::make_shared<ViewedCall>(
                              std::move(stream), view->Watch(caller), TextOf(*request));
                          handler(caller, std::move(request), ServerStream(std::move(viewed)));
                        });
}

}  // namespace macrame::agentd
