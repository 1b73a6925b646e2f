// clusterctl bench: real requests through the cluster, as `model infer` sends them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cli/command.h"
#include "cli/format/bench_view.h"
#include "cli/interrupt.h"
#include "cli/model_name.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kUsersMax = 256;
constexpr uint32_t kTokensMax = 1'000'000;
constexpr uint32_t kRequestsMax = 1000;
constexpr size_t kCasesMax = 64;

struct BenchOptions {
  std::string model;
  std::vector<uint32_t> users{1}, prompt_tokens{128}, answer_tokens{64};
  uint32_t requests = 3, warm_up = 1, shared_prefix = 0;
};

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Sends the requests; one client a user, all of which Cancel() ends.
class BenchRunner {
 public:
  BenchRunner(const BenchOptions& options, const AgentPlace& agent, uint64_t seed)
      : options_(options), seed_(seed) {
    const uint32_t users = *std::max_element(options.users.begin(), options.users.end());
    for (uint32_t i = 0; i < users; ++i) {
      clients_.push_back(std::make_unique<AgentClient>(agent));
    }
  }

  void Cancel() {
    cancelled_ = true;
    for (const auto& client : clients_) client->Cancel();
  }

  // Learns how many tokens a word has, and has everything loaded and warm.
  absl::Status WarmUp() {
    constexpr uint32_t kWords = 96;
    for (uint32_t i = 0; i < std::max(options_.warm_up, 1u) && !cancelled_; ++i) {
      BenchSample sample;
      const absl::Status status = Ask(*clients_[0], kWords, 0, 8, Clock::now(), sample);
      if (!status.ok()) return status;
      tokens_a_word_ = std::max(0.1, static_cast<double>(sample.prompt_tokens) / kWords);
    }
    return absl::OkStatus();
  }

  BenchRow Run(const BenchCase& asked) {
    absl::Mutex mutex;
    std::vector<BenchSample> samples;
    std::vector<std::thread> users;
    const auto begin = Clock::now();
    for (uint32_t user = 0; user < asked.users; ++user) {
      users.emplace_back([&, user] {
        for (uint32_t i = 0; i < options_.requests && !cancelled_; ++i) {
          BenchSample sample;
          const absl::Status status =
              Ask(*clients_[user], WordsFor(asked.prompt_tokens), WordsFor(options_.shared_prefix),
                  asked.answer_tokens, begin, sample);
          if (cancelled_) return;
          if (!status.ok()) {
            sample.error = absl::StrCat(ReasonOf(status).code(), ": ", status.message());
          }
          const absl::MutexLock lock(&mutex);
          samples.push_back(std::move(sample));
        }
      });
    }
    for (std::thread& user : users) user.join();
    return Summarize(asked, samples);
  }

 private:
  uint32_t WordsFor(uint32_t tokens) const {
    if (tokens == 0) return 0;
    return std::max(1u, static_cast<uint32_t>(tokens / tokens_a_word_ + 0.5));
  }

  absl::Status Ask(AgentClient& client, uint32_t words, uint32_t shared_words,
                   uint32_t answer_tokens, Clock::time_point begin, BenchSample& sample) {
    v1::GenerateRequest request;
    request.set_deployment(options_.model);
    request.set_prompt(BenchPrompt(seed_, next_prompt_++, words, shared_words));
    request.set_max_tokens(answer_tokens);
    request.mutable_sampling()->set_temperature(0);
    sample.sent_ms = MsSince(begin);
    const absl::Status status = client.Infer(request, [&](const v1::GenerateChunk& chunk) {
      sample.prompt_tokens = std::max(sample.prompt_tokens, chunk.prompt_tokens());
      sample.cached_tokens = std::max(sample.cached_tokens, chunk.cached_tokens());
      sample.completion_tokens = std::max(sample.completion_tokens, chunk.completion_tokens());
      if (chunk.token_ids().empty()) return;
      sample.last_token_ms = MsSince(begin);
      if (sample.first_token_ms >= 0) return;
      sample.first_token_ms = sample.last_token_ms;
      sample.first_tokens = static_cast<uint32_t>(chunk.token_ids_size());
    });
    sample.ended_ms = MsSince(begin);
    return status;
  }

  const BenchOptions& options_;
  const uint64_t seed_;
  std::vector<std::unique_ptr<AgentClient>> clients_;
  std::atomic<uint64_t> next_prompt_ = 0;
  std::atomic<bool> cancelled_ = false;
  double tokens_a_word_ = 1;
};

