#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/collectives/pumped_wire.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs_wire.h"

namespace macrame::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr microseconds kSpinWithCores{60};
// On leaving, for what was sent to arrive.
constexpr milliseconds kFlushLimit{1000};

// Before each piece of a message.
struct PieceHeader {
  uint32_t message;   // number on this connection
  uint32_t consumed;  // pieces of the peer's that this side is through with: its credits
  uint64_t bytes;     // of the whole message; kCreditOnly: no message
};
static_assert(sizeof(PieceHeader) == 16);
constexpr uint64_t kCreditOnly = ~uint64_t{0};
constexpr size_t kPieceBytes = kSlotBytes - sizeof(PieceHeader);

// What each rank tells all others before anyone sends: all is well, or what went wrong where.
struct Outcome {
  uint32_t mark = kCardMark;
  char code[32] = {};  // empty: all is well
  char message[220] = {};
};

void Write(std::string_view text, std::span<char> field) {
  const size_t length = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), length, field.begin());
  field[length] = 0;
}

template <size_t kSize>
std::string Read(const char (&field)[kSize]) {
  return std::string(field, strnlen(field, kSize));
}

struct Outgoing {
  const std::byte* data;
  size_t bytes, done;
  bool begun;  // an empty message still is one piece
};
struct Incoming {
  std::byte* data;
  size_t bytes, done;
};
struct Arrived {
  int slot;
  size_t bytes;
};

struct Peer {
  std::unique_ptr<QueuePair> pair;
  std::deque<Outgoing> sends;
  std::deque<Incoming> receives;
  std::deque<Arrived> arrived;
  std::vector<int> free_slots;  // for sending
  uint32_t messages_sent = 0, messages_received = 0;
  uint32_t pieces_sent = 0, credited = 0;  // `credited`: how many of them the peer is through with
  uint32_t consumed = 0, told = 0;
  // What ended a transfer to or from it. What came before is still good.
  absl::Status failed;
  bool is_through() const { return sends.empty() && receives.empty(); }
};

microseconds SpinFor(const VerbsWireOptions& options) {
  if (options.spin.count() >= 0) return options.spin;
  return std::thread::hardware_concurrency() > 1 ? kSpinWithCores : microseconds(0);
}

class VerbsWire : public PumpedWire {
 public:
  VerbsWire(const VerbsWireOptions& options, std::unique_ptr<Wire> side)
      : PumpedWire(SpinFor(options), options.collective_timeout),
        options_(options),
        side_(std::move(side)),
        peers_(side_->size()) {}
  ~VerbsWire() override { Flush(); }

  absl::Status Connect();

  int rank() const override { return side_->rank(); }
  int size() const override { return side_->size(); }
  Backend backend() const override { return Backend::kVerbs; }
  bool Reaches(int peer) const override {
    return peer >= 0 && peer < size() && peers_[peer].pair != nullptr;
  }
  absl::Status CheckPeer(int peer) override { return side_->CheckPeer(peer); }
  void ShutDown() override {
    NoteStopping();
    side_->ShutDown();
  }

 private:
  template <typename Card>
  absl::Status ExchangeCards(std::vector<Card>& own, std::vector<Card>& theirs);
  absl::Status OpenPairs(std::vector<QueuePairCard>& cards);
  absl::Status ConnectPairs(const std::vector<QueuePairCard>& cards);
  absl::Status Agree(const absl::Status& own);
  absl::Status Queue(std::span<const Send> sends, std::span<const Receive> receives) override;
  absl::Status Pump(bool* moved) override;
  absl::Status PumpPeer(int rank, Peer& peer, bool* moved);
  absl::Status TakeCompletions(int rank, Peer& peer, bool* moved);
  absl::Status TakePieces(int rank, Peer& peer, bool* moved);
  absl::Status SendPieces(int rank, Peer& peer, bool* moved);
  absl::Status PostPiece(int rank, Peer& peer, uint64_t message_bytes,
                         std::span<const std::byte> data);
  bool AllDone() const override;
  absl::Status Block() override;
  void Flush();
  absl::Status AtRank(int rank, const absl::Status& status) const;
  absl::Status Lost(int rank, const absl::Status& why) const;
  std::string Waiting() const override;

  const VerbsWireOptions options_;
  const std::unique_ptr<Wire> side_;
  std::vector<Peer> peers_;
  std::vector<QueuePair::Completion> ended_;
};

