#include "discovery/beacons/beacon_codec.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "discovery/base/incarnation_bound.h"
#include "discovery/base/plain_text.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/check.h"

namespace macrame::discovery {
namespace {

constexpr std::string_view kMagic = "MCRM";
constexpr uint8_t kVersion = 1;
constexpr size_t kHeaderBytes = 8;
constexpr size_t kPayloadBytesMax = kBeaconBytesMax - kHeaderBytes - kBeaconTagBytes;

bool IsBytes(int field) {
  return field == v1::Beacon::kClusterFingerprintFieldNumber ||
         field == v1::Beacon::kMachineFieldNumber;
}

// Protobuf would refuse a string that is not UTF-8 too, but says so on stderr each time: whoever
// can send datagrams could fill the log. Only the wire types that Beacon has are let through.
bool StringsArePlain(std::string_view payload) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(payload.data()),
                                            static_cast<int>(payload.size()));
  using google::protobuf::internal::WireFormatLite;
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t number = 0;
    uint32_t length = 0;
    std::string text;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        if (!in.ReadVarint64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!in.ReadLittleEndian64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        if (!in.ReadVarint32(&length) || length > payload.size()) return false;
        if (!in.ReadString(&text, static_cast<int>(length))) return false;
        if (!IsBytes(WireFormatLite::GetTagFieldNumber(tag)) && !IsPlainText(text)) return false;
        break;
      default:
        return false;
    }
  }
  return in.ConsumedEntireMessage();
}

// Whether the fields can be what a codec made; a valid tag does not make a bug harmless.
bool FieldsHold(const v1::Beacon& beacon) {
  return IsValidNodeId(beacon.node_id()) &&
         beacon.cluster_name().size() <= kBeaconClusterNameBytesMax &&
         beacon.hostname().size() <= kBeaconHostnameBytesMax &&
         beacon.agent_version().size() <= kBeaconVersionBytesMax &&
         beacon.control_port() <= 65535 && beacon.incarnation() <= kIncarnationMax &&
         (beacon.machine().empty() || beacon.machine().size() == kBeaconMachineBytes) &&
         (beacon.cluster_fingerprint().empty() ||
          beacon.cluster_fingerprint().size() == kBeaconFingerprintBytes) &&
         // A cluster has both or neither.
         beacon.cluster_fingerprint().empty() == beacon.cluster_name().empty() &&
         std::all_of(beacon.heard_node_ids().begin(), beacon.heard_node_ids().end(),
                     [](const std::string& id) { return IsValidNodeId(id); });
}

absl::Status CheckTrust(const std::optional<BeaconTrust>& trust) {
  if (!trust.has_value()) return absl::OkStatus();
  if (trust->key.size() != kBeaconKeyBytes) {
    return absl::InvalidArgumentError(
        "the cluster secret's beacon key does not have 32 bytes; "
        "copy the secret file again from a node that works");
  }
  if (trust->fingerprint.size() != kBeaconFingerprintBytes || trust->cluster_name.empty() ||
      trust->cluster_name.size() > kBeaconClusterNameBytesMax ||
      !IsPlainText(trust->cluster_name)) {
    return absl::InvalidArgumentError(
        "the cluster secret has no usable name or fingerprint; "
        "copy the secret file again from a node that works");
  }
  return absl::OkStatus();
}

}  // namespace

BeaconCodec::BeaconCodec(Self self, std::optional<BeaconTrust> trust)
    : self_(std::move(self)), trust_(std::move(trust)) {
  const absl::Status status = CheckTrust(trust_);
  MACRAME_CHECK(status.ok()) << status.message();
  if (trust_) signer_.emplace(trust_->key);
}

absl::Status BeaconCodec::SetTrust(std::optional<BeaconTrust> trust) {
  const absl::Status status = CheckTrust(trust);
  if (!status.ok()) return status;
  // The windows hold what the old key vouched for.
  windows_.clear();
  trust_ = std::move(trust);
  signer_.reset();
  if (trust_) signer_.emplace(trust_->key);
  return absl::OkStatus();
}

std::string BeaconCodec::Encode(v1::Beacon beacon) {
  beacon.set_node_id(self_.node_id.value());
  beacon.set_incarnation(self_.incarnation.value());
  beacon.set_control_port(self_.control_port);
  beacon.set_machine(self_.machine);
  beacon.set_sequence(++sequence_);
  beacon.set_cluster_name(trust_ ? trust_->cluster_name : "");
  beacon.set_cluster_fingerprint(trust_ ? trust_->fingerprint : "");
  beacon.set_hostname(ToPlainText(beacon.hostname(), kBeaconHostnameBytesMax));
  beacon.set_agent_version(ToPlainText(beacon.agent_version(), kBeaconVersionBytesMax));
  while (beacon.ByteSizeLong() > kPayloadBytesMax && beacon.heard_node_ids_size() > 0) {
    beacon.mutable_heard_node_ids()->RemoveLast();
  }
  last_heard_count_ = static_cast<size_t>(beacon.heard_node_ids_size());
  const std::string payload = beacon.SerializeAsString();
  MACRAME_CHECK(payload.size() <= kPayloadBytesMax) << "beacon of " << payload.size() << " bytes";

  std::string frame(kMagic);
  frame.push_back(static_cast<char>(kVersion));
  frame.push_back('\0');
  frame.push_back(static_cast<char>(payload.size() >> 8));
  frame.push_back(static_cast<char>(payload.size() & 0xFF));
  frame += payload;
  frame += (trust_ ? *signer_ : keyless_).Tag(frame);
  return frame;
}

