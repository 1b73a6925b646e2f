#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/load_check.h"
#include "proto/reasons.h"

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
std::map<std::string, double> WatchGpus(const std::string& socket_path,
                                        const std::atomic<bool>& done) {
  std::map<std::string, double> highest;
  AgentClient client(socket_path);
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

absl::StatusOr<LoadTrial> TryIt(const std::string& socket_path, const v1::DeploymentStatus& model,
                                bool has_gpus) {
  LoadTrial trial;
  std::atomic<bool> done = false;
  std::thread gpus([&] { trial.gpu_busy = WatchGpus(socket_path, done); });
  AgentClient client(socket_path);
  v1::GenerateRequest request;
  const std::string& name = model.deployment().name();
  request.set_deployment(name);  // this replica, when there are several
  request.set_max_tokens(kTrialTokens);
  request.mutable_sampling()->set_temperature(0);
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content(kTrialPrompt);
  const auto begin = std::chrono::steady_clock::now();
  absl::Status answered;
  // Agents look at a GPU every few seconds: until one look fell into an answer.
  do {
    answered = client.Infer(request, [&](const v1::GenerateChunk& chunk) {
      if (trial.first_text_ms < 0 && !chunk.text().empty()) {
        trial.first_text_ms = MillisecondsSince(begin);
      }
      if (chunk.decode_ms() > 0 && chunk.completion_tokens() > 1) {
        trial.tokens_per_second = 1000.0 * (chunk.completion_tokens() - 1) / chunk.decode_ms();
      }
    });
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
    default:
      return "not known";
  }
}

// As wide as the longest of them.
std::string PaintedVerdict(LoadVerdict verdict, const Style& style) {
  std::string word = VerdictWord(verdict);
  word.resize(9, ' ');
  if (verdict == LoadVerdict::kPassed) return style.Good(word);
  return verdict == LoadVerdict::kFailed ? style.Bad(word) : style.Dim(word);
}

int RunModelCheck(const Invocation& run, const std::string& name) {
  AgentClient client(run.options.socket_path);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const v1::DeploymentStatus* model = nullptr;
  for (const v1::DeploymentStatus& deployment : status->deployments()) {
    const bool asked = name.empty() || deployment.deployment().name() == name;
    if (asked && model == nullptr) model = &deployment;
  }
  if (model == nullptr) {
    return run.Fail(ReasonStatus(
        absl::StatusCode::kNotFound, "MODEL_NOT_LOADED",
        name.empty() ? "no model is loaded" : absl::StrCat("no model '", name, "' is loaded")));
  }
  if (model->state() != v1::DEPLOYMENT_STATE_READY) {
    return run.Fail(ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY",
                                 absl::StrCat(model->deployment().name(), " is not ready")));
  }
  const auto trial = TryIt(run.options.socket_path, *model, HasGpus(*status, *model));
  if (!trial.ok()) return run.Fail(trial.status());
  const std::vector<LoadCheck> checks = CheckLoad(*model, *status, *trial);
  const bool good = std::none_of(checks.begin(), checks.end(), [](const LoadCheck& check) {
    return check.verdict == LoadVerdict::kFailed;
  });
  if (!run.wants_table()) {
    Json document = Document("ModelCheck");
    document["model"] = model->deployment().name();
    document["passed"] = good;
    document["checks"] = Json::array();
    for (const LoadCheck& check : checks) {
      document["checks"].push_back({{"what", check.what},
                                    {"verdict", VerdictWord(check.verdict)},
                                    {"measured", check.measured},
                                    {"expected", check.expected}});
    }
    run.PrintDocument(document);
    return good ? kExitOk : kExitFailure;
  }
  int width = 0;
  for (const LoadCheck& check : checks)
    width = std::max(width, DisplayWidth(Printable(check.what)));
  for (const LoadCheck& check : checks) {
    const int pad = width - DisplayWidth(Printable(check.what)) + 2;
    *run.environment.out << PaintedVerdict(check.verdict, run.style) << "  "
                         << Printable(check.what) << std::string(pad, ' ')
                         << Printable(check.measured) << " (" << Printable(check.expected) << ")\n";
  }
  if (!good) {
    *run.environment.out << "\nNext: 'clusterctl doctor' says what is wrong with links and nodes; "
                            "'clusterctl plan' what would be better.\n";
  }
  return good ? kExitOk : kExitFailure;
}

}  // namespace

void AddModelCheck(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "check",
                               "Whether a loaded model is as planned: memory, GPUs, speed, links, "
                               "first text; exit code 1: not");
  auto name = std::make_shared<std::string>();
  command->add_option("model", *name, "The loaded model (default: the first)");
  tree.OnChosen(command, [name](const Invocation& run) { return RunModelCheck(run, *name); });
}

}  // namespace macrame::cli