absl::Status VerbsWire::AtRank(int rank, const absl::Status& status) const {
  v1::Reason reason = ReasonOf(status);
  reason.set_message(
      absl::StrCat("rank ", this->rank(), " towards rank ", rank, ": ", reason.message()));
  return ReasonStatus(status.code(), reason);
}

// What the device itself says explains a failed transfer better than the transfer does.
absl::Status VerbsWire::Lost(int rank, const absl::Status& why) const {
  if (stopping()) return Stopped();
  const absl::Status device = peers_[rank].pair->TakeDeviceEvents();
  if (!device.ok()) return AtRank(rank, device);
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kPeerLost,
                      absl::StrCat("rank ", rank, " is gone: ", why.message()));
}

// Everybody hears of everybody's devices, also of those that could not be opened: nobody waits.
absl::Status VerbsWire::Connect() {
  if (static_cast<int>(options_.devices.size()) != size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.devices.size(), " devices for ", size(), " ranks"));
  }
  std::vector<QueuePairCard> own(static_cast<size_t>(size())), theirs(own.size());
  absl::Status status = OpenPairs(own);
  const absl::Status told = ExchangeCards(own, theirs);
  if (status.ok()) status = told;
  if (status.ok()) status = ConnectPairs(theirs);
  // After this all receive, before anyone sends.
  status = Agree(status);
  for (int rank = 0; status.ok() && rank < size(); ++rank) {
    if (!peers_[rank].pair) continue;
    const absl::Status ready = peers_[rank].pair->BecomeReady();
    if (!ready.ok()) status = AtRank(rank, ready);
  }
  return status;
}

absl::Status VerbsWire::OpenPairs(std::vector<QueuePairCard>& cards) {
  const auto library = FindVerbsLibrary();
  if (!library.ok()) return library.status();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == this->rank()) continue;
    if (options_.devices[rank].empty()) {
      const bool is_next =
          (rank + 1) % size() == this->rank() || (this->rank() + 1) % size() == rank;
      if (options_.neighbours_only && !is_next) continue;
      return ReasonStatus(
          absl::StatusCode::kUnavailable, reasons::kNoVerbsDevice,
          absl::StrCat("no device of rank ", this->rank(), " leads to rank ", rank));
    }
    auto pair = QueuePair::Open(**library, options_.devices[rank], options_.connection);
    if (!pair.ok()) return AtRank(rank, pair.status());
    cards[rank] = (*pair)->Card();
    Peer& peer = peers_[rank];
    peer.pair = *std::move(pair);
    for (int slot = kAllSlots - 1; slot >= 0; --slot) peer.free_slots.push_back(slot);
  }
  return absl::OkStatus();
}

absl::Status VerbsWire::ConnectPairs(const std::vector<QueuePairCard>& cards) {
  for (int rank = 0; rank < size(); ++rank) {
    // No card: it has no device towards here, or could not open it and says so in a moment.
    if (!peers_[rank].pair || cards[rank].mark == 0) continue;
    const absl::Status status = peers_[rank].pair->Connect(cards[rank]);
    if (!status.ok()) return AtRank(rank, status);
  }
  return absl::OkStatus();
}

// The own trouble first, else the first that another rank tells of.
absl::Status VerbsWire::Agree(const absl::Status& own) {
  Outcome mine;
  if (!own.ok()) {
    const v1::Reason reason = ReasonOf(own);
    Write(reason.code(), mine.code);
    Write(reason.message(), mine.message);
  }
  std::vector<Outcome> all_mine(peers_.size(), mine), theirs(peers_.size());
  const absl::Status told = ExchangeCards(all_mine, theirs);
  if (!own.ok()) return own;
  if (!told.ok()) return told;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string code = Read(theirs[rank].code);
    if (rank == this->rank() || code.empty()) continue;
    const bool is_known = FindReasonCode(code) != nullptr;
    return ReasonStatus(absl::StatusCode::kUnavailable, is_known ? code : reasons::kConnectFailed,
                        Read(theirs[rank].message));
  }
  return absl::OkStatus();
}

template <typename Card>
absl::Status VerbsWire::ExchangeCards(std::vector<Card>& own, std::vector<Card>& theirs) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == this->rank()) continue;
    sends.push_back({rank, std::as_bytes(std::span(&own[rank], 1))});
    receives.push_back({rank, std::as_writable_bytes(std::span(&theirs[rank], 1))});
  }
  return side_->Exchange(sends, receives);
}

