#include "cli/agent_client.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "macrame/v1/access.grpc.pb.h"
#include "macrame/v1/cluster.grpc.pb.h"
#include "macrame/v1/enrolment.grpc.pb.h"
#include "macrame/v1/operation.grpc.pb.h"
#include "proto/reasons.h"
#include "transport/access_file.h"
#include "transport/peer_channel.h"
#include "transport/status_codec.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kMeasureLimit{100};
constexpr std::chrono::hours kVerifyLimit{6};
// Planning and unloading may ask other nodes.
constexpr std::chrono::seconds kWorkLimit{60};
constexpr std::chrono::seconds kLoadSlack{5};
constexpr std::chrono::hours kStreamLimit{24};
constexpr int kMessageBytesMax = 64 * 1024 * 1024;

using Stub = v1::ClusterService::Stub;
using EnrolmentStub = v1::EnrolmentService::Stub;
using OperationStub = v1::OperationService::Stub;
using AccessStub = v1::AccessService::Stub;

}  // namespace

class AgentClient::Impl {
 public:
  explicit Impl(AgentPlace place) : place_(std::move(place)) {}

  template <typename OneStub, typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (OneStub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                               const Request& request, std::chrono::milliseconds limit) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    grpc::ClientContext context;
    Response response;
    const Guard guard(*this, context, limit);
    const grpc::Status status =
        (std::get<std::unique_ptr<OneStub>>(stubs_).get()->*method)(&context, request, &response);
    if (!status.ok()) return Failed(status, limit, guard.is_over());
    return response;
  }

  // `on_message` returns false to end the stream early.
  template <typename OneStub, typename Request, typename Message, typename OnMessage>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Message>> (OneStub::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, std::chrono::milliseconds limit,
                      const OnMessage& on_message) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    grpc::ClientContext context;
    const Guard guard(*this, context, limit);
    auto reader = (std::get<std::unique_ptr<OneStub>>(stubs_).get()->*method)(&context, request);
    Message message;
    bool ended_here = false;
    while (reader->Read(&message)) {
      if (!ended_here && !on_message(message)) {
        ended_here = true;
        context.TryCancel();
      }
    }
    const grpc::Status status = reader->Finish();
    return status.ok() || ended_here ? absl::OkStatus() : Failed(status, limit, guard.is_over());
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  // The context of the one call under way, for Cancel().
  class Guard {
   public:
    Guard(Impl& impl, grpc::ClientContext& context, std::chrono::milliseconds limit)
        : impl_(impl), begun_(std::chrono::steady_clock::now()), limit_(limit) {
      context.set_deadline(std::chrono::system_clock::now() + limit);
      const std::lock_guard lock(impl.mutex_);
      impl.context_ = &context;
      if (impl.cancelled_) context.TryCancel();
    }
    ~Guard() {
      const std::lock_guard lock(impl_.mutex_);
      impl_.context_ = nullptr;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    // The limit passed, so that it was this side that gave up.
    bool is_over() const { return std::chrono::steady_clock::now() - begun_ >= limit_; }

   private:
    Impl& impl_;
    const std::chrono::steady_clock::time_point begun_;
    const std::chrono::milliseconds limit_;
  };

  // Once: the first call says why that can't be.
  absl::Status Connect() {
    const std::lock_guard lock(connecting_);
    if (is_connected_) return absl::OkStatus();
    absl::Status status = place_.access_file.empty() ? ConnectHere() : ConnectThere();
    is_connected_ = status.ok();
    return status;
  }

  // What is there is asked whose it is before it is told anything; once, for a socket that came
  // later is looked at by the next command.
  absl::Status ConnectHere() {
    absl::Status owner = transport::CheckSocketOwner(place_.socket_path);
    if (!owner.ok()) return owner;
    grpc::ChannelArguments arguments;
    // Over a unix socket there is no name to check; some versions dislike the path as an authority.
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    UseChannel(transport::SocketTarget(place_.socket_path), grpc::InsecureChannelCredentials(),
               std::move(arguments));
    return absl::OkStatus();
  }

  absl::Status ConnectThere() {
    const auto file = transport::ReadAccessFile(place_.access_file, transport::SystemUnixSeconds());
    if (!file.ok()) return file.status();
    const auto found = transport::FindAgent(*file, place_.host);
    if (!found.ok()) return found.status();
    transport::NodeCredentials shown;
    shown.certificate_pem = file->certificate();
    shown.key_pem = file->private_key();
    shown.authority_certificate_pem = file->authority_certificate();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(transport::NodeTlsName(found->node_id));
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // An agent that is gone without a word ends the call that waits for it.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, transport::kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, transport::kKeepaliveTimeoutMs);
    const bool is_v6 = found->address[0] == '[';
    UseChannel(absl::StrCat(is_v6 ? "ipv6:" : "ipv4:", found->address),
               transport::TlsChannelCredentials(shown), std::move(arguments));
    return absl::OkStatus();
  }

  void UseChannel(const std::string& target,
                  const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                  grpc::ChannelArguments arguments) {
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    const auto channel = grpc::CreateCustomChannel(target, credentials, arguments);
    stubs_ = {v1::ClusterService::NewStub(channel), v1::EnrolmentService::NewStub(channel),
              v1::OperationService::NewStub(channel), v1::AccessService::NewStub(channel)};
  }

  // Of an access file's nodes another one may answer the next call.
  absl::Status Failed(const grpc::Status& status, std::chrono::milliseconds limit, bool is_over) {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !place_.access_file.empty()) {
      const std::lock_guard lock(connecting_);
      is_connected_ = false;
    }
    return Describe(status, limit, is_over);
  }

  absl::Status Describe(const grpc::Status& status, std::chrono::milliseconds limit,
                        bool is_over) const {
    const absl::Status described = transport::FromGrpcStatus(status);
    if (ReasonOf(described).code() != reasons::kInternal) return described;  // the agent's own
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kAgentUnreachable,
                            absl::StrCat("agentd does not answer at ", place_.Text()));
      case grpc::StatusCode::DEADLINE_EXCEEDED: {
        if (!is_over) return described;
        v1::Reason reason = MakeReason(
            reasons::kAgentUnreachable,
            absl::StrCat("agentd at ", place_.Text(), " took the call and gave no answer within ",
                         std::chrono::duration<double>(limit).count(), " s"));
        reason.set_remedy("try again; if it stays so, its log says why, and a restart helps");
        return ReasonStatus(absl::StatusCode::kUnavailable, reason);
      }
      case grpc::StatusCode::UNIMPLEMENTED: {
        v1::Reason reason = MakeReason(
            reasons::kVersionSkew,
            absl::StrCat("agentd at ", place_.Text(), " does not know this request: it, or the ",
                         "coordinator that it asked, is older than this clusterctl"));
        reason.set_remedy("'clusterctl version' tells both; install the same on all nodes");
        return ReasonStatus(absl::StatusCode::kUnimplemented, reason);
      }
      default:
        return described;
    }
  }

  const AgentPlace place_;
  std::mutex connecting_;
  bool is_connected_ = false;  // guarded by connecting_
  std::tuple<std::unique_ptr<Stub>, std::unique_ptr<EnrolmentStub>, std::unique_ptr<OperationStub>,
             std::unique_ptr<AccessStub>>
      stubs_;
  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // guarded by mutex_
  bool cancelled_ = false;                  // guarded by mutex_
};

