#include "agentd/services/gateway_orders.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/services/access_service.h"
#include "agentd/services/load_watches.h"
#include "agentd/services/remote_models.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// Longer than agents wait for the coordinator, and for a model's ranks to end.
constexpr Duration kOrderLimit = std::chrono::seconds(50);
constexpr Duration kLoadLimit =
    std::chrono::milliseconds(kLoadTimeoutDefaultMs) + std::chrono::seconds(60);

template <typename Message>
OrderAnswer AnswerOf(absl::StatusOr<Message> message) {
  if (!message.ok()) return message.status();
  return std::make_shared<const Message>(*std::move(message));
}

}  // namespace

GatewayOrders::GatewayOrders(Parts parts) : parts_(std::move(parts)) {}

GatewayOrders::OnEnded GatewayOrders::Audit(const Orderer& who, std::string_view method,
                                            const google::protobuf::MessageLite& request) {
  std::optional<AuditEntry> entry = AuditedOrder(method, request);
  if (!entry.has_value()) return [](const absl::Status&) {};
  entry->who = who.key_id.empty() ? "own page" : absl::StrCat("key ", who.key_id);
  entry->from = who.address;
  return [this, entry = *std::move(entry)](const absl::Status& status) {
    AuditEntry ended = entry;
    ended.outcome = status.ok() ? "ok" : ReasonOf(status).code();
    parts_.audit.Add(std::move(ended));
  };
}

template <typename Rpc, typename Request>
void GatewayOrders::Call(const Rpc& rpc, const Orderer& who, const Request& request, Done done) {
  parts_.own_socket.channel().Call(
      rpc, request, kOrderLimit,
      [ended = Audit(who, rpc.path, request), done = std::move(done)](auto response) {
        ended(response.status());
        done(AnswerOf(std::move(response)));
      });
}

void GatewayOrders::Load(const v1::LoadModelRequest& request, OnEnded ended, Done done) {
  if (loads_ >= kFollowedLoadsMax) {
    const absl::Status busy = ReasonStatus(
        absl::StatusCode::kUnavailable, reasons::kNotReady,
        absl::StrCat(loads_, " models are being loaded from pages; wait for one of them"));
    ended(busy);
    return done(busy);
  }
  ++loads_;
  // Told at the first word of it; it is followed on to its end.
  auto first = std::make_shared<Done>(std::move(done));
  const auto tell = [first](OrderAnswer answer) {
    if (const Done told = std::exchange(*first, nullptr)) told(std::move(answer));
  };
  parts_.own_socket.channel().Stream(
      kLoadModel, request, kLoadLimit,
      [tell](v1::LoadModelProgress progress) {
        tell(std::make_shared<const v1::LoadModelProgress>(std::move(progress)));
      },
      [this, tell, ended = std::move(ended)](const absl::Status& status) {
        --loads_;
        ended(status);
        if (!status.ok()) return tell(status);
        tell(std::make_shared<const v1::LoadModelProgress>());
      });
}

void GatewayOrders::Give(const Orderer& who, const ClusterOrder& order, Done done) {
  std::visit(
      [&](auto request) {
        using Request = decltype(request);
        // Over the socket it is this agent that asks: what a key may name is settled before.
        if constexpr (std::is_same_v<Request, v1::PlanModelRequest> ||
                      std::is_same_v<Request, v1::LoadModelRequest>) {
          absl::StatusOr<std::string> model =
              ModelNameFrom({NodeId(), /*local=*/false, who.address, who.key_id},
                            request.name_or_path(), parts_.views.All());
          if (!model.ok()) return done(model.status());
          request.set_name_or_path(*std::move(model));
        }
        if constexpr (std::is_same_v<Request, v1::PlanModelRequest>) {
          Call(kPlanModel, who, request, std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::LoadModelRequest>) {
          Load(request, Audit(who, kLoadModel.path, request), std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::UnloadModelRequest>) {
          Call(kUnloadModel, who, request, std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::SetCordonRequest>) {
          Call(kSetCordon, who, request, std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::ListKeysRequest>) {
          Call(kListKeys, who, request, std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::CreateKeyRequest>) {
          Call(kCreateKey, who, request, std::move(done));
        } else if constexpr (std::is_same_v<Request, v1::ReadAuditRequest>) {
          Call(kReadAudit, who, request, std::move(done));
        } else {
          Call(kRevokeKey, who, request, std::move(done));
        }
      },
      order);
}

}  // namespace macrame::agentd
