#include "proto/reasons.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame {
namespace {

constexpr std::array kReasonCodes = {
    // Everything that has no better code.
    ReasonCode{"INTERNAL", "something failed in a way that has no code of its own", ""},
    // Nodes and membership.
    ReasonCode{"NODE_SUSPECT", "heartbeats of a node are missing",
               "wait a few seconds; if it stays so, check that the machine is awake and cabled"},
    ReasonCode{"NODE_DEAD", "a node has not been heard for so long that it is not counted on",
               "start agentd on it again"},
    ReasonCode{"NODE_LEFT", "a node took itself out of the cluster", ""},
    ReasonCode{"OTHER_CLUSTER", "a node on this network belongs to another cluster",
               "nothing, if that is meant; else give it this cluster's secret file"},
    ReasonCode{"NO_SECRET", "a node on this network has no cluster secret",
               "copy this cluster's secret file to it (mode 0600) and start its agentd with it"},
    ReasonCode{"BAD_SIGNATURE", "a beacon names this cluster but was not made with its secret",
               "give that node this cluster's present secret file"},
    ReasonCode{"NODE_ID_CLASH", "two machines carry the same node id",
               "delete the state folder of the machine that was cloned and start it again"},
    ReasonCode{"NODE_NOT_FOUND", "no node of this name or id",
               "'clusterctl devices list' shows all nodes"},
    ReasonCode{"NODE_AMBIGUOUS", "a name fits several nodes",
               "write the node's id, as 'clusterctl devices list' shows it"},
    ReasonCode{"UNHEARD", "a peer hears this node but is not heard by it",
               "allow UDP 8888 inbound in this machine's firewall"},
    ReasonCode{"NOT_ANSWERED", "peers are heard by this node but do not hear it",
               "allow UDP 8888 outbound on this machine and inbound in the peers' firewalls"},
    ReasonCode{"HEARD_NOBODY", "no peer is heard on a network interface",
               "start agentd on the other machines; else allow UDP 8888 inbound in this machine's "
               "firewall, or name the others as seeds"},
    ReasonCode{"NO_INTERFACE", "no network interface is there to find peers on",
               "plug in a network, or correct the configured list of interfaces"},
    ReasonCode{"SEND_REFUSED", "the system does not let beacons out",
               "allow UDP 8888 outbound; on macOS also the agent under Privacy & Security, Local "
               "Network"},
    ReasonCode{"SEED_UNRESOLVED", "a configured seed has no address",
               "correct its name, or give its address"},
    ReasonCode{"HOSTNAME_CLASH", "two nodes carry the same hostname",
               "nothing needs doing; rename one of them to tell them apart more easily"},
    ReasonCode{"MEMBERS_FULL", "the cluster has as many members as it may",
               "start the cluster with fewer nodes, or make a second cluster"},
    // Facts about a machine.
    ReasonCode{"COMMAND_MISSING", "a command that tells a fact is not on this machine", ""},
    ReasonCode{"COMMAND_TIMED_OUT", "a command that tells a fact did not end in time", ""},
    ReasonCode{"COMMAND_FAILED", "a command that tells a fact failed", ""},
    ReasonCode{"OUTPUT_UNREADABLE", "a command or file did not say what it was asked", ""},
    ReasonCode{"FACT_UNKNOWN", "a fact could not be found out", ""},
    ReasonCode{"VERSION_SKEW", "nodes run different versions of the agent",
               "install the same version on all nodes"},
    // Coordination.
    ReasonCode{"STALE_TERM", "an order came from a coordinator of an older term", ""},
    ReasonCode{"NO_COORDINATOR", "no coordinator is agreed on yet",
               "wait a few seconds and try again; 'clusterctl status' shows who is missing"},
    ReasonCode{"NOT_ACKNOWLEDGED", "a change is not on disk on a majority of the live members",
               "try again; 'clusterctl status' shows who is missing"},
    ReasonCode{"WRITE_LOST", "a change made while the cluster was split gave way to a newer one",
               "make the change again if it is still wanted"},
    ReasonCode{"STATE_UNREADABLE", "the desired state on disk can't be read",
               "move the state folder away; the node gets the state from its peers"},
    // Models.
    ReasonCode{"MODEL_NOT_FOUND", "no node has a model of this name",
               "'clusterctl model list' shows those that are there; a folder's path works too"},
    ReasonCode{"MODEL_AMBIGUOUS", "a name fits several models", "write the whole name"},
    ReasonCode{"MODEL_FILE_MISSING", "a file that the model's index names is not there",
               "fetch the model again, with all of its files"},
    ReasonCode{"MODEL_FILE_BROKEN", "a weights file is cut short or its header does not hold",
               "fetch the file again and compare its size with the source's"},
    ReasonCode{"MODEL_CONFIG_INVALID",
               "config.json is missing, malformed or contradicts the weights",
               "fetch the model again, or correct its config.json"},
    ReasonCode{"MODEL_ARCHITECTURE_UNKNOWN", "no engine of this cluster knows the architecture",
               "llama, qwen2, qwen3 and mistral are known"},
    ReasonCode{"MODEL_FORMAT_UNSUPPORTED", "the weights are stored in a way that can't be loaded",
               "safetensors in bf16, fp16, fp32 or MLX affine 4, 6 or 8 bit are accepted"},
    ReasonCode{"MODEL_NOT_ON_NODE", "a node lacks the model's files, or has other ones",
               "copy the model's folder to that node, into one of its model folders"},
    ReasonCode{"TOKENIZER_INVALID", "the tokenizer or chat template can't be used",
               "fetch tokenizer.json and tokenizer_config.json again"},
    // Planning.
    ReasonCode{"MEMORY_SHORT", "the model needs more memory than there is",
               "use a smaller quantisation, a shorter context or more nodes"},
    ReasonCode{"HEADS_INDIVISIBLE", "the attention heads can't be divided by the tensor degree",
               ""},
    ReasonCode{"GROUPS_INDIVISIBLE", "quantisation groups would be cut by the tensor degree", ""},
    ReasonCode{"TOO_FEW_LAYERS", "more pipeline stages than layers", ""},
    ReasonCode{"TOO_FEW_NODES", "fewer usable nodes than ranks asked for",
               "add nodes or ask for fewer ranks"},
    ReasonCode{"NODE_EXCLUDED", "the wishes leave this node out", ""},
    ReasonCode{"NODE_NOT_ALIVE", "a node that is suspect, dead or left takes no ranks", ""},
    ReasonCode{"ENGINE_MISSING", "a node has no engine that can load the model",
               "install the engine on it; 'clusterctl devices list' shows what it has"},
    ReasonCode{"CHOSEN", "why a plan was taken", ""},
    ReasonCode{"NOT_CHOSEN", "a shape that would work but was judged worse", ""},
    ReasonCode{"SNAPSHOT_STALE", "the cluster changed after the plan was made", "plan again"},
    // Ranks.
    ReasonCode{"RANK_EXITED", "a rank process ended by itself", "its last words say why"},
    ReasonCode{"RANK_KILLED", "a rank process was ended by a signal",
               "when it was the system's out-of-memory killer, choose a smaller context"},
    ReasonCode{"RANK_STALLED", "a rank process made no progress within its limit", ""},
    ReasonCode{"CONNECT_FAILED", "the ranks could not form their collective group",
               "'clusterctl status' names the rank; check the link between the nodes"},
    ReasonCode{"GANG_LOST_NODE", "a node that held a rank is gone", ""},
    ReasonCode{"PORT_TAKEN", "a port that was reserved is in use by another program", "try again"},
    ReasonCode{"RESERVATION_LAPSED", "a launch came after its reservation had lapsed", "try again"},
    // Requests.
    ReasonCode{"BAD_REQUEST", "a request that can't be understood", ""},
    ReasonCode{"PROMPT_TOO_LONG", "the prompt does not fit into the context",
               "shorten it, or load the model with a larger --context"},
    ReasonCode{"TEMPLATE_REFUSED", "the model's chat template refuses these messages", ""},
    ReasonCode{"QUEUE_FULL", "as many requests wait as may", "try again in a moment"},
    ReasonCode{"NOT_READY", "the model is loading or being recovered", "try again in a moment"},
    ReasonCode{"MODEL_NOT_LOADED", "no deployment of this name",
               "load it with 'clusterctl model load NAME'"},
    ReasonCode{"ENTRY_UNREACHABLE", "the node that holds the entry rank does not answer",
               "try again in a moment; the cluster recovers by itself"},
    ReasonCode{"AGENT_UNREACHABLE", "agentd does not answer",
               "start agentd, or name its socket with --socket"},
    ReasonCode{"CONFIG_INVALID", "a setting is unknown or out of bounds",
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
  reason.set_message(std::move(message));
  reason.set_remedy(std::string(known->remedy));
  reason.set_node_id(std::move(node_id));
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
  reason.set_code("INTERNAL");
  reason.set_message(std::string(status.message()));
  return reason;
}

}  // namespace macrame
