#pragma once

// What the gateway is told when it starts. Every bound has a name here and a default that fits a
// machine that serves its own user or a small office.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/gateway/access/model_aliases.h"
#include "agentd/gateway/http/cluster_orders.h"
#include "agentd/gateway/http/request_record.h"
#include "agentd/gateway/http/request_trace.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::agentd {

struct MetricsPage {
  std::string content_type;
  // Never null. All who asked while it was made share it: it is whole, and each is shown what its
  // key may know of it.
  std::shared_ptr<const std::string> body;
};

struct GatewayOptions {
  std::string bind_address = "127.0.0.1";  // an IP address of this machine
  uint16_t port = 8000;                    // 0: any free one
  // Names under which clients may reach it besides localhost and addresses. A web page that has its
  // own name resolve to this machine is kept out by this list.
  std::vector<std::string> allowed_hosts;
  // Asks for the status that the dashboard shows; its argument is called once, from any thread.
  // Called from the gateway's thread. None: the dashboard's data is answered 503.
  std::function<void(std::function<void(v1::ClusterStatus)>)> ask_status;
  // JSON of how long tokens took in the last minutes. Called on the io thread. None: 503.
  std::function<std::shared_ptr<const std::string>()> latencies;
  // Gives the page's orders to the cluster. Called on the io thread. None: they are answered 503.
  GiveOrder give_order;
  // Members of this Unix group may give orders from this machine without a key while there is none,
  // as the agent's own user and root may (peer_user.h); empty: nobody else.
  std::string orders_group;
  // Which user a loopback connection is of, for tests; unset: as the system tells.
  std::function<std::optional<uint32_t>()> peer_user;
  // PEM files; none: no TLS. With them other machines have to use TLS; this one may.
  std::string tls_certificate;
  std::string tls_key;
  bool tls_awaited = false;    // the files are written by the agent, perhaps later
  bool keys_required = false;  // ask for keys before there are any
  bool open = false;           // serve other machines without a key while there are none
  std::string version;         // the product's, for /version and the server header
  // Pages of these origins may read answers (cors_policy.h); none: no page of another origin.
  std::vector<std::string> cors_origins;
  ModelAliases aliases;
  // Called on the io thread with a request's header Accept; `reply` once, from any thread. Unset:
  // there are no metrics.
  std::function<void(const std::string& accept, std::function<void(MetricsPage)> reply)> metrics;
  TraceOptions traces;
  // Called on the io thread when an answer is over. May be unset.
  std::function<void(const RequestRecord&)> on_request;

  size_t header_bytes_max = 16 * 1024;
  size_t body_bytes_max = 4 * 1024 * 1024;
  // Bodies that are received and held at once, over all connections (body_budget.h).
  size_t bodies_bytes_max = 40 * 1024 * 1024;
  size_t json_depth_max = 32;
  // Idle ones leave for others. Of another machine's address half of them at most; an eighth is
  // kept for addresses that have none yet and for this machine.
  size_t connections_max = 1024;
  // Text that a slow client has not taken yet; beyond it the request is cancelled.
  size_t unsent_bytes_max = 1024 * 1024;
  // Answer of one request that is not streamed.
  size_t answer_bytes_max = 16 * 1024 * 1024;
  // Numbers of one request's embeddings, as float32: 2048 of 4096 each. As a list of JSON they take
  // up to three times as much.
  size_t embeddings_bytes_max = 32 * 1024 * 1024;

  std::chrono::milliseconds idle_ms{60'000};       // between two requests of a connection
  std::chrono::milliseconds header_ms{10'000};     // from its first byte to its last
  std::chrono::milliseconds body_ms{30'000};       // from its first byte to its last
  std::chrono::milliseconds body_wait_ms{10'000};  // for room among those that are received
  std::chrono::milliseconds write_ms{30'000};      // one write that the client does not take
  // A stream's head waits for its first piece this long: a failure before has its own status.
  // Longer than it takes to find a node dead and a successor for what it had.
  std::chrono::milliseconds first_piece_ms{15'000};
  std::chrono::milliseconds keep_alive_ms{10'000};  // silence after which a comment is sent
  // Dashboards that are told of each change; further ones have to ask.
  size_t dashboards_max = 32;
  std::chrono::milliseconds status_ms{4'000};  // for the agent to tell its status
  // For the cluster to answer an order of the page; longer than agents wait for each other.
  std::chrono::milliseconds order_ms{60'000};
  size_t orders_max = 16;                               // that are waited for at once
  std::chrono::milliseconds dashboard_pause_ms{1'000};  // between two events of a dashboard
  // Silence of the model that ends a request. While a request waits for its turn and while its
  // prompt is computed the entry rank says so, which is none.
  std::chrono::milliseconds silence_ms{300'000};
  std::chrono::milliseconds queue_limit{600'000};  // for a turn at the model; 0: none
};

}  // namespace macrame::agentd
