#include "transport/grpc_channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"
#include "transport/byte_buffers.h"
#include "transport/status_codec.h"

namespace macrame::transport {
namespace {

// After so many calls in a row without an answer a new connection is made: TCP's own back-off can
// keep an old one silent for a minute after the network has come back.
constexpr int kTimeoutsBeforeReconnect = 3;
// But not before that: calls that wait together for one slow answer, or for a handshake on cores
// that are busy, time out together.
constexpr Duration kSilenceBeforeReconnect = std::chrono::seconds(3);
constexpr Duration kFirstAnswerBeforeReconnect = std::chrono::seconds(10);
// Connecting and its handshake may take so long before they begin anew. Where there are several
// addresses, those behind one that does not answer wait for that long.
constexpr int kConnectMsOfOne = 3'000;
constexpr int kConnectMsOfEach = 1'000;
// A connection that nobody used for so long is closed; the next call makes a new one.
constexpr int kIdleConnectionMs = 60'000;
constexpr size_t kUnreadBytesMax = 4 * 1024 * 1024;
// What a message costs beside its bytes, of which it may have none, while it waits to be read.
constexpr size_t kUnreadMessageBytes = 512;

// One call under way, as seen by Cancel and by the destructor.
struct OpenCall {
  grpc::ClientContext context;
};

std::string TargetOf(const std::vector<std::string>& addresses) {
  if (addresses.size() == 1 && absl::StartsWith(addresses[0], "unix:")) return addresses[0];
  // One target has one family; IPv4 first because it is what most networks route.
  std::vector<std::string> v4;
  std::vector<std::string> v6;
  for (const std::string& address : addresses) {
    (absl::StartsWith(address, "[") ? v6 : v4).push_back(address);
  }
  if (!v4.empty()) return absl::StrCat("ipv4:", absl::StrJoin(v4, ","));
  return absl::StrCat("ipv6:", absl::StrJoin(v6, ","));
}

}  // namespace

// Who waits for the end of one call.
struct GrpcChannel::Waiter {
  std::function<void(absl::Status)> done;
  HandOver hand_over = HandOver::kOwnerThread;
};

struct GrpcChannel::Parts : std::enable_shared_from_this<GrpcChannel::Parts> {
  Parts(Dispatcher& dispatcher_in, std::shared_ptr<grpc::ChannelCredentials> credentials_in,
        std::string tls_name_in, NodeId self_in)
      : dispatcher(dispatcher_in),
        credentials(std::move(credentials_in)),
        tls_name(std::move(tls_name_in)),
        self(std::move(self_in)) {}

  void Connect();
  std::shared_ptr<OpenCall> Open(Duration timeout);
  void Close(std::shared_ptr<OpenCall> call);
  void CancelAll();
  void DropEnded();
  void NoteResult(const absl::Status& status);
  std::shared_ptr<Waiter> AddWaiter(std::function<void(absl::Status)> done, HandOver hand_over);
  bool IsAwaited(const std::shared_ptr<Waiter>& waiter) const {
    return alive && waiters.contains(waiter);
  }
  CallHandle HasNoAddress(const std::shared_ptr<Waiter>& waiter);
  // Nothing when it was told already.
  void Tell(const std::shared_ptr<Waiter>& waiter, const absl::Status& status);

  Dispatcher& dispatcher;
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // owner thread only
  const std::string tls_name;
  const NodeId self;
  std::atomic<bool> alive = true;
  // Owner thread only.
  int timeouts_in_a_row = 0;
  MonotonicTime silent_since;  // the last answer, or the making of the channel
  bool answered = false;       // since the addresses are these
  std::vector<std::string> addresses;
  std::shared_ptr<grpc::Channel> channel;
  std::set<std::shared_ptr<Waiter>> waiters;
  // The calls that gRPC has not ended yet, and those that it has. A call holds its gRPC channel,
  // and the last one of a process must not go on a thread of gRPC, which would then wait for itself
  // (and aborts): so ended calls, too, are let go on the owner thread.
  std::mutex mutex;
  std::condition_variable all_closed;
  std::unordered_map<const OpenCall*, std::shared_ptr<OpenCall>> open;
  std::vector<std::shared_ptr<OpenCall>> ended;
};

void GrpcChannel::Parts::Connect() {
  timeouts_in_a_row = 0;
  silent_since = dispatcher.Now();
  if (addresses.empty()) {
    channel.reset();
    return;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectBackoffInitialMs);
  // By its name the least pause between two attempts, it is the most that one of them may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   addresses.size() == 1 ? kConnectMsOfOne : kConnectMsOfEach);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectBackoffMaxMs);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A channel made anew must not find the old connection again.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The kernel says when a process at the other end of a unix socket is gone.
  const std::string target = TargetOf(addresses);
  if (!absl::StartsWith(target, "unix:")) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  }
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, kIdleConnectionMs);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  arguments.SetServiceConfigJSON("{}");
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (!tls_name.empty()) arguments.SetSslTargetNameOverride(tls_name);
  channel = grpc::CreateCustomChannel(target, credentials, arguments);
}

