// rankd: one inference worker. Started by agentd for each rank of a model; see README.md.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/model/mlx/device_memory.h"
#include "runtime/process/describe_command.h"
#include "runtime/process/exit_codes.h"
#include "runtime/process/generate_command.h"
#include "runtime/process/import_command.h"
#include "runtime/process/keep_awake.h"
#include "runtime/process/memory_bound.h"
#include "runtime/process/rank_process.h"
#include "runtime/second_engine/worker_process.h"
#include "runtime/text/text_worker.h"
#include "transport/core_dumps.h"
#include "transport/gang/secret_bytes.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kSpecBytesMax = size_t{4} << 20;
// Beside its own count of what a text takes, which knows nothing of libraries in C.
constexpr uint64_t kTextWorkerMibMax = 4096;
// Steps, and whoever else uses the machine, go before texts that may take long.
constexpr int kTextWorkerNiceness = 10;
constexpr int kInheritedDescriptorsMax = 1024;

struct Options {
  std::string launch_spec;
  DescribeOptions describe;
  bool device_memory = false;
  gguf::ImportOptions import;
  bool generate = false;
  std::string model;
  std::string prompt;
  std::string chat;
  double temperature = 0.0;
  uint64_t seed = 0;
  uint32_t max_tokens = 64;
  uint32_t context = 0;
  GenerateOptions command;
  std::string device;
  std::string kv_type;
  bool wire_float32 = false;
  std::string python;
  BoundSockets bound;
  bool core_dumps = false;
  bool text_worker = false;
};

// A process whose agent dies without closing the pipe (it can't, but for bugs) still ends.
void DieWithParent() {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  signal(SIGPIPE, SIG_IGN);
}

int Usage(const std::string& message) {
  std::fprintf(stderr, "rankd: %s\n", message.c_str());
  return kExitUsage;
}

bool ReadSpec(const std::string& path, v1::LaunchSpec& spec) {
  auto bytes = transport::ReadFileOrPipe(path, kSpecBytesMax);
  if (!bytes.ok()) return false;
  const bool is_spec = !bytes->empty() && spec.ParseFromString(*bytes);
  transport::Wipe(*bytes);  // the gang's secret is in it
  return is_spec;
}

// The ring's threads may throw where nobody catches; the words are still worth having.
[[noreturn]] void OnUncaught() {
  std::string what = "an exception that is none of the standard ones";
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  std::fprintf(stderr, "rankd: INTERNAL: uncaught: %s\n", what.c_str());
  _exit(kExitInternal);
}

