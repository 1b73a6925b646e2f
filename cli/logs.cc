#include <chrono>
#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "proto/reasons.h"
#include "transport/log_tail.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kLinesMax = 10000;
constexpr auto kPollInterval = std::chrono::milliseconds(200);

struct LogsOptions {
  std::string node;
  uint32_t lines = 100;
  bool follow = false;
};

// Chunks put together to lines.
struct LogLines {
  std::deque<std::string> whole;
  std::string rest;

  void Add(std::string_view text) {
    rest.append(text);
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      whole.push_back(Printable(rest.substr(0, end)));
      rest.erase(0, end + 1);
    }
  }
  std::string Take() {
    std::string first = std::move(whole.front());
    whole.pop_front();
    return first;
  }
};

// No agent: this machine's own log is still there to be read, which is when it is needed most.
int ReadDefaultLog(const Invocation& run, const LogsOptions& options,
                   const absl::Status& unreachable, const InterruptWatch& interrupt) {
  transport::LogTail tail(transport::DefaultLogFile(transport::DefaultStateFolder()));
  const absl::StatusOr<std::string> last = tail.Last(options.lines);
  if (!last.ok()) return run.Fail(unreachable);
  *run.environment.err << "agentd does not answer; this is what it wrote last\n";
  *run.environment.out << Printable(*last, true) << std::flush;
  while (options.follow && !interrupt.interrupted()) {
    std::this_thread::sleep_for(kPollInterval);
    *run.environment.out << Printable(tail.New(), true) << std::flush;
  }
  return interrupt.interrupted() ? interrupt.exit_code() : kExitOk;
}

int RunLogs(const Invocation& run, const LogsOptions& options) {
  AgentClient client(run.options.agent);
  InterruptWatch interrupt([&client] { client.Cancel(); });
  v1::LogsRequest request;
  request.set_lines(options.lines);
  request.set_follow(options.follow);
  if (!options.node.empty()) {
    const absl::StatusOr<v1::ClusterStatus> status = client.GetStatus();
    if (!status.ok()) return run.Fail(status.status());
    const absl::StatusOr<std::string> id = ResolveNode(*status, options.node);
    if (!id.ok()) return run.Fail(id.status());
    request.set_node_id(*id);
  }
  LogLines lines;
  bool has_answered = false;
  const absl::Status done = client.Logs(request, [&](const v1::LogsChunk& chunk) {
    has_answered = true;
    if (run.wants_table()) {
      *run.environment.out << Printable(chunk.text(), true) << std::flush;
      return;
    }
    lines.Add(chunk.text());
    // Followed without end: a document a line.
    while (options.follow && !lines.whole.empty()) {
      Json document = Document("LogLine");
      document["line"] = lines.Take();
      *run.environment.out << document.dump() << "\n" << std::flush;
    }
  });
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (done.ok()) {
    if (!run.wants_table() && !options.follow) {
      Json document = Document("Logs");
      document["lines"] = Json::array();
      while (!lines.whole.empty()) document["lines"].push_back(lines.Take());
      // A last line that no line break ends.
      if (!lines.rest.empty()) document["lines"].push_back(Printable(lines.rest));
      run.PrintDocument(document);
    }
    return kExitOk;
  }
  const bool nobody = ReasonOf(done).code() == reasons::kAgentUnreachable;
  // Whose agent ended while it was followed is told so; another machine's log is not this one's.
  const bool is_own = options.node.empty() && run.options.agent.access_file.empty();
  if (nobody && is_own && !has_answered) return ReadDefaultLog(run, options, done, interrupt);
  return run.Fail(done);
}

}  // namespace

void AddLogs(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "logs", "Show an agent's log; -f follows it");
  auto options = std::make_shared<LogsOptions>();
  command->add_option("node", options->node, "Hostname or id (default: this machine's agent)");
  command->add_option("-n,--lines", options->lines, "Number of lines to start with (default: 100)")
      ->check(CLI::Range(1u, kLinesMax));
  command->add_flag("-f,--follow", options->follow, "Follow new lines until Ctrl-C");
  tree.OnChosen(command, [options](const Invocation& run) { return RunLogs(run, *options); });
}

}  // namespace macrame::cli