std::shared_ptr<OpenCall> GrpcChannel::Parts::Open(Duration timeout) {
  auto call = std::make_shared<OpenCall>();
  call->context.set_deadline(std::chrono::system_clock::now() + timeout);
  call->context.AddMetadata("macrame-node-id", self.value());
  std::lock_guard<std::mutex> lock(mutex);
  open.emplace(call.get(), call);
  return call;
}

void GrpcChannel::Parts::Close(std::shared_ptr<OpenCall> call) {
  std::lock_guard<std::mutex> lock(mutex);
  open.erase(call.get());
  ended.push_back(std::move(call));
  if (open.empty()) all_closed.notify_all();
}

void GrpcChannel::Parts::CancelAll() {
  // Cancelling may run callbacks at once, which take the lock.
  std::vector<std::shared_ptr<OpenCall>> calls;
  std::unique_lock<std::mutex> lock(mutex);
  for (const auto& [pointer, call] : open) calls.push_back(call);
  lock.unlock();
  for (const auto& call : calls) call->context.TryCancel();
}

void GrpcChannel::Parts::DropEnded() {
  std::vector<std::shared_ptr<OpenCall>> dropped;
  std::lock_guard<std::mutex> lock(mutex);
  dropped.swap(ended);
}

void GrpcChannel::Parts::NoteResult(const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) {
    timeouts_in_a_row = 0;
    silent_since = dispatcher.Now();
    answered |= status.ok();
  } else if (++timeouts_in_a_row >= kTimeoutsBeforeReconnect &&
             dispatcher.Now() - silent_since >=
                 (answered ? kSilenceBeforeReconnect : kFirstAnswerBeforeReconnect)) {
    Connect();
  }
}

std::shared_ptr<GrpcChannel::Waiter> GrpcChannel::Parts::AddWaiter(
    std::function<void(absl::Status)> done, HandOver hand_over) {
  auto waiter = std::make_shared<Waiter>(Waiter{std::move(done), hand_over});
  waiters.insert(waiter);
  return waiter;
}

CallHandle GrpcChannel::Parts::HasNoAddress(const std::shared_ptr<Waiter>& waiter) {
  dispatcher.Post([parts = shared_from_this(), waiter] {
    if (parts->alive) {
      parts->Tell(waiter, absl::UnavailableError("no address of the node is known"));
    }
  });
  return CallHandle();
}

void GrpcChannel::Parts::Tell(const std::shared_ptr<Waiter>& waiter, const absl::Status& status) {
  if (waiters.erase(waiter) > 0) std::exchange(waiter->done, nullptr)(status);
}

GrpcChannel::GrpcChannel(Dispatcher& dispatcher,
                         std::shared_ptr<grpc::ChannelCredentials> credentials,
                         std::string tls_name, NodeId self)
    : parts_(std::make_shared<Parts>(dispatcher, std::move(credentials), std::move(tls_name),
                                     std::move(self))) {}

GrpcChannel::~GrpcChannel() {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  parts_->alive = false;
  parts_->CancelAll();
  std::unique_lock<std::mutex> lock(parts_->mutex);
  // gRPC ends cancelled calls on its own threads; none needs this one.
  parts_->all_closed.wait_for(lock, std::chrono::seconds(2),
                              [this] { return parts_->open.empty(); });
  lock.unlock();
  parts_->DropEnded();
  parts_->channel.reset();
  for (const std::shared_ptr<Waiter>& waiter : std::exchange(parts_->waiters, {})) {
    waiter->done = nullptr;
  }
}

void GrpcChannel::EndCalls(const absl::Status& status) {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  // Who is told may begin another call.
  const std::set<std::shared_ptr<Waiter>> waiters = parts_->waiters;
  parts_->CancelAll();
  for (const std::shared_ptr<Waiter>& waiter : waiters) {
    if (waiter->hand_over == HandOver::kOwnerThread) parts_->Tell(waiter, status);
  }
}

void GrpcChannel::SetAddresses(std::vector<std::string> addresses) {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  if (addresses == parts_->addresses) return;
  parts_->addresses = std::move(addresses);
  parts_->answered = false;
  parts_->Connect();
}

void GrpcChannel::SetCredentials(std::shared_ptr<grpc::ChannelCredentials> credentials) {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  parts_->credentials = std::move(credentials);
  parts_->Connect();
}

const std::vector<std::string>& GrpcChannel::addresses() const { return parts_->addresses; }

