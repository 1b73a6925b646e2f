#include "tests/unit/cli/any_agent.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "proto/check.h"
#include "tests/unit/fresh_folder.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

grpc::ByteBuffer BufferOf(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

// One call: reads the request, writes the messages, ends.
class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reactor(AnyAnswer answer) : answer_(std::move(answer)) { StartRead(&request_); }

  void OnReadDone(bool) override {
    if (!answer_.never) WriteNext();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override {
    if (answer_.never) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    if (written_ == answer_.messages.size()) return Finish(answer_.status);
    response_ = BufferOf(answer_.messages[written_++]);
    StartWrite(&response_);
  }

  const AnyAnswer answer_;
  size_t written_ = 0;
  grpc::ByteBuffer request_, response_;
};

}  // namespace

class AnyAgent::Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(Answers answers) : answers_(std::move(answers)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const std::string method = context->method();
    {
      const std::lock_guard lock(mutex_);
      called_.insert(method.substr(method.rfind('/') + 1));
    }
    return new Reactor(answers_(method));
  }
  std::set<std::string> Called() const {
    const std::lock_guard lock(mutex_);
    return called_;
  }

 private:
  const Answers answers_;
  mutable std::mutex mutex_;
  std::set<std::string> called_;  // guarded by mutex_
};

AnyAgent::AnyAgent(Answers answers) : service_(std::make_unique<Service>(std::move(answers))) {
  socket_path_ = FreshFolder() + "/agentd.sock";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(transport::SocketTarget(socket_path_),
                           grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  MACRAME_CHECK(server_ != nullptr) << "nothing can be served at " << socket_path_;
}

AnyAgent::~AnyAgent() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  server_->Wait();
  unlink(socket_path_.c_str());
}

std::set<std::string> AnyAgent::Called() const { return service_->Called(); }

std::string OddAnswerOf(const std::string& method, Oddity oddity, uint64_t seed) {
  using google::protobuf::DescriptorPool;
  using google::protobuf::MessageFactory;
  const std::string name = absl::StrReplaceAll(method.substr(1), {{"/", "."}});
  const auto* known = DescriptorPool::generated_pool()->FindMethodByName(name);
  MACRAME_CHECK(known != nullptr) << name;
  const std::unique_ptr<google::protobuf::Message> message(
      MessageFactory::generated_factory()->GetPrototype(known->output_type())->New());
  FillOddly(oddity, seed, message.get());
  return message->SerializeAsString();
}

}  // namespace macrame::cli
