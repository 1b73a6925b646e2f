#include "transport/call_reactor.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "transport/byte_buffers.h"
#include "transport/grpc_server.h"
#include "transport/parsed_size.h"
#include "transport/peer_channel.h"
#include "transport/status_codec.h"

namespace macrame::transport {

CallReactor::~CallReactor() {
  if (place_.has_value()) places_->LetGo(&*place_);
}

void CallReactor::SetCaller(NodeId caller, std::string key_id, Remote remote) {
  caller_ = std::move(caller);
  key_id_ = std::move(key_id);
  remote_ = remote;
}

void CallReactor::Begin(const google::protobuf::Descriptor* type, Deliver deliver) {
  self_ = shared_from_this();
  type_ = type;
  deliver_ = std::move(deliver);
}

bool CallReactor::Enter(CallPlaces::Place place) {
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  place_ = std::move(place);
  return true;
}

void CallReactor::StartReading(std::optional<Duration> limit) {
  std::optional<std::string> unused;
  {
    // gRPC calls back later, and a call that ends does so after this.
    const std::lock_guard lock(mutex_);
    if (!key_id_.empty()) reads_as_ = key_id_;
    if (ending_) {
      unused = std::exchange(reads_as_, std::nullopt);
    } else {
      if (limit.has_value()) {
        const auto on_late = [weak = weak_from_this(), limit = *limit] {
          if (const auto call = weak.lock()) call->EndUnlessCome(limit);
        };
        late_ = dispatcher_.PostAt(dispatcher_.Now() + *limit, on_late);
      }
      StartRead(&request_);
    }
  }
  if (unused.has_value()) places_->EndRead(*unused);
}

bool CallReactor::TakeUp() {
  Dispatcher::TimerId late = 0;
  bool is_revoked = false;
  {
    const std::lock_guard lock(mutex_);
    late = std::exchange(late_, 0);
    is_revoked = is_revoked_;
  }
  if (late != 0) dispatcher_.Cancel(late);
  EndRead();
  return !is_revoked;
}

void CallReactor::NoteHandled() {
  if (place_->kind == CallPlaces::Kind::kMember) places_->LetGo(&*place_);
}

void CallReactor::Refuse(const absl::Status& status) {
  self_ = shared_from_this();
  End(status);
}

bool CallReactor::Write(const google::protobuf::MessageLite& message) {
  grpc::ByteBuffer buffer = ToByteBuffer(message);
  bool too_slow = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_ || cancelled_) return false;
    // One message always fits, however large.
    too_slow = !queue_.empty() && backlog_bytes_ + buffer.Length() > kStreamBacklogBytesMax;
    if (!too_slow) {
      backlog_bytes_ += buffer.Length();
      queue_.push_back(std::move(buffer));
      if (writing_) return true;
      writing_ = true;
    }
  }
  if (too_slow) {
    End(absl::ResourceExhaustedError("the caller reads more slowly than the answer comes"));
    return false;
  }
  StartWrite(&queue_.front());
  return true;
}

void CallReactor::Answer(const google::protobuf::MessageLite& message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    MACRAME_CHECK(!writing_) << "an answer is one message";
    if (ending_ || cancelled_) return;
    ending_ = true;
    queue_.push_back(ToByteBuffer(message));
  }
  TellEnded(absl::OkStatus());
  StartWriteAndFinish(&queue_.front(), grpc::WriteOptions(), grpc::Status::OK);
}

void CallReactor::End(const absl::Status& status) {
  bool is_writing = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return;
    ending_ = true;
    status_ = ToGrpcStatus(status);
    is_writing = writing_;
  }
  TellEnded(status);
  if (!is_writing) Finish(status_);  // else OnWriteDone goes on
}

void CallReactor::Revoke(const absl::Status& why) {
  std::function<void()> on_cancel;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return;
    cancelled_ = is_revoked_ = true;
    on_cancel.swap(on_cancel_);
  }
  if (on_cancel) dispatcher_.Post(std::move(on_cancel));
  End(why);
}

