#include <sstream>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "proto/reasons.h"
#include "tests/scenario/scenario.h"

namespace macrame::scenario {
namespace {

using namespace agentd;  // NOLINT: the reconciler's effects, all of them
using std::chrono::milliseconds;

NodeId Id(const std::string& letter) { return NodeId(std::string(32, letter.at(0))); }
std::string Name(const NodeId& id) { return id.value().substr(0, 1); }

std::string Rest(const std::vector<std::string>& words, size_t from) {
  std::string text;
  for (size_t i = from; i < words.size(); ++i) text += (text.empty() ? "" : " ") + words[i];
  return text;
}

template <typename Enum>
std::string Short(const std::string& name, const std::string& prefix, Enum) {
  return name.substr(prefix.size());
}

v1::RankPhase PhaseOf(const std::string& word) {
  v1::RankPhase phase = v1::RANK_PHASE_UNSPECIFIED;
  v1::RankPhase_Parse("RANK_PHASE_" + word, &phase);
  return phase;
}

// Records are written as soon as they are proposed; everything else is answered by the file's
// commands.
class GangScenario : public Scenario {
 public:
  std::string Run(const std::vector<std::string>& words) override {
    out_.str("");
    const std::string& command = words.at(0);
    const std::string name = words.size() > 1 ? words[1] : "";
    if (command == "nodes") {
      for (size_t i = 1; i < words.size(); ++i) {
        view_.nodes.push_back(
            {Id(words[i]), "mini-" + words[i], v1::NODE_STATE_ALIVE, 1, true, true});
      }
    } else if (command == "lead") {
      reconciler_.BeginLeading({Term(std::stoull(name)), Id("a")}, now_);
    } else if (command == "deploy") {
      view_.deployments.emplace_back().set_name(name);
    } else if (command == "remove") {
      std::erase_if(view_.deployments, [&](const auto& one) { return one.name() == name; });
    } else if (command == "node") {
      SetNode(Id(name), words.at(2));
    } else if (command == "plan") {
      AnswerPlan(words);
    } else if (command == "refuse") {
      v1::PlanResult result;
      *result.mutable_failure() = MakeReason(words.at(2), Rest(words, 3));
      reconciler_.OnPlanned(name, result, now_);
    } else if (command == "launched") {
      const absl::Status status = words.at(3) == "ok" ? absl::OkStatus()
                                                      : ReasonStatus(absl::StatusCode::kUnavailable,
                                                                     words[3], Rest(words, 4));
      reconciler_.OnLaunched(name, std::stoull(words.at(2)), status, now_);
    } else if (command == "rank") {
      SetRank(words);
    } else if (command == "gone") {
      std::erase_if(view_.ranks,
                    [&](const auto& one) { return one.node_id() == Id(name).value(); });
    } else if (command == "ended") {
      reconciler_.OnEnded({Id(name), words.at(2), std::stoull(words.at(3)), {}}, absl::OkStatus());
      std::erase_if(view_.ranks, [&](const auto& one) {
        return one.node_id() == Id(name).value() && one.deployment() == words[2] &&
               one.epoch() <= std::stoull(words[3]);
      });
    } else if (command == "run") {
      RunFor(std::stoi(name));
    } else if (command == "status") {
      TellStatus(name);
    } else {
      return "unknown command\n";
    }
    return out_.str();
  }

 private:
  void SetNode(const NodeId& id, const std::string& word) {
    for (NodeView& node : view_.nodes) {
      if (node.id != id) continue;
      if (word == "changed") ++node.inventory_revision;
      v1::NodeState_Parse("NODE_STATE_" + word, &node.state);
    }
  }

  void AnswerPlan(const std::vector<std::string>& words) {
    v1::PlanResult result;
    for (size_t i = 2; i < words.size(); ++i) {
      v1::Assignment* assignment = result.mutable_plan()->add_assignments();
      assignment->set_rank(static_cast<uint32_t>(i - 2));
      assignment->set_node_id(Id(words[i]).value());
      assignment->set_hostname("mini-" + words[i]);
    }
    reconciler_.OnPlanned(words.at(1), result, now_);
  }

