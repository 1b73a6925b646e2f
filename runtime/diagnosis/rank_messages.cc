#include "runtime/diagnosis/rank_messages.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::runtime {
namespace {

constexpr size_t kEvidenceBytesMax = 300;
constexpr size_t kLinesMax = 2000;

// macOS's numbers: the messages come from there, whatever machine reads them.
constexpr int kErrnoNoEntry = 2, kErrnoBusy = 16, kErrnoInvalid = 22, kErrnoAddressInUse = 48,
              kErrnoNoAddress = 49, kErrnoNetDown = 50, kErrnoNetUnreachable = 51,
              kErrnoTimedOut = 60, kErrnoRefused = 61, kErrnoHostDown = 64,
              kErrnoNoRouteToHost = 65, kErrnoNoData = 96;

// Where MLX crashes on a connection whose other end is gone.
constexpr absl::string_view kPostReceive = "tbt_post_recv";
constexpr absl::string_view kGpuPhase{kGpuFaultPhase.data(), kGpuFaultPhase.size()};

struct Known {
  absl::string_view part;  // of the message, as it is printed
  absl::string_view code;
  absl::string_view means;  // our words
  absl::string_view phase;
  bool is_symptom = false;        // a probe or another rank may know the cause
  absl::string_view remedy = "";  // where the code's own is not the next step
};

constexpr absl::string_view kGpuTimeoutRemedy =
    "the rank is launched again; if it comes back, end other programs that use the GPU and load "
    "with fewer sequences; over several ranks set 'metal_fast_synch: off'";
constexpr absl::string_view kGpuMemoryRemedy =
    "load with a smaller context or fewer sequences, or on more nodes; end other programs on that "
    "machine; a raised iogpu.wired_limit_mb is lost when it restarts";
constexpr absl::string_view kGpuResetRemedy =
    "the rank is launched again; if it comes back, restart that machine and look for another "
    "program that uses its GPU";
constexpr absl::string_view kGpuIgnoredRemedy =
    "only a new process is heard again: the rank is launched again; if it comes back, end other "
    "programs that use that GPU, else restart that machine";
constexpr absl::string_view kGpuSystemRemedy =
    "update macOS on that machine: this release's MLX is built for a newer one";
constexpr absl::string_view kFenceRemedy =
    "set 'metal_fast_synch: off' on the nodes of this model, and load it again";

// More telling parts first: the first that is found counts.
constexpr std::array kKnown = {
    // A protection domain, queue or region: what a device gives only so many of.
    Known{"Couldn't allocate protection domain", reasons::kPortDown,
          "the RDMA device gave no protection domain: its port is down, it is another cable's, or "
          "its few are leaked",
          "queue_pair", true},
    Known{"Couldn't create completion queue", reasons::kResourceExhausted,
          "the RDMA device has no completion queue left", "queue_pair"},
    Known{"Creating the queue pair failed", reasons::kResourceExhausted,
          "the RDMA device has no queue pair left", "queue_pair"},
    Known{"Couldn't create queue pair", reasons::kResourceExhausted,
          "the RDMA device has no queue pair left", "queue_pair"},
    Known{"Register memory region failed", reasons::kResourceExhausted,
          "the RDMA device registers no more memory", "queue_pair"},
    Known{"can be registered once per protection domain", reasons::kMlxInternal,
          "a buffer was registered twice", "queue_pair"},
    Known{"No IPv4-mapped GID", reasons::kNoIpv4Gid, "the RDMA device has no IPv4-mapped GID",
          "queue_pair"},
    Known{"queue pair to INIT failed", reasons::kPortDown, "the queue pair can't be initialised",
          "queue_pair", true},
    Known{"queue pair to RTR failed", reasons::kNoIpv4Gid,
          "the queue pair can't be connected to the peer's", "queue_pair", true},
    Known{"queue pair to RTS failed", reasons::kResourceExhausted,
          "the queue pair can't begin to send", "queue_pair", true},
    Known{"Could not open device", reasons::kPortDown, "the RDMA device can't be opened",
          "queue_pair", true},
    Known{"Could not find device", reasons::kNoRdmaDevice,
          "the device matrix names a device that this machine does not have", "queue_pair"},
    Known{"ibv_reg_mr_iova2", reasons::kNoRdmaDevice,
          "MLX crashed on a device that is not there (before 0.32.1)", "queue_pair"},
    Known{kPostReceive, reasons::kPeerLost,
          "MLX crashed as it received over a connection that was broken: another rank ended first",
          "run", true,
          "'clusterctl events' tells which rank ended first, and why; if the next launch fails at "
          "a queue pair, restart both machines"},
    Known{"KERN_INVALID_ADDRESS at 0x0000000000000000", reasons::kNoRdmaDevice,
          "MLX crashed on a device that is not there (before 0.32.1)", "queue_pair"},
    // The GPU.
    Known{"kIOGPUCommandBufferCallbackErrorTimeout", reasons::kRankStalled,
          "macOS ended a command of the GPU that took too long", kGpuPhase, false,
          kGpuTimeoutRemedy},
    Known{"Caused GPU Timeout Error", reasons::kRankStalled,
          "macOS ended a command of the GPU that took too long", kGpuPhase, false,
          kGpuTimeoutRemedy},
    Known{"kIOGPUCommandBufferCallbackErrorOutOfMemory", reasons::kMemoryShort,
          "the GPU had no memory left", kGpuPhase, false, kGpuMemoryRemedy},
    Known{"execution failed: Insufficient Memory", reasons::kMemoryShort,
          "the GPU had no memory left", kGpuPhase, false, kGpuMemoryRemedy},
    Known{"greater than the maximum allowed buffer size", reasons::kMemoryShort,
          "one buffer would be larger than the GPU takes", kGpuPhase, false, kGpuMemoryRemedy},
    Known{"[metal::malloc]", reasons::kMemoryShort, "the GPU gave no more memory", kGpuPhase, false,
          kGpuMemoryRemedy},
    Known{"[malloc_or_wait]", reasons::kMemoryShort, "the GPU gave no more memory", kGpuPhase,
          false, kGpuMemoryRemedy},
    // The first names the culprit; the others were under way beside it.
    Known{"kIOGPUCommandBufferCallbackErrorHang", reasons::kRankStalled,
          "the GPU hung, and macOS reset it", kGpuPhase, false, kGpuResetRemedy},
    Known{"kIOGPUCommandBufferCallbackErrorPageFault", reasons::kMlxInternal,
          "a command of the GPU used memory that is not its own", kGpuPhase, false,
          kGpuResetRemedy},
    Known{"kIOGPUCommandBufferCallbackErrorInnocentVictim", reasons::kRankStalled,
          "macOS reset the GPU because of another program or rank", kGpuPhase, true,
          kGpuResetRemedy},
    Known{"kIOGPUCommandBufferCallbackErrorSubmissionsIgnored", reasons::kRankStalled,
          "macOS takes no more commands for the GPU after earlier errors", kGpuPhase, true,
          kGpuIgnoredRemedy},
    Known{"Ignored (for causing prior/excessive GPU errors)", reasons::kRankStalled,
          "macOS takes no more commands for the GPU after earlier errors", kGpuPhase, true,
          kGpuIgnoredRemedy},
    Known{"which is not supported on this OS", reasons::kMlxBuild,
          "MLX's GPU kernels are for a newer macOS than this one", kGpuPhase, false,
          kGpuSystemRemedy},
    Known{"Failed to load the metallib", reasons::kMlxBuild,
          "MLX's GPU kernels can't be loaded on this macOS", kGpuPhase, false, kGpuSystemRemedy},
    Known{"Failed to load the default metallib", reasons::kMlxBuild,
          "MLX's GPU kernels can't be loaded on this macOS", kGpuPhase, false, kGpuSystemRemedy},
    Known{"[metal::Device] Unable to load", reasons::kMlxBuild,
          "a GPU kernel of MLX can't be loaded on this macOS", kGpuPhase, false, kGpuSystemRemedy},
    Known{"Command buffer execution failed", reasons::kMlxInternal, "a command of the GPU failed",
          kGpuPhase, false, kGpuResetRemedy},
    // Of MLX_METAL_FAST_SYNCH=1, known to hang (mlx issues 3142 and 3830).
    Known{"Fence::wait", reasons::kRankStalled,
          "MLX waited for the GPU in its fast way of synchronising, which may hang", kGpuPhase,
          true, kFenceRemedy},
    // Meeting at rank 0.
    Known{"[jaccl] Couldn't connect", reasons::kCoordinator,
          "rank 0's rendezvous address can't be reached", "rendezvous", true},
    Known{"[jaccl] Connection attempt", reasons::kCoordinator,
          "rank 0's rendezvous does not answer yet", "rendezvous", true},
    Known{"[jaccl] Couldn't bind socket", reasons::kCoordinator,
          "rank 0 can't listen at the rendezvous address", "rendezvous"},
    Known{"[jaccl] Couldn't listen", reasons::kCoordinator, "rank 0 can't listen", "rendezvous"},
    Known{"[jaccl] Accept failed", reasons::kCoordinator, "rank 0 can't take a connection",
          "rendezvous"},
    Known{"[jaccl] Couldn't create socket", reasons::kCoordinator, "no socket could be made",
          "rendezvous"},
    Known{"[jaccl] Couldn't enable reuse", reasons::kCoordinator, "a socket can't be set up",
          "rendezvous"},
    Known{"[jaccl] Send failed with err", reasons::kPeerLost, "sending to a peer failed", "run",
          true},
    Known{"[jaccl] Recv failed with err", reasons::kPeerLost, "receiving from a peer failed", "run",
          true},
    // What jaccl was given.
    Known{"[jaccl] The device file should define a valid mesh or a valid ring",
          reasons::kMeshIncomplete, "the device matrix is neither a mesh nor a ring", "rendezvous",
          true},
    Known{"do not form a valid mesh", reasons::kMeshIncomplete, "the device matrix is no mesh",
          "rendezvous", true},
    Known{"do not form a valid ring", reasons::kNoRing, "the device matrix is no ring",
          "rendezvous", true},
    Known{"should define a valid mesh or a valid ring", reasons::kMeshIncomplete,
          "the device matrix is neither a mesh nor a ring", "rendezvous", true},
    Known{"[jaccl] The device file should", reasons::kMatrixWrong,
          "the device matrix can't be read", "rendezvous"},
    Known{"[jaccl] Device names should be", reasons::kMatrixWrong,
          "the device matrix can't be read", "rendezvous"},
    Known{"connectivity matrix should be provided", reasons::kMatrixWrong,
          "the device matrix is not square", "rendezvous"},
    Known{"Malformed device file", reasons::kMatrixWrong, "the device matrix can't be read",
          "rendezvous"},
    Known{"[json.exception", reasons::kMatrixWrong, "the device matrix is not JSON", "rendezvous"},
    Known{"[jaccl] Invalid rank", reasons::kMatrixWrong, "the rank is not in the device matrix",
          "rendezvous"},
    Known{"per direction supported but", reasons::kMatrixWrong, "too many cables between two ranks",
          "rendezvous"},
    Known{"mesh supports up to", reasons::kTooManyPeers, "more ranks than the mesh takes",
          "rendezvous"},
    Known{"[jaccl] In ring mode", reasons::kRingNonNeighbour,
          "a message to a rank that is no neighbour", "run"},
    Known{"[jaccl] You need to provide via environment variables", reasons::kLaunchEnv,
          "jaccl lacks its settings, or the matrix is neither a mesh nor a ring", "spawn"},
    Known{"Unsupported dtype for JACCL", reasons::kMlxUse, "jaccl does not know this type", "run"},
    Known{"[jaccl] Group split not supported", reasons::kMlxUse, "jaccl groups can't be split",
          "run"},
    Known{"[jaccl] sum_scatter not supported", reasons::kMatrixWrong, "an old jaccl", "run"},
    Known{"Cannot initialize jaccl", reasons::kMlxBuild, "this MLX was built without jaccl",
          "spawn"},
    // The ring.
    Known{"[ring] You need to provide via environment variables", reasons::kLaunchEnv,
          "the ring lacks its settings", "spawn"},
    Known{"[ring] Rank cannot be larger", reasons::kLaunchEnv, "the rank is not in the host file",
          "spawn"},
    Known{"has no sockets to the", reasons::kHostfileWrong,
          "a rank of the host file has no address", "rendezvous"},
    Known{"as many connections to the left as to the right", reasons::kHostfileWrong,
          "ranks of the host file have different numbers of addresses", "rendezvous"},
    Known{"[ring] Attempt", reasons::kPeerLost, "the next rank does not answer yet", "rendezvous",
          true},
    Known{"[ring] Couldn't", reasons::kPeerLost, "the next rank can't be reached", "rendezvous",
          true},
    Known{"[ring] Accept failed", reasons::kPeerLost, "the previous rank did not come",
          "rendezvous", true},
    Known{"[ring] Group split not supported", reasons::kMlxUse, "ring groups can't be split",
          "run"},
    Known{"only supported to direct neighbors", reasons::kMlxUse, "a message to no neighbour",
          "run"},
    Known{"only supported from direct neighbors", reasons::kMlxUse, "a message from no neighbour",
          "run"},
    Known{"[ring] sum_scatter not supported", reasons::kMlxUse, "the ring has no such operation",
          "run"},
    Known{"Can't perform the ring all reduce", reasons::kMlxUse, "too few elements for the ring",
          "run"},
    Known{"Cannot initialize ring", reasons::kMlxBuild, "this MLX was built without the ring",
          "spawn"},
    Known{"[ring] connection to a peer was lost", reasons::kPeerLost, "a peer is gone", "run",
          true},
    Known{"was closed by the peer", reasons::kPeerLost, "a peer is gone", "run", true},
    Known{"[ring] Receiving from socket", reasons::kPeerLost, "a peer is gone", "run", true},
    Known{"[ring] Sending to socket", reasons::kPeerLost, "a peer is gone", "run", true},
    Known{"Too many send/recv errors", reasons::kPeerLost, "a peer is gone", "run", true},
    Known{"[ring] Send failed with errno", reasons::kPeerLost, "a peer is gone", "run", true},
    Known{"[ring] Recv failed with errno", reasons::kPeerLost, "a peer is gone", "run", true},
    // MLX's own front.
    Known{"Couldn't initialize any backend", reasons::kLaunchEnv, "no backend could be started",
          "spawn"},
    Known{"The only valid values for backend", reasons::kLaunchEnv, "there is no such backend",
          "spawn"},
    Known{"all gather factory is only supported", reasons::kMlxUse, "another backend was meant",
          "spawn"},
    Known{"empty distributed group", reasons::kMlxUse, "the group has one rank only", "run"},
    Known{"Cannot split the distributed group", reasons::kMlxUse, "the group can't be split",
          "run"},
    Known{"singleton group", reasons::kMlxUse, "the group has one rank only", "run"},
    Known{"Invalid destination=", reasons::kMlxUse, "there is no such rank", "run"},
    Known{"Invalid source=", reasons::kMlxUse, "there is no such rank", "run"},
    Known{"[sum_scatter] Invalid shape", reasons::kMlxUse, "the ranks do not divide the array",
          "run"},
    Known{"Only all reduce sum, max and min", reasons::kMlxUse, "there is no such reduction",
          "run"},
    // mlx.launch and mlx.distributed_config.
    Known{"ring backend requires IPs", reasons::kHostfileWrong,
          "the host file has names for addresses", "spawn"},
    Known{"Rank 0 should have an IP", reasons::kHostfileWrong,
          "rank 0 of the host file has no address", "spawn"},
    Known{"Malformed hostfile", reasons::kHostfileWrong, "the host file is not one for jaccl",
          "spawn"},
    Known{"Failed to parse hostfile", reasons::kLaunchEnv, "the host file can't be read", "spawn"},
    Known{"Hostfile ", reasons::kLaunchEnv, "there is no such host file", "spawn"},
    Known{"No script is provided", reasons::kLaunchEnv, "mlx.launch was given no program", "spawn"},
    Known{"The backend should be one of", reasons::kLaunchEnv, "there is no such backend", "spawn"},
    Known{"Hostname cannot be empty", reasons::kLaunchEnv, "a host has no name", "spawn"},
    Known{"Number should be positive", reasons::kLaunchEnv, "a number of ranks is not positive",
          "spawn"},
    Known{"[WARN] Node with rank", reasons::kPeerLost,
          "a rank ended, and the others were ended with it", "run", true},
    Known{"Failed to change directory", reasons::kLaunchEnv, "the working folder is not there",
          "spawn"},
    Known{"is an invalid environment variable", reasons::kLaunchEnv, "a setting is not NAME=VALUE",
          "spawn"},
    Known{"Could not ssh to the following hosts", reasons::kSsh, "hosts can't be reached by ssh",
          "spawn"},
    Known{"set-up for password-less ssh", reasons::kSsh, "hosts can't be reached by ssh", "spawn"},
    Known{"do not have passwordless sudo", reasons::kPrivilege,
          "root is not to be had on some hosts", "spawn"},
    Known{"does not seem to have RDMA enabled", reasons::kNoRdmaDevice,
          "a host lists no RDMA device", "spawn", true},
    Known{"don't have RDMA enabled", reasons::kNoRdmaDevice, "a host lists no RDMA device", "spawn",
          true},
    Known{"for instructions on how to enable RDMA", reasons::kNoRdmaDevice,
          "a host lists no RDMA device", "spawn", true},
    Known{"usage/distributed.html", reasons::kNoRdmaDevice, "a host lists no RDMA device", "spawn",
          true},
    Known{"Incomplete mesh", reasons::kMeshIncomplete, "two hosts have no cable", "spawn"},
    Known{"Try passing --dot", reasons::kMeshIncomplete, "cables are missing", "spawn", true},
    Known{"Could not find a full ring", reasons::kNoRing, "the cables make no ring", "spawn"},
    Known{"Rings found:", reasons::kNoRing, "the cables make no ring", "spawn", true},
    Known{"[ERROR]  - ", reasons::kNoRing, "the cables make no ring", "spawn", true},
    Known{"Neither thunderbolt mesh nor ring found", reasons::kNoRing, "the cables make no ring",
          "spawn"},
    Known{"RDMA is not available and ring is not found", reasons::kNoRing,
          "the cables make no ring", "spawn"},
    Known{"Perhaps run with --dot", reasons::kNoRing, "cables are missing", "spawn", true},
    Known{"Could not extract ip for", reasons::kCoordinator, "a host has no address on its LAN",
          "spawn"},
    Known{"Ran out of available local IPs", reasons::kCoordinator, "no address is left", "spawn"},
    Known{"KeyError: 'Thunderbolt", reasons::kPortMap, "a Thunderbolt socket has no network port",
          "spawn"},
    Known{"KeyError: 'domain_uuid_key'", reasons::kMlxOld,
          "an old mlx.distributed_config met a dock or hub", "spawn"},
    // Alone without noticing.
    Known{"rank 0 of 1", reasons::kGroupMismatch,
          "the group came up with one rank: every rank computes alone", "first_collective"},
};

// "errno 22", "errno=2", "(error: 65)", "'Text (12)'": the number; -1 when there is none.
int ErrnoOf(absl::string_view line) {
  for (const absl::string_view mark : {"errno=", "errno ", "error: ", "error code ", " ("}) {
    const size_t at = line.rfind(mark);
    if (at == absl::string_view::npos) continue;
    const absl::string_view rest = line.substr(at + mark.size());
    const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    // "(2 available)" is no errno.
    if (mark.back() == '(' && rest.substr(end, 1) != ")") continue;
    int number = 0;
    if (end > 0 && absl::SimpleAtoi(rest.substr(0, end), &number)) return number;
  }
  return -1;
}

// What the number adds to the text.
absl::string_view CodeByErrno(const Known& known, absl::string_view line) {
  const int number = ErrnoOf(line);
  const bool connects = absl::StrContains(line, "Couldn't connect");
  if (connects && (number == kErrnoNoRouteToHost || number == kErrnoHostDown)) {
    return reasons::kLocalNetworkPrivacy;
  }
  if (absl::StrContains(line, "[ring] Couldn't")) {
    if (number == kErrnoNoAddress) return reasons::kNoIpv4;
    if (number == kErrnoNetUnreachable || number == kErrnoNetDown) return reasons::kRouteWrongIf;
  }
  if (absl::StrContains(known.part, "to RTR failed")) {
    if (number == kErrnoBusy) return reasons::kResourceExhausted;
    if (number == kErrnoNoData) return reasons::kGidIndexShifted;
    // The peer's GID is looked for by another interface, or the matrix names another cable.
    if (number == kErrnoTimedOut) return reasons::kRouteWrongIf;
  }
  if (absl::StrContains(known.part, "Could not find device") &&
      !absl::StrContains(line, "(0 available)")) {
    return reasons::kMatrixWrong;
  }
  return known.code;
}

std::string ErrnoText(absl::string_view line) {
  switch (ErrnoOf(line)) {
    case kErrnoNoEntry:
      return " (errno 2: another rank failed before)";
    case kErrnoBusy:
      return " (errno 16: busy)";
    case kErrnoInvalid:
      return " (errno 22: invalid)";
    case kErrnoAddressInUse:
      return " (errno 48: the address is in use)";
    case kErrnoNoAddress:
      return " (errno 49: this machine does not have the address)";
    case kErrnoNetUnreachable:
      return " (errno 51: no route to that network)";
    case kErrnoTimedOut:
      return " (errno 60: timed out)";
    case kErrnoRefused:
      return " (errno 61: nobody listens there)";
    case kErrnoNoRouteToHost:
      return " (errno 65: no route to the host; when ping works, macOS denies the local network)";
    default:
      return "";
  }
}

// Without colours and what a terminal would take for orders.
std::string Plain(absl::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && !absl::ascii_isalpha(static_cast<unsigned char>(line[i]))) ++i;
      continue;
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(line[i])) && line[i] != '\t') continue;
    plain.push_back(line[i]);
  }
  return std::string(absl::StripAsciiWhitespace(plain));
}

