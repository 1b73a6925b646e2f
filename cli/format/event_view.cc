#include "cli/format/event_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/format/reason_text.h"

namespace macrame::cli {

std::string EventLine(const v1::Event& event, const Style& style) {
  const absl::Time at = absl::FromUnixMillis(static_cast<int64_t>(event.at_unix_ms()));
  std::string out =
      absl::StrCat(style.Dim(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", at, absl::UTCTimeZone())), "  ",
                   absl::StrFormat("%-11s", Printable(event.kind())), "  ",
                   style.Bold(Printable(event.subject())), " ", Printable(event.message()));
  const v1::Reason& reason = event.reason();
  const std::string& why = reason.message().empty() ? reason.code() : reason.message();
  if (!why.empty()) absl::StrAppend(&out, ": ", Printable(why));
  return absl::StrCat(out, "\n");
}

std::string EventsView(const v1::ListEventsResponse& events, const Style& style) {
  std::string out;
  for (const v1::Event& event : events.events()) out += EventLine(event, style);
  if (events.events().empty()) out = "Nothing happened that the agents still know of.\n";
  for (const v1::Reason& missing : events.missing()) {
    absl::StrAppend(&out, style.Warn("not asked: "), ReasonSentence(missing), "\n");
  }
  return out;
}

}  // namespace macrame::cli