std::string AgentPlace::Text() const {
  if (access_file.empty()) return socket_path;
  return host.empty() ? absl::StrCat("the nodes of ", access_file) : host;
}

AgentClient::AgentClient(const AgentPlace& place, std::chrono::milliseconds answer_limit)
    : answer_limit_(answer_limit), impl_(std::make_unique<Impl>(place)) {}
AgentClient::~AgentClient() = default;
void AgentClient::Cancel() { impl_->Cancel(); }

absl::StatusOr<v1::ClusterStatus> AgentClient::GetStatus() {
  return impl_->Ask(&Stub::GetStatus, v1::GetStatusRequest(), answer_limit_);
}

absl::Status AgentClient::WatchStatus(const v1::WatchStatusRequest& request,
                                      const OnStatus& on_status) {
  return impl_->Stream(&Stub::WatchStatus, request, kStreamLimit, on_status);
}

absl::StatusOr<v1::PlanResult> AgentClient::PlanModel(const v1::PlanModelRequest& request) {
  return impl_->Ask(&Stub::PlanModel, request, kWorkLimit);
}

absl::Status AgentClient::LoadModel(const v1::LoadModelRequest& request,
                                    const OnProgress& on_progress) {
  const auto limit = std::chrono::milliseconds(request.timeout_ms()) + kLoadSlack;
  return impl_->Stream(&Stub::LoadModel, request, limit,
                       [&](const v1::LoadModelProgress& progress) {
                         on_progress(progress);
                         return true;
                       });
}

absl::Status AgentClient::UnloadModel(const std::string& name) {
  v1::UnloadModelRequest request;
  request.set_name(name);
  return impl_->Ask(&Stub::UnloadModel, request, kWorkLimit).status();
}

