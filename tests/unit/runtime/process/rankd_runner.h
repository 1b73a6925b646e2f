#pragma once

// Starts real rankd processes for tests: launch specs on loopback, stdin pipes, stderr to files.

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.grpc.pb.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/supervisor/port_reservation.h"

namespace macrame::runtime::engine {

// One process. Killed and reaped at the end of its object.
class RankdProcess {
 public:
  // It inherits the sockets of `handed`.
  RankdProcess(const std::vector<std::string>& arguments, const std::string& log_path,
               const std::vector<PortReservation>& handed = {});
  ~RankdProcess();
  RankdProcess(const RankdProcess&) = delete;
  RankdProcess& operator=(const RankdProcess&) = delete;

  pid_t pid() const { return pid_; }
  void CloseStdin();
  void Signal(int signal) const;
  // The exit code, 128 + n for signal n, or -1 when it still runs after `limit`.
  int WaitForExit(std::chrono::milliseconds limit);
  std::string Log() const;

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int result_ = -1;
  std::string log_path_;
};

enum class GangShape { kPipeline, kTensor, kStagesOfTwo };

struct GangOptions {
  uint32_t step_timeout_ms = 30'000;
  uint32_t connect_timeout_ms = 20'000;
  uint32_t context_length = 512;
  uint32_t queued_requests_max = 0;
  uint32_t kv_bits = 0;
};

// Specs of all ranks of a gang over the layers of the model in `folder`. Their ports are reserved,
// until one Gang hands the sockets to its ranks.
std::vector<v1::LaunchSpec> MakeSpecs(const std::string& folder, GangShape shape, uint32_t ranks,
                                      const GangOptions& options = {});

class Gang {
 public:
  // `arguments`: further ones of each rank; may be empty.
  explicit Gang(const std::vector<v1::LaunchSpec>& specs,
                const std::vector<std::vector<std::string>>& arguments = {});
  // Prints what the ranks wrote where the test has failed.
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  // Waits until rank 0 is ready; false with the logs printed when a rank ends or `limit` passes.
  bool WaitUntilReady(std::chrono::milliseconds limit = std::chrono::seconds(60));
  size_t ranks() const { return processes_.size(); }
  RankdProcess& rank(size_t index) { return *processes_[index]; }
  v1::RankService::Stub& stub(size_t index = 0) { return *stubs_[index]; }

 private:
  void PrintLogs() const;

  std::vector<std::unique_ptr<RankdProcess>> processes_;
  std::vector<std::unique_ptr<v1::RankService::Stub>> stubs_;
};

// A model of these files under the bundled model's tokenizer, of 3,089 tokens.
std::string FolderWithText(std::map<std::string, std::string> files);

struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  v1::GenerateChunk first;
  v1::GenerateChunk last;
  grpc::Status status;
};
Answer Ask(v1::RankService::Stub& stub, const v1::GenerateRequest& request);
// One answer for each, in their order: asked all at once, or each behind the one before.
std::vector<Answer> AskAll(v1::RankService::Stub& stub,
                           const std::vector<v1::GenerateRequest>& requests, bool at_once);
// What a rank tells of itself now; empty when it does not answer.
v1::RankStatus StatusOf(v1::RankService::Stub& stub);
// Waits until each rank has so many KV blocks on disk; false when that takes too long.
bool AwaitOnDisk(Gang& gang, uint64_t blocks);
// Timed sums of these sizes over the gang; a failure's message is that of its reason.
absl::StatusOr<v1::VerifyGroupResponse> Verify(v1::RankService::Stub& stub,
                                               const std::vector<uint64_t>& sizes, uint32_t rounds);
// What a rank did meanwhile.
v1::TraceRankResponse TraceOf(v1::RankService::Stub& stub, uint32_t duration_ms,
                              grpc::Status* status);
// A greedy question through the chat template.
v1::GenerateRequest Question(const std::string& text, uint32_t max_tokens);

// The bundled model's folder, relative to the repository's root, where ctest runs.
inline constexpr char kBundledModel[] = "deploy/models/knot-5m-4bit";

}  // namespace macrame::runtime::engine
