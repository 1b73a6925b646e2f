#include "agentd/gateway/http/endpoint_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

bool IsAt(const Endpoint& endpoint, absl::string_view path) {
  if (endpoint.is_also_at != nullptr && endpoint.is_also_at(path)) return true;
  if (!endpoint.has_name()) return path == endpoint.path;
  return path.size() > endpoint.path.size() && absl::StartsWith(path, endpoint.path);
}

// Nothing that a server could take for another path than the one that it spells.
bool IsPlainPath(absl::string_view path) {
  return !absl::StrContains(path, "//") && !absl::StrContains(path, "/.") &&
         std::all_of(path.begin(), path.end(), [](unsigned char c) {
           return c > 32 && c < 127 && c != '%' && c != '\\' && c != ';';
         });
}

}  // namespace

const Endpoint* EndpointTable::Find(absl::string_view path) const {
  for (const Endpoint& endpoint : rows_) {
    if (IsAt(endpoint, path)) return &endpoint;
  }
  return nullptr;
}

RouteAccess EndpointTable::AccessOf(absl::string_view method, absl::string_view path) const {
  AccessRow row;
  if (const Endpoint* endpoint = Find(path)) {
    row = endpoint->access;
  } else {
    const auto found = std::find_if(unknown_.begin(), unknown_.end(), [&](const auto& one) {
      return absl::StartsWith(path, one.begin);
    });
    if (found != unknown_.end()) row = found->access;
  }
  const bool reads = method == "GET" || method == "HEAD";
  if (row.is_open) return {reads && IsPlainPath(path), 0};
  return {false, reads ? row.reading : row.changing};
}

std::string EndpointTable::UnknownPathText() const {
  std::string paths;
  for (const Endpoint& endpoint : rows_) {
    absl::StrAppend(&paths, paths.empty() ? "" : ", ", endpoint.methods, " ", endpoint.path,
                    endpoint.has_name() ? "NAME" : "");
  }
  return absl::StrCat("There is nothing at this path. There are: ", paths, ".");
}

bool MethodFits(const Endpoint& endpoint, absl::string_view method) {
  for (const absl::string_view allowed : absl::StrSplit(endpoint.methods, ", ")) {
    if (method == allowed) return true;
  }
  return false;
}

HttpReply MethodNotAllowed(const Endpoint& endpoint, Dialect dialect,
                           const std::string& request_id) {
  HttpReply reply;
  reply.status = 405;
  reply.body = DialectErrorBody(
      dialect,
      HttpError(405, absl::StrCat("This path takes ", endpoint.methods, "."), "method_not_allowed"),
      request_id);
  reply.headers.emplace_back("allow", std::string(endpoint.methods));
  return reply;
}

}  // namespace macrame::agentd
