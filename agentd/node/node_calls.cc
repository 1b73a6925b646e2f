#include "agentd/node/node_calls.h"

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"

namespace macrame::agentd {
namespace {

// Reading a large model's headers from a cold disk is what takes time here.
constexpr Duration kReserveTimeout = std::chrono::seconds(15);
constexpr Duration kLaunchTimeout = std::chrono::seconds(10);
constexpr Duration kEndTimeout = std::chrono::seconds(3);
constexpr Duration kDescribeTimeout = std::chrono::seconds(10);

}  // namespace

template <typename Response, typename Request>
void NodeCalls::Remote(const NodeId& node, const Method<Request, Response>& method,
                       const std::type_identity_t<Request>& request, Duration timeout,
                       std::type_identity_t<Done<Response>> done) {
  transport::PeerChannel* channel = channels_.For(node);
  if (channel == nullptr) {
    return done(absl::UnavailableError(absl::StrCat("node ", ShortId(node), " can't be called")));
  }
  channel->Call(method, request, timeout, std::move(done));
}

void NodeCalls::Reserve(const NodeId& node, const v1::ReserveRequest& request,
                        Done<v1::ReserveResponse> done) {
  if (node == self_) return orders_.Reserve(self_, request, std::move(done));
  Remote(node, kReserve, request, kReserveTimeout, std::move(done));
}

void NodeCalls::Launch(const NodeId& node, const v1::LaunchRequest& request,
                       Done<v1::LaunchResponse> done) {
  if (node == self_) return orders_.Launch(self_, request, std::move(done));
  Remote(node, kLaunch, request, kLaunchTimeout, std::move(done));
}

void NodeCalls::StopRanks(const NodeId& node, const v1::StopRanksRequest& request,
                          Done<v1::StopRanksResponse> done) {
  if (node == self_) return orders_.StopRanks(self_, request, std::move(done));
  Remote(node, kStopRanks, request, kEndTimeout, std::move(done));
}

void NodeCalls::DescribeModel(const NodeId& node, const std::string& name_or_path,
                              Done<v1::DescribeModelResponse> done) {
  if (node == self_) {
    return library_.Resolve(name_or_path, [done](absl::StatusOr<DescribedModel> found) {
      if (!found.ok()) return done(found.status());
      v1::DescribeModelResponse response;
      *response.mutable_model() = std::move(found->description);
      done(std::move(response));
    });
  }
  v1::DescribeModelRequest request;
  request.set_name_or_path(name_or_path);
  Remote(node, kDescribeModel, request, kDescribeTimeout, std::move(done));
}

}  // namespace macrame::agentd
