#include "agentd/services/event_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/services/gathering.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;

constexpr Duration kAskTimeout = std::chrono::seconds(3);

// What an agent answered, or why it did not.
v1::ListEventsResponse ToldBy(const NodeId& node, absl::StatusOr<v1::ListEventsResponse> answer) {
  if (answer.ok()) return *std::move(answer);
  v1::Reason why = ReasonOf(answer.status());
  if (why.node_id().empty()) why.set_node_id(node.value());
  v1::ListEventsResponse told;
  *told.add_missing() = std::move(why);
  return told;
}

// Nothing for changes that are no news to a person.
std::string_view WordsOf(discovery::MembershipChange change) {
  using discovery::MembershipChange;
  switch (change) {
    case MembershipChange::kJoined:
      return "joined";
    case MembershipChange::kRestarted:
      return "restarted";
    case MembershipChange::kAlive:
      return "is alive again";
    case MembershipChange::kDead:
      return "is dead";
    case MembershipChange::kLeft:
      return "left in order";
    case MembershipChange::kForgotten:
      return "was forgotten";
    default:
      return "";
  }
}

}  // namespace

void EventService::Register(RpcServer& server) {
  server.HandleUnary(kListEvents, [this](const Caller& caller, v1::ListEventsRequest request,
                                         Reply<v1::ListEventsResponse> reply) {
    List(caller, request, std::move(reply));
  });
}

void EventService::List(const Caller& caller, const v1::ListEventsRequest& request,
                        Reply<v1::ListEventsResponse> reply) {
  // What came over the wire is not passed on again.
  if (!caller.IsPerson()) return reply(log_.Since(request.since_unix_ms()));
  auto told = std::make_shared<std::vector<v1::ListEventsResponse>>();
  told->push_back(log_.Since(request.since_unix_ms()));
  AskEach(
      parts_.channels, parts_.members.Live(), kListEvents, request, kAskTimeout,
      [told](const NodeId& node, absl::StatusOr<v1::ListEventsResponse> answer) {
        told->push_back(ToldBy(node, std::move(answer)));
      },
      [told, reply = std::move(reply)] { reply(MergeEvents(*told)); });
}

void EventService::NoteMember(const discovery::MembershipEvent& event) {
  const std::string_view words = WordsOf(event.change);
  if (words.empty()) return;
  log_.Add(parts_.dispatcher.UnixMs(), kNodeEvent, parts_.views.DisplayName(event.node),
           std::string(words), event.reason);
}

void EventService::NoteCoordinator() {
  const std::optional<FencePair> now = parts_.election.Coordinator(parts_.dispatcher.Now());
  if (!now.has_value() || now == obeyed_) return;
  const bool is_same_node = obeyed_.has_value() && obeyed_->coordinator == now->coordinator;
  obeyed_ = now;
  if (is_same_node) return;
  log_.Add(parts_.dispatcher.UnixMs(), kCoordinatorEvent,
           parts_.views.DisplayName(now->coordinator),
           absl::StrCat("was elected coordinator (term ", now->term.value(), ")"));
}

void EventService::NoteState() {
  std::map<std::string, std::string> names;
  for (const NodeFacts& facts : parts_.views.All()) names[facts.id.value()] = facts.display_name;
  log_.Observe(parts_.replicator.desired(), names, parts_.dispatcher.UnixMs());
}

void EventService::NoteDeployment(const Notify& news) {
  const std::string state = absl::AsciiStrToLower(
      absl::StripPrefix(v1::DeploymentState_Name(news.state), "DEPLOYMENT_STATE_"));
  log_.Add(parts_.dispatcher.UnixMs(), kModelEvent, news.deployment,
           news.epoch == 0 ? state : absl::StrCat(state, " (epoch ", news.epoch, ")"), news.reason);
}

}  // namespace macrame::agentd
