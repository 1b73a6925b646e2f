#include "agentd/machine_platform.h"

#include <random>
#include <utility>

#include "agentd/links/thread_link_measurer.h"
#include "agentd/node/folder_model_library.h"
#include "agentd/node/grpc_channels.h"
#include "agentd/node/mlx_lm_probe.h"
#include "agentd/node/rankd_device_probe.h"
#include "discovery/beacons/socket_beacon_service.h"
#include "discovery/probe/machine_link_prober.h"
#include "discovery/probe/machine_prober.h"
#include "runtime/supervisor/process_supervisor.h"
#include "transport/grpc_channel.h"
#include "transport/grpc_server.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"
#include "transport/verbs/verbs_devices.h"

namespace macrame::agentd {

std::function<uint64_t()> MachinePlatform::Random() {
  auto generator = std::make_shared<std::mt19937_64>(std::random_device{}());
  return [generator] { return (*generator)(); };
}

std::unique_ptr<runtime::RankSupervisor> MachinePlatform::MakeSupervisor(
    runtime::SupervisorOptions options) {
  return std::make_unique<runtime::ProcessSupervisor>(std::move(options), &dispatcher_);
}

std::unique_ptr<discovery::InventoryProber> MachinePlatform::MakeInventoryProber(
    discovery::InventoryInputs inputs, uint64_t first_revision) {
  discovery::MachineProber::Options options;
  options.first_revision = first_revision;
  return std::make_unique<discovery::MachineProber>(dispatcher_, std::move(inputs), options);
}

std::unique_ptr<discovery::LinkProber> MachinePlatform::MakeLinkProber(discovery::LinkInputs inputs,
                                                                       Duration interval) {
  discovery::MachineLinkProber::Options options;
  options.interval = interval;
  options.is_mac = discovery::IsMacByCommands();
  options.verbs = [](bool* library_missing) {
    return transport::ListVerbsDevices(/*root=*/"", library_missing);
  };
  return std::make_unique<discovery::MachineLinkProber>(dispatcher_, std::move(inputs),
                                                        std::move(options));
}

std::unique_ptr<LinkMeasurer> MachinePlatform::MakeLinkMeasurer() {
  return std::make_unique<ThreadLinkMeasurer>(dispatcher_);
}

std::unique_ptr<ModelLibrary> MachinePlatform::MakeModelLibrary(std::vector<std::string> folders,
                                                                const std::string& rankd_path) {
  return std::make_unique<FolderModelLibrary>(dispatcher_, std::move(folders), rankd_path);
}

std::unique_ptr<SecondEngineProbe> MachinePlatform::MakeSecondEngineProbe() {
  return std::make_unique<MlxLmProbe>(dispatcher_);
}

std::unique_ptr<DeviceProbe> MachinePlatform::MakeDeviceProbe() {
  return std::make_unique<RankdDeviceProbe>(dispatcher_);
}

std::unique_ptr<discovery::BeaconService> MachinePlatform::MakeBeaconService(
    discovery::BeaconServiceOptions options, const v1::NodeIdentity& self,
    std::optional<discovery::BeaconTrust> trust, discovery::BeaconServiceCallbacks callbacks) {
  return std::make_unique<discovery::SocketBeaconService>(dispatcher_, std::move(options), self,
                                                          std::move(trust), std::move(callbacks));
}

std::unique_ptr<transport::RpcServer> MachinePlatform::MakeServer() {
  return std::make_unique<transport::GrpcServer>(dispatcher_);
}

PeerChannels::MakeChannel MachinePlatform::ChannelMaker(const NodeId& self) {
  return GrpcChannels(dispatcher_, self);
}

std::unique_ptr<transport::PeerChannel> MachinePlatform::ConnectToSelf(
    const std::string& socket_path, const NodeId& self) {
  auto channel = std::make_unique<transport::GrpcChannel>(
      dispatcher_, transport::PlainChannelCredentials(), "", self);
  channel->SetAddresses({transport::SocketTarget(socket_path)});
  return channel;
}

}  // namespace macrame::agentd
