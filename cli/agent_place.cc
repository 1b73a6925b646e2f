#include "cli/agent_place.h"

#include <filesystem>

#include "transport/access_file.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

bool Exists(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::exists(path, error);
}

}  // namespace

absl::StatusOr<AgentPlace> ChooseAgent(const PlaceFlags& flags, const Environment& environment) {
  AgentPlace place;
  if (!flags.socket.empty()) {
    if (!flags.access.empty() || !flags.host.empty()) {
      return absl::InvalidArgumentError(
          "--socket names this machine's agent, --access and --host one of another machine: give "
          "one of them");
    }
    place.socket_path = flags.socket;
    return place;
  }
  place.host = !flags.host.empty() ? flags.host : environment.variable("MACRAME_HOST");
  place.access_file = !flags.access.empty() ? flags.access : environment.variable("MACRAME_ACCESS");
  if (!place.access_file.empty()) return place;
  const std::string kept = transport::DefaultAccessFilePath();
  if (!place.host.empty()) {
    if (Exists(kept)) {
      place.access_file = kept;
      return place;
    }
    return absl::InvalidArgumentError(
        "a host is asked with an access file, which --access or MACRAME_ACCESS names: "
        "'clusterctl key create --access-file FILE' on a node with the secret file makes one");
  }
  place.socket_path = environment.variable("MACRAME_SOCKET");
  if (!place.socket_path.empty()) return place;
  place.socket_path = transport::SocketToAsk();
  if (!Exists(place.socket_path) && Exists(kept)) place.access_file = kept;
  return place;
}

}  // namespace macrame::cli
