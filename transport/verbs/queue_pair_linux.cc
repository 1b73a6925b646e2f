#include <fcntl.h>
#include <openssl/rand.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "transport/verbs/device_gids.h"
#include "transport/verbs/queue_pair.h"

namespace macrame::transport {
namespace {

constexpr size_t kPageBytes = 4096;
// An acknowledgement is waited for 4.096 us * 2^18 = 1.07 s, seven times: 7.5 s until a peer counts
// as gone. (InfiniBand Architecture Specification, volume 1, 9.7.6.1.3.) Whether a rank ended or a
// port went down is learned elsewhere, and at once; this is for what is lost on the way. At 2^14,
// which NCCL took until 2.14 (now 2^20: its NCCL_IB_TIMEOUT), a busy peer was sent all anew.
constexpr uint8_t kAckTimeout = 18;
constexpr uint8_t kRetries = 7;
constexpr uint8_t kReceiverNotReadyRetries = 7;  // 7: without end; credits keep it from happening
constexpr uint8_t kReceiverNotReadyTimer = 1;    // 0.01 ms
constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kPacketNumberMask = 0xffffff;

absl::Status Trouble(std::string_view code, std::string message) {
  return ReasonStatus(absl::StatusCode::kUnavailable, code, std::move(message));
}

std::string Errno(int number) { return std::strerror(number); }

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::Open(const VerbsLibrary& library,
                                                           const std::string& device,
                                                           VerbsConnection connection) {
  std::unique_ptr<QueuePair> pair(new QueuePair(library, device, connection));
  absl::Status status = pair->OpenDevice();
  if (status.ok()) status = pair->OpenQueues();
  if (!status.ok()) return status;
  return pair;
}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) library_.destroy_qp(pair_);
  if (region_ != nullptr) library_.dereg_mr(region_);
  if (queue_ != nullptr) library_.destroy_cq(queue_);
  if (channel_ != nullptr) library_.destroy_comp_channel(channel_);
  if (domain_ != nullptr) library_.dealloc_pd(domain_);
  if (context_ != nullptr) library_.close_device(context_);
}

absl::Status QueuePair::OpenDevice() {
  int count = 0;
  ibv_device** listed = library_.get_device_list(&count);
  ibv_device* found = nullptr;
  for (int i = 0; listed != nullptr && i < count; ++i) {
    if (device_ == library_.get_device_name(listed[i])) found = listed[i];
  }
  if (found != nullptr) context_ = library_.open_device(found);
  const int error = errno;
  if (listed != nullptr) library_.free_device_list(listed);
  if (found == nullptr)
    return Trouble(reasons::kNoVerbsDevice, absl::StrCat(device_, " is not listed"));
  if (context_ == nullptr) {
    return Trouble(reasons::kNoVerbsDevice,
                   absl::StrCat(device_, " can't be opened: ", Errno(error)));
  }
  SetNonBlocking(context_->async_fd);
  if (library_.query_port(context_, kDevicePort,
                          reinterpret_cast<_compat_ibv_port_attr*>(&port_)) != 0) {
    return Trouble(reasons::kPortDown, absl::StrCat("the port of ", device_, " can't be asked"));
  }
  if (port_.state != IBV_PORT_ACTIVE) {
    return Trouble(reasons::kPortDown, absl::StrCat("the port of ", device_, " is not active"));
  }
  gids_ = DeviceGids(library_, context_, device_, kSysInfiniband);
  if (gids_.size() > kCardGidsMax) gids_.resize(kCardGidsMax);
  if (std::none_of(gids_.begin(), gids_.end(), [](const Gid& gid) { return Ipv4Of(gid); })) {
    return Trouble(reasons::kNoIpv4Gid, absl::StrCat(device_, " has no IPv4-mapped GID"));
  }
  return absl::OkStatus();
}