absl::Status VerbsWire::Queue(std::span<const Send> sends, std::span<const Receive> receives) {
  const auto unreached = [&](int peer) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kRingNonNeighbour,
                        absl::StrCat("rank ", rank(), " has no device towards rank ", peer));
  };
  for (const Send& send : sends) {
    if (!Reaches(send.peer)) return unreached(send.peer);
    peers_[send.peer].sends.push_back({send.bytes.data(), send.bytes.size(), 0, false});
  }
  for (const Receive& receive : receives) {
    if (!Reaches(receive.peer)) return unreached(receive.peer);
    peers_[receive.peer].receives.push_back({receive.bytes.data(), receive.bytes.size(), 0});
  }
  return absl::OkStatus();
}

absl::Status VerbsWire::TakeCompletions(int rank, Peer& peer, bool* moved) {
  ended_.clear();
  const absl::Status polled = peer.pair->Poll(ended_);
  if (peer.failed.ok()) peer.failed = polled;
  for (const QueuePair::Completion& one : ended_) {
    *moved = true;
    if (!one.is_receive) {
      peer.free_slots.push_back(one.slot);
      continue;
    }
    PieceHeader header;
    if (one.bytes < sizeof(header)) return Lost(rank, absl::DataLossError("a short piece came"));
    std::memcpy(&header, peer.pair->ReceiveSlot(one.slot).data(), sizeof(header));
    peer.credited = header.consumed;
    if (header.bytes == kCreditOnly) {
      if (!peer.failed.ok()) continue;
      const absl::Status posted = peer.pair->PostReceive(one.slot);
      if (!posted.ok()) return Lost(rank, posted);
    } else {
      bytes_received_.fetch_add(one.bytes, std::memory_order_relaxed);
      peer.arrived.push_back({one.slot, one.bytes});
    }
  }
  return absl::OkStatus();
}

absl::Status VerbsWire::TakePieces(int rank, Peer& peer, bool* moved) {
  while (!peer.arrived.empty() && !peer.receives.empty()) {
    const Arrived piece = peer.arrived.front();
    Incoming& message = peer.receives.front();
    const std::byte* slot = peer.pair->ReceiveSlot(piece.slot).data();
    PieceHeader header;
    std::memcpy(&header, slot, sizeof(header));
    const size_t bytes = piece.bytes - sizeof(header);
    if (header.message != peer.messages_received || header.bytes != message.bytes ||
        bytes != std::min(kPieceBytes, message.bytes - message.done)) {
      return ReasonStatus(
          absl::StatusCode::kDataLoss, reasons::kCollectiveFailed,
          absl::StrCat("rank ", rank, " and rank ", this->rank(), " are out of step: message ",
                       header.message, " of ", header.bytes, " bytes came, ",
                       peer.messages_received, " of ", message.bytes, " was expected"));
    }
    if (bytes > 0) std::memcpy(message.data + message.done, slot + sizeof(header), bytes);
    message.done += bytes;
    peer.arrived.pop_front();
    ++peer.consumed;
    *moved = true;
    if (peer.failed.ok()) {
      const absl::Status posted = peer.pair->PostReceive(piece.slot);
      if (!posted.ok()) return Lost(rank, posted);
    }
    if (message.done < message.bytes) continue;
    ++peer.messages_received;
    peer.receives.pop_front();
  }
  return absl::OkStatus();
}

absl::Status VerbsWire::PostPiece(int rank, Peer& peer, uint64_t message_bytes,
                                  std::span<const std::byte> data) {
  const int slot = peer.free_slots.back();
  peer.free_slots.pop_back();
  const PieceHeader header{peer.messages_sent, peer.consumed, message_bytes};
  std::byte* memory = peer.pair->SendSlot(slot).data();
  std::memcpy(memory, &header, sizeof(header));
  if (!data.empty()) std::memcpy(memory + sizeof(header), data.data(), data.size());
  peer.told = peer.consumed;
  bytes_sent_.fetch_add(sizeof(header) + data.size(), std::memory_order_relaxed);
  const absl::Status posted = peer.pair->PostSend(slot, sizeof(header) + data.size());
  return posted.ok() ? posted : Lost(rank, posted);
}

