#include "tests/unit/transport/verbs/fake_ibverbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>

// The functions themselves, which the header covers by macros of the same names.
#undef ibv_query_port
#undef ibv_reg_mr

namespace macrame::tests {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe(ends) == 0) {
      read_end = ends[0];
      write_end = ends[1];
    }
  }
  ~Pipe() {
    close(read_end);
    close(write_end);
  }
  void Ring() const { (void)!write(write_end, "x", 1); }
  bool Take() const {
    char byte;
    return read(read_end, &byte, 1) == 1;
  }
  int read_end = -1, write_end = -1;
};

struct Context {
  ibv_context handle{};  // first: the caller's pointer is ours
  FakeVerbsDevice* device = nullptr;
  Pipe events;
  std::deque<ibv_async_event> pending;
};
struct Region {
  ibv_mr handle{};
};
struct Channel {
  ibv_comp_channel handle{};
  Pipe bell;
  std::deque<ibv_cq*> rung;
};
struct CompletionQueue {
  ibv_cq handle{};
  Channel* channel = nullptr;
  std::deque<ibv_wc> done;
  bool armed = false;
};
struct Received {
  uint64_t id;
  ibv_sge part;
};
struct Pair {
  ibv_qp handle{};
  Context* context = nullptr;
  CompletionQueue* queue = nullptr;
  std::deque<Received> receives;
  uint32_t peer = 0, first_sent = 0, first_expected = 0;
  int mtu = 0, messages = 0;
};

struct World {
  std::mutex mutex;
  std::vector<std::unique_ptr<FakeVerbsDevice>> devices;
  std::vector<std::unique_ptr<ibv_device>> handles;
  int list_error = 0;
  std::map<uint32_t, Pair*> pairs;
  std::set<Context*> contexts;
  std::set<Region*> regions;
  std::map<std::string, int> held;
  std::vector<std::string> complaints;
  int overruns = 0, sent = 0;
  uint32_t next_number = 100;
};
World& world() {
  static World* const one = new World;
  return *one;
}

void Complain(const std::string& what) { world().complaints.push_back(what); }

bool Fails(const Context* context, VerbsFault fault) {
  if (context->device->fault != fault) return false;
  errno = context->device->fault_errno;
  return true;
}

Context* ContextOf(ibv_context* handle) { return reinterpret_cast<Context*>(handle); }

void Complete(CompletionQueue* queue, const ibv_wc& work) {
  queue->done.push_back(work);
  if (!queue->armed) return;
  queue->armed = false;
  queue->channel->rung.push_back(&queue->handle);
  queue->channel->bell.Ring();
}

bool IsRegistered(const ibv_sge& part) {
  return std::any_of(world().regions.begin(), world().regions.end(), [&](const Region* region) {
    const auto begin = reinterpret_cast<uint64_t>(region->handle.addr);
    return part.lkey == region->handle.lkey && part.addr >= begin &&
           part.addr + part.length <= begin + region->handle.length;
  });
}

int Poll(ibv_cq* handle, int count, ibv_wc* work) {
  const std::lock_guard lock(world().mutex);
  auto* queue = reinterpret_cast<CompletionQueue*>(handle);
  int given = 0;
  for (; given < count && !queue->done.empty(); ++given) {
    work[given] = queue->done.front();
    queue->done.pop_front();
  }
  return given;
}

int Notify(ibv_cq* handle, int) {
  const std::lock_guard lock(world().mutex);
  reinterpret_cast<CompletionQueue*>(handle)->armed = true;
  return 0;
}

int PostReceive(ibv_qp* handle, ibv_recv_wr* work, ibv_recv_wr**) {
  const std::lock_guard lock(world().mutex);
  auto* pair = reinterpret_cast<Pair*>(handle);
  if (!IsRegistered(work->sg_list[0])) Complain("a receive into memory that is not registered");
  if (handle->state == IBV_QPS_RESET) return EINVAL;
  pair->receives.push_back({work->wr_id, work->sg_list[0]});
  return 0;
}