std::vector<BenchCase> CasesOf(const BenchOptions& options) {
  std::vector<BenchCase> cases;
  for (const uint32_t prompt : options.prompt_tokens) {
    for (const uint32_t answer : options.answer_tokens) {
      for (const uint32_t users : options.users) cases.push_back({users, prompt, answer});
    }
  }
  return cases;
}

absl::StatusOr<BenchReport> ReportOn(const Invocation& run, const BenchOptions& options) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return status.status();
  BenchReport report;
  report.model = options.model;
  report.client_version = ClientVersion();
  report.requests_per_user = options.requests;
  report.shared_prefix_tokens = options.shared_prefix;
  report.nodes.assign(status->nodes().begin(), status->nodes().end());
  for (const v1::DeploymentStatus& deployment : status->deployments()) {
    if (deployment.deployment().name() == options.model) report.deployment = deployment;
  }
  if (!report.deployment.has_deployment()) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                        absl::StrCat("no model '", options.model.substr(0, 128), "' is loaded"));
  }
  report.agent = client.Version().value_or(v1::VersionResponse());
  return report;
}

int RunBench(const Invocation& run, BenchOptions options) {
  const std::vector<BenchCase> cases = CasesOf(options);
  if (cases.size() > kCasesMax) {
    v1::Reason reason =
        MakeReason(reasons::kBadRequest, absl::StrCat(cases.size(), " cases; at most ", kCasesMax));
    reason.set_remedy("ask for fewer --users, --prompt-tokens or --answer-tokens at once");
    return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, reason));
  }
  AgentClient client(run.options.agent);
  options.model = ModelMeantBy(client, options.model);
  auto report = ReportOn(run, options);
  if (!report.ok()) return run.Fail(report.status());
  std::random_device device;
  BenchRunner runner(options, run.options.agent, (uint64_t{device()} << 32) ^ uint64_t{device()});
  InterruptWatch interrupt([&] { runner.Cancel(); });
  const absl::Status warm = runner.WarmUp();
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!warm.ok()) return run.Fail(warm);
  bool failed = false;
  for (size_t i = 0; i < cases.size() && !interrupt.interrupted(); ++i) {
    if (run.wants_table() && !run.options.quiet && run.environment.err_is_terminal) {
      *run.environment.err << run.err_style.Dim(absl::StrCat(
          "case ", i + 1, " of ", cases.size(), ": ", Plural(cases[i].users, "user"), "\n"));
    }
    BenchRow row = runner.Run(cases[i]);
    if (interrupt.interrupted()) break;  // what is cut short would mislead
    failed = failed || row.errors > 0;
    report->rows.push_back(std::move(row));
  }
  if (run.wants_table()) {
    *run.environment.out << BenchView(*report, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(BenchDocument(*report));
  }
  if (interrupt.interrupted()) return interrupt.exit_code();
  return failed ? kExitFailure : kExitOk;
}

}  // namespace

void AddBench(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "bench", "Measure real requests: users, prompt and answer lengths");
  auto options = std::make_shared<BenchOptions>();
  command->add_option("model", options->model, "Name of a loaded model")->required();
  const auto list = [&](const char* flag, std::vector<uint32_t>& into, uint32_t most,
                        const char* text) {
    command->add_option(flag, into, text)
        ->delimiter(',')
        ->check(CLI::Range(1u, most))
        ->expected(1, static_cast<int>(kCasesMax));
  };
  list("--users", options->users, kUsersMax, "Numbers of concurrent users, such as 1,4,16");
  list("--prompt-tokens", options->prompt_tokens, kTokensMax,
       "Approximate numbers of prompt tokens");
  list("--answer-tokens", options->answer_tokens, kTokensMax, "Maximum numbers of answer tokens");
  command
      ->add_option("--requests", options->requests,
                   "Number of requests each user sends, one after another")
      ->check(CLI::Range(1u, kRequestsMax));
  command
      ->add_option("--warm-up", options->warm_up, "Number of requests sent first and not counted")
      ->check(CLI::Range(1u, kRequestsMax));
  command
      ->add_option("--shared-prefix", options->shared_prefix,
                   "Number of tokens that all prompts begin with (prefix cache); 0: none")
      ->check(CLI::Range(0u, kTokensMax));
  tree.OnChosen(command, [options](const Invocation& run) { return RunBench(run, *options); });
}

}  // namespace macrame::cli
