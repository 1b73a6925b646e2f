#include "runtime/supervisor/stack_sampling.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "runtime/supervisor/stack_sample.h"
#include "transport/regular_file.h"

namespace macrame::runtime {

StackSampling::StackSampling(std::string path, std::function<void()> done)
    : path_(std::move(path)), done_(std::move(done)) {}

StackSampling::~StackSampling() { *alive_ = false; }

absl::StatusOr<std::unique_ptr<StackSampling>> StackSampling::Start(
    const std::vector<std::string>& sampler, pid_t pid, const std::string& path, Duration limit,
    transport::Dispatcher* dispatcher, std::function<void()> done) {
  if (sampler.empty()) return absl::NotFoundError("this system has no sampler");
  ProcessCommand command;
  command.arguments = sampler;
  // For a second; should the process end meanwhile, what was seen until then is printed.
  for (const std::string& argument : {std::to_string(pid), std::string("1"), std::string("-mayDie"),
                                      std::string("-file"), std::string("/dev/stdout")}) {
    command.arguments.push_back(argument);
  }
  command.environment = {"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"};
  command.log_path = path;
  command.log_bytes_max = kStackSampleBytesMax;
  command.full_log = FullLog::kTakesNoMore;
  unlink(path.c_str());
  std::unique_ptr<StackSampling> sampling(new StackSampling(path, std::move(done)));
  StackSampling* const self = sampling.get();
  auto process =
      ChildProcess::Start(command, dispatcher, [self](const ProcessExit&) { self->Finish(); });
  if (!process.ok()) return process.status();
  sampling->process_ = *std::move(process);
  dispatcher->PostAfter(limit, [self, alive = sampling->alive_] {
    if (!*alive) return;
    self->process_->Signal(SIGKILL);
    self->Finish();
  });
  return sampling;
}

void StackSampling::Finish() {
  // May destroy this.
  if (const auto done = std::exchange(done_, nullptr)) done();
}

std::vector<std::string> StackSampling::Calls() const {
  return TellingCalls(transport::ReadBeginning(path_, kStackSampleBytesMax).value_or(""));
}

}  // namespace macrame::runtime