absl::Status QueuePair::OpenQueues() {
  const auto refuse = [&](std::string_view what) {
    return Trouble(reasons::kNoProtectionDomain,
                   absl::StrCat(device_, " gives no ", absl::string_view(what.data(), what.size()),
                                ": ", Errno(errno)));
  };
  domain_ = library_.alloc_pd(context_);
  if (domain_ == nullptr) return refuse("protection domain");
  const size_t bytes = kSlotBytes * 2 * kAllSlots;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, bytes)));
  MACRAME_CHECK(memory_ != nullptr) << "no memory for the buffers of a queue pair";
  std::memset(memory_.get(), 0, bytes);
  region_ = (library_.reg_mr)(domain_, memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE);
  if (region_ == nullptr) return refuse(absl::StrCat(bytes >> 10, " KiB of locked memory"));
  channel_ = library_.create_comp_channel(context_);
  if (channel_ == nullptr) return refuse("completion channel");
  SetNonBlocking(channel_->fd);
  queue_ = library_.create_cq(context_, 2 * kAllSlots, nullptr, channel_, 0);
  if (queue_ == nullptr) return refuse("completion queue");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = queue_;
  init.cap.max_send_wr = init.cap.max_recv_wr = kAllSlots;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.qp_type = connection_ == VerbsConnection::kReliable ? IBV_QPT_RC : IBV_QPT_UC;
  pair_ = library_.create_qp(domain_, &init);
  if (pair_ == nullptr) return refuse("queue pair");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = kDevicePort;
  const int error = library_.modify_qp(
      pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    return Trouble(reasons::kConnectFailed,
                   absl::StrCat(device_, ", queue pair to INIT: ", Errno(error)));
  }
  RAND_bytes(reinterpret_cast<unsigned char*>(&first_packet_), sizeof(first_packet_));
  first_packet_ &= kPacketNumberMask;
  for (int slot = 0; slot < kAllSlots; ++slot) {
    const absl::Status posted = PostReceive(slot);
    if (!posted.ok()) return posted;
  }
  return absl::OkStatus();
}

QueuePairCard QueuePair::Card() const {
  QueuePairCard card;
  card.mark = kCardMark;
  card.number = pair_->qp_num;
  card.first_packet = first_packet_;
  card.local_id = port_.lid;
  card.mtu = static_cast<uint8_t>(port_.active_mtu);
  card.connection = static_cast<uint8_t>(connection_);
  card.gid_count = static_cast<uint32_t>(std::min<size_t>(gids_.size(), kCardGidsMax));
  std::copy_n(gids_.begin(), card.gid_count, card.gids.begin());
  return card;
}