absl::StatusOr<v1::ListModelsResponse> AgentClient::ListModels() {
  return impl_->Ask(&Stub::ListModels, v1::ListModelsRequest(), answer_limit_);
}

absl::Status AgentClient::Infer(const v1::GenerateRequest& request, const OnChunk& on_chunk) {
  return impl_->Stream(&Stub::Infer, request, kStreamLimit, [&](const v1::GenerateChunk& chunk) {
    on_chunk(chunk);
    return true;
  });
}

absl::Status AgentClient::Logs(const v1::LogsRequest& request, const OnLogs& on_logs) {
  return impl_->Stream(&Stub::Logs, request, kStreamLimit, [&](const v1::LogsChunk& chunk) {
    on_logs(chunk);
    return true;
  });
}

absl::StatusOr<v1::VersionResponse> AgentClient::Version() {
  return impl_->Ask(&Stub::Version, v1::VersionRequest(), answer_limit_);
}

absl::StatusOr<v1::LinksView> AgentClient::GetLinks() {
  return impl_->Ask(&Stub::GetLinks, v1::GetLinksRequest(), answer_limit_);
}

absl::StatusOr<v1::Diagnosis> AgentClient::Diagnose(const v1::DiagnoseRequest& request) {
  return impl_->Ask(&Stub::Diagnose, request, answer_limit_);
}

absl::StatusOr<v1::RecheckLinksResponse> AgentClient::RecheckLinks(
    const v1::RecheckLinksRequest& request) {
  return impl_->Ask(&Stub::RecheckLinks, request, kMeasureLimit);
}

absl::Status AgentClient::BenchLinks(
    const v1::BenchLinksRequest& request,
    const std::function<void(const v1::LinkMeasurement&)>& on_measured) {
  return impl_->Stream(&Stub::BenchLinks, request, kMeasureLimit,
                       [&](const v1::LinkMeasurement& measured) {
                         on_measured(measured);
                         return true;
                       });
}

absl::StatusOr<v1::ExportHostfileResponse> AgentClient::ExportHostfile(
    const v1::ExportHostfileRequest& request) {
  return impl_->Ask(&Stub::ExportHostfile, request, answer_limit_);
}

absl::StatusOr<v1::VerifyTransportResponse> AgentClient::VerifyTransport(
    const v1::VerifyTransportRequest& request) {
  return impl_->Ask(&Stub::VerifyTransport, request, kMeasureLimit);
}

absl::StatusOr<v1::TraceModelResponse> AgentClient::TraceModel(
    const v1::TraceRankRequest& request) {
  return impl_->Ask(
      &Stub::TraceModel, request,
      answer_limit_ + answer_limit_ + std::chrono::seconds(request.duration_ms() / 1000));
}

absl::StatusOr<v1::ForgetSpeedsResponse> AgentClient::ForgetSpeeds() {
  return impl_->Ask(&Stub::ForgetSpeeds, v1::ForgetSpeedsRequest(), answer_limit_);
}

absl::StatusOr<v1::ForgetNodeResponse> AgentClient::ForgetNode(
    const v1::ForgetNodeRequest& request) {
  return impl_->Ask(&Stub::ForgetNode, request, answer_limit_);
}

absl::StatusOr<std::string> AgentClient::GetMetrics(const std::string& format) {
  v1::GetMetricsRequest request;
  request.set_format(format);
  absl::StatusOr<v1::GetMetricsResponse> response =
      impl_->Ask(&Stub::GetMetrics, request, answer_limit_);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_text());
}

absl::StatusOr<v1::NetPlan> AgentClient::PlanNet(const v1::PlanNetRequest& request) {
  return impl_->Ask(&Stub::PlanNet, request, answer_limit_);
}

absl::StatusOr<v1::CreateJoinTokenResponse> AgentClient::CreateJoinToken(
    const v1::CreateJoinTokenRequest& request) {
  return impl_->Ask(&EnrolmentStub::CreateJoinToken, request, answer_limit_);
}

absl::StatusOr<v1::JoinClusterResponse> AgentClient::JoinCluster(
    const v1::JoinClusterRequest& request) {
  // It may try several addresses.
  return impl_->Ask(&EnrolmentStub::JoinCluster, request, kMeasureLimit);
}

absl::StatusOr<v1::GetAuthorityResponse> AgentClient::GetAuthority() {
  return impl_->Ask(&EnrolmentStub::GetAuthority, v1::GetAuthorityRequest(), answer_limit_);
}

absl::StatusOr<v1::ApproveNodeResponse> AgentClient::ApproveNode(
    const v1::ApproveNodeRequest& request) {
  return impl_->Ask(&EnrolmentStub::ApproveNode, request, answer_limit_);
}

