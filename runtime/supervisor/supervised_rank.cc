#include "runtime/supervisor/supervised_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/ids.h"
#include "proto/memory_need.h"
#include "proto/rank_methods.h"
#include "proto/reasons.h"
#include "proto/utf8.h"
#include "runtime/diagnosis/rank_messages.h"
#include "runtime/process/exit_codes.h"
#include "runtime/supervisor/launch_environment.h"
#include "runtime/supervisor/process_identity.h"
#include "runtime/supervisor/stack_sample.h"
#include "transport/gang/secret_bytes.h"
#include "transport/grpc_channel.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

extern char** environ;

namespace macrame::runtime {
namespace {

constexpr Duration kWatchLimit = std::chrono::hours(24);   // then watched anew
constexpr Duration kTraceSlack = std::chrono::seconds(5);  // beyond the trace's own duration
constexpr Duration kVerifyGroupLimit = std::chrono::seconds(75);
constexpr Duration kGenerateLimit = std::chrono::hours(2);  // of one answer
constexpr Duration kWatchRetry = std::chrono::milliseconds(100);
constexpr Duration kSilenceCheckInterval = std::chrono::seconds(1);
// A check that comes later than this was held up with everything else of this process: the rank may
// have reported, and nobody was there to hear it.
constexpr Duration kLatenessTolerated = std::chrono::milliseconds(500);
constexpr size_t kLastLinesBytesMax = 4096;
constexpr Duration kCrashReportInterval = std::chrono::milliseconds(200);

std::string SignalName(int signal) {
  switch (signal) {
    case SIGKILL:
      return "SIGKILL";
    case SIGTERM:
      return "SIGTERM";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    case SIGTRAP:
      return "SIGTRAP";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return absl::StrCat("signal ", signal);
  }
}

std::string LastLine(const std::string& text) { return text.substr(text.rfind('\n') + 1); }

// What a rank that found its model's files at fault wrote last: "rankd: rank 0 of model m: CODE:
// what. Remedy". It ends before it is heard over its socket.
std::optional<v1::Reason> FaultOfModel(const ProcessExit& exit, const std::string& node_id) {
  if (exit.code != engine::kExitModelInvalid) return std::nullopt;
  const std::string line = LastLine(exit.last_lines);
  for (size_t at = line.find(": "); at != std::string::npos; at = line.find(": ", at + 2)) {
    const size_t begin = at + 2;
    const size_t end = line.find(": ", begin);
    if (end == std::string::npos) break;
    const ReasonCode* known = FindReasonCode(line.substr(begin, end - begin));
    if (known == nullptr) continue;
    std::string what = line.substr(end + 2);
    const std::string remedy = absl::StrCat(". ", std::string(known->remedy));
    if (!known->remedy.empty() && absl::EndsWith(what, remedy)) {
      what.resize(what.size() - remedy.size());
    }
    return MakeReason(known->code, std::move(what), node_id);
  }
  return std::nullopt;
}

// Begins with a whole character: a message's string must be UTF-8.
std::string Tail(const std::string& text) {
  if (text.size() <= kLastLinesBytesMax) return text;
  size_t begin = text.size() - kLastLinesBytesMax;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) ++begin;
  return text.substr(begin);
}

void HandOn(const char* option, const PortReservation& port, ProcessCommand& command) {
  if (port.fd() < 0) return;
  command.arguments.push_back(option);
  command.arguments.push_back(
      std::to_string(kInheritedFdFirst + static_cast<int>(command.inherited.size())));
  command.inherited.push_back(port.fd());
}

// The signals of which macOS writes a report.
bool IsCrash(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL ||
         signal == SIGTRAP;
}

// What a crash report tells beyond the place. Where MLX waits for the GPU explains no crash.
std::optional<RecognisedMessage> RecogniseCrash(const CrashReport& report) {
  std::vector<std::string> lines = {report.exception, report.note};
  for (const std::string& frame : report.frames) {
    if (!absl::StrContains(frame, kFenceWait)) lines.push_back(frame);
  }
  return RecogniseLastLines(absl::StrJoin(lines, "\n"));
}

// The calls in which a rank stood still, as part of its failure.
void AddStalledCalls(const std::vector<std::string>& calls, v1::Reason& failure) {
  if (calls.empty()) return;
  std::string words = absl::StrCat("; it stood still in ", calls.front());
  if (absl::StrContains(calls.front(), kFenceWait)) {
    if (const auto said = RecogniseMessage(calls.front()); said.has_value()) {
      absl::StrAppend(&words, ": ", said->reason.message());
      failure.set_remedy(said->reason.remedy());
    }
  }
  failure.set_message(absl::StrCat(failure.message(), words));
}

// A rank's own report that it stands still, and not that another does.
bool IsOwnStall(const v1::RankStatus& report, uint32_t rank) {
  const std::string& code = report.failure().code();
  return report.phase() == v1::RANK_PHASE_FAILED &&
         (code == reasons::kRankStalled || code == reasons::kInitStalled) &&
         (!report.has_stalled() || report.stalled().rank() == rank);
}

int64_t Seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

SupervisedRank::SupervisedRank(const SupervisorOptions& options, transport::Dispatcher* dispatcher,
                               const v1::ReserveRequest& request, PortReservation ring,
                               PortReservation step, Events events)
    : options_(options),
      dispatcher_(dispatcher),
      events_(std::move(events)),
      key_{request.deployment(), request.epoch(), request.assignment().rank()},
      need_(request.assignment().need().total_bytes()),
      wired_(WiredBytes(request.assignment().need())),
      model_path_(request.model().path()),
      draft_path_(request.draft_model().path()),
      ring_(std::move(ring)),
      step_(std::move(step)),
      files_(options.state_folder) {
  status_.set_deployment(key_.deployment);
  status_.set_epoch(key_.epoch);
  status_.set_rank(key_.rank);
  status_.set_node_id(options.node_id);
}

SupervisedRank::~SupervisedRank() {
  *alive_ = false;
  const bool was_running = running();
  channel_.reset();
  process_.reset();
  if (was_running) files_.Remove(paths_);
}

std::string SupervisedRank::Name() const {
  return absl::StrCat("rank ", key_.rank, " of ", key_.deployment, " (epoch ", key_.epoch, ")");
}

void SupervisedRank::After(Duration delay, std::function<void()> task) {
  dispatcher_->PostAfter(delay, [alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

absl::Status SupervisedRank::Launch(v1::LaunchSpec spec, const std::string& rankd_path,
                                    uint64_t serial) {
  paths_ = files_.PathsOf(serial, key_.deployment, key_.rank);
  if (paths_.socket.size() >= transport::kSocketPathBytesMax) {
    return absl::FailedPreconditionError(absl::StrCat("the socket path ", paths_.socket,
                                                      " is too long; use a shorter state folder"));
  }
  spec.set_socket_path(paths_.socket);
  spec.mutable_model()->set_path(model_path_);
  if (spec.has_draft_model()) spec.mutable_draft_model()->set_path(draft_path_);
  spec.set_python(options_.python);
  spec.set_kv_cache_folder(absl::StrCat(options_.state_folder, "/kv_cache"));
  spec.set_kv_cache_disk_bytes(options_.kv_cache_disk_bytes);
  spec.set_kv_cache_disk_hours(options_.kv_cache_disk_hours);
  const absl::Status written = files_.WriteSpec(paths_.spec, spec);
  transport::Wipe(*spec.mutable_gang_secret());
  if (!written.ok()) return written;
  ProcessCommand command;
  command.arguments = {rankd_path, "--launch-spec", paths_.spec};
  program_ = rankd_path.substr(rankd_path.rfind('/') + 1);
  started_unix_ms_ = dispatcher_->UnixMs();
  HandOn("--ring-socket", ring_, command);
  HandOn("--step-socket", step_, command);
  if (options_.core_dumps) command.arguments.push_back("--core-dumps");
  const FastSynch synch = options_.metal_fast_synch;
  fast_synch_by_default_ = synch == FastSynch::kAuto &&
                           BackendNamed(spec.backend()) == Backend::kJaccl &&
                           !spec.fast_synch_suspended();
  command.environment =
      LaunchEnvironment(environ, fast_synch_by_default_ || synch == FastSynch::kOn);
  command.log_path = paths_.log;
  command.log_bytes_max = options_.log_bytes_max;
  command.last_lines_max = options_.last_lines_max;
  auto process =
      ChildProcess::Start(command, dispatcher_, [this](const ProcessExit& exit) { Exited(exit); });
  ring_.Release();
  step_.Release();
  if (!process.ok()) {
    files_.Remove(paths_);
    return process.status();
  }
  process_ = *std::move(process);
  const pid_t pid = process_->pid();
  const absl::Status noted = files_.WriteNote(
      paths_.note, {pid, ProcessIdentity(pid), key_.deployment, key_.epoch, key_.rank});
  if (!noted.ok()) {  // without a note nobody would find it later
    process_.reset();
    files_.Remove(paths_);
    return noted;
  }
  status_.set_phase(v1::RANK_PHASE_STAGING);
  status_.set_pid(static_cast<uint64_t>(pid));
  status_.set_fast_synch_by_default(fast_synch_by_default_);
  channel_ = std::make_unique<transport::GrpcChannel>(
      *dispatcher_, transport::PlainChannelCredentials(), "", NodeId(options_.node_id));
  channel_->SetAddresses({transport::SocketTarget(paths_.socket)});
  last_report_ = dispatcher_->Now();
  ScheduleSilenceCheck();
  Watch();
  return absl::OkStatus();
}

void SupervisedRank::Watch() {
  // The socket appears a moment after the process; until then, and should the stream break, anew.
  if (!serves()) return;
  if (!reported_ && access(paths_.socket.c_str(), F_OK) != 0) {
    After(kWatchRetry, [this] { Watch(); });
    return;
  }
  channel_->Stream(
      kRankWatch, v1::WatchRequest(), kWatchLimit,
      [this](const v1::RankStatus& report) { Reported(report); },
      [this](const absl::Status&) { After(kWatchRetry, [this] { Watch(); }); });
}

void SupervisedRank::Reported(const v1::RankStatus& report) {
  // Who is about to be killed because it stands still has been judged.
  if (!serves() || status_.phase() == v1::RANK_PHASE_FAILED || verdict_.has_value()) return;
  last_report_ = dispatcher_->Now();
  // It has been read, and the gang's secret is in it.
  if (!reported_) unlink(paths_.spec.c_str());
  reported_ = true;
  if (!options_.stack_sampler.empty() && !ending_ && IsOwnStall(report, key_.rank)) {
    // It would exit before anything could be seen of it.
    process_->Signal(SIGSTOP);
    is_own_verdict_ = true;
    return KillStalled(report);
  }
  const v1::RankStatus before = status_;
  Adopt(report);
  const bool moved = std::floor(status_.progress() * 100) != std::floor(before.progress() * 100);
  if (status_.phase() == v1::RANK_PHASE_FAILED) {
    // It says so itself and is about to exit; if it doesn't, it is made to.
    ScheduleSignal(options_.term_grace, SIGKILL);
  }
  if (status_.phase() != before.phase() || moved) events_.changed();
}

void SupervisedRank::Adopt(const v1::RankStatus& report) {
  const uint64_t pid = status_.pid();
  status_ = report;
  // Who it is and that it is being ended is known better here.
  status_.set_deployment(key_.deployment);
  status_.set_epoch(key_.epoch);
  status_.set_rank(key_.rank);
  status_.set_node_id(options_.node_id);
  status_.set_pid(pid);
  status_.set_fast_synch_by_default(fast_synch_by_default_);
  if (ending_) status_.set_phase(v1::RANK_PHASE_STOPPING);
  if (!std::isfinite(status_.progress())) status_.set_progress(0);
}

void SupervisedRank::ScheduleSilenceCheck() {
  const MonotonicTime due = dispatcher_->Now() + kSilenceCheckInterval;
  After(kSilenceCheckInterval, [this, due] { CheckSilence(due); });
}

void SupervisedRank::CheckSilence(MonotonicTime due) {
  if (!serves() || ending_ || status_.phase() == v1::RANK_PHASE_FAILED || sampling_) return;
  const MonotonicTime now = dispatcher_->Now();
  if (now - due > kLatenessTolerated) last_report_ += now - due;
  const Duration limit = reported_ ? options_.silence_limit : options_.first_report_limit;
  if (now - last_report_ <= limit) {
    ScheduleSilenceCheck();
    return;
  }
  v1::RankStatus verdict = status_;
  verdict.set_phase(v1::RANK_PHASE_FAILED);
  *verdict.mutable_failure() =
      MakeReason(reasons::kRankStalled,
                 absl::StrCat(Name(), reported_ ? " said nothing for " : " did not report within ",
                              Seconds(limit), " s and was killed"),
                 options_.node_id);
  KillStalled(std::move(verdict));
}

void SupervisedRank::KillStalled(std::optional<v1::RankStatus> verdict) {
  if (sampling_) return;
  verdict_ = std::move(verdict);
  auto sampling =
      StackSampling::Start(options_.stack_sampler, process_->pid(), paths_.stacks,
                           options_.stack_sample_limit, dispatcher_, [this] { StacksTaken(); });
  if (!sampling.ok()) return StacksTaken();
  sampling_ = *std::move(sampling);
}

void SupervisedRank::StacksTaken() {
  if (!serves()) return;
  if (sampling_) stalled_calls_ = sampling_->Calls();
  process_->Signal(SIGKILL);
  AdoptVerdict();
}

void SupervisedRank::AdoptVerdict() {
  if (!verdict_.has_value()) return;
  Adopt(*verdict_);
  // It was found before it was told to stop.
  status_.set_phase(v1::RANK_PHASE_FAILED);
  AddStalledCalls(stalled_calls_, *status_.mutable_failure());
  events_.changed();
}

void SupervisedRank::End(const std::string& why, bool at_once) {
  if (!running()) return;
  if (exit_.has_value()) {
    // Of what it died is told without its report to whoever can't wait.
    if (at_once) crash_deadline_ = dispatcher_->Now();
    return;
  }
  if (at_once && status_.phase() != v1::RANK_PHASE_FAILED) KillStalled(verdict_);
  if (ending_) return;
  ending_ = true;
  why_ending_ = why;
  if (status_.phase() == v1::RANK_PHASE_FAILED) {
    process_->Signal(SIGKILL);
    return;
  }
  status_.set_phase(v1::RANK_PHASE_STOPPING);
  if (at_once || sampling_) return events_.changed();
  v1::StopRequest request;
  request.set_grace_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.stop_grace).count()));
  channel_->Call(kRankStop, request, options_.stop_grace,
                 [this](const absl::StatusOr<v1::StopResponse>& response) {
                   // Nobody serves (yet): no use in waiting.
                   if (!response.ok() && serves()) process_->Signal(SIGTERM);
                 });
  ScheduleSignal(options_.stop_grace, SIGTERM);
  ScheduleSignal(options_.stop_grace + options_.term_grace, SIGKILL);
  events_.changed();
}

void SupervisedRank::ScheduleSignal(Duration delay, int signal) {
  After(delay, [this, signal] {
    if (serves()) process_->Signal(signal);
  });
}

v1::Reason SupervisedRank::WhyEnded(const ProcessExit& exit) const {
  if (auto fault = FaultOfModel(exit, options_.node_id)) return *std::move(fault);
  // The code stays what became of the process; what its GPU said, or where it crashed, goes into
  // the words.
  auto said = RecogniseLastLines(exit.last_lines);
  if (said.has_value() && said->phase != kGpuFaultPhase) said.reset();
  if (!said.has_value() && crash_.has_value()) said = RecogniseCrash(crash_->report);
  v1::Reason why = WhyGone(exit, said.has_value() ? said->reason.message() : "");
  if (said.has_value()) why.set_remedy(said->reason.remedy());
  return why;
}

v1::Reason SupervisedRank::WhyGone(const ProcessExit& exit, const std::string& fault) const {
  std::string words = LastLine(exit.last_lines);
  if (!words.empty()) words = absl::StrCat("; its last lines: ", words);
  if (!fault.empty()) words = absl::StrCat(": ", fault, words);
  if (crash_.has_value()) {
    const std::string frames = fault.empty() ? crash_->report.TopFrames() : "";
    absl::StrAppend(&words, "; its crash report: ", frames, frames.empty() ? "" : " in ",
                    AsUtf8(crash_->path, "?"));
  }
  if (exit.signal == 0) {
    return MakeReason(reasons::kRankExited,
                      absl::StrCat(Name(), " exited with code ", exit.code, words),
                      options_.node_id);
  }
  std::string guess;
  if (exit.signal == SIGKILL && fault.empty())
    guess = ", perhaps by the system because memory ran out";
  return MakeReason(reasons::kRankKilled,
                    absl::StrCat(Name(), " was ended by ", SignalName(exit.signal), guess, words),
                    options_.node_id);
}

void SupervisedRank::Exited(const ProcessExit& exit) {
  exit_ = exit;
  files_.Remove(paths_);
  if (sampling_ && status_.phase() != v1::RANK_PHASE_FAILED && is_own_verdict_) {
    stalled_calls_ = sampling_->Calls();
    AdoptVerdict();
  }
  sampling_.reset();
  const bool is_explained = ending_ || status_.phase() == v1::RANK_PHASE_FAILED;
  if (is_explained || !IsCrash(exit.signal) || options_.crash_report_folders.empty()) {
    return Settle();
  }
  crash_finder_ = std::make_unique<CrashReportFinder>(options_.crash_report_folders, program_,
                                                      status_.pid(), started_unix_ms_);
  crash_deadline_ = dispatcher_->Now() + options_.crash_report_limit;
  events_.died(WhyEnded(exit));
  LookForCrashReport();
}

void SupervisedRank::LookForCrashReport() {
  crash_ = crash_finder_->Look();
  if (crash_.has_value() || dispatcher_->Now() >= crash_deadline_) return Settle();
  After(kCrashReportInterval, [this] { LookForCrashReport(); });
}

void SupervisedRank::Settle() {
  const ProcessExit exit = *exit_;
  channel_.reset();
  process_.reset();
  if (status_.phase() == v1::RANK_PHASE_FAILED) {
    if (status_.failure().code().empty()) *status_.mutable_failure() = WhyEnded(exit);
  } else if (ending_) {
    status_.set_phase(v1::RANK_PHASE_STOPPED);
  } else {
    status_.set_phase(v1::RANK_PHASE_FAILED);
    *status_.mutable_failure() = WhyEnded(exit);
  }
  if (status_.has_failure()) {
    // What is said already is not said again as what the process wrote.
    const std::string last = LastLine(exit.last_lines);
    const bool is_said = last.size() == exit.last_lines.size() &&
                         absl::StrContains(last, status_.failure().message());
    status_.mutable_failure()->set_evidence(EvidenceOf(is_said ? "" : exit.last_lines));
    if (status_.failure().node_id().empty()) {
      status_.mutable_failure()->set_node_id(options_.node_id);
    }
  }
  status_.set_memory_bytes(0);
  status_.set_tokens_per_second(0);
  status_.set_requests_running(0);
  status_.set_requests_queued(0);
  const auto gone = events_.gone;  // outlives this, which it destroys
  gone();
}

// Begins with what the process wrote; the rest is short.
std::string SupervisedRank::EvidenceOf(const std::string& last_lines) const {
  std::vector<std::string> parts;
  if (!last_lines.empty()) parts.push_back(last_lines);
  if (crash_.has_value()) parts.push_back(crash_->report.Text());
  parts.insert(parts.end(), stalled_calls_.begin(), stalled_calls_.end());
  return Tail(absl::StrJoin(parts, "\n"));
}

void SupervisedRank::VerifyGroup(
    const v1::VerifyGroupRequest& request,
    std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) {
  channel_->Call(kRankVerifyGroup, request, kVerifyGroupLimit, std::move(done));
}

void SupervisedRank::Trace(const v1::TraceRankRequest& request,
                           std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) {
  channel_->Call(kRankTrace, request,
                 std::chrono::milliseconds(request.duration_ms()) + kTraceSlack, std::move(done));
}

transport::CallHandle SupervisedRank::Generate(const v1::GenerateRequest& request,
                                               std::function<void(v1::GenerateChunk)> on_chunk,
                                               std::function<void(absl::Status)> done) {
  return channel_->Stream(kRankGenerate, request, kGenerateLimit, std::move(on_chunk),
                          std::move(done), transport::HandOver::kChannelThread);
}

}  // namespace macrame::runtime
