#pragma once

// One queue pair to one peer, with everything under it: the opened device, protection domain,
// completion queue and registered buffers. Released in the right order whenever it goes, connected
// or not. Linux only; one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/verbs/gid_choice.h"
#include "transport/verbs/verbs_library.h"
#include "transport/verbs/verbs_wire.h"

namespace macrame::transport {

// A message travels in pieces of this size (a header and at least 64 KiB), so many of them in
// flight; so many more may be credits only (they are sent for every half of the slots).
inline constexpr size_t kSlotBytes = (64 << 10) + 4096;
inline constexpr int kSlots = 16;
inline constexpr int kCreditSlots = 4;
inline constexpr int kAllSlots = kSlots + kCreditSlots;

inline constexpr int kCardGidsMax = 16;
// What a peer must know to connect; travels over the side channel between machines of one byte
// order, which the first field proves.
struct QueuePairCard {
  uint32_t mark = 0;
  uint32_t number = 0;
  uint32_t first_packet = 0;
  uint16_t local_id = 0;  // InfiniBand; 0 on Ethernet
  uint8_t mtu = 0;        // ibv_mtu
  uint8_t connection = 0;
  uint32_t gid_count = 0;
  std::array<Gid, kCardGidsMax> gids{};
};
inline constexpr uint32_t kCardMark = 0x4d435150;  // "MCQP"

class QueuePair {
 public:
  struct Completion {
    bool is_receive = false;
    int slot = 0;
    uint32_t bytes = 0;
  };

  // Opens the device, locks the buffers and posts all receives.
  static absl::StatusOr<std::unique_ptr<QueuePair>> Open(const VerbsLibrary& library,
                                                         const std::string& device,
                                                         VerbsConnection connection);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const std::string& device() const { return device_; }
  QueuePairCard Card() const;
  // The peer may send from now on.
  absl::Status Connect(const QueuePairCard& peer);
  // This side may send: the peer has connected.
  absl::Status BecomeReady();

  std::span<std::byte> SendSlot(int slot) { return Slot(slot); }
  std::span<const std::byte> ReceiveSlot(int slot) { return Slot(kAllSlots + slot); }
  absl::Status PostSend(int slot, size_t bytes);
  absl::Status PostReceive(int slot);
  // Appends what ended well, also beside what did not; never waits. The error is of the first that
  // did not.
  absl::Status Poll(std::vector<Completion>& ended);

  // Readable when something ended since Arm(), or when the device reports trouble.
  absl::Status Arm();
  int completion_fd() const { return channel_->fd; }
  int event_fd() const { return context_->async_fd; }
  void TakeCompletionEvents();
  // UNAVAILABLE with PORT_DOWN or NO_VERBS_DEVICE when the device reported that it went.
  absl::Status TakeDeviceEvents();

 private:
  QueuePair(const VerbsLibrary& library, std::string device, VerbsConnection connection)
      : library_(library), device_(std::move(device)), connection_(connection) {}
  absl::Status OpenDevice();
  absl::Status OpenQueues();
  std::span<std::byte> Slot(int index) {
    return {memory_.get() + kSlotBytes * static_cast<size_t>(index), kSlotBytes};
  }

  struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  const VerbsLibrary& library_;
  const std::string device_;
  const VerbsConnection connection_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::unique_ptr<std::byte, FreeMemory> memory_;
  ibv_port_attr port_{};
  uint32_t first_packet_ = 0;
  std::vector<Gid> gids_;
};

}  // namespace macrame::transport