RecognisedMessage Make(const Known& known, const std::string& line) {
  RecognisedMessage found;
  const absl::string_view code = CodeByErrno(known, line);
  found.reason = MakeReason(std::string_view(code.data(), code.size()),
                            absl::StrCat(known.means, ErrnoText(line)));
  found.reason.set_evidence(AsUtf8(CutToBytes(line, kEvidenceBytesMax), "?"));
  if (!known.remedy.empty()) found.reason.set_remedy(std::string(known.remedy));
  found.is_symptom = known.is_symptom;
  found.phase = std::string(known.phase);
  return found;
}

// "rank 0 of 1" is not in "rank 0 of 16".
bool Contains(absl::string_view line, absl::string_view part) {
  for (size_t at = line.find(part); at != absl::string_view::npos; at = line.find(part, at + 1)) {
    const absl::string_view rest = line.substr(at + part.size());
    const bool both_digits = !rest.empty() && absl::ascii_isdigit(part.back()) &&
                             absl::ascii_isdigit(static_cast<unsigned char>(rest.front()));
    if (!both_digits) return true;
  }
  return false;
}

// Waiting is no failure by itself, and a cause outweighs what followed from it.
int WeightOf(const RecognisedMessage& message) {
  const std::string& evidence = message.reason.evidence();
  const bool waits = absl::StrContains(evidence, "Connection attempt") ||
                     absl::StrContains(evidence, "[ring] Attempt");
  if (waits) return 0;
  if (message.reason.code() == reasons::kPeerLost) return 1;
  return message.is_symptom ? 2 : 3;
}

