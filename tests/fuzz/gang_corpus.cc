// Writes what ranks really say to each other as a corpus for gang_fuzz.cc: gang_corpus FOLDER

#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "runtime/gang/step_codec.h"
#include "tests/fuzz/gang_world.h"
#include "transport/collectives/peer_link.h"
#include "transport/gang/sealed_socket.h"

namespace macrame::tests {
namespace {

using namespace runtime::engine;

std::string folder;

void Write(const std::string& name, Reading reading, const std::string& bytes) {
  std::ofstream(folder + "/" + name + ".txt", std::ios::binary)
      << static_cast<char>(reading) << bytes;
}

void WriteSteps() {
  Step forward;
  forward.forward.closed_slots = {4};
  forward.forward.segments = {{3, 17, {1, 2, 300000}, LogitRows::kLast, {0, 9}, 6, 40000, 1},
                              {5, 0, {7}, LogitRows::kHiddenAll, {2}}};
  Write("forward", Reading::kStep, EncodeStep(forward));
  Step verify;
  verify.kind = StepKind::kVerify;
  verify.verify_rounds = 30;
  verify.verify_kib = {1, 8, 1024};
  Write("verify", Reading::kStep, EncodeStep(verify));
  Step cold;
  cold.kind = StepKind::kCold;
  ColdStore store;
  store.content.tokens.fill(300000);
  cold.cold.stores = {store};
  cold.cold.fills = {{5, {1, 2, 3}}, {6, {}}};
  cold.cold.drops = {BlockName{}};
  cold.cold.touches = {BlockName{}};
  cold.cold.loads = {{9, BlockName{}, 7, std::vector<int32_t>(64, 5)}};
  Write("cold", Reading::kStep, EncodeStep(cold));
  Write("failed", Reading::kReport, EncodeReport({ReportKind::kFailed, "why"}));
  Write("cold_loaded", Reading::kReport, EncodeReport({ReportKind::kColdLoaded, "", 4, 2}));
}

void WriteHandshake() {
  auto caller = Caller();
  auto listener = Listener();
  Write("hello", Reading::kHello, caller.hello());
  const std::string answer = listener.OnHello(caller.hello()).value();
  Write("answer", Reading::kAnswer, answer);
  Write("finish", Reading::kFinish, caller.OnAnswer(answer).value());
}

std::string AllThatCame(const transport::StreamSocket& socket) {
  std::string all;
  char byte = 0;
  while (socket.ReceiveBytes(&byte, 1).ok()) all.push_back(byte);
  return all;
}

void WriteSealed() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  {
    transport::SealedSocket socket(End(ends[0], /*is_sender=*/true));
    for (const std::string& text : Sent()) socket.SendFrame(text).IgnoreError();
  }
  Write("frames", Reading::kFrames, AllThatCame(transport::StreamSocket(ends[1])));
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  {
    transport::PeerLink link;
    link.Adopt(End(ends[0], /*is_sender=*/true));
    const std::vector<std::string> sent = Sent();
    for (const std::string& text : sent) link.QueueSend(std::as_bytes(std::span(text)));
    while (link.has_sends() && link.PumpSend().ok()) {
    }
  }
  Write("messages", Reading::kMessages, AllThatCame(transport::StreamSocket(ends[1])));
}

}  // namespace
}  // namespace macrame::tests

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  macrame::tests::folder = argv[1];
  std::filesystem::create_directories(argv[1]);
  macrame::tests::WriteSteps();
  macrame::tests::WriteHandshake();
  macrame::tests::WriteSealed();
  return 0;
}