absl::Status VerbsWire::SendPieces(int rank, Peer& peer, bool* moved) {
  while (!peer.sends.empty() && peer.free_slots.size() > kCreditSlots &&
         peer.pieces_sent - peer.credited < kSlots) {
    Outgoing& message = peer.sends.front();
    const size_t bytes = std::min(kPieceBytes, message.bytes - message.done);
    const absl::Status posted =
        PostPiece(rank, peer, message.bytes, {message.data + message.done, bytes});
    if (!posted.ok()) return posted;
    ++peer.pieces_sent;
    message.done += bytes;
    *moved = true;
    if (message.done < message.bytes) continue;
    ++peer.messages_sent;
    peer.sends.pop_front();
  }
  if (peer.consumed - peer.told >= kSlots / 2 && !peer.free_slots.empty()) {
    return PostPiece(rank, peer, kCreditOnly, {});
  }
  return absl::OkStatus();
}

// A peer may leave when it has sent all that is asked of it: what it sent is taken, and that a
// credit no longer reached it is no loss.
absl::Status VerbsWire::PumpPeer(int rank, Peer& peer, bool* moved) {
  absl::Status status = TakeCompletions(rank, peer, moved);
  if (status.ok()) status = TakePieces(rank, peer, moved);
  if (!status.ok()) return status;
  if (peer.failed.ok()) return SendPieces(rank, peer, moved);
  return peer.is_through() ? absl::OkStatus() : Lost(rank, peer.failed);
}

absl::Status VerbsWire::Pump(bool* moved) {
  for (int rank = 0; rank < size(); ++rank) {
    if (!peers_[rank].pair) continue;
    const absl::Status status = PumpPeer(rank, peers_[rank], moved);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool VerbsWire::AllDone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.is_through(); });
}

std::string VerbsWire::Waiting() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!peers_[rank].is_through()) ranks.push_back(rank);
  }
  return absl::StrJoin(ranks, ", ");
}

// Until something ended on one of the devices.
absl::Status VerbsWire::Block() {
  std::vector<pollfd> waits;
  for (int rank = 0; rank < size(); ++rank) {
    if (!peers_[rank].pair) continue;
    QueuePair& pair = *peers_[rank].pair;
    pair.TakeCompletionEvents();
    const absl::Status armed = pair.Arm();
    if (!armed.ok()) return Lost(rank, armed);
    waits.push_back({pair.completion_fd(), POLLIN, 0});
    waits.push_back({pair.event_fd(), POLLIN, 0});
  }
  // What ended before the queues were armed rings no bell.
  bool moved = false;
  const absl::Status pumped = Pump(&moved);
  if (!pumped.ok() || moved || AllDone()) return pumped;
  poll(waits.data(), waits.size(), static_cast<int>(kBlockSlice.count()));
  // What a peer sent before it went is taken first; one that this exchange is through with may go.
  const absl::Status last = Pump(&moved);
  if (!last.ok() || moved || AllDone()) return last;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.pair) continue;
    const absl::Status device = peer.pair->TakeDeviceEvents();
    if (!device.ok()) return AtRank(rank, device);
    if (peer.is_through()) continue;
    const absl::Status there = side_->CheckPeer(rank);
    if (!there.ok()) return there;
  }
  return absl::OkStatus();
}

// A queue pair that is destroyed forgets what it has not yet handed over.
void VerbsWire::Flush() {
  const auto end = steady_clock::now() + kFlushLimit;
  const auto all_free = [&] {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return !peer.pair || !peer.failed.ok() ||
             peer.free_slots.size() == static_cast<size_t>(kAllSlots);
    });
  };
  while (broken_.ok() && !stopping() && !all_free() && steady_clock::now() < end) {
    bool moved = false;
    for (int rank = 0; rank < size() && broken_.ok(); ++rank) {
      if (peers_[rank].pair) broken_ = TakeCompletions(rank, peers_[rank], &moved);
    }
    if (!moved) poll(nullptr, 0, 1);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Wire>> ConnectVerbsWire(const VerbsWireOptions& options,
                                                       std::unique_ptr<Wire> side) {
  auto wire = std::make_unique<VerbsWire>(options, std::move(side));
  const absl::Status status = wire->Connect();
  if (!status.ok()) return status;
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace macrame::transport
