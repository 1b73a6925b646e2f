#pragma once

// What the connections of one gateway share. Touched by the io thread only, but for the atomic
// ones.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agentd/dashboard/snapshot_cache.h"
#include "agentd/gateway/cors_policy.h"
#include "agentd/gateway/gateway_access.h"
#include "agentd/gateway/gateway_options.h"
#include "agentd/gateway/inference_backend.h"
#include "agentd/gateway/response_store.h"

namespace macrame::agentd {

class HttpSession;

struct GatewayState {
  GatewayOptions options;
  InferenceBackend* backend = nullptr;
  std::shared_ptr<GatewayAccess> access;  // never null
  std::shared_ptr<boost::asio::io_context> io;
  std::shared_ptr<boost::asio::ssl::context> tls;  // null: plain HTTP alone
  std::set<HttpSession*> sessions;
  bool stopping = false;
  bool draining = false;  // connections end with the answer that they are at
  bool refusing = false;  // and requests for text are not begun
  ResponseStore responses{kStoredResponsesMax, kStoredResponsesBytesMax};
  dashboard::SnapshotCache snapshots;
  size_t dashboards = 0;  // that are told of each change
  size_t orders = 0;      // of pages, that are waited for
  // That are being read or answered.
  std::atomic<size_t> requests{0};
  std::atomic<size_t> connections{0};
  CorsPolicy cors;
};

// Counts a request for as long as it lives.
class CountedRequest {
 public:
  explicit CountedRequest(std::shared_ptr<GatewayState> state) : state_(std::move(state)) {
    ++state_->requests;
  }
  ~CountedRequest() { --state_->requests; }
  CountedRequest(const CountedRequest&) = delete;
  CountedRequest& operator=(const CountedRequest&) = delete;

 private:
  std::shared_ptr<GatewayState> state_;
};

// Counts a dashboard for as long as it is told of changes.
class CountedDashboard {
 public:
  explicit CountedDashboard(std::shared_ptr<GatewayState> state) : state_(std::move(state)) {
    ++state_->dashboards;
  }
  ~CountedDashboard() { --state_->dashboards; }
  CountedDashboard(const CountedDashboard&) = delete;
  CountedDashboard& operator=(const CountedDashboard&) = delete;

 private:
  std::shared_ptr<GatewayState> state_;
};

// Counts an order of a page for as long as it is waited for.
class CountedOrder {
 public:
  explicit CountedOrder(std::shared_ptr<GatewayState> state) : state_(std::move(state)) {
    ++state_->orders;
  }
  ~CountedOrder() { --state_->orders; }
  CountedOrder(const CountedOrder&) = delete;
  CountedOrder& operator=(const CountedOrder&) = delete;

 private:
  std::shared_ptr<GatewayState> state_;
};

// `prefix` and 32 random hex digits.
std::string RandomId(const char* prefix);

}  // namespace macrame::agentd
