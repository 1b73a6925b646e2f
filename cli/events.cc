#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/event_view.h"
#include "cli/interrupt.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::milliseconds kAskPause{500};
// Agents' clocks and answers may be so far apart: what is asked for anew overlaps.
constexpr uint64_t kOverlapMs = 15'000;

struct EventsOptions {
  std::string since;
  bool follow = false;
};

uint64_t NowUnixMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

class EventPrinter {
 public:
  explicit EventPrinter(const Invocation& run) : run_(run) {}

  // Those that were not printed yet.
  void PrintNew(const v1::ListEventsResponse& response) {
    for (const v1::Event& event : response.events()) {
      newest_ = std::max(newest_, event.at_unix_ms());
      const std::string key =
          absl::StrCat(event.kind(), "\n", event.subject(), "\n", event.message(), "\n",
                       event.at_unix_ms(), "\n", event.seen_by());
      if (!printed_.insert(key).second) continue;
      if (run_.wants_table()) {
        *run_.environment.out << EventLine(event, run_.style);
      } else {
        *run_.environment.out << Document("Event", event).dump() << "\n";
      }
    }
    *run_.environment.out << std::flush;
  }
  uint64_t newest() const { return newest_; }

 private:
  const Invocation& run_;
  std::set<std::string> printed_;
  uint64_t newest_ = 0;
};

int Follow(const Invocation& run, AgentClient& client, v1::ListEventsRequest request) {
  EventPrinter printer(run);
  InterruptWatch interrupt([&] { client.Cancel(); });
  bool has_answered = false;
  while (!interrupt.interrupted() && run.environment.out->good()) {
    const auto response = client.ListEvents(request);
    if (interrupt.interrupted()) break;
    if (!response.ok() && !has_answered) return run.Fail(response.status());
    if (response.ok()) {
      has_answered = true;
      printer.PrintNew(*response);
      const uint64_t newest = printer.newest();
      if (newest > kOverlapMs) {
        request.set_since_unix_ms(std::max(request.since_unix_ms(), newest - kOverlapMs));
      }
    }
    std::this_thread::sleep_for(kAskPause);
  }
  return interrupt.interrupted() ? interrupt.exit_code() : kExitOk;
}

int RunEvents(const Invocation& run, const EventsOptions& options) {
  AgentClient client(run.options.socket_path);
  v1::ListEventsRequest request;
  if (!options.since.empty()) {
    request.set_since_unix_ms(NowUnixMs() -
                              static_cast<uint64_t>(ParseDuration(options.since)->count()));
  }
  if (options.follow) return Follow(run, client, request);
  const auto response = client.ListEvents(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    Json document = Document("EventList");
    const Json whole = MessageToJson(*response);
    document["items"] = whole["events"];
    document["missing"] = whole["missing"];
    run.PrintDocument(document);
  } else {
    *run.environment.out << EventsView(*response, run.style);
  }
  return response->missing().empty() ? kExitOk : kExitPartial;
}

}  // namespace

void AddEvents(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "events", "What happened: nodes, elections, models, cordons");
  auto options = std::make_shared<EventsOptions>();
  command
      ->add_option("--since", options->since,
                   "Only of the last 10m, 1h, … (default: all that the agents still know)")
      ->check(IsDuration());
  command->add_flag("-f,--follow", options->follow, "Go on with what happens until Ctrl-C");
  tree.OnChosen(command, [options](const Invocation& run) { return RunEvents(run, *options); });
}

}  // namespace macrame::cli