absl::StatusOr<v1::RevokeNodeResponse> AgentClient::RevokeNode(
    const v1::RevokeNodeRequest& request) {
  return impl_->Ask(&EnrolmentStub::RevokeNode, request, answer_limit_);
}

absl::StatusOr<v1::SetCordonResponse> AgentClient::SetCordon(const v1::SetCordonRequest& request) {
  return impl_->Ask(&OperationStub::SetCordon, request, kWorkLimit);
}

absl::StatusOr<v1::MarkNodeResponse> AgentClient::MarkNode(const v1::MarkNodeRequest& request) {
  return impl_->Ask(&OperationStub::MarkNode, request, kWorkLimit);
}

absl::StatusOr<v1::ChangeProfileResponse> AgentClient::ChangeProfile(
    const v1::ChangeProfileRequest& request) {
  return impl_->Ask(&OperationStub::ChangeProfile, request, kWorkLimit);
}

absl::StatusOr<v1::ListProfilesResponse> AgentClient::ListProfiles() {
  return impl_->Ask(&OperationStub::ListProfiles, v1::ListProfilesRequest(), answer_limit_);
}

absl::StatusOr<v1::PauseClusterResponse> AgentClient::PauseCluster(v1::PauseOrder order) {
  v1::PauseClusterRequest request;
  request.set_order(order);
  return impl_->Ask(&OperationStub::PauseCluster, request, kWorkLimit);
}

absl::StatusOr<v1::ListEventsResponse> AgentClient::ListEvents(
    const v1::ListEventsRequest& request) {
  return impl_->Ask(&OperationStub::ListEvents, request, answer_limit_);
}

absl::Status AgentClient::VerifyModel(
    const v1::VerifyModelRequest& request,
    const std::function<void(const v1::ModelVerification&)>& on_progress) {
  return impl_->Stream(&OperationStub::VerifyModel, request, kVerifyLimit,
                       [&](const v1::ModelVerification& progress) {
                         on_progress(progress);
                         return true;
                       });
}

absl::StatusOr<v1::CreateKeyResponse> AgentClient::CreateKey(const v1::CreateKeyRequest& request) {
  return impl_->Ask(&AccessStub::CreateKey, request, answer_limit_);
}

absl::StatusOr<v1::CreateAccessFileResponse> AgentClient::CreateAccessFile(
    const v1::CreateAccessFileRequest& request) {
  return impl_->Ask(&AccessStub::CreateAccessFile, request, answer_limit_);
}

absl::StatusOr<v1::ListKeysResponse> AgentClient::ListKeys() {
  return impl_->Ask(&AccessStub::ListKeys, v1::ListKeysRequest(), answer_limit_);
}

absl::StatusOr<v1::GetKeyEnergyResponse> AgentClient::GetKeyEnergy() {
  return impl_->Ask(&AccessStub::GetKeyEnergy, v1::GetKeyEnergyRequest(), answer_limit_);
}

absl::StatusOr<v1::SetTenantResponse> AgentClient::SetTenant(const v1::SetTenantRequest& request) {
  return impl_->Ask(&AccessStub::SetTenant, request, answer_limit_);
}

absl::StatusOr<v1::ListTenantsResponse> AgentClient::ListTenants() {
  return impl_->Ask(&AccessStub::ListTenants, v1::ListTenantsRequest(), answer_limit_);
}

absl::StatusOr<v1::EraseTenantResponse> AgentClient::EraseTenant(const std::string& name) {
  v1::EraseTenantRequest request;
  request.set_name(name);
  return impl_->Ask(&AccessStub::EraseTenant, request, kAnswerLimit);
}

absl::StatusOr<v1::RevokeKeyResponse> AgentClient::RevokeKey(const v1::RevokeKeyRequest& request) {
  return impl_->Ask(&AccessStub::RevokeKey, request, answer_limit_);
}

absl::StatusOr<v1::RotateKeyResponse> AgentClient::RotateKey(const v1::RotateKeyRequest& request) {
  return impl_->Ask(&AccessStub::RotateKey, request, answer_limit_);
}

absl::StatusOr<v1::ReadAuditResponse> AgentClient::ReadAudit(const v1::ReadAuditRequest& request) {
  return impl_->Ask(&AccessStub::ReadAudit, request, answer_limit_);
}

absl::StatusOr<v1::VerifyAuditResponse> AgentClient::VerifyAudit() {
  return impl_->Ask(&AccessStub::VerifyAudit, v1::VerifyAuditRequest(), answer_limit_);
}

}  // namespace macrame::cli
