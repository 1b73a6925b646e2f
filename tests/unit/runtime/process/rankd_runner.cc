#include "tests/unit/runtime/process/rankd_runner.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "proto/check.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/families/config_file.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// By address, for the ranks that will be started: as an agent does, so that no port is free for
// another program in between.
std::map<std::string, PortReservation>& Reservations() {
  static std::map<std::string, PortReservation> reservations;
  return reservations;
}

std::string Reserve() {
  auto reservation = PortReservation::Bind("127.0.0.1");
  MACRAME_CHECK(reservation.ok()) << reservation.status();
  const std::string address = reservation->address();
  Reservations()[address] = *std::move(reservation);
  return address;
}

// Hands the socket on, where there is one.
void HandOn(const std::string& address, const char* option, std::vector<std::string>& command,
            std::vector<PortReservation>& handed) {
  auto node = Reservations().extract(address);
  if (node.empty()) return;
  command.insert(command.end(), {option, std::to_string(node.mapped().fd())});
  handed.push_back(std::move(node.mapped()));
}

}  // namespace

RankdProcess::RankdProcess(const std::vector<std::string>& arguments, const std::string& log_path,
                           const std::vector<PortReservation>& handed)
    : log_path_(log_path) {
  int pipe_ends[2];
  MACRAME_CHECK(pipe(pipe_ends) == 0) << "pipe";
  // A later process must not hold this one's stdin open.
  fcntl(pipe_ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(pipe_ends[1], F_SETFD, FD_CLOEXEC);
  std::vector<char*> argv;
  std::string program = MACRAME_RANKD;
  argv.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& copy : copies) argv.push_back(copy.data());
  argv.push_back(nullptr);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(pipe_ends[0], STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    for (const PortReservation& port : handed) fcntl(port.fd(), F_SETFD, 0);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(log);
  close(pipe_ends[0]);
  stdin_ = pipe_ends[1];
}

RankdProcess::~RankdProcess() {
  if (result_ < 0) {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    WaitForExit(milliseconds(5000));
  }
  CloseStdin();
}

void RankdProcess::CloseStdin() {
  if (stdin_ >= 0) close(stdin_);
  stdin_ = -1;
}

void RankdProcess::Signal(int signal) const { kill(pid_, signal); }

int RankdProcess::WaitForExit(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (result_ < 0) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      result_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (steady_clock::now() > end) {
      return -1;
    } else {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  return result_;
}

std::string RankdProcess::Log() const {
  std::ifstream file(log_path_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<v1::LaunchSpec> MakeSpecs(const std::string& folder, GangShape shape, uint32_t ranks,
                                      const GangOptions& options) {
  const auto config = LoadModelConfig(folder);
  MACRAME_CHECK(config.ok()) << config.status().ToString();
  const auto layers = static_cast<uint32_t>(config->layer_count);
  const uint32_t tp = shape == GangShape::kPipeline ? 1 : shape == GangShape::kTensor ? ranks : 2;
  const uint32_t pp = ranks / tp;
  const std::string scratch = FreshFolder();
  std::vector<std::string> ring;
  for (uint32_t rank = 0; rank < ranks; ++rank) ring.push_back(Reserve());
  const std::string step_address = Reserve();
  std::vector<v1::LaunchSpec> specs(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    v1::LaunchSpec& spec = specs[rank];
    spec.set_deployment("test-model");
    spec.set_epoch(7);
    spec.set_rank(rank);
    spec.set_world_size(ranks);
    spec.set_tp(tp);
    spec.set_pp(pp);
    spec.set_backend(ranks == 1 ? "single" : "ring");
    spec.mutable_model()->set_path(folder);
    v1::Assignment& part = *spec.mutable_assignment();
    part.set_rank(rank);
    part.set_node_id("node-" + std::to_string(rank));
    part.set_stage(rank / tp);
    part.set_tp_rank(rank % tp);
    part.set_layer_begin(layers * part.stage() / pp);
    part.set_layer_end(layers * (part.stage() + 1) / pp);
    for (const std::string& address : ring) spec.add_ring_addresses(address);
    spec.set_step_address(step_address);
    spec.set_gang_secret(std::string(32, 's'));
    spec.set_context_length(options.context_length);
    spec.set_socket_path(scratch + "/rank" + std::to_string(rank) + ".sock");
    spec.set_step_timeout_ms(options.step_timeout_ms);
    spec.set_connect_timeout_ms(options.connect_timeout_ms);
    spec.set_queued_requests_max(options.queued_requests_max);
    spec.set_kv_bits(options.kv_bits);
  }
  return specs;
}

Gang::Gang(const std::vector<v1::LaunchSpec>& specs,
           const std::vector<std::vector<std::string>>& arguments) {
  for (const v1::LaunchSpec& spec : specs) {
    const std::string base = spec.socket_path();
    std::ofstream(base + ".spec", std::ios::binary) << spec.SerializeAsString();
    std::vector<std::string> command{"--launch-spec", base + ".spec"};
    if (processes_.size() < arguments.size()) {
      const std::vector<std::string>& more = arguments[processes_.size()];
      command.insert(command.end(), more.begin(), more.end());
    }
    std::vector<PortReservation> handed;
    HandOn(spec.ring_addresses(static_cast<int>(spec.rank())), "--ring-socket", command, handed);
    if (spec.rank() == 0) HandOn(spec.step_address(), "--step-socket", command, handed);
    processes_.push_back(std::make_unique<RankdProcess>(command, base + ".log", handed));
    // The socket is not there yet: try again soon.
    grpc::ChannelArguments channel;
    channel.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    channel.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    channel.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    stubs_.push_back(v1::RankService::NewStub(
        grpc::CreateCustomChannel("unix:" + base, grpc::InsecureChannelCredentials(), channel)));
  }
}

bool Gang::WaitUntilReady(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (steady_clock::now() < end) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    context.set_wait_for_ready(true);
    const auto reader = stub().Watch(&context, v1::WatchRequest());
    v1::RankStatus status;
    while (reader->Read(&status) && status.phase() != v1::RANK_PHASE_FAILED) {
      if (status.phase() == v1::RANK_PHASE_READY) return true;
    }
    if (rank(0).WaitForExit(milliseconds(50)) >= 0) break;
  }
  PrintLogs();
  return false;
}

Gang::~Gang() {
  if (::testing::Test::HasFailure()) PrintLogs();
}

void Gang::PrintLogs() const {
  for (const auto& process : processes_) std::fprintf(stderr, "%s\n", process->Log().c_str());
}

std::string FolderWithText(std::map<std::string, std::string> files) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    std::ifstream file(std::string(kBundledModel) + "/" + name, std::ios::binary);
    files[name] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return WriteFolder(files);
}

Answer Ask(v1::RankService::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(90));
  const auto reader = stub.Generate(&context, request);
  Answer answer;
  v1::GenerateChunk chunk;
  bool first = true;
  while (reader->Read(&chunk)) {
    if (first) answer.first = chunk;
    first = false;
    answer.tokens.insert(answer.tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    answer.text += chunk.text();
    answer.last = chunk;
  }
  answer.status = reader->Finish();
  return answer;
}

std::vector<Answer> AskAll(v1::RankService::Stub& stub,
                           const std::vector<v1::GenerateRequest>& requests, bool at_once) {
  std::vector<Answer> answers(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto ask = [&, i] { answers[i] = Ask(stub, requests[i]); };
    at_once ? void(threads.emplace_back(ask)) : ask();
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

v1::RankStatus StatusOf(v1::RankService::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto reader = stub.Watch(&context, v1::WatchRequest());
  v1::RankStatus status;
  reader->Read(&status);
  context.TryCancel();
  return status;
}

bool AwaitOnDisk(Gang& gang, uint64_t blocks) {
  const auto end = steady_clock::now() + std::chrono::seconds(120);
  for (size_t rank = 0; rank < gang.ranks();) {
    if (StatusOf(gang.stub(rank)).kv_cache_disk().blocks() >= blocks) {
      ++rank;
    } else if (steady_clock::now() > end) {
      return false;
    } else {
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  return true;
}

absl::StatusOr<v1::VerifyGroupResponse> Verify(v1::RankService::Stub& stub,
                                               const std::vector<uint64_t>& sizes,
                                               uint32_t rounds) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(90));
  v1::VerifyGroupRequest request;
  for (const uint64_t size : sizes) request.add_sizes_bytes(size);
  request.set_rounds(rounds);
  v1::VerifyGroupResponse response;
  const grpc::Status status = stub.VerifyGroup(&context, request, &response);
  if (status.ok()) return response;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

v1::GenerateRequest Question(const std::string& text, uint32_t max_tokens) {
  v1::GenerateRequest request;
  auto* message = request.add_messages();
  message->set_role("user");
  message->set_content(text);
  request.set_max_tokens(max_tokens);
  request.mutable_sampling()->set_temperature(0.0);
  return request;
}

v1::TraceRankResponse TraceOf(v1::RankService::Stub& stub, uint32_t duration_ms,
                              grpc::Status* status) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1::TraceRankRequest request;
  request.set_duration_ms(duration_ms);
  v1::TraceRankResponse response;
  *status = stub.Trace(&context, request, &response);
  return response;
}

}  // namespace macrame::runtime::engine
