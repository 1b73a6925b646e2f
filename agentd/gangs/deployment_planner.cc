#include "agentd/gangs/deployment_planner.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/default_context.h"
#include "agentd/cores/node_refusals.h"
#include "agentd/cores/preemption.h"
#include "agentd/cores/speed_learner.h"
#include "agentd/links/planner_links.h"
#include "agentd/links/transport_choice.h"
#include "planner/planner.h"
#include "planner/served_by.h"
#include "proto/backends.h"
#include "proto/model_fingerprint.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"

namespace macrame::agentd {

struct DeploymentPlanner::Asking {
  PlanOrder order;
  Done done;
  size_t waiting = 0;
  bool decided = false;
  bool impatient = false;
  bool will_try_again = false;
  MonotonicTime begun;
  std::map<NodeId, absl::StatusOr<v1::DescribeModelResponse>> answers;
  std::map<NodeId, absl::StatusOr<v1::DescribeModelResponse>> draft_answers;
  NodeId self;
};

namespace {

using Answers = std::map<NodeId, absl::StatusOr<v1::DescribeModelResponse>>;

// The model that the order means: the one asked for by fingerprint, else what most nodes have under
// the name, this node's own first among equals.
const v1::ModelDescription* Choose(const Answers& answers, const std::string& wanted,
                                   const NodeId& self) {
  std::map<std::string, int> votes;
  for (const auto& [node, answer] : answers) {
    if (answer.ok()) votes[answer->model().fingerprint()] += node == self ? 3 : 2;
  }
  const v1::ModelDescription* best = nullptr;
  int best_votes = 0;
  for (const auto& [node, answer] : answers) {
    if (!answer.ok()) continue;
    const std::string& fingerprint = answer->model().fingerprint();
    if (!wanted.empty() && !FingerprintNames(wanted, fingerprint)) continue;
    if (votes[fingerprint] > best_votes) {
      best = &answer->model();
      best_votes = votes[fingerprint];
    }
  }
  return best;
}

// Of several nodes' refusals the one that says most: a broken model before one that is not there.
absl::Status WorstRefusal(const Answers& answers, const NodeId& self) {
  absl::Status own = absl::OkStatus();
  absl::Status telling = absl::OkStatus();
  for (const auto& [node, answer] : answers) {
    if (answer.ok()) continue;
    if (node == self) own = answer.status();
    const bool absent = absl::IsNotFound(answer.status()) || absl::IsUnavailable(answer.status()) ||
                        absl::IsDeadlineExceeded(answer.status());
    if (!absent && telling.ok()) telling = answer.status();
  }
  if (!telling.ok()) return telling;
  if (!own.ok()) return own;
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                      "no live node has these very files any more");
}

// Whether it has the files is not known: it may have died a moment ago.
bool DidNotAnswer(const Answers& answers, const NodeId& node) {
  const auto found = answers.find(node);
  if (found == answers.end()) return true;
  const absl::Status& status = found->second.status();
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// What those that answered said instead.
// Of nodes whose files of this name are not the chosen ones: a rank there would compute another
// model, or, as the first one, another text.
v1::Reason OtherFiles(const v1::ModelDescription& chosen, const v1::ModelDescription& other,
                      const NodeId& node) {
  const bool is_text = DifferInTextAlone(chosen.fingerprint(), other.fingerprint());
  v1::Reason reason = MakeReason(reasons::kModelNotOnNode,
                                 absl::StrCat("it has ", chosen.name(),
                                              is_text ? " with the same weights and another "
                                                        "tokenizer, chat template or "
                                                        "generation_config.json"
                                                      : " with other weights or another config"),
                                 node.value());
  reason.set_remedy(absl::StrCat("to use it, copy ", is_text ? "these files" : "the folder",
                                 " there from a node that has ", chosen.path(),
                                 "; or load the other model by a name or path of its own"));
  return reason;
}

std::map<std::string, v1::Reason> RefusalsOf(const Answers& answers,
                                             const v1::ModelDescription& chosen) {
  std::map<std::string, v1::Reason> refusals;
  for (const auto& [node, answer] : answers) {
    if (answer.ok() && answer->model().fingerprint() != chosen.fingerprint()) {
      refusals[node.value()] = OtherFiles(chosen, answer->model(), node);
    }
    if (!answer.ok() && !DidNotAnswer(answers, node)) {
      refusals[node.value()] = ReasonOf(answer.status());
    }
  }
  return refusals;
}

// The reason, told of the draft model.
absl::Status OfDraft(const std::string& draft, const absl::Status& status) {
  v1::Reason reason = ReasonOf(status);
  reason.set_message(absl::StrCat("the draft model ", draft, ": ", reason.message()));
  return ReasonStatus(status.code(), reason);
}

PreemptionInput RoomFor(const PlanOrder& order) {
  return {order.deployment, order.priority, order.may_evict,
          order.in_force,   order.replicas, order.unused};
}

}  // namespace

void DeploymentPlanner::Plan(PlanOrder order, Done done) {
  const uint32_t kv_bits = order.placement.kv_bits();
  if (kv_bits != 0 && !MayHaveKvBits(kv_bits)) {
    return done(ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
        absl::StrCat("a KV cache of ", kv_bits, " bits was asked for; it is ", kKvBitsDefault,
                     " (the default), ", kKvBitsNarrow, " or, on GPUs, ", kKvBitsFewest)));
  }
  // Asked for or not, the default is planned as such: a model in float32 has 32.
  if (kv_bits == kKvBitsDefault) order.placement.clear_kv_bits();
  auto asking = std::make_shared<Asking>();
  asking->order = std::move(order);
  asking->done = std::move(done);
  asking->begun = dispatcher_.Now();
  std::vector<NodeId> asked;
  for (const NodeFacts& facts : views_.All()) {
    if (facts.is_self) asking->self = facts.id;
    const bool may_answer = facts.state == v1::NODE_STATE_SUSPECT && !asking->order.recovering;
    if (facts.is_self || facts.state == v1::NODE_STATE_ALIVE || may_answer) {
      asked.push_back(facts.id);
    }
  }
  const std::string& draft = asking->order.placement.draft_model();
  asking->waiting = asked.size() * (draft.empty() ? 1 : 2);
  for (const NodeId& node : asked) {
    const auto taker = [this, asking, node](Answers Asking::*answers) {
      return [this, asking, node, answers](absl::StatusOr<v1::DescribeModelResponse> answer) {
        ((*asking).*answers).emplace(node, std::move(answer));
        --asking->waiting;
        DecideIfReady(asking);
      };
    };
    const bool may_reuse = asking->order.may_reuse_answers;
    if (!draft.empty()) Ask(node, draft, may_reuse, taker(&Asking::draft_answers));
    Ask(node, asking->order.name_or_path, may_reuse, taker(&Asking::answers));
  }
  dispatcher_.PostAfter(kPlanPatience, [this, asking] {
    asking->impatient = true;
    DecideIfReady(asking);
  });
}

