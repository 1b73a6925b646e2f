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
#include "transport/status_codec.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kMeasureLimit{100};
constexpr std::chrono::hours kVerifyLimit{6};
constexpr std::chrono::seconds kAnswerLimit{10};
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
  explicit Impl(std::string socket_path) : socket_path_(std::move(socket_path)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    // Over a unix socket there is no name to check; some versions dislike the path as an authority.
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    const auto channel = grpc::CreateCustomChannel(transport::SocketTarget(socket_path_),
                                                   grpc::InsecureChannelCredentials(), arguments);
    stubs_ = {v1::ClusterService::NewStub(channel), v1::EnrolmentService::NewStub(channel),
              v1::OperationService::NewStub(channel), v1::AccessService::NewStub(channel)};
  }

  template <typename OneStub, typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (OneStub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                               const Request& request, std::chrono::seconds limit) {
    if (absl::Status owner = CheckOwner(); !owner.ok()) return owner;
    grpc::ClientContext context;
    Response response;
    const Guard guard(*this, context, limit);
    const grpc::Status status =
        (std::get<std::unique_ptr<OneStub>>(stubs_).get()->*method)(&context, request, &response);
    if (!status.ok()) return Describe(status);
    return response;
  }

  // `on_message` returns false to end the stream early.
  template <typename OneStub, typename Request, typename Message, typename OnMessage>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Message>> (OneStub::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, std::chrono::milliseconds limit,
                      const OnMessage& on_message) {
    if (absl::Status owner = CheckOwner(); !owner.ok()) return owner;
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
    return status.ok() || ended_here ? absl::OkStatus() : Describe(status);
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
    Guard(Impl& impl, grpc::ClientContext& context, std::chrono::milliseconds limit) : impl_(impl) {
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

   private:
    Impl& impl_;
  };

  // Whether what is there may be told anything; once, for a socket that came later is looked at by
  // the next command.
  absl::Status CheckOwner() {
    if (is_checked_) return absl::OkStatus();
    absl::Status owner = transport::CheckSocketOwner(socket_path_);
    is_checked_ = owner.ok();
    return owner;
  }

  absl::Status Describe(const grpc::Status& status) const {
    const absl::Status described = transport::FromGrpcStatus(status);
    const bool from_agent = ReasonOf(described).code() != reasons::kInternal;
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || from_agent) return described;
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kAgentUnreachable,
                        absl::StrCat("agentd does not answer at ", socket_path_));
  }

  const std::string socket_path_;
  bool is_checked_ = false;
  std::tuple<std::unique_ptr<Stub>, std::unique_ptr<EnrolmentStub>, std::unique_ptr<OperationStub>,
             std::unique_ptr<AccessStub>>
      stubs_;
  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // guarded by mutex_
  bool cancelled_ = false;                  // guarded by mutex_
};

AgentClient::AgentClient(const std::string& socket_path)
    : impl_(std::make_unique<Impl>(socket_path)) {}
AgentClient::~AgentClient() = default;
void AgentClient::Cancel() { impl_->Cancel(); }

absl::StatusOr<v1::ClusterStatus> AgentClient::GetStatus() {
  return impl_->Ask(&Stub::GetStatus, v1::GetStatusRequest(), kAnswerLimit);
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
  return impl_->Ask(&Stub::ListModels, v1::ListModelsRequest(), kAnswerLimit);
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
  return impl_->Ask(&Stub::Version, v1::VersionRequest(), kAnswerLimit);
}

absl::StatusOr<v1::LinksView> AgentClient::GetLinks() {
  return impl_->Ask(&Stub::GetLinks, v1::GetLinksRequest(), kAnswerLimit);
}

absl::StatusOr<v1::Diagnosis> AgentClient::Diagnose(const v1::DiagnoseRequest& request) {
  return impl_->Ask(&Stub::Diagnose, request, kAnswerLimit);
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
  return impl_->Ask(&Stub::ExportHostfile, request, kAnswerLimit);
}

absl::StatusOr<v1::VerifyTransportResponse> AgentClient::VerifyTransport(
    const v1::VerifyTransportRequest& request) {
  return impl_->Ask(&Stub::VerifyTransport, request, kMeasureLimit);
}

absl::StatusOr<v1::TraceModelResponse> AgentClient::TraceModel(
    const v1::TraceRankRequest& request) {
  return impl_->Ask(
      &Stub::TraceModel, request,
      kAnswerLimit + kAnswerLimit + std::chrono::seconds(request.duration_ms() / 1000));
}

