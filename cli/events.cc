#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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
// What two agents say of one event stands at most so far apart, as agents themselves count it.
constexpr uint64_t kOneEventMs = 10'000;

struct EventsOptions {
  std::string since;
  bool follow = false;
};

class EventPrinter {
 public:
  explicit EventPrinter(const Invocation& run) : run_(run) {}

  // Those that were not printed yet.
  void PrintNew(const v1::ListEventsResponse& response) {
    for (const v1::Event& event : response.events()) {
      newest_ = std::max(newest_, event.at_unix_ms());
      if (!NotePrinted(event)) continue;
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
  struct Printed {
    uint64_t at_unix_ms = 0;
    std::string seen_by;
  };

  // False: it was printed, or what another agent says of it.
  bool NotePrinted(const v1::Event& event) {
    std::vector<Printed>& printed =
        printed_[absl::StrCat(event.kind(), "\n", event.subject(), "\n", event.message())];
    for (const Printed& one : printed) {
      const uint64_t apart = std::max(one.at_unix_ms, event.at_unix_ms()) -
                             std::min(one.at_unix_ms, event.at_unix_ms());
      if (one.seen_by == event.seen_by() ? apart == 0 : apart <= kOneEventMs) return false;
    }
    printed.push_back({event.at_unix_ms(), event.seen_by()});
    return true;
  }

  const Invocation& run_;
  std::map<std::string, std::vector<Printed>> printed_;  // by what happened to whom
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
    request.set_since_unix_ms(UnixMsBefore(options.since, kDurationMax));
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