void DeploymentPlanner::Ask(const NodeId& node, const std::string& model, bool may_reuse,
                            AnswerTaker taker) {
  const MonotonicTime now = dispatcher_.Now();
  std::erase_if(answered_, [&](const auto& item) { return now - item.second.at > kAnswerFresh; });
  const std::pair key(node, model);
  const auto known = answered_.find(key);
  if (may_reuse && known != answered_.end()) {
    return dispatcher_.Post([taker, response = known->second.response] { taker(response); });
  }
  calls_.DescribeModel(node, model,
                       [this, key, taker](absl::StatusOr<v1::DescribeModelResponse> answer) {
                         if (answer.ok()) {
                           answered_[key] = {*answer, dispatcher_.Now()};
                         } else {
                           answered_.erase(key);
                         }
                         taker(std::move(answer));
                       });
}

void DeploymentPlanner::DecideIfReady(const std::shared_ptr<Asking>& asking) {
  if (asking->decided || asking->will_try_again) return;
  const bool has_model =
      Choose(asking->answers, asking->order.fingerprint, asking->self) != nullptr;
  // What is recovered goes on without a draft model.
  const bool has_draft = asking->order.recovering ||
                         asking->order.placement.draft_model().empty() ||
                         Choose(asking->draft_answers, "", asking->self) != nullptr;
  if (asking->waiting > 0 && !(asking->impatient && has_model && has_draft)) return;
  absl::StatusOr<PlanOutcome> outcome = Decide(*asking);
  if (outcome.ok() && outcome->result.has_failure() && MayBecomeReady(*asking)) {
    asking->will_try_again = true;
    dispatcher_.PostAfter(kReadinessCheckInterval, [this, asking] {
      asking->will_try_again = false;
      DecideIfReady(asking);
    });
    return;
  }
  asking->decided = true;
  asking->done(std::move(outcome));
}

