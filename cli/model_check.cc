#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "cli/load_check.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::cli {
namespace {

constexpr char kTrialPrompt[] = "Count from one to fifty in words, with commas between.";
constexpr uint32_t kTrialTokens = 64;
constexpr std::chrono::milliseconds kLookPause{300};
constexpr uint32_t kCollectiveRounds = 50;
// A little more than an agent's pause between looks at what only commands tell.
constexpr std::chrono::seconds kGpuLooks{12};

double MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// The highest that each node's GPU was seen at, while `done` is not set.
std::map<std::string, double> WatchGpus(const AgentPlace& agent, const std::atomic<bool>& done) {
  std::map<std::string, double> highest;
  AgentClient client(agent);
  while (!done) {
    const v1::ClusterStatus status = client.GetStatus().value_or(v1::ClusterStatus());
    for (const v1::NodeStatus& node : status.nodes()) {
      const double busy = node.load().gpu_busy_ratio();
      if (busy < 0 || node.inventory().gpu_cores() == 0) continue;
      double& known = highest[node.identity().node_id()];
      known = std::max(known, busy);
    }
    std::this_thread::sleep_for(kLookPause);
  }
  return highest;
}

absl::StatusOr<LoadTrial> TryIt(const AgentPlace& agent, const v1::DeploymentStatus& model,
                                bool has_gpus) {
  LoadTrial trial;
  std::atomic<bool> done = false;
  std::thread gpus([&] { trial.gpu_busy = WatchGpus(agent, done); });
  AgentClient client(agent);
  v1::GenerateRequest request;
  const std::string& name = model.deployment().name();
  request.set_deployment(name);  // this replica, when there are several
  request.set_max_tokens(kTrialTokens);
  request.mutable_sampling()->set_temperature(0);
  request.set_plain_text(true);  // whatever comes first is timed
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content(kTrialPrompt);
  const auto begin = std::chrono::steady_clock::now();
  const auto ask = [&] {
    return client.Infer(request, [&](const v1::GenerateChunk& chunk) {
      if (trial.first_text_ms < 0 && (!chunk.text().empty() || chunk.embedding_size() > 0)) {
        trial.first_text_ms = MillisecondsSince(begin);
      }
      if (chunk.decode_ms() > 0 && chunk.completion_tokens() > 1) {
        trial.tokens_per_second = 1000.0 * (chunk.completion_tokens() - 1) / chunk.decode_ms();
      }
    });
  };
  absl::Status answered;
  // Agents look at a GPU every few seconds: until one look fell into an answer.
  do {
    answered = ask();
    if (ReasonOf(answered).code() != reasons::kModelHasNoText) continue;
    request.clear_messages();
    request.set_prompt(kTrialPrompt);
    request.mutable_embedding();  // which it makes instead
    answered = ask();
  } while (answered.ok() && has_gpus && std::chrono::steady_clock::now() - begin < kGpuLooks);
  done = true;
  gpus.join();
  if (!answered.ok()) return answered;
  if (model.plan().assignments_size() < 2) return trial;
  v1::VerifyTransportRequest verify;
  verify.set_deployment(name);
  verify.mutable_group()->set_rounds(kCollectiveRounds);
  verify.mutable_group()->add_sizes_bytes(1 << 10);
  auto group = client.VerifyTransport(verify);
  if (group.ok()) trial.group = *std::move(group);
  return trial;
}

bool HasGpus(const v1::ClusterStatus& status, const v1::DeploymentStatus& model) {
  for (const v1::NodeStatus& node : status.nodes()) {
    for (const v1::Assignment& part : model.plan().assignments()) {
      const bool holds = part.node_id() == node.identity().node_id();
      if (holds && node.inventory().gpu_cores() > 0) return true;
    }
  }
  return false;
}

const char* VerdictWord(LoadVerdict verdict) {
  switch (verdict) {
    case LoadVerdict::kPassed:
      return "passed";
    case LoadVerdict::kFailed:
      return "failed";
    case LoadVerdict::kNoted:
      return "noted";
    default:
      return "not known";
  }
}

// As wide as the longest of them.
std::string PaintedVerdict(LoadVerdict verdict, const Style& style) {
  std::string word = VerdictWord(verdict);
  word.resize(9, ' ');
  if (verdict == LoadVerdict::kPassed) return style.Good(word);
  if (verdict == LoadVerdict::kNoted) return style.Warn(word);
  return verdict == LoadVerdict::kFailed ? style.Bad(word) : style.Dim(word);
}

// One replica's checks; `not_tried`: none could be made.
struct ReplicaChecks {
  std::string name;
  std::vector<LoadCheck> checks;
  absl::Status not_tried;

  bool passed() const {
    return not_tried.ok() && std::none_of(checks.begin(), checks.end(), [](const LoadCheck& check) {
             return check.verdict == LoadVerdict::kFailed;
           });
  }
};

// The replicas that `name` means: one by its number, else all of the deployment; empty: of the
// first.
std::vector<const v1::DeploymentStatus*> ReplicasOf(const v1::ClusterStatus& status,
                                                    std::string name) {
  std::vector<const v1::DeploymentStatus*> replicas;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    const std::string& own = deployment.deployment().name();
    if (name.empty()) name = DeploymentOfReplica(own);
    if (own == name || DeploymentOfReplica(own) == name) replicas.push_back(&deployment);
  }
  return replicas;
}