// What the receiver gets of a message; false: it never came there.
bool Deliver(Pair* from, const ibv_sge& part) {
  const auto found = world().pairs.find(from->peer);
  if (found == world().pairs.end()) return false;
  Pair* to = found->second;
  if (to->peer != from->handle.qp_num) Complain("a message to a pair that is connected elsewhere");
  if (to->first_expected != from->first_sent) Complain("numbers of first packets differ");
  if (to->mtu != from->mtu) Complain("the two ends cut messages into packets of two sizes");
  if (to->handle.state != IBV_QPS_RTR && to->handle.state != IBV_QPS_RTS) {
    Complain("a message to a pair that does not receive yet");
    return false;
  }
  if (to->receives.empty()) {
    ++world().overruns;
    return from->handle.qp_type == IBV_QPT_UC;
  }
  const Received receive = to->receives.front();
  to->receives.pop_front();
  if (part.length > receive.part.length) Complain("a message longer than its receive");
  std::memcpy(reinterpret_cast<void*>(receive.part.addr), reinterpret_cast<void*>(part.addr),
              std::min(part.length, receive.part.length));
  ibv_wc work{};
  work.wr_id = receive.id;
  work.opcode = IBV_WC_RECV;
  work.byte_len = part.length;
  Complete(to->queue, work);
  return true;
}

int PostSend(ibv_qp* handle, ibv_send_wr* work, ibv_send_wr**) {
  const std::lock_guard lock(world().mutex);
  auto* pair = reinterpret_cast<Pair*>(handle);
  if (handle->state != IBV_QPS_RTS) {
    Complain("a send before the pair is ready");
    return EINVAL;
  }
  if (!IsRegistered(work->sg_list[0])) Complain("a send from memory that is not registered");
  ++world().sent;
  const bool is_lost = pair->messages++ == pair->context->device->lost_message;
  const bool fails = pair->context->device->fails_sends;
  const bool came = fails ? false : is_lost || Deliver(pair, work->sg_list[0]);
  ibv_wc done{};
  done.wr_id = work->wr_id;
  done.opcode = IBV_WC_SEND;
  const bool says_so = fails || handle->qp_type == IBV_QPT_RC;
  done.status = came || !says_so ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
  Complete(pair->queue, done);
  return 0;
}

bool IsNext(ibv_qp_state from, ibv_qp_state to) {
  return (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
         (from == IBV_QPS_INIT && to == IBV_QPS_RTR) || (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
}

void Made(const char* what) { ++world().held[what]; }

// Before what it stands on: nothing of `above` may be there any more.
void Released(const char* what, std::initializer_list<const char*> above) {
  World& all = world();
  if (--all.held[what] == 0) all.held.erase(what);
  for (const char* one : above) {
    // Each rank has as many contexts as it has pairs: of one kind there are never more than of what
    // it stands on.
    const auto left = all.held.find(one);
    const int below = all.held.count(what) == 0 ? 0 : all.held[what];
    if (left != all.held.end() && left->second > below) {
      Complain(std::string(what) + " was released before its " + one);
    }
  }
}

}  // namespace

void FakeVerbs::Reset() {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  all.devices.clear();
  all.handles.clear();
  all.list_error = 0;
  all.held.clear();
  all.complaints.clear();
  all.overruns = all.sent = 0;
}

void FakeVerbs::Add(const FakeVerbsDevice& device) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  all.devices.push_back(std::make_unique<FakeVerbsDevice>(device));
  auto handle = std::make_unique<ibv_device>();
  std::strncpy(handle->name, device.name.c_str(), sizeof(handle->name) - 1);
  all.handles.push_back(std::move(handle));
}

void FakeVerbs::RefuseList(int error) { world().list_error = error; }

void FakeVerbs::Change(const FakeVerbsDevice& device) {
  const std::lock_guard lock(world().mutex);
  for (const auto& known : world().devices) {
    if (known->name == device.name) *known = device;
  }
}

void FakeVerbs::Announce(const std::string& device, int event_type, int port) {
  const std::lock_guard lock(world().mutex);
  for (Context* context : world().contexts) {
    if (context->device->name != device) continue;
    ibv_async_event event{};
    event.event_type = static_cast<ibv_event_type>(event_type);
    event.element.port_num = port;
    context->pending.push_back(event);
    context->events.Ring();
  }
}

std::map<std::string, int> FakeVerbs::Held() {
  const std::lock_guard lock(world().mutex);
  return world().held;
}
std::vector<std::string> FakeVerbs::Complaints() {
  const std::lock_guard lock(world().mutex);
  return world().complaints;
}
int FakeVerbs::Overruns() {
  const std::lock_guard lock(world().mutex);
  return world().overruns;
}
int FakeVerbs::MessagesSent() {
  const std::lock_guard lock(world().mutex);
  return world().sent;
}

}  // namespace macrame::tests