absl::Status QueuePair::Connect(const QueuePairCard& peer) {
  if (peer.mark != kCardMark || peer.gid_count > kCardGidsMax ||
      peer.connection != static_cast<uint8_t>(connection_)) {
    return Trouble(reasons::kConnectFailed, "the peer's queue pair is of another kind or release");
  }
  const auto met = ChooseGids(gids_, std::span(peer.gids).first(peer.gid_count));
  if (!met) {
    return Trouble(reasons::kNoIpv4Gid,
                   absl::StrCat("the peer of ", device_, " has no IPv4-mapped GID"));
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu =
      static_cast<ibv_mtu>(std::min<int>(static_cast<int>(port_.active_mtu), peer.mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_packet;
  attributes.ah_attr.port_num = kDevicePort;
  attributes.ah_attr.dlid = peer.local_id;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.sgid_index = met->first.index;
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, met->second.bytes.data(), met->second.bytes.size());
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (connection_ == VerbsConnection::kReliable) {
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = kReceiverNotReadyTimer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  const int error = library_.modify_qp(pair_, &attributes, mask);
  if (error == 0) return absl::OkStatus();
  return Trouble(reasons::kConnectFailed,
                 absl::StrCat(device_, ", queue pair to RTR towards ", GidText(met->second.bytes),
                              ": ", Errno(error)));
}

absl::Status QueuePair::BecomeReady() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet_;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (connection_ == VerbsConnection::kReliable) {
    attributes.timeout = kAckTimeout;
    attributes.retry_cnt = kRetries;
    attributes.rnr_retry = kReceiverNotReadyRetries;
    attributes.max_rd_atomic = 1;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  const int error = library_.modify_qp(pair_, &attributes, mask);
  if (error == 0) return absl::OkStatus();
  return Trouble(reasons::kConnectFailed,
                 absl::StrCat(device_, ", queue pair to RTS: ", Errno(error)));
}

absl::Status QueuePair::PostSend(int slot, size_t bytes) {
  const std::span<std::byte> memory = Slot(slot);
  ibv_sge part{reinterpret_cast<uint64_t>(memory.data()), static_cast<uint32_t>(bytes),
               region_->lkey};
  ibv_send_wr work{};
  work.wr_id = static_cast<uint64_t>(slot);
  work.sg_list = &part;
  work.num_sge = 1;
  work.opcode = IBV_WR_SEND;
  work.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair_, &work, &refused);
  return error == 0 ? absl::OkStatus()
                    : absl::UnavailableError(absl::StrCat("sending: ", Errno(error)));
}

absl::Status QueuePair::PostReceive(int slot) {
  const std::span<std::byte> memory = Slot(kAllSlots + slot);
  ibv_sge part{reinterpret_cast<uint64_t>(memory.data()), static_cast<uint32_t>(memory.size()),
               region_->lkey};
  ibv_recv_wr work{};
  work.wr_id = static_cast<uint64_t>(kAllSlots + slot);
  work.sg_list = &part;
  work.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(pair_, &work, &refused);
  return error == 0 ? absl::OkStatus()
                    : absl::UnavailableError(absl::StrCat("receiving: ", Errno(error)));
}

absl::Status QueuePair::Poll(std::vector<Completion>& ended) {
  constexpr int kAtOnce = 8;
  ibv_wc work[kAtOnce];
  absl::Status status;
  while (true) {
    const int count = ibv_poll_cq(queue_, kAtOnce, work);
    if (count < 0) return absl::UnavailableError("the completion queue can't be read");
    for (int i = 0; i < count; ++i) {
      const int id = static_cast<int>(work[i].wr_id);
      if (work[i].status == IBV_WC_SUCCESS) {
        ended.push_back({id >= kAllSlots, id % kAllSlots, work[i].byte_len});
      } else if (status.ok()) {
        status = absl::UnavailableError(
            absl::StrCat(id < kAllSlots ? "a send" : "a receive", " on ", device_,
                         " ended with: ", library_.wc_status_str(work[i].status)));
      }
    }
    if (count < kAtOnce) return status;
  }
}

absl::Status QueuePair::Arm() {
  const int error = ibv_req_notify_cq(queue_, 0);
  return error == 0 ? absl::OkStatus()
                    : absl::UnavailableError(absl::StrCat("waiting: ", Errno(error)));
}

void QueuePair::TakeCompletionEvents() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (library_.get_cq_event(channel_, &queue, &context) == 0) library_.ack_cq_events(queue, 1);
}

absl::Status QueuePair::TakeDeviceEvents() {
  absl::Status status;
  ibv_async_event event{};
  while (library_.get_async_event(context_, &event) == 0) {
    const ibv_event_type type = event.event_type;
    const bool is_port = type == IBV_EVENT_PORT_ERR;
    const int port = is_port ? event.element.port_num : 0;
    library_.ack_async_event(&event);
    if (type == IBV_EVENT_DEVICE_FATAL) {
      status = Trouble(reasons::kNoVerbsDevice, absl::StrCat(device_, " is gone"));
    } else if (is_port && port == kDevicePort) {
      status = Trouble(reasons::kPortDown, absl::StrCat("the port of ", device_, " went down"));
    } else if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_CQ_ERR) {
      status = Trouble(reasons::kCollectiveFailed,
                       absl::StrCat(device_, ": ", library_.event_type_str(type)));
    }
  }
  return status;
}

}  // namespace macrame::transport
