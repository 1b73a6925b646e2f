#pragma once

// What is served where: one row for each path, with its methods, what a request needs to be let in,
// and who answers it. What is not in the table is not served. The rows are in endpoints.cc; this
// file is all that connections know of them. Pure.

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/dialects/dialect.h"

namespace macrame::agentd {

class Exchange;

// What requests for a path need, by their method.
struct AccessRow {
  bool is_open = false;   // GET and HEAD need nothing
  uint32_t reading = 0;   // scopes, of GET and HEAD
  uint32_t changing = 0;  // of other methods
};

enum class BodyUse {
  kNone,
  kRead,     // it is read, within the limits of the key, before the endpoint is asked
  kByItsOwn  // the endpoint reads it
};

struct Endpoint {
  absl::string_view path;     // one that ends in a slash: what stands before a name
  absl::string_view methods;  // as the Allow header lists them
  AccessRow access;
  BodyUse body;
  // Answers a request of these methods that was let in. Whether its connection can take another.
  boost::asio::awaitable<bool> (*answer)(Exchange& exchange);
  // Other paths that it serves; null: none.
  bool (*is_also_at)(absl::string_view path) = nullptr;

  bool has_name() const { return path.size() > 1 && path.back() == '/'; }
};

// What paths need that are no endpoint's, so that nobody learns without it that there is none.
struct UnknownAccess {
  absl::string_view begin;
  AccessRow access;
};

class EndpointTable {
 public:
  // Both outlive it. The first row that fits counts.
  constexpr EndpointTable(std::span<const Endpoint> rows, std::span<const UnknownAccess> unknown)
      : rows_(rows), unknown_(unknown) {}

  std::span<const Endpoint> rows() const { return rows_; }
  // Null when nothing is served at `path` (without its query).
  const Endpoint* Find(absl::string_view path) const;
  RouteAccess AccessOf(absl::string_view method, absl::string_view path) const;
  // What an unknown path is answered: all paths that there are, with their methods.
  std::string UnknownPathText() const;

 private:
  std::span<const Endpoint> rows_;
  std::span<const UnknownAccess> unknown_;
};

bool MethodFits(const Endpoint& endpoint, absl::string_view method);
// 405 with the Allow header.
HttpReply MethodNotAllowed(const Endpoint& endpoint, Dialect dialect,
                           const std::string& request_id);

}  // namespace macrame::agentd
