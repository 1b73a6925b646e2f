#include "runtime/process/import_command.h"

#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>
#include <unistd.h>

#include <csignal>

#include "proto/reasons.h"
#include "runtime/process/exit_codes.h"

namespace macrame::runtime::engine {
namespace {

volatile std::sig_atomic_t g_stopped = 0;

bool Tell(const v1::ModelImportUpdate& update) {
  return google::protobuf::util::SerializeDelimitedToFileDescriptor(update, STDOUT_FILENO);
}

}  // namespace

int RunImportCommand(const gguf::ImportOptions& options) {
  // Ctrl-C reaches every process of the terminal: whoever reads the updates decides.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, [](int) { g_stopped = 1; });
  auto result = gguf::ImportModel(options, [](uint64_t done, uint64_t all) {
    v1::ModelImportUpdate update;
    update.mutable_progress()->set_bytes_done(done);
    update.mutable_progress()->set_bytes_all(all);
    return g_stopped == 0 && Tell(update);
  });
  v1::ModelImportUpdate last;
  if (result.ok()) {
    *last.mutable_result() = *std::move(result);
  } else {
    *last.mutable_failure() = ReasonOf(result.status());
  }
  return Tell(last) ? kExitOrderly : kExitInternal;
}

}  // namespace macrame::runtime::engine