bool DeploymentPlanner::MayBecomeReady(const Asking& asking) const {
  if (asking.order.recovering) return false;
  if (dispatcher_.Now() - asking.begun >= kReadyPatience) return false;
  return asking.waiting > 0 || views_.AwaitsNode();
}

v1::PlanRequest DeploymentPlanner::RequestOf(const Asking& asking,
                                             const v1::ModelDescription& model,
                                             const ClusterView& state,
                                             const std::set<std::string>& holders) {
  std::set<NodeId> has_files;
  for (const auto& [node, answer] : asking.answers) {
    if (answer.ok() && answer->model().fingerprint() == model.fingerprint()) {
      has_files.insert(node);
    }
  }
  v1::PlanRequest request;
  *request.mutable_model() = model;
  *request.mutable_placement() = asking.order.placement;
  // Users beyond those whom a gang answers at the same time wait, and need no caches.
  if (request.placement().concurrent_sequences() == 0) {
    request.mutable_placement()->set_concurrent_sequences(
        std::clamp(request.placement().users(), 1U, kAnsweredAtOnceMax));
  }
  request.set_recovering(asking.order.recovering);
  *request.mutable_current() = asking.order.current;
  request.set_snapshot_revision(++revision_);
  *request.mutable_corrections() = replicator_.desired().speeds();
  for (v1::PlannerNode& node : views_.ForPlanner(has_files)) {
    if (DidNotAnswer(asking.answers, NodeId(node.node_id())) && node.schedulable()) {
      node.set_schedulable(false);
      node.set_unschedulable_reason("it did not answer");
    }
    if (holders.contains(node.node_id()) && node.schedulable()) {
      node.set_schedulable(false);
      node.set_unschedulable_reason("it holds another replica of this deployment");
    }
    *request.add_nodes() = std::move(node);
  }
  if (asking.order.refuses_uneven_slices) {
    for (v1::PlannerNode& node : *request.mutable_nodes()) {
      node.mutable_traits()->set_uneven_tensor(false);
      node.mutable_traits()->set_whole_experts(false);
    }
  }
  AddDraftModel(asking, &request);
  CountPromises(RoomFor(asking.order), state, &request);
  std::vector<std::string> node_ids;
  for (const v1::PlannerNode& node : request.nodes()) node_ids.push_back(node.node_id());
  for (v1::PlannerLink& link :
       PlannerLinks(links_.links(), node_ids, [this](const std::string&a, const std::string&b) {
         return links_.Group({a, b});
       })) {
    *request.add_links() = std::move(link);
  }
  request.set_mesh_ranks_max(links_.rdma_nodes_max());
  return request;
}

// The draft model that the options name, and who has it. An agent of another version may not know
// of draft models: it would drop this one and say nothing.
void DeploymentPlanner::AddDraftModel(const Asking& asking, v1::PlanRequest* request) const {
  const v1::ModelDescription* draft = Choose(asking.draft_answers, "", asking.self);
  if (draft == nullptr) return;
  *request->mutable_draft_model() = *draft;
  const std::vector<NodeFacts> all = views_.All();
  const auto self =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one.is_self; });
  std::set<std::string> alike;
  for (const NodeFacts& facts : all) {
    const bool is_alike =
        self != all.end() && facts.identity.agent_version() == self->identity.agent_version();
    if (is_alike) alike.insert(facts.id.value());
  }
  for (v1::PlannerNode& node : *request->mutable_nodes()) {
    const auto found = asking.draft_answers.find(NodeId(node.node_id()));
    node.set_has_draft_files(alike.contains(node.node_id()) &&
                             found != asking.draft_answers.end() && found->second.ok() &&
                             found->second->model().fingerprint() == draft->fingerprint());
  }
}

