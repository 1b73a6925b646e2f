#include "agentd/services/trace_exporter.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/regular_file.h"

namespace macrame::agentd {
namespace {

constexpr size_t kFieldFileBytesMax = 16 * 1024;
constexpr size_t kFieldsMax = 16;

MonotonicTime SteadyNow() {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

// RFC 9110, 5.6.2.
bool IsFieldName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", static_cast<char>(c));
  });
}

bool IsFieldValue(absl::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(),
                                       [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

bool IsOwnField(absl::string_view name) {
  constexpr absl::string_view kOwn[] = {"host",       "content-type",      "content-length",
                                        "connection", "transfer-encoding", "user-agent"};
  return std::any_of(std::begin(kOwn), std::end(kOwn),
                     [&](absl::string_view own) { return absl::EqualsIgnoreCase(own, name); });
}

absl::Status WrongFields(const std::string& path, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                      absl::StrCat("otlp_headers_file: ", path, what));
}

}  // namespace

absl::StatusOr<HttpFields> ReadTraceFields(const std::string& path) {
  const auto opened = transport::RegularFile::Open(path);
  if (!opened.ok()) {
    return WrongFields(
        path, absl::StrCat(" is no file that can be read (", opened.status().message(), ")"));
  }
  if ((opened->info().st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return WrongFields(path, " can be read by other users: chmod 600 it");
  }
  const auto whole = transport::ReadRegularFile(path, kFieldFileBytesMax);
  if (absl::IsOutOfRange(whole.status())) {
    return WrongFields(path, absl::StrCat(" has more than ", kFieldFileBytesMax, " bytes"));
  }
  if (!whole.ok()) return WrongFields(path, " can't be read by this user");
  HttpFields fields;
  std::istringstream file(*whole);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t colon = std::min(text.find(':'), text.size());
    const absl::string_view name = absl::StripTrailingAsciiWhitespace(text.substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(
        colon == text.size() ? absl::string_view() : text.substr(colon + 1));
    if (!IsFieldName(name) || !IsFieldValue(value)) {
      return WrongFields(path, absl::StrCat(":", number, ": write 'name: value'"));
    }
    if (IsOwnField(name)) {
      return WrongFields(path, absl::StrCat(":", number, ": each request has this field anyway"));
    }
    if (fields.size() == kFieldsMax) {
      return WrongFields(path, absl::StrCat(" has more than ", kFieldsMax, " fields"));
    }
    fields.emplace_back(name, value);
  }
  return fields;
}

TraceExporter::TraceExporter(TraceExporterOptions options, Counters counters)
    : options_(std::move(options)),
      counters_(std::move(counters)),
      post_(options_.url, options_.fields),
      waiting_(options_.waiting_max),
      thread_([this] { Run(); }) {}

TraceExporter::~TraceExporter() {
  BeginStop();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_until(lock, stop_by_, [this] { return ended_; });
  }
  post_.Stop();
  thread_.join();
}

void TraceExporter::Add(std::vector<Span> spans) {
  const size_t count = spans.size();
  bool added = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    added = !stopping_ && waiting_.Add(std::move(spans));
  }
  if (added) return wake_.notify_all();
  counters_.dropped(count);
}

void TraceExporter::BeginStop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_by_ = SteadyNow() + options_.flush_limit;
  }
  wake_.notify_all();
}

void TraceExporter::Run() {
  for (std::vector<Span> batch = NextBatch(); !batch.empty(); batch = NextBatch()) {
    Deliver(batch);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  wake_.notify_all();
}

std::vector<Span> TraceExporter::NextBatch() {
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
  wake_.wait_for(lock, options_.batch_wait,
                 [this] { return stopping_ || waiting_.size() >= options_.batch_max; });
  return waiting_.Take(options_.batch_max);
}

Duration TraceExporter::TimeForTry() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!stopping_) return options_.try_limit;
  return std::clamp<Duration>(stop_by_ - SteadyNow(), Duration(0), options_.try_limit);
}

// False: this stops, and there is no time for another try.
bool TraceExporter::PauseFor(Duration pause) {
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait_for(lock, pause, [this] { return stopping_; });
  return !stopping_ || stop_by_ > SteadyNow();
}

void TraceExporter::Deliver(const std::vector<Span>& spans) {
  static thread_local std::minstd_rand chance(std::random_device{}());
  const std::string json = OtlpJson(options_.source, spans);
  std::string trouble = "there was no time left";
  for (int tries = 1;; ++tries) {
    const Duration limit = TimeForTry();
    if (limit <= Duration(0)) break;
    const absl::StatusOr<HttpPostAnswer> answer = post_.Try(json, limit);
    TryOutcome outcome;
    if (answer.ok()) {
      outcome = {answer->status, answer->retry_after};
      trouble = absl::StrCat("it answers with HTTP ", answer->status);
    } else {
      trouble = std::string(answer.status().message());
    }
    const double share = std::uniform_real_distribution<double>()(chance);
    const ExportDecision next = DecideExport(outcome, tries, share, options_.limits);
    if (next.kind == ExportDecision::Kind::kTaken) {
      const PartialSuccess partial = ReadPartialSuccess(answer->body);
      const uint64_t refused = std::min<uint64_t>(partial.rejected, spans.size());
      counters_.sent(spans.size() - refused);
      return Tell(refused, refused == 0 ? "" : absl::StrCat("it refuses some: ", partial.why));
    }
    if (next.kind == ExportDecision::Kind::kGivenUp || !PauseFor(next.pause)) break;
  }
  Tell(spans.size(), trouble);
}

// Said once when it begins and once when it is over.
void TraceExporter::Tell(uint64_t spans, const std::string& trouble) {
  if (spans > 0) counters_.dropped(spans);
  const bool was = std::exchange(is_in_trouble_, spans > 0);
  if (spans > 0 && !was) {
    spdlog::warn(
        "traces: {} spans did not reach {}:{}: {}; look at otlp_endpoint in agentd.yaml, "
        "and whether that collector answers",
        spans, options_.url.host, options_.url.port, absl::CHexEscape(trouble));
  } else if (was && spans == 0) {
    spdlog::info("traces: {}:{} takes spans again", options_.url.host, options_.url.port);
  }
}

}  // namespace macrame::agentd
