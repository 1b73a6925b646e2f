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
#include "proto/backends.h"
#include "proto/ids.h"
#include "proto/memory_need.h"
#include "proto/rank_methods.h"
#include "proto/reasons.h"
#include "runtime/diagnosis/rank_messages.h"
#include "runtime/process/exit_codes.h"
#include "runtime/supervisor/launch_environment.h"
#include "runtime/supervisor/process_identity.h"
#include "transport/gang/secret_bytes.h"
#include "transport/grpc_channel.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

extern char** environ;

namespace macrame::runtime {
namespace {

constexpr Duration kWatchLimit = std::chrono::hours(24);   // then watched anew
constexpr Duration kTraceSlack = std::chrono::seconds(5);  // beyond the trace's own duration
constexpr Duration kVerifyGroupLimit = std::chrono::seconds(70);
constexpr Duration kGenerateLimit = std::chrono::hours(2);  // of one answer
constexpr Duration kWatchRetry = std::chrono::milliseconds(100);
constexpr Duration kSilenceCheckInterval = std::chrono::seconds(1);
// A check that comes later than this was held up with everything else of this process: the rank may
// have reported, and nobody was there to hear it.
constexpr Duration kLatenessTolerated = std::chrono::milliseconds(500);
constexpr size_t kLastLinesBytesMax = 4096;

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
  if (!running()) return;
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
  if (!running() || status_.phase() == v1::RANK_PHASE_FAILED) return;
  last_report_ = dispatcher_->Now();
  // It has been read, and the gang's secret is in it.
  if (!reported_) unlink(paths_.spec.c_str());
  reported_ = true;
  const v1::RankStatus before = status_;
  status_ = report;
  // Who it is and that it is being ended is known better here.
  status_.set_deployment(key_.deployment);
  status_.set_epoch(key_.epoch);
  status_.set_rank(key_.rank);
  status_.set_node_id(options_.node_id);
  status_.set_pid(before.pid());
  status_.set_fast_synch_by_default(fast_synch_by_default_);
  if (ending_) status_.set_phase(v1::RANK_PHASE_STOPPING);
  if (!std::isfinite(status_.progress())) status_.set_progress(0);
  const bool moved = std::floor(status_.progress() * 100) != std::floor(before.progress() * 100);
  if (status_.phase() == v1::RANK_PHASE_FAILED) {
    // It says so itself and is about to exit; if it doesn't, it is made to.
    ScheduleSignal(options_.term_grace, SIGKILL);
  }
  if (status_.phase() != before.phase() || moved) events_.changed();
}

void SupervisedRank::ScheduleSilenceCheck() {
  const MonotonicTime due = dispatcher_->Now() + kSilenceCheckInterval;
  After(kSilenceCheckInterval, [this, due] { CheckSilence(due); });
}

void SupervisedRank::CheckSilence(MonotonicTime due) {
  if (!running() || ending_ || status_.phase() == v1::RANK_PHASE_FAILED) return;
  const MonotonicTime now = dispatcher_->Now();
  if (now - due > kLatenessTolerated) last_report_ += now - due;
  const Duration limit = reported_ ? options_.silence_limit : options_.first_report_limit;
  if (now - last_report_ <= limit) {
    ScheduleSilenceCheck();
    return;
  }
  status_.set_phase(v1::RANK_PHASE_FAILED);
  *status_.mutable_failure() =
      MakeReason(reasons::kRankStalled,
                 absl::StrCat(Name(), reported_ ? " said nothing for " : " did not report within ",
                              Seconds(limit), " s and was killed"),
                 options_.node_id);
  process_->Signal(SIGKILL);
  events_.changed();
}

void SupervisedRank::End(const std::string& why, bool at_once) {
  if (!running()) return;
  if (at_once) process_->Signal(SIGKILL);
  if (ending_) return;
  ending_ = true;
  why_ending_ = why;
  if (status_.phase() == v1::RANK_PHASE_FAILED) {
    process_->Signal(SIGKILL);
    return;
  }
  status_.set_phase(v1::RANK_PHASE_STOPPING);
  if (at_once) return events_.changed();
  v1::StopRequest request;
  request.set_grace_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.stop_grace).count()));
  channel_->Call(kRankStop, request, options_.stop_grace,
                 [this](const absl::StatusOr<v1::StopResponse>& response) {
                   // Nobody serves (yet): no use in waiting.
                   if (!response.ok() && running()) process_->Signal(SIGTERM);
                 });
  ScheduleSignal(options_.stop_grace, SIGTERM);
  ScheduleSignal(options_.stop_grace + options_.term_grace, SIGKILL);
  events_.changed();
}

void SupervisedRank::ScheduleSignal(Duration delay, int signal) {
  After(delay, [this, signal] {
    if (running()) process_->Signal(signal);
  });
}

v1::Reason SupervisedRank::WhyEnded(const ProcessExit& exit) const {
  if (auto fault = FaultOfModel(exit, options_.node_id)) return *std::move(fault);
  // The code stays what became of the process; what its GPU said goes into the words.
  const auto said = RecogniseLastLines(exit.last_lines);
  const bool is_gpu = said.has_value() && said->phase == kGpuFaultPhase;
  v1::Reason why = WhyGone(exit, is_gpu ? said->reason.message() : "");
  if (is_gpu) why.set_remedy(said->reason.remedy());
  return why;
}

v1::Reason SupervisedRank::WhyGone(const ProcessExit& exit, const std::string& gpu_fault) const {
  std::string words = LastLine(exit.last_lines);
  if (!words.empty()) words = absl::StrCat("; its last lines: ", words);
  if (!gpu_fault.empty()) words = absl::StrCat(": ", gpu_fault, words);
  if (exit.signal == 0) {
    return MakeReason(reasons::kRankExited,
                      absl::StrCat(Name(), " exited with code ", exit.code, words),
                      options_.node_id);
  }
  std::string guess;
  if (exit.signal == SIGKILL && gpu_fault.empty())
    guess = ", perhaps by the system because memory ran out";
  return MakeReason(reasons::kRankKilled,
                    absl::StrCat(Name(), " was ended by ", SignalName(exit.signal), guess, words),
                    options_.node_id);
}

void SupervisedRank::Exited(const ProcessExit& exit) {
  channel_.reset();
  process_.reset();
  files_.Remove(paths_);
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
    status_.mutable_failure()->set_evidence(is_said ? "" : Tail(exit.last_lines));
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
