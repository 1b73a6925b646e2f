// Stands in for rankd in tests of the supervisor. The model's name in the launch spec is the
// script:
//   ready     connects, loads, is ready, answers Generate with the words of the prompt
//   crash     writes a line to stderr and exits with code 7
//   bytes     writes 16 lines of two-byte letters to stderr, each after a bad byte, and exits with
//   code 7 segfault  ends itself by SIGSEGV failed    reports FAILED with MODEL_FILE_BROKEN, then
//   exits with code 65 silent    never serves anything mute      is ready, then reports nothing
//   more stubborn  is ready; ignores SIGTERM and does not stop when asked flood     writes 8 MiB to
//   stdout, one line to stderr, then crashes
//   stalled  is ready, then reports RANK_STALLED and exits with code 72
//   gpu-memory  says that its GPU has no memory left, as MLX does, and ends itself by SIGABRT
// All but stubborn exit when stdin ends.

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "macrame/v1/rank.pb.h"
#include "proto/rank_methods.h"
#include "proto/reasons.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_server.h"

namespace macrame::runtime {
namespace {

constexpr Duration kReportInterval = std::chrono::milliseconds(100);

class FakeRank {
 public:
  FakeRank(v1::LaunchSpec spec, transport::AsioDispatcher* dispatcher)
      : spec_(std::move(spec)),
        script_(spec_.model().name()),
        dispatcher_(dispatcher),
        server_(*dispatcher) {}

  void Serve() {
    server_.HandleStream(kRankWatch, [this](const transport::Caller&, const v1::WatchRequest&,
                                            transport::ServerStream stream) {
      watchers_.push_back(stream);
      Report();
    });
    server_.HandleStream(kRankGenerate,
                         [this](const transport::Caller&, const v1::GenerateRequest& request,
                                transport::ServerStream stream) { Answer(request, stream); });
    server_.HandleUnary(
        kRankVerifyGroup,
        [this](const transport::Caller&, const v1::VerifyGroupRequest& request, auto reply) {
          v1::VerifyGroupResponse response;
          response.set_group_size(2);
          if (request.rounds() > 1) reply(response);
          if (request.rounds() <= 1) verifying_.push_back(std::move(reply));  // takes for ever
        });
    server_.HandleUnary(kRankStop,
                        [this](const transport::Caller&, const v1::StopRequest&, auto reply) {
                          reply(v1::StopResponse());
                          if (script_ != "stubborn") {
                            dispatcher_->PostAfter(std::chrono::milliseconds(50), [] { _exit(0); });
                          }
                        });
    if (!server_.StartUnix(spec_.socket_path()).ok()) _exit(66);
    Step();
  }

 private:
  void Step() {
    if (phase_ < v1::RANK_PHASE_READY) phase_ = static_cast<v1::RankPhase>(phase_ + 1);
    if (script_ == "failed" && phase_ == v1::RANK_PHASE_LOADING) phase_ = v1::RANK_PHASE_FAILED;
    const bool stalls = script_ == "stalled" && phase_ == v1::RANK_PHASE_READY;
    if (stalls && !watchers_.empty() && reports_after_ready_++ > 0) phase_ = v1::RANK_PHASE_FAILED;
    if (script_ != "mute" || phase_ < v1::RANK_PHASE_READY || reports_after_ready_++ == 0) Report();
    if (phase_ == v1::RANK_PHASE_FAILED && script_ == "stalled") {
      dispatcher_->PostAfter(std::chrono::milliseconds(800), [] { _exit(72); });
      return;
    }
    if (phase_ == v1::RANK_PHASE_FAILED && !watchers_.empty()) {
      std::fputs("rankd: the file is broken\n", stderr);
      dispatcher_->PostAfter(std::chrono::milliseconds(200), [] { _exit(65); });
      return;
    }
    dispatcher_->PostAfter(kReportInterval, [this] { Step(); });
  }

