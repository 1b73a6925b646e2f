#pragma once

// Whether a request to the HTTP API is let in, and as whom. Pure.
//
// Before any key exists, requests of this machine are served without one. Once one does (or with
// `gateway_keys: required`) every path asks for one but the open ones. Beyond loopback keys are
// asked for from the first request on, unless `gateway_open` says that everybody may come while
// there are none. Orders (load, unload, cordon) are taken without one from this machine's own page
// alone, and not where everybody may come; orders about keys never are. What a path needs stands in
// its row of the table of endpoints; paths that it does not have ask for a key as well, so that
// nobody without one learns what there is. Paths are compared as they came, byte by byte: another
// spelling ("%2f", "//", "..", upper case) is another path, and never an open one.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/access/api_key.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/http_reply.h"
#include "proto/rpc_method.h"

namespace macrame::agentd {

// What a request needs, by the row of its path (endpoint_table.h).
struct RouteAccess {
  bool is_open = false;
  uint32_t scopes = 0;  // one of these is needed; 0: any key will do
};

struct AccessRules {
  bool keys_required = false;  // also before there are any
  bool is_open = false;        // serve other machines too while there are no keys
};

struct AccessQuestion {
  RouteAccess needed;
  absl::string_view authorization;  // the header's value
  absl::string_view x_api_key;      // likewise
  bool from_loopback = false;
  // The page asks that this machine's gateway serves, in a browser on this machine, as far as the
  // request tells (request_head.h).
  bool by_own_page = false;
};

// Whose a request is.
struct Principal {
  std::string key_id;  // empty: nobody showed a key, and none was needed
  std::string tenant;  // empty: none
  uint32_t scopes = 0;
  std::vector<std::string> models;   // only these; empty: every one
  uint32_t requests_per_minute = 0;  // 0: no limit, as with the next two
  uint32_t tokens_per_minute = 0;
  uint32_t concurrent_requests = 0;

  bool operator==(const Principal&) const = default;
};

// Of a key that was checked, an access file's too.
Principal PrincipalOf(const v1::ApiKey& key);

struct AccessRefusal {
  ApiError error;
  HeaderFields headers;
  std::string key_id;  // of the key that was shown and is known; empty: none
};

// 401 invalid_api_key without a key or with one that is unknown, revoked or expired; 403 beyond its
// scopes.
std::variant<Principal, AccessRefusal> DecideAccess(const AccessQuestion& question,
                                                    const KeyTable& keys, const AccessRules& rules,
                                                    uint64_t now_unix_ms);

// Whether what was let in as `then`, and asks `deployment` (empty: none yet), may go on as `now`,
// which the same request would be let in as. Another tenant's prefixes and models end it.
bool MayGoOn(const Principal& then, const Principal& now, absl::string_view deployment);

// Whether the key of an access file may do what asks for `needed`. KEY_NOT_FOUND (UNAUTHENTICATED)
// when there is none, it has ended, or it is no access file's; BEYOND_SCOPE (PERMISSION_DENIED).
absl::Status CheckRemoteCall(const std::map<std::string, v1::ApiKey>& keys,
                             const std::string& key_id, Remote needed, uint64_t now_unix_ms);

// Whether it gets to see a deployment of this name that was loaded for `tenant` (empty: for all).
bool MaySee(const Principal& principal, absl::string_view deployment, absl::string_view tenant);
// 403 model_not_allowed when its key does not name the deployment. `asked`: how the request named
// it, where that was otherwise.
std::optional<ApiError> CheckModel(const Principal& principal, absl::string_view deployment,
                                   absl::string_view asked = "");

}  // namespace macrame::agentd