CallHandle GrpcChannel::CallUnary(std::string_view method,
                                  const google::protobuf::MessageLite& request, MessagePtr response,
                                  Duration timeout, std::function<void(absl::Status)> done) {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  const std::shared_ptr<Waiter> waiter = parts_->AddWaiter(std::move(done), HandOver::kOwnerThread);
  if (parts_->channel == nullptr) return parts_->HasNoAddress(waiter);
  struct Buffers {
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };
  auto buffers = std::make_shared<Buffers>();
  buffers->request = ToByteBuffer(request);
  std::shared_ptr<OpenCall> call = parts_->Open(timeout);
  grpc::GenericStub stub(parts_->channel);
  stub.UnaryCall(&call->context, std::string(method), grpc::StubOptions(), &buffers->request,
                 &buffers->response,
                 [parts = parts_, call, buffers, response, waiter](grpc::Status status) mutable {
                   absl::Status result = FromGrpcStatus(status);
                   if (result.ok() && !FromByteBuffer(buffers->response, response.get())) {
                     result = absl::InternalError("the node's answer can't be parsed");
                   }
                   parts->dispatcher.Post([parts, result, waiter = std::move(waiter)] {
                     parts->DropEnded();
                     if (!parts->IsAwaited(waiter)) return;
                     parts->NoteResult(result);
                     parts->Tell(waiter, result);
                   });
                   parts->Close(std::move(call));
                 });
  return CallHandle([weak = std::weak_ptr<OpenCall>(call)] {
    if (auto locked = weak.lock()) locked->context.TryCancel();
  });
}

namespace {

// Reads a server stream. Deletes itself when done.
class StreamReader : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using OnBuffer = std::function<bool(const grpc::ByteBuffer&)>;  // false: stop reading
  using OnEnd = std::function<void(const grpc::Status&)>;

  StreamReader(grpc::ByteBuffer request, OnBuffer on_buffer, OnEnd on_end)
      : request_(std::move(request)),
        on_buffer_(std::move(on_buffer)),
        on_end_(std::move(on_end)) {}

  void Start(grpc::GenericStub& stub, grpc::ClientContext* context, const std::string& method) {
    stub.PrepareBidiStreamingCall(context, method, grpc::StubOptions(), this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&buffer_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (on_buffer_(buffer_)) StartRead(&buffer_);
  }

  void OnDone(const grpc::Status& status) override {
    on_end_(status);
    delete this;
  }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer buffer_;
  OnBuffer on_buffer_;
  OnEnd on_end_;
};

}  // namespace

CallHandle GrpcChannel::CallStream(std::string_view method,
                                   const google::protobuf::MessageLite& request, MakeMessage make,
                                   Duration timeout, std::function<void(absl::Status)> done,
                                   HandOver hand_over) {
  MACRAME_CHECK(parts_->dispatcher.IsOwnerThread());
  const std::shared_ptr<Waiter> waiter = parts_->AddWaiter(std::move(done), hand_over);
  if (parts_->channel == nullptr) return parts_->HasNoAddress(waiter);
  std::shared_ptr<OpenCall> call = parts_->Open(timeout);
  auto unread_bytes = std::make_shared<std::atomic<size_t>>(0);
  // What ended the stream on our side, if we did.
  auto own_failure = std::make_shared<absl::Status>();
  // Not a share of the call: see Parts::ended. `on_end` has one until nothing is read any more.
  OpenCall* const open_call = call.get();
  auto on_buffer = [parts = parts_, open_call, make = std::move(make), unread_bytes, own_failure,
                    hand_over, waiter](const grpc::ByteBuffer& buffer) {
    const size_t size = buffer.Length() + kUnreadMessageBytes;
    auto [message, deliver] = make();
    if (!FromByteBuffer(buffer, message.get())) {
      *own_failure = absl::InternalError("a message of the stream can't be parsed");
    } else if (hand_over == HandOver::kChannelThread) {
      if (parts->alive) deliver();
      return true;
    } else if (unread_bytes->fetch_add(size) + size > kUnreadBytesMax) {
      *own_failure = absl::ResourceExhaustedError("a stream came faster than it is read");
    } else {
      parts->dispatcher.Post([parts, deliver = std::move(deliver), unread_bytes, size, waiter] {
        unread_bytes->fetch_sub(size);
        if (parts->IsAwaited(waiter)) deliver();
      });
      return true;
    }
    open_call->context.TryCancel();
    return false;
  };
  auto on_end = [parts = parts_, call, own_failure, waiter](const grpc::Status& status) mutable {
    absl::Status result = own_failure->ok() ? FromGrpcStatus(status) : *own_failure;
    parts->dispatcher.Post([parts, result, waiter] {
      parts->DropEnded();
      if (parts->alive) parts->Tell(waiter, result);
    });
    parts->Close(std::move(call));
  };
  auto* reader = new StreamReader(ToByteBuffer(request), std::move(on_buffer), std::move(on_end));
  grpc::GenericStub stub(parts_->channel);
  reader->Start(stub, &call->context, std::string(method));
  return CallHandle([weak = std::weak_ptr<OpenCall>(call)] {
    if (auto locked = weak.lock()) locked->context.TryCancel();
  });
}

}  // namespace macrame::transport