absl::StatusOr<v1::ForgetSpeedsResponse> AgentClient::ForgetSpeeds() {
  return impl_->Ask(&Stub::ForgetSpeeds, v1::ForgetSpeedsRequest(), kAnswerLimit);
}

absl::StatusOr<v1::ForgetNodeResponse> AgentClient::ForgetNode(
    const v1::ForgetNodeRequest& request) {
  return impl_->Ask(&Stub::ForgetNode, request, kAnswerLimit);
}

absl::StatusOr<std::string> AgentClient::GetMetrics(const std::string& format) {
  v1::GetMetricsRequest request;
  request.set_format(format);
  absl::StatusOr<v1::GetMetricsResponse> response =
      impl_->Ask(&Stub::GetMetrics, request, kAnswerLimit);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_text());
}

absl::StatusOr<v1::NetPlan> AgentClient::PlanNet(const v1::PlanNetRequest& request) {
  return impl_->Ask(&Stub::PlanNet, request, kAnswerLimit);
}

absl::StatusOr<v1::CreateJoinTokenResponse> AgentClient::CreateJoinToken(
    const v1::CreateJoinTokenRequest& request) {
  return impl_->Ask(&EnrolmentStub::CreateJoinToken, request, kAnswerLimit);
}

absl::StatusOr<v1::JoinClusterResponse> AgentClient::JoinCluster(
    const v1::JoinClusterRequest& request) {
  // It may try several addresses.
  return impl_->Ask(&EnrolmentStub::JoinCluster, request, kMeasureLimit);
}

absl::StatusOr<v1::ApproveNodeResponse> AgentClient::ApproveNode(
    const v1::ApproveNodeRequest& request) {
  return impl_->Ask(&EnrolmentStub::ApproveNode, request, kAnswerLimit);
}

absl::StatusOr<v1::RevokeNodeResponse> AgentClient::RevokeNode(
    const v1::RevokeNodeRequest& request) {
  return impl_->Ask(&EnrolmentStub::RevokeNode, request, kAnswerLimit);
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
  return impl_->Ask(&OperationStub::ListProfiles, v1::ListProfilesRequest(), kAnswerLimit);
}

absl::StatusOr<v1::PauseClusterResponse> AgentClient::PauseCluster(v1::PauseOrder order) {
  v1::PauseClusterRequest request;
  request.set_order(order);
  return impl_->Ask(&OperationStub::PauseCluster, request, kWorkLimit);
}

absl::StatusOr<v1::ListEventsResponse> AgentClient::ListEvents(
    const v1::ListEventsRequest& request) {
  return impl_->Ask(&OperationStub::ListEvents, request, kAnswerLimit);
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
  return impl_->Ask(&AccessStub::CreateKey, request, kAnswerLimit);
}

absl::StatusOr<v1::ListKeysResponse> AgentClient::ListKeys() {
  return impl_->Ask(&AccessStub::ListKeys, v1::ListKeysRequest(), kAnswerLimit);
}

absl::StatusOr<v1::SetTenantResponse> AgentClient::SetTenant(const v1::SetTenantRequest& request) {
  return impl_->Ask(&AccessStub::SetTenant, request, kAnswerLimit);
}

absl::StatusOr<v1::ListTenantsResponse> AgentClient::ListTenants() {
  return impl_->Ask(&AccessStub::ListTenants, v1::ListTenantsRequest(), kAnswerLimit);
}

absl::StatusOr<v1::RevokeKeyResponse> AgentClient::RevokeKey(const v1::RevokeKeyRequest& request) {
  return impl_->Ask(&AccessStub::RevokeKey, request, kAnswerLimit);
}

absl::StatusOr<v1::RotateKeyResponse> AgentClient::RotateKey(const v1::RotateKeyRequest& request) {
  return impl_->Ask(&AccessStub::RotateKey, request, kAnswerLimit);
}

absl::StatusOr<v1::ReadAuditResponse> AgentClient::ReadAudit(const v1::ReadAuditRequest& request) {
  return impl_->Ask(&AccessStub::ReadAudit, request, kAnswerLimit);
}

absl::StatusOr<v1::VerifyAuditResponse> AgentClient::VerifyAudit() {
  return impl_->Ask(&AccessStub::VerifyAudit, v1::VerifyAuditRequest(), kAnswerLimit);
}

}  // namespace macrame::cli
