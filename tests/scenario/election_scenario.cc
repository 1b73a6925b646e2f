#include <map>
#include <set>
#include <sstream>

#include "agentd/cores/election.h"
#include "proto/reasons.h"
#include "tests/scenario/scenario.h"

namespace macrame::scenario {
namespace {

using agentd::Election;
using agentd::ElectionEffects;
using agentd::GrantRecord;
using agentd::SendLeaseRequest;
using std::chrono::milliseconds;

NodeId Id(const std::string& letter) { return NodeId(std::string(32, letter.at(0))); }
std::string Name(const NodeId& id) { return id.value().substr(0, 1); }
std::string Name(const FencePair& fence) {
  return "(" + std::to_string(fence.term.value()) + ", " + Name(fence.coordinator) + ")";
}

struct Node {
  std::unique_ptr<Election> election;  // null: crashed
  std::optional<GrantRecord> disk;
  bool paused = false;
};

class ElectionScenario : public Scenario {
 public:
  std::string Run(const std::vector<std::string>& words) override {
    out_.str("");
    const std::string& command = words.at(0);
    if (command == "nodes") {
      for (size_t i = 1; i < words.size(); ++i) {
        words[i] == "quorum" ? (void)(options_.consistency = agentd::Consistency::kQuorum)
                             : (void)nodes_[Id(words[i])];
      }
      options_.first_members = nodes_.size();
      for (auto& [id, node] : nodes_) Start(id);
    } else if (command == "run") {
      RunFor(std::stoi(words.at(1)));
    } else if (command == "cut" || command == "heal") {
      Cut(Id(words.at(1)), Id(words.at(2)), command == "cut");
    } else if (command == "see") {
      std::set<NodeId> live, all;
      for (size_t i = 2; i < words.size(); ++i) live.insert(Id(words[i]));
      for (const auto& [id, node] : nodes_) all.insert(id);
      Carry(Id(words.at(1)),
            nodes_[Id(words.at(1))].election->OnMembershipChanged(live, all, now_));
    } else if (command == "crash") {
      nodes_[Id(words.at(1))].election.reset();
    } else if (command == "start") {
      Start(Id(words.at(1)));
    } else if (command == "pause" || command == "resume") {
      nodes_[Id(words.at(1))].paused = command == "pause";
    } else if (command == "resign") {
      Carry(Id(words.at(1)), nodes_[Id(words.at(1))].election->Resign(now_));
    } else if (command == "order") {
      Order(Id(words.at(1)), Id(words.at(2)), std::stoull(words.at(3)));
    } else if (command == "who") {
      Who();
    } else {
      return "unknown command\n";
    }
    return out_.str();
  }

 private:
  void Start(const NodeId& id) {
    Node& node = nodes_[id];
    // Different, fixed delays, so that who stands first is plain.
    const uint64_t delay = static_cast<uint64_t>(Name(id)[0] - 'a') * 100'000;
    node.election = std::make_unique<Election>(
        id, options_, node.disk, [delay] { return delay; }, now_);
    std::set<NodeId> all;
    for (const auto& [other, unused] : nodes_) all.insert(other);
    Carry(id, node.election->OnMembershipChanged(all, all, now_));
  }

  void Cut(const NodeId& a, const NodeId& b, bool cut) {
    for (const auto& pair : {std::make_pair(a, b), std::make_pair(b, a)}) {
      cut ? (void)cut_.insert(pair) : (void)cut_.erase(pair);
    }
  }

  void RunFor(int ms) {
    for (const MonotonicTime end = now_ + milliseconds(ms); now_ < end;) {
      now_ += milliseconds(50);
      for (auto& [id, node] : nodes_) {
        if (node.election != nullptr && !node.paused) Carry(id, node.election->OnTick(now_));
      }
    }
  }

  Node* Reach(const NodeId& from, const NodeId& to) {
    const auto node = nodes_.find(to);
    const bool there = node != nodes_.end() && node->second.election != nullptr &&
                       !node->second.paused && !cut_.contains({from, to});
    return there ? &node->second : nullptr;
  }

  // Messages arrive and are answered at once.
  void Carry(const NodeId& id, const ElectionEffects& effects,
             v1::LeaseResponse* answer = nullptr) {
    for (const auto& effect : effects) {
      if (const auto* persist = std::get_if<agentd::PersistGrant>(&effect)) {
        nodes_[id].disk = persist->record;
        Say(id) << "writes its grant to " << Name(persist->record.granted) << "\n";
      } else if (const auto* answered = std::get_if<agentd::AnswerLease>(&effect)) {
        *answer = answered->response;
      } else if (const auto* won = std::get_if<agentd::BecameCoordinator>(&effect)) {
        Say(id) << "leads as " << Name(won->fence) << "\n";
      } else if (const auto* lost = std::get_if<agentd::LostCoordination>(&effect)) {
        Say(id) << "leads no more as " << Name(lost->fence) << ": " << lost->why.message() << "\n";
      } else if (const auto* obeys = std::get_if<agentd::ObeysChanged>(&effect)) {
        Say(id) << "obeys " << (obeys->coordinator ? Name(*obeys->coordinator) : "nobody") << "\n";
      } else if (const auto* ask = std::get_if<SendLeaseRequest>(&effect)) {
        Node* to = Reach(id, ask->to);
        if (to == nullptr) continue;
        v1::LeaseResponse response;
        Carry(ask->to, to->election->OnLeaseRequest(id, ask->request, now_), &response);
        Node* asker = Reach(ask->to, id);
        if (asker != nullptr) Carry(id, asker->election->OnLeaseResponse(*ask, response, now_));
      }
    }
  }

  void Order(const NodeId& to, const NodeId& from, uint64_t term) {
    const absl::Status status = nodes_[to].election->CheckFence({Term(term), from});
    Say(to) << (status.ok() ? "obeys the order" : "refuses the order: " + ReasonOf(status).code())
            << "\n";
  }

  void Who() {
    for (const auto& [id, node] : nodes_) {
      if (node.election == nullptr) continue;
      const auto leading = node.election->Leading(now_);
      const auto obeyed = node.election->Coordinator(now_);
      Say(id) << (leading ? "leads" : obeyed ? "obeys " + Name(*obeyed) : "obeys nobody") << "\n";
    }
  }

  std::ostream& Say(const NodeId& id) {
    const auto since = std::chrono::duration_cast<milliseconds>(now_ - kStart).count();
    return out_ << since << " " << Name(id) << " ";
  }

  static constexpr MonotonicTime kStart{std::chrono::seconds(1000)};
  agentd::ElectionOptions options_;
  std::map<NodeId, Node> nodes_;
  std::set<std::pair<NodeId, NodeId>> cut_;
  MonotonicTime now_ = kStart;
  std::ostringstream out_;
};

}  // namespace

std::unique_ptr<Scenario> MakeElectionScenario() { return std::make_unique<ElectionScenario>(); }

}  // namespace macrame::scenario
