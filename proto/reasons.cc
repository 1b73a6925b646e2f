#include "proto/reasons.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/utf8.h"

namespace macrame {
namespace {

constexpr std::array kReasonCodes = {
    // Everything that has no better code.
    ReasonCode{reasons::kInternal, "something failed in a way that has no code of its own", ""},
    // Nodes and membership.
    ReasonCode{reasons::kNodeSuspect, "heartbeats of a node are missing",
               "wait a few seconds; if it stays so, check that the machine is awake and cabled"},
    ReasonCode{reasons::kNodeDead, "a node has been silent for too long and is treated as dead",
               "start agentd on it again"},
    ReasonCode{reasons::kNodeLeft, "a node took itself out of the cluster, or was drained", ""},
    ReasonCode{reasons::kNodeCordoned, "a node takes nothing new because somebody cordoned it",
               "clusterctl uncordon NODE when it is to serve again"},
    ReasonCode{reasons::kAlertUndelivered, "an alert could not be delivered to the webhook",
               "look at alert_webhook in agentd.yaml, and whether that server answers"},
    ReasonCode{reasons::kClusterPaused,
               "the cluster takes no requests because somebody drained or stopped it",
               "clusterctl cluster start when it is to serve again"},
    ReasonCode{reasons::kOtherCluster, "a node on this network belongs to another cluster",
               "no action needed if this is intended; else give it this cluster's secret file"},
    ReasonCode{reasons::kNoSecret, "a node on this network has no cluster secret",
               "run 'clusterctl cluster token' where the secret file is, and 'clusterctl cluster "
               "join' with what it prints there; or copy this cluster's secret file to it"},
    ReasonCode{reasons::kBadSignature,
               "a beacon names this cluster but was not made with its secret",
               "give that node this cluster's present secret file"},
    ReasonCode{reasons::kTokenMalformed, "the text given to 'cluster join' is not a join token",
               "paste the whole line that 'clusterctl cluster token' printed"},
    ReasonCode{reasons::kTokenRefused, "a join token is unknown, expired or of another node",
               "make a new one with 'clusterctl cluster token' on a node with the secret file"},
    ReasonCode{reasons::kTokenUsed, "a join token has no uses left",
               "make a new one with 'clusterctl cluster token' on a node with the secret file"},
    ReasonCode{reasons::kJoinLimited, "too many tokens or attempts to join at once",
               "try again in a minute"},
    ReasonCode{reasons::kJoinPending, "a node waits for a person to let it join",
               "'clusterctl nodes approve NODE' on this machine, if it is yours"},
    ReasonCode{reasons::kJoinUnreachable, "no address in a join token lets this node in",
               "check that the token has not expired, that agentd runs on the node that made it, "
               "and that its join port is not blocked by a firewall"},
    ReasonCode{reasons::kWrongCluster, "the cluster that answered is not the one in the token",
               "make a new token on a node of the cluster that this machine should join"},
    ReasonCode{reasons::kMemberAlready, "this node already belongs to a cluster",
               "to move it to another cluster, stop agentd and remove its secret file or "
               "node.membership first"},
    ReasonCode{reasons::kNotKeeper, "this node does not have the cluster's secret file",
               "run the command on the machine where 'clusterctl cluster init' was run"},
    ReasonCode{
        reasons::kNodeRevoked, "a node was taken out of the cluster for good",
        "no action needed if this is intended; else remove its state folder and join it again"},
    ReasonCode{
        reasons::kCertExpiring, "a node's certificate expires soon and was not renewed",
        "start agentd on a machine that has the cluster's secret file, within reach of this one"},
    ReasonCode{reasons::kCertExpired, "a certificate is expired",
               "set the clock, if it is wrong; else join this node again: 'clusterctl cluster "
               "token' on a node with the secret file, 'clusterctl cluster join' here"},
    ReasonCode{reasons::kClockWrong, "a machine's clock is too wrong for certificates",
               "set both machines' clocks, by NTP"},
    ReasonCode{reasons::kPeerRefused,
               "a node of this cluster sends beacons, but connections to it fail",
               "look at the log of both agents; set the clocks; if its certificate is expired, "
               "join it again"},
    ReasonCode{reasons::kNodeIdClash, "two machines carry the same node id",
               "on the machine whose disk is the copy: stop agentd, run 'agentd --new-identity' "
               "once, and start it again"},
    ReasonCode{reasons::kOneWayReachable, "a node hears another that it can't call",
               "allow agentd's TCP port inbound in the firewall of the other node"},
    ReasonCode{reasons::kListenerFailed, "an agent can't listen on its own port",
               "look for another program on that port, or restart agentd"},
    ReasonCode{reasons::kNodeNotFound, "no node has this name or id",
               "'clusterctl devices list' shows all nodes"},
    ReasonCode{reasons::kNodeAmbiguous, "a name fits several nodes",
               "write the node's id, as 'clusterctl devices list' shows it"},
    ReasonCode{reasons::kNodeAlive, "a node that is alive can't be forgotten",
               "stop its agent first, or leave it listed"},
    ReasonCode{reasons::kMinority,
               "a node sees too few of the cluster's members to change anything",
               "connect the others or start their agents; 'clusterctl nodes forget NODE' removes "
               "one that is gone for good"},
    ReasonCode{reasons::kBeaconsMissing, "a peer hears this node but is not heard by it",
               "allow UDP 8888 inbound in this machine's firewall"},
    ReasonCode{reasons::kNotAnswered, "peers are heard by this node but do not hear it",
               "allow UDP 8888 outbound on this machine and inbound in the peers' firewalls"},
    ReasonCode{reasons::kHeardNobody, "no peer is heard on a network interface",
               "start agentd on the other machines; else allow UDP 8888 inbound in this machine's "
               "firewall, or name the others as seeds"},
    ReasonCode{reasons::kNoInterface, "there is no network interface to find peers on",
               "plug in a network, or correct the configured list of interfaces"},
    ReasonCode{
        reasons::kSendRefused, "the system does not let beacons out",
        "allow UDP 8888 outbound; on macOS also the agent under Privacy & Security, Local Network"},
    ReasonCode{reasons::kSeedUnresolved, "a configured seed has no address",
               "correct its name, or give its address"},
    ReasonCode{reasons::kHostnameClash, "two nodes carry the same hostname",
               "no action needed; rename one of them to tell them apart"},
    ReasonCode{reasons::kMembersFull, "the cluster has reached its maximum number of members",
               "start the cluster with fewer nodes, or make a second cluster"},
    // Facts about a machine.
    ReasonCode{reasons::kCommandMissing,
               "a system command that reports facts is missing on this machine", ""},
    ReasonCode{reasons::kCommandTimedOut, "a system command that reports facts timed out", ""},
    ReasonCode{reasons::kCommandFailed, "a system command that reports facts failed", ""},
    ReasonCode{reasons::kOutputUnreadable, "the output of a command or file could not be parsed",
               ""},
    ReasonCode{reasons::kFactUnknown, "a fact about a machine is unknown", ""},
    ReasonCode{reasons::kVersionSkew, "nodes run different versions of the agent",
               "install the same version on all nodes"},
    // Coordination.
    ReasonCode{reasons::kStaleTerm, "an order of a coordinator with an older term was refused", ""},
    ReasonCode{reasons::kNoCoordinator, "no coordinator is agreed on yet",
               "wait a few seconds and try again; 'clusterctl status' shows who is missing"},
    ReasonCode{reasons::kNotAcknowledged,
               "a change is not on disk on a majority of the live members",
               "try again; 'clusterctl status' shows who is missing"},
    ReasonCode{reasons::kWriteLost,
               "a change made while the cluster was split gave way to a newer one",
               "make the change again if it is still wanted"},
    ReasonCode{reasons::kStateUnreadable, "the desired state on disk can't be read",
               "move the state folder away; the node gets the state from its peers"},
    ReasonCode{reasons::kStateDiskFull, "the desired state can't be written to a node's disk",
               "free some disk space there; the node takes part again by itself"},
    // Models.
    ReasonCode{reasons::kModelNotFound, "no node has a model of this name",
               "'clusterctl model list' shows those that are there; a folder's path works too"},
    ReasonCode{reasons::kModelAmbiguous, "a name fits several models", "write the whole name"},
    ReasonCode{reasons::kModelFileMissing, "a file that the model's index names is not there",
               "fetch the model again, with all of its files"},
    ReasonCode{reasons::kModelFileBroken, "a weights file is truncated or its header is invalid",
               "fetch the file again and compare its size with the source's"},
    ReasonCode{reasons::kModelConfigInvalid,
               "config.json is missing, malformed or contradicts the weights",
               "fetch the model again, or correct its config.json"},
    ReasonCode{reasons::kModelArchitectureUnknown,
               "no engine of this cluster knows the architecture",
               "README.md lists those that this release serves"},
    ReasonCode{reasons::kModelFormatUnsupported,
               "the weights are stored in a way that can't be loaded",
               "safetensors in bf16, fp16, fp32, FP8, MXFP4, MXFP8, NVFP4 or MLX affine 2 to 6 or "
               "8 bit are accepted"},
    ReasonCode{reasons::kModelExists, "a model of this name is in the folder already",
               "give the new one another name, or remove the old one's folder"},
    ReasonCode{reasons::kDiskShort, "a disk has less free space than a file needs",
               "free some space, or name a folder on another disk"},
    ReasonCode{reasons::kDiskWriteFailed, "a file could not be written",
               "check the folder's owner and the disk's free space"},
    ReasonCode{reasons::kModelNotOnNode, "a node lacks the model's files, or has different ones",
               "copy the model's folder to that node, into one of its model folders"},
    ReasonCode{reasons::kTokenizerInvalid, "the tokenizer or chat template can't be used",
               "fetch tokenizer.json and tokenizer_config.json again"},
    ReasonCode{reasons::kDraftVocabularyDiffers, "a draft model has other tokens than the model",
               "take a draft model of the same family, or load the model without --draft-model"},
    ReasonCode{reasons::kDraftModelUnusable,
               "a draft model can't be used with this model or on these nodes",
               "load the model without --draft-model"},
    // Planning.
    ReasonCode{reasons::kMemoryShort, "the model needs more memory than there is",
               "use a smaller quantisation, a shorter context or more nodes"},
    ReasonCode{reasons::kNoOffer,
               "no machine in the price list can hold the model, or is fast enough",
               "ask for less speed, fewer users, a shorter context or fewer bits"},
    ReasonCode{reasons::kEvicted, "the deployment was preempted by one with a higher priority",
               "it comes back by itself when there is room again"},
    ReasonCode{reasons::kSlowerThanPredicted, "a model answers much slower than its plan predicted",
               "run 'clusterctl model check', then unload and load the model to plan again"},
    ReasonCode{reasons::kAwaitsRoom, "the deployment waits until those that it preempts are gone",
               ""},
    ReasonCode{reasons::kHeadsIndivisible,
               "the attention heads can't be divided by the tensor degree", ""},
    ReasonCode{reasons::kGroupsIndivisible, "quantisation groups would be cut by the tensor degree",
               ""},
    ReasonCode{reasons::kTooFewLayers, "more pipeline stages than layers", ""},
    ReasonCode{reasons::kTooFewNodes, "fewer usable nodes than ranks asked for",
               "add nodes or ask for fewer ranks"},
    ReasonCode{reasons::kNodeExcluded, "the options of the load leave this node out", ""},
    ReasonCode{reasons::kNodeNotAlive, "a node that is suspect, dead or left takes no ranks", ""},
    ReasonCode{reasons::kEngineMissing, "a node has no engine that can load the model",
               "install the engine on it; 'clusterctl devices list' shows what it has"},
    ReasonCode{reasons::kEngineFailed,
               "the process of the second engine, mlx-lm, ended or went silent",
               "its ranks are launched again by themselves; the rank's log has its last lines"},
    ReasonCode{reasons::kNodeDedicated, "the node serves another tenant only", ""},
    ReasonCode{reasons::kEngineLimit, "the engine can't divide a model in this way", ""},
    ReasonCode{reasons::kKvBitsUnsupported, "a node can't keep a KV cache with so few bits",
               "load it with --kv-bits 16 (the default)"},
    ReasonCode{reasons::kChosen, "the reason for a plan", ""},
    ReasonCode{reasons::kEngine, "the engine that serves a model, and how it can split it", ""},
    ReasonCode{reasons::kPredicted, "a speed that the cost model predicts", ""},
    ReasonCode{reasons::kNotChosen, "a shape that would work but was judged worse", ""},
    ReasonCode{reasons::kSnapshotStale, "the cluster changed after the plan was made",
               "plan again"},
    // Ranks.
    ReasonCode{reasons::kRankExited, "a rank process ended by itself",
               "the ranks are launched again by themselves; 'clusterctl events' tells which rank "
               "ended first, and why"},
    ReasonCode{reasons::kRankKilled, "a rank process was ended by a signal",
               "when it was the system's out-of-memory killer, choose a smaller context"},
    ReasonCode{reasons::kSplitDiffers,
               "the unequal slices of a tensor split do not add up to the model",
               "load it with --parallelism pipeline, and report this: it is a fault of rankd"},
    ReasonCode{reasons::kDeviceDiffers,
               "a node's GPU and its CPU compute different results for the model's layers",
               "restart that machine and update its system or its GPU's driver, then load again; "
               "or load on other nodes"},
    ReasonCode{reasons::kUnevenRefused, "a model is planned without slices of unequal width", ""},
    ReasonCode{reasons::kNodeFilesUnusable,
               "a model is planned without a node whose files of it can't be used",
               "copy the model's files to that node again, then load it"},
    ReasonCode{reasons::kRankStalled, "a rank process made no progress within its limit", ""},
    ReasonCode{reasons::kConnectFailed, "the ranks could not form their collective group",
               "'clusterctl status' names the rank; check the link between the nodes"},
    ReasonCode{reasons::kGangLostNode, "a node that held a rank is gone", ""},
    ReasonCode{reasons::kGangReunited, "a gang that was unreachable is back and serves again", ""},
    ReasonCode{reasons::kPortTaken, "a port that was reserved is in use by another program",
               "try again"},
    ReasonCode{reasons::kReservationLapsed, "a launch came after its reservation had lapsed",
               "try again"},
    ReasonCode{reasons::kGatewayOpen, "a node's HTTP API serves every client without a key",
               "make a key with 'clusterctl key create' (keys are required from then on), or set "
               "gateway_bind to 127.0.0.1"},
    ReasonCode{
        reasons::kGatewayWithoutKeys,
        "a node's HTTP API requires keys, but there are none: clients that need one are refused",
        "make one with 'clusterctl key create'"},
    ReasonCode{reasons::kKeyNotFound, "no valid API key has this id or name",
               "see 'clusterctl key list'"},
    ReasonCode{reasons::kBeyondScope, "the key of an access file lacks the scope for this command",
               "use an access file of a key with that scope, or ask on a node of the cluster"},
    ReasonCode{reasons::kLocalOnly, "this command works on the node itself only",
               "run the command on that node"},
    ReasonCode{
        reasons::kHttpsNotReady,
        "this node's gateway has no certificate yet, so other machines are not served",
        "start agentd on a machine that has the cluster's secret file, within reach of this one"},
    ReasonCode{reasons::kAuditUnwritable, "a node's audit log can't be written",
               "see whether the disk of its state folder is full, and whose the file is"},
    // Links: what a Mac's or a Linux machine's ports can do. One link needs all of it at both ends.
    ReasonCode{reasons::kNotMac, "the machine is not a Mac: it has no Thunderbolt RDMA", ""},
    ReasonCode{reasons::kNoThunderbolt, "no Thunderbolt controller was found", ""},
    ReasonCode{reasons::kVirtual, "a virtual machine has no Thunderbolt ports of its own",
               "run the agent on the machine itself", "admin"},
    ReasonCode{reasons::kOsTooOld, "RDMA over Thunderbolt needs macOS 26.2 or later",
               "update to macOS 26.2 or later (26.3 advised), the same build on all Macs", "admin"},
    ReasonCode{reasons::kTb4Controller,
               "the Thunderbolt controller is not Thunderbolt 5: macOS refuses RDMA on it", ""},
    ReasonCode{reasons::kRdmaCtlMissing, "this macOS has no rdma_ctl",
               "update to macOS 26.2 or later (26.3 advised)", "admin"},
    ReasonCode{reasons::kRdmaDisabledLocal, "RDMA is off on this Mac, as it is by default",
               "'clusterctl rdma guide NODE' has the steps: Recovery, Terminal, 'rdma_ctl enable', "
               "restart",
               "in person"},
    ReasonCode{
        reasons::kRdmaDisabledPeer, "RDMA is off on the Mac at the other end of the cable",
        "'clusterctl rdma guide NODE' for that Mac: Recovery, Terminal, 'rdma_ctl enable', restart",
        "in person"},
    ReasonCode{
        reasons::kNoRdmaDevice, "RDMA is on and the controller fits, yet no RDMA device is listed",
        "restart the Mac; then look for RDMA lines in its kernel log; update macOS", "admin"},
    ReasonCode{reasons::kNoPeer, "nothing, or no computer, is at this socket",
               "plug a Thunderbolt 5 cable from Mac to Mac", "hands"},
    ReasonCode{reasons::kPeerUnknown, "the computer at this socket runs no agent of this cluster",
               "start agentd there with this cluster's secret file"},
    ReasonCode{reasons::kPeerBehindDock, "a dock or hub stands between the two Macs",
               "cable straight from Mac to Mac", "hands"},
    ReasonCode{reasons::kLink40g, "the link runs at 40 Gb/s: RDMA needs 80",
               "a Thunderbolt 5 cable, straight, without dock or hub; then check for 80 Gb/s",
               "hands"},
    ReasonCode{reasons::kAsymmetricLink, "the link is in its 120/40 Gb/s mode, meant for displays",
               "take displays off this link; cable straight from Mac to Mac", "hands"},
    ReasonCode{reasons::kPortMap, "the network interface or RDMA device of the socket is unknown",
               "recable to another socket; restart the Mac", "hands"},
    ReasonCode{
        reasons::kPortDown, "the RDMA port is down",
        "turn RDMA on at the other end; else unplug and replug the cable; else restart both Macs",
        "hands"},
    ReasonCode{reasons::kNoIpv4, "the interface of this link has no IPv4 address",
               "'clusterctl net plan' gives each link static addresses", "root"},
    ReasonCode{reasons::kNoIpv4Gid, "the RDMA device has no IPv4-mapped GID",
               "'clusterctl net plan' gives each link static addresses", "root"},
    ReasonCode{
        reasons::kGidIndexShifted,
        "the IPv4-mapped GID is not at index 1, the only one that JACCL uses",
        "take extra addresses off the interface, then 'ifconfig IFACE down' and 'up'; else restart",
        "root"},
    ReasonCode{reasons::kSubnetMismatch,
               "the two ends are not in one subnet, or the subnet is on another interface too",
               "'clusterctl net plan' gives each link a subnet of its own", "root"},
    ReasonCode{reasons::kRouteWrongIf,
               "traffic to the peer leaves by another interface or a gateway",
               "'clusterctl net plan' gives each link a subnet of its own", "root"},
    ReasonCode{reasons::kBridgeMember, "the Thunderbolt interface is a member of a bridge",
               "turn off the service of that bridge: 'networksetup -listnetworkserviceorder' names "
               "it beside the device bridge0, 'sudo networksetup -setnetworkserviceenabled NAME "
               "off' turns it off",
               "root"},
    ReasonCode{reasons::kBridgeLoopRisk,
               "bridges on three or more Macs and their cables form a loop: a broadcast storm can "
               "take the network down",
               "turn the Thunderbolt Bridge off on each Mac before cabling further", "root"},
    ReasonCode{
        reasons::kInternetSharing, "Internet Sharing is on and makes bridge100",
        "System Settings, General, Sharing: Internet Sharing off; only then remove the bridge",
        "admin"},
    ReasonCode{reasons::kBridgeAddress, "an address on a bridge is never used between ranks", ""},
    ReasonCode{reasons::kFabricNotSeparate,
               "a Thunderbolt interface has a default route, forwards or is shared",
               "keep the default route on the LAN; turn forwarding off", "root"},
    ReasonCode{reasons::kOsMismatch, "the nodes run different builds of macOS",
               "install the same build on all Macs", "admin"},
    ReasonCode{reasons::kOsFrameMismatch,
               "some Macs run macOS 26.2 and others 26.3 or later: MLX sends RDMA frames of "
               "different sizes on them",
               "install the same macOS on all Macs, 26.3 or later", "admin"},
    ReasonCode{reasons::kPortNextToEthernet,
               "the socket beside the Ethernet port is reported not to work by some",
               "use another socket if one is free", "hands"},
    ReasonCode{reasons::kMaySleep, "the machine may go to sleep and drop its links",
               "'sudo pmset -a sleep 0'", "root"},
    ReasonCode{reasons::kLowPowerMode, "Low Power Mode is on", "turn it off in System Settings",
               "admin"},
    ReasonCode{reasons::kThermal, "the machine is throttled by heat", "improve its cooling"},
    ReasonCode{reasons::kMemoryPressure, "the system reports memory pressure",
               "end other programs, or plan with a smaller context"},
    ReasonCode{reasons::kMlxOld, "this MLX is too old for the backend",
               "install the MLX that this release was built with", "admin"},
    ReasonCode{reasons::kMlxInternal, "MLX met a state that it does not expect",
               "report it with the MLX version and the rank's log"},
    ReasonCode{reasons::kMlxUse, "MLX was started with settings that do not fit",
               "start ranks through the agent, or compare with 'clusterctl export hostfile --env'"},
    ReasonCode{reasons::kResourceExhausted,
               "the RDMA device has no protection domains, queue pairs or memory regions left: "
               "killed programs leaked them",
               "end RDMA programs in order, never with SIGKILL; restart this machine", "admin"},
    ReasonCode{reasons::kSecondCableUnused,
               "a further cable between two Macs that JACCL leaves unused: its mesh takes one of "
               "each pair, its ring as many as the pair with the fewest has, four at most",
               ""},
    ReasonCode{reasons::kMeshIncomplete, "not every pair of nodes has an RDMA link of its own",
               "add the cables that are named", "hands"},
    ReasonCode{reasons::kTooManyPeers, "more nodes than the RDMA mesh takes", ""},
    ReasonCode{reasons::kNoRing,
               "the links form neither a mesh nor a ring, and the nodes share no network",
               "add the cables that are named, or put all nodes on one LAN", "hands"},
    ReasonCode{reasons::kCoordinator, "no rank 0 is known that every rank reaches",
               "put rank 0 on the LAN; allow its port in its firewall", "admin"},
    ReasonCode{
        reasons::kLocalNetworkPrivacy, "macOS does not let this program reach the local network",
        "System Settings, Privacy & Security, Local Network; or run agentd as a LaunchDaemon",
        "user session"},
    ReasonCode{reasons::kLinkFlaps, "the link at a socket comes and goes",
               "seat the plug again; else another cable, then another socket", "hands"},
    ReasonCode{reasons::kFirmwareOld,
               "a Mac has an older system firmware than one of the same model and macOS",
               "install the newest macOS on it, which brings the firmware along; else revive it "
               "with Apple Configurator",
               "admin"},
    ReasonCode{reasons::kGpuWedged, "the GPU stays busy though the rank that used it has ended",
               "end another program that computes there; else restart this machine", "admin"},
    ReasonCode{reasons::kNodeCrashed, "a machine restarted while it served",
               "look for a panic report on it; two in an hour keep it off RDMA", "admin"},
    ReasonCode{reasons::kLatencyHigh,
               "small messages take longer than this kind of link should need",
               "'clusterctl links bench' under no load; look for a busy link or a wrong path"},
    ReasonCode{reasons::kWrongPath, "traffic takes a slower path though a faster one is up",
               "'clusterctl links recheck'"},
    ReasonCode{reasons::kPathNotChosen, "another path between the same nodes was found better", ""},
    ReasonCode{reasons::kVpnNotUsed, "an address of a VPN is not used between ranks unless asked",
               "set allow_vpn"},
    ReasonCode{reasons::kLinkUnreachable, "nothing gets through between two addresses",
               "check cable, addresses, routes and firewalls of both ends", "admin"},
    ReasonCode{reasons::kVerbsLibraryMissing, "libibverbs is not installed",
               "install rdma-core (Debian: libibverbs1 ibverbs-providers)", "root"},
    ReasonCode{reasons::kNoVerbsDevice, "libibverbs lists no device", ""},
    ReasonCode{reasons::kNoProtectionDomain, "a verbs device gives no protection domain",
               "look at its driver and the locked-memory limit (ulimit -l)", "root"},
    ReasonCode{reasons::kConflictingFacts, "two sources about one fact disagree",
               "report it with 'clusterctl doctor --report'"},
    ReasonCode{reasons::kRefusalRemembered,
               "a backend failed here before and nothing has changed since",
               "'clusterctl links recheck' tries again"},
    ReasonCode{reasons::kTransportFallback, "a gang fell back to a slower backend",
               "'clusterctl doctor' says why"},
    ReasonCode{reasons::kFastSynchSuspended,
               "a gang stalled over jaccl while MLX's fast GPU synchronisation was on, and was "
               "launched without it",
               "no action needed; set 'metal_fast_synch: off' to keep it off"},
    ReasonCode{reasons::kTransportUnavailable,
               "the transport that was asked for can't be used on these nodes",
               "ask for another, or leave --transport out; 'clusterctl doctor' says why"},
    ReasonCode{reasons::kRdmaUnavailable,
               "nodes have no RDMA between them, or not all of them have",
               "leave --transport out, or give them what the message says that they lack"},
    ReasonCode{reasons::kRendezvousUnreachable,
               "a rank can't reach the rendezvous address of rank 0",
               "check route and firewall between the two nodes", "admin"},
    ReasonCode{reasons::kPhaseDeadline, "a phase of the launch took longer than its limit", ""},
    ReasonCode{reasons::kInitStalled, "both ends started and the collective group made no progress",
               ""},
    ReasonCode{reasons::kGroupMismatch,
               "the collective group came up smaller than asked, or on another backend", ""},
    ReasonCode{reasons::kPeerLost, "a rank of the group is gone or does not answer",
               "the ranks are launched again by themselves; 'clusterctl events' tells which rank "
               "ended first, and why"},
    ReasonCode{reasons::kMatrixWrong,
               "the device matrix is neither a mesh nor a ring, or names a wrong device",
               "make it with 'clusterctl export hostfile'"},
    ReasonCode{reasons::kHostfileWrong, "a host file that mlx.launch would refuse or misread",
               "correct the line that is named"},
    ReasonCode{reasons::kLaunchEnv,
               "a rank was started without the settings that its backend needs",
               "start ranks through the agent, or compare with 'clusterctl export hostfile --env'"},
    ReasonCode{reasons::kMlxBuild, "this build of MLX lacks the backend",
               "install MLX's own wheel or build it with the backend", "admin"},
    ReasonCode{reasons::kRingNonNeighbour,
               "a message was sent to a rank that is not a neighbour in the ring", ""},
    ReasonCode{reasons::kSsh, "a host can't be reached by ssh without a password",
               "set up a key for it: 'ssh-copy-id HOST'", "admin"},
    ReasonCode{reasons::kPrivilege, "a host does not let this user act as root without a password",
               "carry out the printed commands there yourself", "root"},
    ReasonCode{reasons::kAddressCollision, "a subnet is in use on another interface already",
               "choose another block with --block", "root"},
    ReasonCode{reasons::kNotRoot, "this needs root", "run it with sudo", "root"},
    ReasonCode{reasons::kCollectiveFailed, "a collective over the group failed", ""},
    // Requests.
    ReasonCode{reasons::kBadRequest, "the request is malformed", ""},
    ReasonCode{reasons::kPromptTooLong, "the prompt does not fit into the context",
               "shorten it, or load the model with a larger --context"},
    ReasonCode{reasons::kModelHasNoEmbeddings,
               "the request asks for an embedding, but the model makes none",
               "load a model that makes embeddings, such as Qwen3-Embedding, and name it"},
    ReasonCode{reasons::kModelHasNoText,
               "the request asks for text, but the model makes embeddings only",
               "send the request to /v1/embeddings, or name a model that makes text"},
    ReasonCode{reasons::kDimensionsTooMany,
               "the request asks for more dimensions than the model's embeddings have",
               "ask for fewer 'dimensions', or leave them out"},
    ReasonCode{reasons::kStructureRefused, "the answer can't be held to the schema or grammar", ""},
    ReasonCode{reasons::kTemplateRefused, "the model's chat template refuses these messages", ""},
    ReasonCode{reasons::kQueueFull, "the queue is full", "try again in a moment"},
    ReasonCode{reasons::kQueueTimeout, "the request waited in the model's queue for too long",
               "try again later, or load a replica; gateway_queue_limit_s says how long one waits"},
    ReasonCode{reasons::kNotReady, "the model is loading or being recovered",
               "try again in a moment"},
    ReasonCode{reasons::kModelNotLoaded, "no deployment has this name",
               "load it with 'clusterctl model load NAME'"},
    ReasonCode{reasons::kEntryUnreachable, "the node that holds the entry rank does not answer",
               "try again in a moment; the cluster recovers by itself"},
    ReasonCode{reasons::kAgentUnreachable, "agentd does not answer",
               "start agentd, or name its socket with --socket"},
    ReasonCode{reasons::kConfigInvalid, "a setting is unknown or out of bounds",
               "'agentd --print-config' lists every setting with its bounds"},
};

}  // namespace

std::span<const ReasonCode> AllReasonCodes() { return kReasonCodes; }

const ReasonCode* FindReasonCode(std::string_view code) {
  for (const ReasonCode& known : kReasonCodes) {
    if (known.code == code) return &known;
  }
  return nullptr;
}

v1::Reason MakeReason(std::string_view code, std::string message, std::string node_id) {
  const ReasonCode* known = FindReasonCode(code);
  MACRAME_CHECK(known != nullptr) << "reason code '" << code << "' is not listed";
  v1::Reason reason;
  reason.set_code(std::string(code));
  // Names from outside may be cut within a character, and a message of protobuf with such a text
  // can't be read by whom it is sent to.
  reason.set_message(AsUtf8(message, "\uFFFD"));
  reason.set_remedy(std::string(known->remedy));
  reason.set_who(std::string(known->who));
  reason.set_node_id(AsUtf8(node_id, "\uFFFD"));
  return reason;
}

absl::Status ReasonStatus(absl::StatusCode status_code, const v1::Reason& reason) {
  std::string text = reason.message();
  if (!reason.remedy().empty()) absl::StrAppend(&text, ". ", reason.remedy());
  absl::Status status(status_code, text);
  status.SetPayload(absl::string_view(kReasonPayloadUrl.data(), kReasonPayloadUrl.size()),
                    absl::Cord(reason.SerializeAsString()));
  return status;
}

absl::Status ReasonStatus(absl::StatusCode status_code, std::string_view code, std::string message,
                          std::string node_id) {
  return ReasonStatus(status_code, MakeReason(code, std::move(message), std::move(node_id)));
}

v1::Reason ReasonOf(const absl::Status& status) {
  v1::Reason reason;
  const auto payload =
      status.GetPayload(absl::string_view(kReasonPayloadUrl.data(), kReasonPayloadUrl.size()));
  if (payload.has_value() && reason.ParseFromString(std::string(*payload))) return reason;
  reason.set_code(reasons::kInternal);
  reason.set_message(std::string(status.message()));
  return reason;
}

}  // namespace macrame