ReplicaChecks Check(const AgentPlace& agent, const v1::ClusterStatus& status,
                    const v1::DeploymentStatus& model) {
  ReplicaChecks replica;
  replica.name = model.deployment().name();
  if (model.state() != v1::DEPLOYMENT_STATE_READY) {
    replica.not_tried = ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                                     absl::StrCat(replica.name, " is not ready"));
    return replica;
  }
  const auto trial = TryIt(agent, model, HasGpus(status, model));
  replica.not_tried = trial.status();
  if (trial.ok()) replica.checks = CheckLoad(model, status, *trial);
  return replica;
}

void PrintAsDocument(const Invocation& run, const std::vector<ReplicaChecks>& replicas, bool good) {
  Json document = Document("ModelCheck");
  document["model"] = replicas.front().name;
  document["passed"] = good;
  document["checks"] = Json::array();
  for (const ReplicaChecks& replica : replicas) {
    for (const LoadCheck& check : replica.checks) {
      document["checks"].push_back({{"replica", replica.name},
                                    {"what", check.what},
                                    {"verdict", VerdictWord(check.verdict)},
                                    {"measured", check.measured},
                                    {"expected", check.expected}});
    }
    if (replica.not_tried.ok()) continue;
    document["checks"].push_back({{"replica", replica.name},
                                  {"what", "an answer"},
                                  {"verdict", VerdictWord(LoadVerdict::kFailed)},
                                  {"measured", std::string(replica.not_tried.message())},
                                  {"expected", ""}});
  }
  run.PrintDocument(document);
}

void PrintAsTable(const Invocation& run, const std::vector<ReplicaChecks>& replicas, bool good) {
  std::ostream& out = *run.environment.out;
  int width = 0;
  for (const ReplicaChecks& replica : replicas) {
    for (const LoadCheck& check : replica.checks) {
      width = std::max(width, DisplayWidth(Printable(check.what)));
    }
  }
  for (const ReplicaChecks& replica : replicas) {
    if (replicas.size() > 1) out << run.style.Bold(Printable(replica.name)) << "\n";
    if (!replica.not_tried.ok()) {
      out << PaintedVerdict(LoadVerdict::kFailed, run.style) << "  "
          << Printable(std::string(replica.not_tried.message())) << "\n";
    }
    for (const LoadCheck& check : replica.checks) {
      const int pad = width - DisplayWidth(Printable(check.what)) + 2;
      out << PaintedVerdict(check.verdict, run.style) << "  " << Printable(check.what)
          << std::string(pad, ' ') << Printable(check.measured) << " (" << Printable(check.expected)
          << ")\n";
    }
  }
  if (good) return;
  out << "\nNext: 'clusterctl doctor' says what is wrong with links and nodes; "
         "'clusterctl plan' what would be better.\n";
}

// Of a model that is not loaded: whether it could be, and by which engine.
absl::Status NotLoaded(AgentClient& client, const std::string& name) {
  if (name.empty()) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                        "no model is loaded");
  }
  v1::PlanModelRequest request;
  request.set_name_or_path(AbsoluteModelPath(name));
  const auto result = client.PlanModel(request);
  std::string also;
  if (result.ok() && result->has_failure()) {
    also = absl::StrCat("; its files are there, but ", ReasonSentence(result->failure()));
  } else if (result.ok()) {
    for (const v1::Reason& reason : result->plan().reasons()) {
      if (reason.code() != reasons::kEngine) continue;
      also = absl::StrCat("; its files are there, and it would be ", reason.message());
    }
  } else if (ReasonOf(result.status()).code() != reasons::kModelNotFound) {
    also = absl::StrCat("; ", ReasonOf(result.status()).message());
  }
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                      absl::StrCat("no model '", name, "' is loaded", also));
}

int RunModelCheck(const Invocation& run, const std::string& typed) {
  AgentClient client(run.options.agent);
  const std::string name = ModelMeantBy(client, typed);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const auto models = ReplicasOf(*status, name);
  if (models.empty()) return run.Fail(NotLoaded(client, name));
  std::vector<ReplicaChecks> replicas;
  for (const v1::DeploymentStatus* model : models) {
    replicas.push_back(Check(run.options.agent, *status, *model));
  }
  if (replicas.size() == 1 && !replicas.front().not_tried.ok()) {
    return run.Fail(replicas.front().not_tried);
  }
  const bool good = std::all_of(replicas.begin(), replicas.end(),
                                [](const ReplicaChecks& replica) { return replica.passed(); });
  if (run.wants_table()) {
    PrintAsTable(run, replicas, good);
  } else {
    PrintAsDocument(run, replicas, good);
  }
  return good ? kExitOk : kExitFailure;
}

}  // namespace

void AddModelCheck(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(
      model, "check", "Check that a loaded model runs as planned (exit code 1: it does not)");
  auto name = std::make_shared<std::string>();
  command->add_option("model", *name, "Loaded model, with all replicas (default: the first)");
  tree.OnChosen(command, [name](const Invocation& run) { return RunModelCheck(run, *name); });
}

}  // namespace macrame::cli