// Ours: "reason: CODE" lines of a rank's termination message, and what the loader says about
// libraries.
std::optional<RecognisedMessage> RecogniseOther(const std::string& line) {
  const bool is_loader =
      absl::StartsWith(line, "[jaccl] ") &&
      (absl::StrContains(line, "dlsym") || absl::StrContains(line, "dlopen") ||
       absl::StrContains(line, "symbol not found") || absl::StrContains(line, "librdma"));
  if (is_loader) {
    return Make(Known{"", reasons::kOsTooOld, "this macOS lacks the RDMA library", "spawn"}, line);
  }
  if (absl::StrContains(line, "Can't parse address")) {
    return Make(Known{"", reasons::kCoordinator, "an address can't be read", "rendezvous"}, line);
  }
  return std::nullopt;
}

}  // namespace

std::optional<RecognisedMessage> RecogniseMessage(std::string_view text) {
  size_t count = 0;
  for (const absl::string_view raw :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    if (++count > kLinesMax) break;
    const std::string line = Plain(raw);
    if (line.empty()) continue;
    for (const Known& known : kKnown) {
      if (Contains(line, known.part)) return Make(known, line);
    }
    if (std::optional<RecognisedMessage> other = RecogniseOther(line)) return other;
  }
  return std::nullopt;
}

std::optional<RecognisedMessage> RecogniseLastLines(std::string_view last_lines) {
  const absl::string_view text(last_lines.data(), last_lines.size());
  // A crash report names the address before the place, which tells more.
  const bool is_at_receive = absl::StrContains(text, kPostReceive);
  std::optional<RecognisedMessage> best;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::optional<RecognisedMessage> found =
        RecogniseMessage(std::string_view(line.data(), line.size()));
    if (!found.has_value()) continue;
    if (is_at_receive && absl::StrContains(line, "KERN_INVALID_ADDRESS")) continue;
    if (!best.has_value() || WeightOf(*found) > WeightOf(*best)) best = std::move(found);
  }
  return best;
}

std::optional<std::pair<int, RecognisedMessage>> RecogniseGang(
    const std::vector<RankWords>& ranks) {
  std::optional<std::pair<int, RecognisedMessage>> best;
  for (const RankWords& rank : ranks) {
    std::optional<RecognisedMessage> found = RecogniseLastLines(rank.text);
    if (!found.has_value()) continue;
    if (!best.has_value() || WeightOf(*found) > WeightOf(best->second)) {
      best.emplace(rank.rank, *std::move(found));
    }
  }
  return best;
}

}  // namespace macrame::runtime