  void Report() {
    v1::RankStatus status;
    status.set_deployment("someone else");  // the supervisor knows better
    status.set_phase(phase_);
    status.set_memory_bytes(1234);
    const char* synch = std::getenv("MLX_METAL_FAST_SYNCH");
    status.set_backend(synch == nullptr ? "unset" : synch);
    if (phase_ == v1::RANK_PHASE_FAILED) {
      *status.mutable_failure() =
          script_ == "stalled" ? MakeReason(reasons::kRankStalled, "rank 0 makes no progress")
                               : MakeReason("MODEL_FILE_BROKEN", "model.safetensors is cut short");
    }
    for (const auto& watcher : watchers_) watcher.Write(status);
  }

  void Answer(const v1::GenerateRequest& request, const transport::ServerStream& stream) {
    if (request.prompt() == "refuse") {
      stream.Finish(
          ReasonStatus(absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG", "too long"));
      return;
    }
    std::istringstream words(request.prompt());
    std::string word;
    while (words >> word) {
      v1::GenerateChunk chunk;
      chunk.set_text(word);
      stream.Write(chunk);
    }
    if (request.max_tokens() != 1) stream.Finish(absl::OkStatus());
    if (request.max_tokens() == 1) open_.push_back(stream);  // goes on until cancelled
  }

  const v1::LaunchSpec spec_;
  const std::string script_;
  transport::AsioDispatcher* const dispatcher_;
  transport::GrpcServer server_;
  std::vector<transport::ServerStream> watchers_;
  std::vector<transport::ServerStream> open_;
  std::vector<transport::GrpcServer::Reply<v1::VerifyGroupResponse>> verifying_;
  v1::RankPhase phase_ = v1::RANK_PHASE_UNSPECIFIED;
  int reports_after_ready_ = 0;
};

void Flood() {
  const std::string line(127, 'x');
  for (int i = 0; i < (8 << 20) / 128; ++i) std::puts(line.c_str());
  std::fflush(stdout);
}

void TellSockets(int argc, char** argv) {
  for (int i = 3; i + 1 < argc; i += 2) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const bool is_bound =
        getsockname(std::atoi(argv[i + 1]), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        reinterpret_cast<const sockaddr_in*>(&address)->sin_port != 0;
    std::fprintf(stderr, "%s is %s\n", argv[i], is_bound ? "bound" : "nothing");
  }
}

int Main(int argc, char** argv) {
  if (argc < 3) return 64;
  std::ifstream file(argv[2], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  v1::LaunchSpec spec;
  if (!spec.ParseFromString(bytes)) return 64;
  const std::string script = spec.model().name();
  if (script == "stubborn") signal(SIGTERM, SIG_IGN);
  if (script == "flood") Flood();
  if (script == "sockets") {
    TellSockets(argc, argv);
    return 7;
  }
  if (script == "crash" || script == "flood") {
    std::fputs("first line\nrankd: the ceiling fell down\n", stderr);
    return 7;
  }
  if (script == "model") {
    std::fputs(
        "rankd: rank 0 of model m: TOKENIZER_INVALID: /m/tokenizer.json: no such type. "
        "fetch tokenizer.json and tokenizer_config.json again\n",
        stderr);
    return 65;
  }
  if (script == "bytes") {
    for (int line = 0; line < 16; ++line) {
      std::string letters = "\xff";
      for (int i = 0; i < 250; ++i) letters += "\xc3\xa9";
      std::fputs((letters + "\n").c_str(), stderr);
    }
    return 7;
  }
  if (script == "gpu-memory") {
    std::fputs(
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] "
        "Command buffer execution failed: Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
        stderr);
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
  }
  if (script == "segfault") {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  std::thread([script] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    if (script != "stubborn") _exit(0);
  }).detach();
  transport::AsioDispatcher dispatcher;
  FakeRank rank(spec, &dispatcher);
  if (script != "silent") dispatcher.Post([&rank] { rank.Serve(); });
  dispatcher.PostAfter(std::chrono::minutes(2), [] { _exit(99); });
  dispatcher.Run();
  return 0;
}

}  // namespace
}  // namespace macrame::runtime

int main(int argc, char** argv) { return macrame::runtime::Main(argc, argv); }