using macrame::tests::Channel;
using macrame::tests::CompletionQueue;
using macrame::tests::Context;
using macrame::tests::ContextOf;
using macrame::tests::FakeVerbsDevice;
using macrame::tests::Pair;
using macrame::tests::Region;
using macrame::tests::VerbsFault;
using macrame::tests::world;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const std::lock_guard lock(world().mutex);
  if (world().list_error != 0) {
    errno = world().list_error;
    return nullptr;
  }
  const size_t size = world().handles.size();
  auto** list = new ibv_device*[size + 1];
  for (size_t i = 0; i < size; ++i) list[i] = world().handles[i].get();
  list[size] = nullptr;
  if (count != nullptr) *count = static_cast<int>(size);
  macrame::tests::Made("list");
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  const std::lock_guard lock(world().mutex);
  delete[] list;
  macrame::tests::Released("list", {});
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

static FakeVerbsDevice* DeviceOf(const ibv_device* handle) {
  for (size_t i = 0; i < world().handles.size(); ++i) {
    if (world().handles[i].get() == handle) return world().devices[i].get();
  }
  return nullptr;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  const std::lock_guard lock(world().mutex);
  return htobe64(DeviceOf(device)->guid);
}

ibv_context* ibv_open_device(ibv_device* handle) {
  const std::lock_guard lock(world().mutex);
  auto context = std::make_unique<Context>();
  context->device = DeviceOf(handle);
  if (macrame::tests::Fails(context.get(), VerbsFault::kOpen)) return nullptr;
  context->handle.device = handle;
  context->handle.async_fd = context->events.read_end;
  context->handle.ops.poll_cq = macrame::tests::Poll;
  context->handle.ops.req_notify_cq = macrame::tests::Notify;
  context->handle.ops.post_send = macrame::tests::PostSend;
  context->handle.ops.post_recv = macrame::tests::PostReceive;
  macrame::tests::Made("context");
  world().contexts.insert(context.get());
  return &context.release()->handle;
}

int ibv_close_device(ibv_context* handle) {
  const std::lock_guard lock(world().mutex);
  world().contexts.erase(ContextOf(handle));
  macrame::tests::Released("context", {"pd", "channel", "cq"});
  delete ContextOf(handle);
  return 0;
}

int ibv_query_port(ibv_context* handle, uint8_t, _compat_ibv_port_attr* compat) {
  const std::lock_guard lock(world().mutex);
  const Context* context = ContextOf(handle);
  if (macrame::tests::Fails(context, VerbsFault::kQueryPort)) return errno;
  auto* port = reinterpret_cast<ibv_port_attr*>(compat);
  port->state = static_cast<ibv_port_state>(context->device->port_state);
  port->active_mtu = static_cast<ibv_mtu>(context->device->mtu);
  port->active_width = static_cast<uint8_t>(context->device->width);
  port->link_layer = static_cast<uint8_t>(context->device->link_layer);
  return 0;
}

int ibv_query_gid(ibv_context* handle, uint8_t, int index, ibv_gid* gid) {
  const std::lock_guard lock(world().mutex);
  const std::vector<std::string>& gids = ContextOf(handle)->device->gids;
  if (index >= static_cast<int>(gids.size())) return -1;
  *gid = {};
  const std::string& text = gids[static_cast<size_t>(index)];
  if (text == "fe80") {
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    gid->raw[15] = 7;
  } else if (!text.empty()) {
    gid->raw[10] = gid->raw[11] = 0xff;
    inet_pton(AF_INET, text.c_str(), gid->raw + 12);
  }
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* handle) {
  const std::lock_guard lock(world().mutex);
  if (macrame::tests::Fails(ContextOf(handle), VerbsFault::kProtectionDomain)) return nullptr;
  macrame::tests::Made("pd");
  return new ibv_pd{handle, 0};
}

int ibv_dealloc_pd(ibv_pd* domain) {
  const std::lock_guard lock(world().mutex);
  macrame::tests::Released("pd", {"mr", "qp"});
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, size_t bytes, int) {
  const std::lock_guard lock(world().mutex);
  if (macrame::tests::Fails(ContextOf(domain->context), VerbsFault::kMemory)) return nullptr;
  auto* region = new Region;
  region->handle.addr = memory;
  region->handle.length = bytes;
  region->handle.lkey = world().next_number++;
  world().regions.insert(region);
  macrame::tests::Made("mr");
  return &region->handle;
}

