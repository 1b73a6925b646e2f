#pragma once

// One call at a server: reads the request, hands it over, writes what the handler says. Lives until
// both gRPC and the handler have let go of it. Any thread, but where another is named; internal to
// transport/.

#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/ids.h"
#include "transport/call_places.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::transport {

class CallReactor : public grpc::ServerGenericBidiReactor,
                    public std::enable_shared_from_this<CallReactor> {
 public:
  using Deliver = std::function<void(std::shared_ptr<CallReactor>, const grpc::ByteBuffer&)>;

  CallReactor(Dispatcher& dispatcher, std::shared_ptr<CallPlaces> places)
      : dispatcher_(dispatcher), places_(std::move(places)) {}
  ~CallReactor() override;

  void SetCaller(NodeId caller, std::string key_id, Remote remote);
  const NodeId& caller() const { return caller_; }
  const std::string& key_id() const { return key_id_; }
  Remote remote() const { return remote_; }

  // gRPC has it from here until OnDone. Nothing is read yet. `type`: of the request.
  void Begin(const google::protobuf::Descriptor* type, Deliver deliver);
  // False: the call is over, and the place is not its own.
  bool Enter(CallPlaces::Place place);
  // Reads the request, which is to come whole within `limit`, where there is one. A person's has
  // begun a read at the places, which ends with it.
  void StartReading(std::optional<Duration> limit);
  // Owner thread, with the message at hand. False: its caller lost the right to it meanwhile.
  bool TakeUp();
  // Owner thread: its handler was called, and of a member nothing more is held here.
  void NoteHandled();
  // Instead of Begin.
  void Refuse(const absl::Status& status);

  // False: nobody reads it any more, or the caller is too far behind, which ends the call.
  bool Write(const google::protobuf::MessageLite& message);
  // The one message of an answer and its OK, which leave together.
  void Answer(const google::protobuf::MessageLite& message);
  // The first one counts.
  void End(const absl::Status& status);
  // Its caller lost the right to it: what is done for it ends as when the caller goes away.
  void Revoke(const absl::Status& why);
  // `on_ended` is called once on the owner thread, when the call is over.
  void NotifyEnded(std::function<void(const absl::Status&)> on_ended);
  // Likewise, if the caller goes away or loses the right to the call (also when it has already).
  void NotifyCancel(std::function<void()> on_cancel);

  // gRPC's.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Counts the request, as it is and as it will be.
  absl::Status Hold();
  void EndUnlessCome(Duration limit);
  void EndRead();
  void TellEnded(const absl::Status& status);

  Dispatcher& dispatcher_;
  const std::shared_ptr<CallPlaces> places_;
  NodeId caller_;  // fixed before Begin, as the next two
  std::string key_id_;
  Remote remote_ = Remote::kNobody;
  std::shared_ptr<CallReactor> self_;
  const google::protobuf::Descriptor* type_ = nullptr;
  Deliver deliver_;
  grpc::ByteBuffer request_;
  std::mutex mutex_;
  std::optional<CallPlaces::Place> place_;  // set before `ending_` and before it reads, if at all
  std::optional<std::string> reads_as_;     // the key whose read is not ended yet
  Dispatcher::TimerId late_ = 0;
  bool has_come_ = false;
  bool is_late_ = false;
  bool is_revoked_ = false;
  // A deque: the front stays where it is while gRPC writes it and others are added.
  std::deque<grpc::ByteBuffer> queue_;
  size_t backlog_bytes_ = 0;
  bool writing_ = false;
  bool ending_ = false;
  bool cancelled_ = false;
  grpc::Status status_;
  std::function<void()> on_cancel_;
  std::function<void(const absl::Status&)> on_ended_;
};

}  // namespace macrame::transport