void CallReactor::NotifyEnded(std::function<void(const absl::Status&)> on_ended) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!ending_) {
    on_ended_ = std::move(on_ended);
    return;
  }
  // Its caller left before the owner thread came to it; what it asks for is done all the same.
  dispatcher_.Post(
      [on_ended = std::move(on_ended)] { on_ended(absl::CancelledError("the caller went away")); });
}

void CallReactor::NotifyCancel(std::function<void()> on_cancel) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (cancelled_) {
    dispatcher_.Post(std::move(on_cancel));
  } else if (!ending_) {
    on_cancel_ = std::move(on_cancel);
  }
}

void CallReactor::TellEnded(const absl::Status& status) {
  std::function<void(const absl::Status&)> on_ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    on_ended.swap(on_ended_);
  }
  if (on_ended) dispatcher_.Post([on_ended = std::move(on_ended), status] { on_ended(status); });
}

void CallReactor::OnReadDone(bool ok) {
  if (!ok) return End(absl::InvalidArgumentError("the call came without a request"));
  {
    const std::lock_guard lock(mutex_);
    has_come_ = true;
    if (is_revoked_ || is_late_) return;
  }
  if (const absl::Status fits = Hold(); fits.ok()) {
    deliver_(shared_from_this(), request_);
  } else {
    End(fits);
  }
  request_.Clear();
}

void CallReactor::OnWriteDone(bool ok) {
  bool more = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    backlog_bytes_ -= queue_.front().Length();
    queue_.pop_front();
    if (!ok || cancelled_) queue_.clear();
    more = !queue_.empty();
    if (!more) {
      writing_ = false;
      if (!ending_) return;
    }
  }
  if (more) {
    StartWrite(&queue_.front());
  } else {
    Finish(status_);
  }
}

void CallReactor::OnCancel() {
  std::function<void()> on_cancel;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    on_cancel.swap(on_cancel_);
  }
  if (on_cancel) dispatcher_.Post(std::move(on_cancel));
  End(absl::CancelledError("the caller went away"));
}

void CallReactor::OnDone() {
  // It may hold the call's own handle; what it holds belongs to the owner thread.
  std::function<void()> on_cancel;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    on_cancel.swap(on_cancel_);
  }
  if (on_cancel) dispatcher_.Post([dropped = std::move(on_cancel)] {});
  EndRead();
  if (place_.has_value()) places_->GiveBack(*place_);
  self_.reset();
}

absl::Status CallReactor::Hold() {
  grpc::ProtoBufferReader bytes(&request_);
  const std::optional<size_t> parsed = ParsedBytes(*type_, &bytes, request_.Length());
  if (!parsed.has_value()) return absl::InvalidArgumentError("the request can't be parsed");
  if (*parsed > kParsedBytesMax) {
    v1::Reason reason = MakeReason(
        reasons::kBadRequest,
        absl::StrCat("a request of ", request_.Length(), " bytes has so many parts that it would ",
                     "take more than ", kParsedBytesMax >> 20, " MiB of memory"));
    reason.set_remedy("ask for less at once");
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  }
  return places_->Hold(std::max(*parsed, request_.Length()), &*place_);
}

void CallReactor::EndUnlessCome(Duration limit) {
  {
    const std::lock_guard lock(mutex_);
    late_ = 0;
    if (has_come_ || ending_) return;
    is_late_ = true;
  }
  // No DEADLINE_EXCEEDED: to the caller that is a peer that does not answer.
  End(absl::AbortedError(
      absl::StrCat("the request did not come whole within ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(limit).count(),
                   " ms; send it again, over a faster network if it is large")));
}

void CallReactor::EndRead() {
  std::optional<std::string> key_id;
  {
    const std::lock_guard lock(mutex_);
    key_id = std::exchange(reads_as_, std::nullopt);
  }
  if (key_id.has_value()) places_->EndRead(*key_id);
}

}  // namespace macrame::transport