absl::StatusOr<PlanOutcome> DeploymentPlanner::Decide(const Asking& asking) {
  const v1::ModelDescription* model = Choose(asking.answers, asking.order.fingerprint, asking.self);
  if (model == nullptr) return WorstRefusal(asking.answers, asking.self);
  const std::string& draft = asking.order.placement.draft_model();
  const bool lacks_draft =
      !draft.empty() && Choose(asking.draft_answers, "", asking.self) == nullptr;
  const absl::Status no_draft =
      lacks_draft ? OfDraft(draft, WorstRefusal(asking.draft_answers, asking.self))
                  : absl::OkStatus();
  // A model that was served already is served without it rather than not at all.
  if (lacks_draft && !asking.order.recovering) return no_draft;
  ClusterView state;
  FillFromState(replicator_.desired(), state);
  const std::set<std::string> holders = NodesOfOtherReplicas(state, RoomFor(asking.order));
  v1::PlanRequest request = RequestOf(asking, *model, state, holders);
  const std::string& requested = asking.order.placement.transport();
  const std::string backend = TransportNamed(requested.empty() ? transport_ : requested);
  request.mutable_placement()->set_transport(backend);
  PlanOutcome outcome;
  outcome.model = *model;
  outcome.usable = UsableNodes(request);
  const auto plan = [&](const v1::PlanRequest& of) {
    return PlanForAllReplicas(of, RoomFor(asking.order), planner::PlanModel(of));
  };
  outcome.result = PlanWithLongerContext(request, plan(request), plan);
  if (outcome.result.failure().code() == reasons::kMemoryShort) {
    outcome.result = Preempt(request, RoomFor(asking.order), state, std::move(outcome.result));
  }
  const std::string& failed = outcome.result.failure().code();
  if (failed == reasons::kTransportUnavailable || failed == reasons::kRdmaUnavailable) {
    // What the links lack is said by their verdicts, root cause first.
    request.mutable_placement()->clear_transport();
    outcome.result = planner::PlanModel(request);
  }
  const std::map<std::string, v1::Reason> refusals = RefusalsOf(asking.answers, *model);
  NameNodeRefusals(refusals, &outcome.result);
  NameHolders(asking.order.deployment, holders, &outcome.result);
  if (outcome.result.has_plan()) {
    *outcome.result.mutable_plan()->add_reasons() = planner::ServedBy(*model);
    // A plan without them is told of: their answers would have been others.
    for (const NodeFacts& facts : views_.All()) {
      const auto answer = asking.answers.find(facts.id);
      const bool has_others = answer != asking.answers.end() && answer->second.ok() &&
                              answer->second->model().fingerprint() != model->fingerprint();
      if (!has_others) continue;
      v1::Reason* left_out = outcome.result.mutable_plan()->add_reasons();
      *left_out = refusals.at(facts.id.value());
      left_out->set_message(
          absl::StrCat(facts.identity.hostname(), " is left out: ", left_out->message()));
    }
  }
  if (lacks_draft && outcome.result.has_plan()) {
    *outcome.result.mutable_plan()->add_reasons() = ReasonOf(no_draft);
  }
  std::vector<std::string> by_rank;
  for (const v1::Assignment& assignment : outcome.result.plan().assignments()) {
    by_rank.push_back(assignment.node_id());
  }
  ChooseTransport(by_rank.size() > 1 ? links_.Group(by_rank) : v1::GroupVerdict(), backend,
                  &outcome.result);
  return outcome;
}

}  // namespace macrame::agentd