DecodedBeacon BeaconCodec::Decode(std::string_view datagram) {
  ++decoded_;
  DecodedBeacon decoded = Judge(datagram);
  ++counts_[static_cast<size_t>(decoded.verdict)];
  return decoded;
}

DecodedBeacon BeaconCodec::Judge(std::string_view datagram) {
  DecodedBeacon decoded;
  if (datagram.size() < kHeaderBytes || datagram.substr(0, kMagic.size()) != kMagic) return decoded;
  if (static_cast<uint8_t>(datagram[4]) != kVersion) {
    decoded.verdict = BeaconVerdict::kOtherVersion;
    return decoded;
  }
  const size_t payload_bytes = (static_cast<size_t>(static_cast<uint8_t>(datagram[6])) << 8) |
                               static_cast<uint8_t>(datagram[7]);
  if (datagram[5] != '\0' || datagram.size() > kBeaconBytesMax ||
      datagram.size() != kHeaderBytes + payload_bytes + kBeaconTagBytes) {
    return decoded;
  }
  const std::string_view signed_part = datagram.substr(0, kHeaderBytes + payload_bytes);
  const std::string_view tag = datagram.substr(signed_part.size());
  v1::Beacon beacon;
  const std::string_view payload = signed_part.substr(kHeaderBytes);
  if (!StringsArePlain(payload) ||
      !beacon.ParseFromArray(payload.data(), static_cast<int>(payload.size())) ||
      !FieldsHold(beacon)) {
    return decoded;
  }
  if (beacon.cluster_name().empty()) {
    if (!keyless_.TagFits(signed_part, tag)) return decoded;  // damaged on the way
    const bool is_own = !trust_ && beacon.node_id() == self_.node_id.value();
    decoded.verdict = is_own ? BeaconVerdict::kOwn : BeaconVerdict::kNoSecret;
  } else if (!trust_ || beacon.cluster_fingerprint() != trust_->fingerprint) {
    decoded.verdict = BeaconVerdict::kOtherCluster;
  } else if (!signer_->TagFits(signed_part, tag)) {
    decoded.verdict = BeaconVerdict::kBadSignature;
  } else {
    decoded.verdict = JudgeSigned(beacon);
  }
  decoded.beacon = std::move(beacon);
  return decoded;
}

BeaconVerdict BeaconCodec::JudgeSigned(const v1::Beacon& beacon) {
  if (beacon.node_id() == self_.node_id.value()) {
    const bool is_elsewhere =
        !beacon.machine().empty() && !self_.machine.empty() && beacon.machine() != self_.machine;
    // A former incarnation of ours may still echo, on this very port.
    const bool is_ours =
        !is_elsewhere && beacon.control_port() == self_.control_port &&
        (beacon.incarnation() < self_.incarnation.value() ||
         (beacon.incarnation() == self_.incarnation.value() && beacon.sequence() <= sequence_));
    return is_ours ? BeaconVerdict::kOwn : BeaconVerdict::kIdClash;
  }
  return IsReplay(beacon) ? BeaconVerdict::kReplayed : BeaconVerdict::kMember;
}

BeaconCodec::Window& BeaconCodec::WindowOf(const v1::Beacon& beacon) {
  const std::pair key(beacon.node_id(), beacon.machine());
  const auto found = windows_.find(key);
  if (found != windows_.end()) return found->second;
  if (windows_.size() >= kReplayNodesMax) {
    windows_.erase(std::min_element(
        windows_.begin(), windows_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  return windows_[key];
}

bool BeaconCodec::IsReplay(const v1::Beacon& beacon) {
  Window& window = WindowOf(beacon);
  window.used = decoded_;
  if (beacon.incarnation() < window.incarnation) return true;
  if (beacon.incarnation() > window.incarnation) {
    window =
        Window{.incarnation = beacon.incarnation(), .highest = 0, .seen = {}, .used = decoded_};
  }
  if (beacon.sequence() == 0) return true;  // codecs count from 1
  if (beacon.sequence() > window.highest) {
    const uint64_t ahead = beacon.sequence() - window.highest;
    if (ahead >= kReplayWindow) {
      window.seen.reset();
    } else {
      window.seen <<= ahead;
    }
    window.highest = beacon.sequence();
    window.seen.set(0);
    return false;
  }
  const uint64_t behind = window.highest - beacon.sequence();
  if (behind >= kReplayWindow || window.seen.test(behind)) return true;
  window.seen.set(behind);
  return false;
}

}  // namespace macrame::discovery
