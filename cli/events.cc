#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/event_view.h"
#include "cli/format/new_events.h"
#include "cli/interrupt.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::milliseconds kAskPause{500};
// An agent that is silent for longer is taken for gone, as it is by those who follow a log.
constexpr std::chrono::milliseconds kSilenceMax{1200};
// Agents' clocks and answers may be so far apart: what is asked for anew overlaps.
constexpr uint64_t kOverlapMs = 15'000;

uint64_t NowUnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

struct EventsOptions {
  std::string since;
  bool follow = false;
};

void Print(const Invocation& run, const std::vector<v1::Event>& events) {
  for (const v1::Event& event : events) {
    if (run.wants_table()) {
      *run.environment.out << EventLine(event, run.style);
    } else {
      *run.environment.out << Document("Event", event).dump() << "\n";
    }
  }
  *run.environment.out << std::flush;
}

int Follow(const Invocation& run, AgentClient& client, v1::ListEventsRequest request) {
  NewEvents events;
  const uint64_t asked_since = request.since_unix_ms();
  InterruptWatch interrupt([&] { client.Cancel(); });
  std::optional<std::chrono::steady_clock::time_point> heard;
  while (!interrupt.interrupted() && run.environment.out->good()) {
    const auto response = client.ListEvents(request);
    if (interrupt.interrupted()) break;
    const auto now = std::chrono::steady_clock::now();
    if (!response.ok()) {
      // A key that was revoked does not come back.
      const bool goes_on =
          absl::IsUnavailable(response.status()) && heard.has_value() && now - *heard < kSilenceMax;
      if (!goes_on) return run.Fail(response.status());
    } else {
      heard = now;
      Print(run, events.Take(*response));
      // It may go back: a clock that was ahead was set.
      const uint64_t newest = events.newest_unix_ms(NowUnixMs());
      request.set_since_unix_ms(std::max(asked_since, newest - std::min(newest, kOverlapMs)));
    }
    std::this_thread::sleep_for(kAskPause);
  }
  return interrupt.interrupted() ? interrupt.exit_code() : kExitOk;
}

int RunEvents(const Invocation& run, const EventsOptions& options) {
  AgentClient client(run.options.agent);
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
      tree.Add(tree.root, "events", "Show what happened: nodes, elections, models, cordons");
  auto options = std::make_shared<EventsOptions>();
  command
      ->add_option("--since", options->since,
                   "Show only the last 10m, 1h, … (default: all that agents still have)")
      ->check(IsDuration());
  command->add_flag("-f,--follow", options->follow, "Follow new events until Ctrl-C");
  tree.OnChosen(command, [options](const Invocation& run) { return RunEvents(run, *options); });
}

}  // namespace macrame::cli
