#pragma once

// An agent that answers every call alike, whatever it is called: nothing, an error, messages that
// are odd. What FakeAgent scripts call by call, this one does to all of them.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/cli/odd_messages.h"

namespace macrame::cli {

struct AnyAnswer {
  std::vector<std::string> messages;  // serialised
  grpc::Status status;
  bool never = false;  // no answer comes, until the caller gives up
};

class AnyAgent {
 public:
  // `method`: "/macrame.v1.ClusterService/GetStatus".
  using Answers = std::function<AnyAnswer(const std::string& method)>;

  explicit AnyAgent(Answers answers);
  ~AnyAgent();
  AnyAgent(const AnyAgent&) = delete;
  AnyAgent& operator=(const AnyAgent&) = delete;

  const std::string& socket_path() const { return socket_path_; }
  // Methods that were called, without the service.
  std::set<std::string> Called() const;

 private:
  class Service;
  std::string socket_path_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

// One message of the method's own kind, filled so.
std::string OddAnswerOf(const std::string& method, Oddity oddity, uint64_t seed);

}  // namespace macrame::cli