int ibv_dereg_mr(ibv_mr* handle) {
  const std::lock_guard lock(world().mutex);
  auto* region = reinterpret_cast<Region*>(handle);
  world().regions.erase(region);
  macrame::tests::Released("mr", {"qp"});
  delete region;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* handle) {
  const std::lock_guard lock(world().mutex);
  if (macrame::tests::Fails(ContextOf(handle), VerbsFault::kCompletionChannel)) return nullptr;
  auto* channel = new Channel;
  channel->handle.context = handle;
  channel->handle.fd = channel->bell.read_end;
  macrame::tests::Made("channel");
  return &channel->handle;
}

int ibv_destroy_comp_channel(ibv_comp_channel* handle) {
  const std::lock_guard lock(world().mutex);
  macrame::tests::Released("channel", {"cq"});
  delete reinterpret_cast<Channel*>(handle);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* handle, int, void*, ibv_comp_channel* channel, int) {
  const std::lock_guard lock(world().mutex);
  if (macrame::tests::Fails(ContextOf(handle), VerbsFault::kCompletionQueue)) return nullptr;
  auto* queue = new CompletionQueue;
  queue->handle.context = handle;
  queue->channel = reinterpret_cast<Channel*>(channel);
  macrame::tests::Made("cq");
  return &queue->handle;
}

int ibv_destroy_cq(ibv_cq* handle) {
  const std::lock_guard lock(world().mutex);
  macrame::tests::Released("cq", {"qp"});
  delete reinterpret_cast<CompletionQueue*>(handle);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** queue, void**) {
  auto* channel = reinterpret_cast<Channel*>(handle);
  if (!channel->bell.Take()) return -1;
  const std::lock_guard lock(world().mutex);
  *queue = channel->rung.front();
  channel->rung.pop_front();
  return 0;
}

void ibv_ack_cq_events(ibv_cq*, unsigned int) {}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* init) {
  const std::lock_guard lock(world().mutex);
  if (macrame::tests::Fails(ContextOf(domain->context), VerbsFault::kQueuePair)) return nullptr;
  auto* pair = new Pair;
  pair->context = ContextOf(domain->context);
  pair->queue = reinterpret_cast<CompletionQueue*>(init->send_cq);
  pair->handle.context = domain->context;
  pair->handle.qp_type = init->qp_type;
  pair->handle.state = IBV_QPS_RESET;
  pair->handle.qp_num = world().next_number++;
  world().pairs[pair->handle.qp_num] = pair;
  macrame::tests::Made("qp");
  return &pair->handle;
}

int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  const std::lock_guard lock(world().mutex);
  auto* pair = reinterpret_cast<Pair*>(handle);
  const ibv_qp_state to = attributes->qp_state;
  const VerbsFault fault = to == IBV_QPS_INIT  ? VerbsFault::kToInit
                           : to == IBV_QPS_RTR ? VerbsFault::kToReceive
                                               : VerbsFault::kToSend;
  if (macrame::tests::Fails(pair->context, fault)) return errno;
  if ((mask & IBV_QP_STATE) == 0 || !macrame::tests::IsNext(handle->state, to)) {
    macrame::tests::Complain("a queue pair's states are not passed in their order");
    return EINVAL;
  }
  if (to == IBV_QPS_RTR) {
    if (attributes->path_mtu < IBV_MTU_256 || attributes->path_mtu > IBV_MTU_4096) return EINVAL;
    const auto& gids = pair->context->device->gids;
    const size_t index = attributes->ah_attr.grh.sgid_index;
    if (index >= gids.size() || gids[index].empty()) return EINVAL;
    pair->peer = attributes->dest_qp_num;
    pair->first_expected = attributes->rq_psn;
    pair->mtu = attributes->path_mtu;
  }
  if (to == IBV_QPS_RTS) pair->first_sent = attributes->sq_psn;
  handle->state = to;
  return 0;
}

int ibv_destroy_qp(ibv_qp* handle) {
  const std::lock_guard lock(world().mutex);
  world().pairs.erase(handle->qp_num);
  macrame::tests::Released("qp", {});
  delete reinterpret_cast<Pair*>(handle);
  return 0;
}

int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  Context* context = ContextOf(handle);
  if (!context->events.Take()) return -1;
  const std::lock_guard lock(world().mutex);
  *event = context->pending.front();
  context->pending.pop_front();
  return 0;
}

void ibv_ack_async_event(ibv_async_event*) {}

const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another status";
}

const char* ibv_event_type_str(ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL ? "local work queue catastrophic error" : "another event";
}

}  // extern "C"