  // rank NAME EPOCH RANK NODE PHASE [CODE words…]
  void SetRank(const std::vector<std::string>& words) {
    v1::RankStatus* rank = nullptr;
    for (v1::RankStatus& known : view_.ranks) {
      const bool same = known.deployment() == words.at(1) &&
                        known.epoch() == std::stoull(words.at(2)) &&
                        known.rank() == std::stoul(words.at(3));
      if (same) rank = &known;
    }
    if (rank == nullptr) rank = &view_.ranks.emplace_back();
    rank->set_deployment(words.at(1));
    rank->set_epoch(std::stoull(words.at(2)));
    rank->set_rank(static_cast<uint32_t>(std::stoul(words.at(3))));
    rank->set_node_id(Id(words.at(4)).value());
    rank->set_phase(PhaseOf(words.at(5)));
    if (words.size() > 6) *rank->mutable_failure() = MakeReason(words[6], Rest(words, 7));
  }

  void RunFor(int ms) {
    const MonotonicTime end = now_ + milliseconds(ms);
    while (true) {
      for (const GangEffect& effect : reconciler_.Reconcile(view_, now_)) {
        std::visit([this](const auto& one) { Tell(one); }, effect);
      }
      if (now_ >= end) return;
      now_ += milliseconds(100);
    }
  }

  void Tell(const PlanDeployment& plan) { Say() << "plan " << plan.deployment.name() << "\n"; }
  void Tell(const WriteGang& write) {
    const v1::GangRecord& record = write.record;
    Say() << "write gang " << record.deployment() << " epoch " << record.epoch() << " attempts "
          << record.attempts() << "\n";
    std::erase_if(view_.gangs,
                  [&](const auto& one) { return one.deployment() == record.deployment(); });
    view_.gangs.push_back(record);
    reconciler_.OnGangWritten(record.deployment(), record.epoch(), absl::OkStatus(), now_);
  }
  void Tell(const ReserveAndLaunch& launch) {
    Say() << "launch " << launch.deployment.name() << " epoch " << launch.epoch << " on";
    for (const auto& assignment : launch.plan.assignments()) {
      out_ << " " << Name(NodeId(assignment.node_id()));
    }
    out_ << "\n";
  }
  void Tell(const StopRanks& end) {
    Say() << "end " << end.deployment << " up to epoch " << end.up_to_epoch
          << (end.from_epoch > 0 ? absl::StrCat(" from ", end.from_epoch) : "") << " on "
          << Name(end.node) << ": " << end.why.code() << "\n";
  }
  void Tell(const RemoveGang& remove) {
    Say() << "remove gang " << remove.deployment << ", last epoch " << remove.last_epoch << "\n";
    std::erase_if(view_.gangs,
                  [&](const auto& one) { return one.deployment() == remove.deployment; });
    view_.removed_epochs[remove.deployment] = remove.last_epoch;
  }
  void Tell(const RefuseTransport& refuse) {
    Say() << "refuse " << refuse.plan.backend() << " for " << refuse.deployment << ": "
          << refuse.why.message() << "\n";
  }
  void Tell(const Notify& notify) {
    Say() << notify.deployment << " is "
          << Short(v1::DeploymentState_Name(notify.state), "DEPLOYMENT_STATE_", notify.state);
    if (!notify.reason.message().empty()) out_ << ": " << notify.reason.message();
    out_ << "\n";
  }

  void TellStatus(const std::string& name) {
    const auto status = reconciler_.Status(name, view_, now_);
    if (!status.has_value()) {
      Say() << "no deployment " << name << "\n";
      return;
    }
    Say() << name << " " << Short(v1::DeploymentState_Name(status->state()), "DEPLOYMENT_STATE_", 0)
          << " epoch " << status->epoch() << " ranks " << status->ranks_size() << " retry in "
          << status->retry_in_ms() << " ms";
    if (!status->failure().code().empty()) {
      out_ << ", " << status->failure().code() << " " << status->failure().message();
    }
    out_ << "\n";
  }

  std::ostream& Say() {
    return out_ << std::chrono::duration_cast<milliseconds>(now_ - kStart).count() << " ";
  }

  static constexpr MonotonicTime kStart{std::chrono::seconds(1000)};
  GangReconciler reconciler_;
  ClusterView view_;
  MonotonicTime now_ = kStart;
  std::ostringstream out_;
};

}  // namespace

std::unique_ptr<Scenario> MakeGangScenario() { return std::make_unique<GangScenario>(); }

}  // namespace macrame::scenario
