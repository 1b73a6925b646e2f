#pragma once

// What the connections of one gateway share. Touched by the io thread only, but for the atomic
// ones.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agentd/dashboard/snapshot_cache.h"
#include "agentd/gateway/access/cors_policy.h"
#include "agentd/gateway/access/gateway_access.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/http/body_budget.h"
#include "agentd/gateway/http/gateway_options.h"
#include "agentd/gateway/http/tls_files.h"

namespace macrame::agentd {

class EndpointTable;
class HttpConnection;

// The bodies that are received and held, and who waits to send one.
class BodyRooms {
 public:
  BodyRooms(size_t bytes_max, size_t body_bytes_max) : budget_(bytes_max, body_bytes_max) {}

  BodyBudget& budget() { return budget_; }
  // `timer` is cancelled when the body has room.
  void Await(BodyBudget::Id id, boost::asio::steady_timer* timer) { timers_[id] = timer; }
  void StopWaiting(BodyBudget::Id id) { timers_.erase(id); }
  void WakeGiven();

 private:
  BodyBudget budget_;
  std::map<BodyBudget::Id, boost::asio::steady_timer*> timers_;
};

struct GatewayState {
  explicit GatewayState(GatewayOptions options_in = {})
      : options(std::move(options_in)), bodies(options.bodies_bytes_max, options.body_bytes_max) {}

  GatewayOptions options;
  BodyRooms bodies;
  InferenceBackend* backend = nullptr;
  std::shared_ptr<GatewayAccess> access;  // never null
  std::shared_ptr<boost::asio::io_context> io;
  // Reads large bodies, one after the other, beside the io thread (read_aside.h).
  boost::asio::thread_pool reader{1};
  // Until the memory of requests that ended is given back; empty: there is none.
  std::optional<boost::asio::steady_timer> release_pause;
  std::unique_ptr<TlsFiles> tls;  // null: plain HTTP alone
  const EndpointTable* endpoints = nullptr;
  std::set<HttpConnection*> open;  // each puts itself in, and takes itself out
  bool stopping = false;
  bool draining = false;  // connections end with the answer that they are at
  bool refusing = false;  // and requests for text are not begun
  dashboard::SnapshotCache snapshots;
  std::shared_ptr<const v1::ClusterStatus> status;  // that the newest snapshot is of
  // What those are shown of it that don't know all, by KnownModels::audience.
  std::map<std::string, dashboard::SnapshotCache> partial_snapshots;
  size_t dashboards = 0;  // that are told of each change
  size_t orders = 0;      // of pages, that are waited for
  // That are being read or answered.
  std::atomic<size_t> requests{0};
  std::atomic<size_t> connections{0};
  CorsPolicy cors;
};

// Counts one more in a member of the state for as long as it lives.
template <auto GatewayState::*kMember>
class Counted {
 public:
  explicit Counted(std::shared_ptr<GatewayState> state) : state_(std::move(state)) {
    ++((*state_).*kMember);
  }
  ~Counted() { --((*state_).*kMember); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::shared_ptr<GatewayState> state_;
};
using CountedRequest = Counted<&GatewayState::requests>;
using CountedDashboard = Counted<&GatewayState::dashboards>;
using CountedOrder = Counted<&GatewayState::orders>;

// A body's place among all, for as long as it lives.
class BodyPlace {
 public:
  BodyPlace(std::shared_ptr<GatewayState> state, const BodyBudget::Sender& sender, size_t bytes);
  ~BodyPlace();
  BodyPlace(const BodyPlace&) = delete;
  BodyPlace& operator=(const BodyPlace&) = delete;

  bool HasRoom() const { return state_->bodies.budget().HasRoom(id_); }
  void NoteReceived(size_t bytes);
  void NoteWhole(size_t bytes);
  bool IsTooSlow();
  BodyBudget::Id id() const { return id_; }

 private:
  std::shared_ptr<GatewayState> state_;
  const BodyBudget::Id id_;
};

// Bodies above this are read beside the io thread, and their memory is given back to the system.
inline constexpr size_t kLargeBodyBytes = 64 * 1024;

// Gives the memory of requests that have ended back to the system within a second, once for all
// that end until then.
void GiveMemoryBackSoon(const std::shared_ptr<GatewayState>& state);

// `prefix` and 32 random hex digits.
std::string RandomId(const char* prefix);

}  // namespace macrame::agentd