void AddFlags(CLI::App& app, Options& options) {
  app.add_option("--launch-spec", options.launch_spec,
                 "file with a macrame.v1.LaunchSpec: the whole of what a rank needs to know");
  app.add_option("--describe", options.describe.folder,
                 "write a macrame.v1.ModelFolderAnswer about the model in this folder, and end");
  app.add_flag("--device-memory", options.device_memory,
               "write how many bytes the GPU can keep resident for all processes, and end");
  app.add_option("--python", options.python,
                 "with --describe and --generate --model: a Python that has mlx-lm, for "
                 "architectures that rankd does not know (--describe: default, "
                 "MACRAME_MLX_LM_PYTHON, else the usual places)");
  app.add_option("--second-engine", options.describe.second_engine,
                 "with --describe: what an agent knows of mlx-lm, instead of asking a Python");
  app.add_option("--memory-mib", options.describe.memory_mib,
                 "with --describe: end when it takes more (default 1024)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20));
  app.add_option("--import", options.import.file,
                 "write the model in this GGUF file to a folder below --into, telling of it in "
                 "macrame.v1.ModelImportUpdate, and end");
  app.add_option("--into", options.import.into, "with --import: a folder of models");
  app.add_option("--name", options.import.name, "with --import: the model's name");
  app.add_option("--tokenizer", options.import.tokenizer_folder,
                 "with --import: take tokenizer.json from this folder");
  app.add_option("--ring-socket", options.bound.ring,
                 "with --launch-spec: an open descriptor, bound to this rank's own ring address");
  app.add_option("--step-socket", options.bound.step,
                 "with --launch-spec: an open descriptor, bound to rank 0's step address");
  app.add_flag("--text-worker", options.text_worker,
               "do a rank's work on texts that may take long; stdin is its socket");
  app.add_flag("--core-dumps", options.core_dumps,
               "debugging: let the system keep this process's memory when it crashes");
  app.add_flag("--generate", options.generate,
               "debugging: answer one prompt on the terminal instead of serving");
  app.add_option("--model", options.model, "with --generate: the model's folder, on one rank");
  app.add_option("--prompt", options.prompt, "with --generate: a prompt as it is");
  app.add_option("--chat", options.chat, "with --generate: a user's message, through the template");
  app.add_option("--prompt-tokens", options.command.prompt_tokens,
                 "with --generate: token ids instead of text, separated by commas")
      ->delimiter(',');
  app.add_option("--max-tokens", options.max_tokens, "with --generate: at most so many");
  app.add_option("--temperature", options.temperature, "with --generate: 0 is greedy");
  app.add_option("--seed", options.seed, "with --generate: of sampling");
  app.add_option("--context", options.context, "with --generate --model: positions");
  app.add_option("--logits", options.command.logits_file,
                 "with --generate: write float32 logits of every position here, greedily");
  app.add_option("--embedding", options.command.embedding_file,
                 "with --generate: write the prompt's embedding here, in float32");
  app.add_option("--prefill-chunk", options.command.prefill_chunk_tokens,
                 "with --generate: tokens of the prompt in one step");
  app.add_option("--device", options.device,
                 "debugging: compute with our CPU kernels, the GPU's graph on MLX's CPU device, or "
                 "the GPU (default: the GPU where there is one)")
      ->check(CLI::IsMember({"cpu", "mlx-cpu", "gpu"}));
  app.add_option("--kv-type", options.kv_type,
                 "debugging, on a CPU: keep keys and values in float32, float16 or int8")
      ->check(CLI::IsMember({"float32", "float16", "int8"}));
  app.add_flag("--wire-float32", options.wire_float32,
               "debugging: rank 0 has all ranks hand each other float32, whatever type the model "
               "has");
  app.add_flag("--json", options.command.json, "with --generate: print one JSON object");
}

EngineOverrides TypesOf(const Options& options) {
  EngineOverrides types;
  if (options.device == "cpu") types.device = EngineDevice::kCpu;
  if (options.device == "mlx-cpu") types.device = EngineDevice::kMlxCpu;
  if (options.device == "gpu") types.device = EngineDevice::kGpu;
  if (options.kv_type == "float32") types.kv = kernels::KvType::kFloat32;
  if (options.kv_type == "float16") types.kv = kernels::KvType::kFloat16;
  if (options.kv_type == "int8") types.kv = kernels::KvType::kInt8;
  if (options.wire_float32) types.wire = WireType::kFloat32;
  return types;
}

// For agents, which have no MLX (agentd/node/rankd_device_probe.h). 0: MLX does not report it.
int WriteDeviceMemory(const EngineOverrides& types) {
  const auto memory = MakeDeviceMemory(ChooseDevice(types.device));
  const uint64_t bytes = memory->WorkingSetBytes().value_or(0);
  std::printf("working_set_bytes %llu\n", static_cast<unsigned long long>(bytes));
  return kExitOrderly;
}

int Generate(Options& options) {
  GenerateOptions& command = options.command;
  command.types = TypesOf(options);
  if (!options.launch_spec.empty()) {
    if (!ReadSpec(options.launch_spec, command.spec)) {
      return Usage(options.launch_spec + " holds no launch spec");
    }
    command.bound = options.bound;
  } else {
    if (options.model.empty()) return Usage("--generate needs --model or --launch-spec");
    command.spec.set_world_size(1);
    command.spec.set_tp(1);
    command.spec.set_pp(1);
    command.spec.set_context_length(options.context);
    command.spec.mutable_model()->set_path(options.model);
    command.spec.set_python(options.python);
    if (!options.python.empty()) command.spec.mutable_model()->set_engine(kMlxLmEngine);
  }
  v1::GenerateRequest& request = command.request;
  if (!options.chat.empty()) {
    request.set_plain_text(true);
    auto* message = request.add_messages();
    message->set_role("user");
    message->set_content(options.chat);
  }
  request.set_prompt(options.prompt);
  request.set_max_tokens(options.max_tokens);
  request.mutable_sampling()->set_temperature(options.temperature);
  request.mutable_sampling()->set_seed(options.seed);
  const int code = RunGenerateCommand(command);
  std::fflush(stdout);
  return code;
}

// The rank's own descriptors that a system may have handed down.
void CloseInherited() {
  for (int fd = STDERR_FILENO + 1; fd < kInheritedDescriptorsMax; ++fd) close(fd);
}

// A rank serves all the same where that fails.
void KeepMacAwake() {
#ifdef __APPLE__
  if (const absl::Status status = KeepAwakeWhileRunning(kCaffeinate); !status.ok()) {
    std::fprintf(stderr, "rankd: this Mac may go to sleep beside a rank: %s\n",
                 std::string(status.message()).c_str());
  }
#endif
}

int ServeTexts() {
  CloseInherited();
  BoundMemory(kTextWorkerMibMax, "a text");
  setpriority(PRIO_PROCESS, 0, kTextWorkerNiceness);  // best effort
  text::RunTextWorker();
  return kExitOrderly;
}

int Main(int argc, char** argv) {
  std::set_terminate(OnUncaught);
  CLI::App app("Macrame's inference worker. Started by agentd; by hand only for debugging.");
  Options options;
  AddFlags(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(kExitUsage);
  }
  signal(SIGPIPE, SIG_IGN);
  if (!options.core_dumps) transport::TurnOffCoreDumps();
  if (options.text_worker) return ServeTexts();
  if (!options.describe.folder.empty()) {
    options.describe.python = options.python;
    return RunDescribeCommand(options.describe);
  }
  if (options.device_memory) return WriteDeviceMemory(TypesOf(options));
  if (!options.import.file.empty()) {
    if (options.import.into.empty()) return Usage("--import needs --into");
    return RunImportCommand(options.import);
  }
  if (const absl::Status status = text::UseTextWorkers(); !status.ok()) {
    return Usage(std::string(status.message()));
  }
  if (options.generate) return Generate(options);
  if (options.launch_spec.empty()) return Usage("--launch-spec is missing; see --help");
  DieWithParent();
  v1::LaunchSpec spec;
  if (!ReadSpec(options.launch_spec, spec)) {
    return Usage(options.launch_spec + " holds no launch spec");
  }
  if (spec.socket_path().empty()) return Usage("the launch spec names no socket");
  KeepMacAwake();
  RankProcess process(std::move(spec), options.bound, TypesOf(options));
  return process.Run();
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int argc, char** argv) {
  const int code = macrame::runtime::engine::Main(argc, argv);
  std::fflush(stdout);
  // MLX's and gRPC's threads may still run; destructors of static objects must not meet them.
  _exit(code);
}
