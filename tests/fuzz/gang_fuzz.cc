// What comes over the connections between ranks: steps and reports, the handshake, sealed frames
// and the group's messages. The first byte chooses which. Beyond "no fault": what was not sent is
// never received, and a step that is understood says the same when it is written anew.

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "runtime/gang/step_codec.h"
#include "tests/fuzz/gang_world.h"
#include "transport/collectives/peer_link.h"
#include "transport/gang/sealed_socket.h"

namespace macrame::tests {
namespace {

using runtime::engine::DecodeReport;
using runtime::engine::DecodeStep;

void Must(bool held) {
  if (!held) std::abort();
}

void ReadStep(std::string_view bytes) {
  const auto step = DecodeStep(bytes);
  if (!step.ok()) return;
  size_t tokens = 0;
  for (const auto& segment : step->forward.segments) tokens += segment.tokens.size();
  Must(tokens <= runtime::engine::kStepTokensMax);
  const auto again = DecodeStep(EncodeStep(*step));
  Must(again.ok() && *again == *step);
}

void ReadReport(std::string_view bytes) {
  const auto report = DecodeReport(bytes);
  if (!report.ok()) return;
  const auto again = DecodeReport(EncodeReport(*report));
  Must(again.ok() && *again == *report);
}

// One hello, answer and finish are right, and no other is.
void ShakeHands(Reading reading, const std::string& bytes) {
  auto caller = Caller();
  auto listener = Listener();
  const std::string answer = listener.OnHello(caller.hello()).value();
  const std::string finish = caller.OnAnswer(answer).value();
  if (reading == Reading::kHello) Must(Listener().OnHello(bytes).ok() == (bytes == caller.hello()));
  if (reading == Reading::kAnswer) Must(Caller().OnAnswer(bytes).ok() == (bytes == answer));
  if (reading == Reading::kFinish) Must(listener.OnFinish(bytes).ok() == (bytes == finish));
}

// A sealed end into which somebody puts `bytes`, and nothing more.
transport::GangConnection Given(std::string_view bytes) {
  int ends[2];
  Must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const transport::StreamSocket other(ends[1]);
  Must(other.SendBytes(bytes).ok());
  return End(ends[0], /*is_sender=*/false);
}

void ReadFrames(std::string_view bytes) {
  transport::SealedSocket socket(Given(bytes));
  for (const std::string& sent : Sent()) {
    const auto frame = socket.ReceiveFrame();
    if (!frame.ok()) return;
    Must(*frame == sent);
  }
  Must(!socket.ReceiveFrame().ok());
}

void ReadMessages(std::string_view bytes) {
  transport::PeerLink link;
  link.Adopt(Given(bytes));
  for (const std::string& sent : Sent()) {
    std::string got(sent.size(), ' ');
    link.QueueReceive(std::as_writable_bytes(std::span(got)));
    while (link.has_receives()) {
      const auto received = link.PumpReceive();
      if (!received.ok()) return;
    }
    Must(got == sent);
  }
}

}  // namespace
}  // namespace macrame::tests

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::tests;
  if (size < 1) return 0;
  const auto reading = static_cast<Reading>(data[0] % kReadings);
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (reading) {
    case Reading::kStep:
      ReadStep(bytes);
      break;
    case Reading::kReport:
      ReadReport(bytes);
      break;
    case Reading::kHello:
    case Reading::kAnswer:
    case Reading::kFinish:
      ShakeHands(reading, bytes);
      break;
    case Reading::kFrames:
      ReadFrames(bytes.substr(0, 64 << 10));
      break;
    case Reading::kMessages:
      ReadMessages(bytes.substr(0, 64 << 10));
      break;
  }
  return 0;
}
