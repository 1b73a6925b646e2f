#include "agentd/gateway/endpoints/order_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/api_key.h"
#include "agentd/gateway/access/known_models.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/request_fields.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kOrderNameBytesMax = 200;
constexpr int64_t kContextMax = 16 * 1024 * 1024;
constexpr int64_t kKeySecondsMax = int64_t{10} * 366 * 24 * 3600;

template <typename Value>
struct Named {
  absl::string_view name;
  Value value;
};
template <typename Value>
Named(absl::string_view, Value) -> Named<Value>;  // compilers of older Macs need it said
constexpr std::array kParallel = {Named{"auto", v1::PARALLELISM_AUTO},
                                  Named{"tensor", v1::PARALLELISM_TENSOR},
                                  Named{"pipeline", v1::PARALLELISM_PIPELINE}};
constexpr std::array kCordoning = {Named{"cordon", v1::CORDON_ORDER_CORDON},
                                   Named{"drain", v1::CORDON_ORDER_DRAIN},
                                   Named{"uncordon", v1::CORDON_ORDER_UNCORDON}};

class OrderFields : public RequestFields {
 public:
  using RequestFields::RequestFields;

  ApiError error() const { return error_.value(); }

  void Know(std::initializer_list<absl::string_view> names) {
    for (const auto& [name, value] : body_.items()) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      Fail(name.substr(0, kOrderNameBytesMax), "unknown_field",
           absl::StrCat("'", name.substr(0, kOrderNameBytesMax), "' is not known here."));
    }
  }

  // Of 1 to kOrderNameBytesMax bytes, without control characters.
  std::string Name(absl::string_view field) {
    std::string text = Text(field);
    if (text.empty()) Fail(field, "invalid_value", absl::StrCat("'", field, "' is missing."));
    return text;
  }

  // Likewise, or empty when it is missing.
  std::string Text(absl::string_view field) {
    const Json* value = Find(field);
    if (value == nullptr) return "";
    if (!value->is_string()) {
      Fail(field, "invalid_type", absl::StrCat("'", field, "' must be a string."));
      return "";
    }
    const auto& text = value->get_ref<const std::string&>();
    const bool is_plain =
        std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 32 && c != 127; });
    if (text.size() > kOrderNameBytesMax || !is_plain) {
      Fail(field, "invalid_value",
           absl::StrCat("'", field, "' must be of at most ", kOrderNameBytesMax,
                        " bytes, without control characters."));
      return "";
    }
    return text;
  }

  // A model's name. A path would let whoever may load models try which folders there are.
  std::string Model() {
    std::string name = Name("model");
    if (!name.empty() && (name[0] == '/' || name[0] == '.' || name[0] == '~')) {
      Fail("model", "invalid_value",
           "Models are loaded by their names here; 'clusterctl model load' takes paths.");
    }
    return name;
  }

  template <typename Choices>
  auto Choice(absl::string_view field, const Choices& choices) -> decltype(choices[0].value) {
    const std::string text = Text(field);
    std::string known;
    for (const auto& one : choices) {
      if (one.name == text) return one.value;
      absl::StrAppend(&known, known.empty() ? "" : ", ", one.name);
    }
    Fail(field, "invalid_value", absl::StrCat("'", field, "' must be one of: ", known, "."));
    return choices[0].value;
  }

  v1::PlacementOptions Placement() {
    v1::PlacementOptions placement;
    placement.set_world_size(
        static_cast<uint32_t>(Integer("ranks", 1, kOrderedRanksMax).value_or(0)));
    placement.set_context_length(
        static_cast<uint32_t>(Integer("context_length", 1, kContextMax).value_or(0)));
    if (Find("parallelism") != nullptr) {
      placement.set_parallelism(Choice("parallelism", kParallel));
    }
    return placement;
  }

  std::vector<std::string> Names(absl::string_view field, size_t most) {
    std::vector<std::string> names;
    const Json* value = Find(field);
    if (value == nullptr) return names;
    const bool fits = value->is_array() && value->size() <= most;
    if (!fits || !std::all_of(value->begin(), value->end(),
                              [](const Json& one) { return one.is_string(); })) {
      Fail(field, "invalid_type",
           absl::StrCat("'", field, "' must be a list of at most ", most, " strings."));
      return names;
    }
    for (const Json& one : *value) names.push_back(one.get<std::string>());
    return names;
  }
};

ApiError NotForThisKey(absl::string_view what) {
  return HttpError(
      403,
      absl::StrCat("This API key is for some models or one tenant alone, and may not ", what, "."),
      "insufficient_permissions");
}

// Also of what another tenant has.
ApiError NoSuchDeployment(const std::string& name) {
  return HttpError(404, absl::StrCat("No model '", name, "' is loaded."), "model_not_found");
}

bool IsLimitedKey(const Principal& principal) {
  return !principal.tenant.empty() || !principal.models.empty();
}

// What was loaded for another tenant, or a replica of it.
bool IsOthers(const Principal& principal, const std::string& name,
              const std::vector<ServedModel>& served) {
  const ServedModel* model = FindModel(served, DeploymentOfReplica(name));
  return model != nullptr && !model->tenant.empty() && model->tenant != principal.tenant;
}

// A deployment that there is, or that the order would make.
std::optional<ApiError> CheckDeployment(const Principal& principal, const std::string& name,
                                        const std::vector<ServedModel>& served) {
  if (auto refused = CheckModel(principal, name)) return refused;
  for (const ServedModel& one : served) {
    if (one.id != DeploymentOfReplica(name)) continue;
    // A tenant's key leaves alone what everybody has. What others have is as if it were not there:
    // whoever carries the order out says so, or CheckUnload.
    if (principal.tenant.empty() || !one.tenant.empty()) return std::nullopt;
    return NotForThisKey(absl::StrCat("change '", name, "', which is everybody's"));
  }
  return std::nullopt;
}

class OrderReader {
 public:
  OrderReader(const Json& body, const Principal& principal, const std::vector<ServedModel>& served,
              uint64_t now_unix_ms)
      : fields_(body), principal_(principal), served_(served), now_unix_ms_(now_unix_ms) {}

  std::variant<ClusterOrder, ApiError> Read(OrderKind kind) {
    ClusterOrder order = OrderOf(kind);
    if (fields_.has_failed()) return fields_.error();
    if (refused_.has_value()) return *std::move(refused_);
    return order;
  }

 private:
  ClusterOrder OrderOf(OrderKind kind) {
    switch (kind) {
      case OrderKind::kPlan:
        return Plan();
      case OrderKind::kLoad:
        return Load();
      case OrderKind::kUnload:
        return Unload();
      case OrderKind::kCordon:
        return Cordon();
      case OrderKind::kCreateKey:
        return CreateKey();
      case OrderKind::kRevokeKey:
        return RevokeKey();
      default:
        return v1::ListKeysRequest();
    }
  }

  ClusterOrder Plan() {
    fields_.Know({"model", "ranks", "context_length", "parallelism"});
    v1::PlanModelRequest request;
    request.set_name_or_path(fields_.Model());
    *request.mutable_placement() = fields_.Placement();
    request.mutable_placement()->set_tenant(principal_.tenant);
    request.set_keeps_others(IsLimited());
    refused_ = CheckModel(principal_, request.name_or_path());
    return request;
  }

  ClusterOrder Load() {
    fields_.Know({"model", "ranks", "context_length", "parallelism"});
    v1::LoadModelRequest request;
    request.set_name_or_path(fields_.Model());
    *request.mutable_placement() = fields_.Placement();
    request.mutable_placement()->set_tenant(principal_.tenant);
    request.set_keeps_others(IsLimited());
    // A name may stand for another one: what such a key loads has the name that was checked.
    // Where others have that name it is '#': a coordinator that does not know keeps_others, being
    // older, refuses it.
    if (IsLimited()) {
      const std::string& name = request.name_or_path();
      request.set_deployment_name(IsOthers(principal_, name, served_) ? kNoModel : name);
    }
    refused_ = CheckDeployment(principal_, request.name_or_path(), served_);
    return request;
  }

  ClusterOrder Unload() {
    fields_.Know({"model"});
    v1::UnloadModelRequest request;
    request.set_name(fields_.Name("model"));
    refused_ = CheckDeployment(principal_, request.name(), served_);
    return request;
  }

  ClusterOrder Cordon() {
    fields_.Know({"node", "order"});
    v1::SetCordonRequest request;
    request.set_node_id(fields_.Name("node"));
    request.set_order(fields_.Choice("order", kCordoning));
    if (IsLimited()) refused_ = NotForThisKey("cordon nodes");
    return request;
  }

  ClusterOrder CreateKey() {
    fields_.Know({"name", "scopes", "expires_in_seconds"});
    v1::CreateKeyRequest request;
    request.mutable_key()->set_name(fields_.Text("name"));
    for (const std::string& scope : fields_.Names("scopes", 8)) {
      request.mutable_key()->add_scopes(scope);
    }
    if (const auto seconds = fields_.Integer("expires_in_seconds", 1, kKeySecondsMax)) {
      request.mutable_key()->set_expires_unix_ms(now_unix_ms_ +
                                                 static_cast<uint64_t>(*seconds) * 1000);
    }
    return request;
  }

  ClusterOrder RevokeKey() {
    fields_.Know({"key"});
    v1::RevokeKeyRequest request;
    request.set_key(fields_.Name("key"));
    return request;
  }

  bool IsLimited() const { return IsLimitedKey(principal_); }

  OrderFields fields_;
  const Principal& principal_;
  const std::vector<ServedModel>& served_;
  const uint64_t now_unix_ms_;
  std::optional<ApiError> refused_;
};

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    // The cluster says no: asking again alone changes nothing.
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
      return 422;
    default:
      return 500;
  }
}

}  // namespace

bool HasBody(OrderKind kind) {
  return kind != OrderKind::kListKeys && kind != OrderKind::kReadAudit;
}

std::variant<ClusterOrder, ApiError> ParseOrder(OrderKind kind, absl::string_view body,
                                                size_t json_depth_max, const Principal& principal,
                                                const std::vector<ServedModel>& served,
                                                uint64_t now_unix_ms) {
  if (kind == OrderKind::kListKeys) return v1::ListKeysRequest();
  if (kind == OrderKind::kReadAudit) {
    v1::ReadAuditRequest request;
    request.set_limit(kAuditLinesShown);
    return request;
  }
  if (body.size() > kOrderBytesMax) {
    return HttpError(413, absl::StrCat("An order has at most ", kOrderBytesMax, " bytes."),
                     "body_too_large");
  }
  Json parsed;
  if (auto error = ParseJsonObject(body, json_depth_max, &parsed)) return *std::move(error);
  return OrderReader(parsed, principal, served, now_unix_ms).Read(kind);
}

std::optional<ApiError> CheckUnload(const Principal& principal, const ClusterOrder& order,
                                    const std::vector<ServedModel>& served) {
  const auto* unload = std::get_if<v1::UnloadModelRequest>(&order);
  if (unload == nullptr || !IsLimitedKey(principal)) return std::nullopt;
  const ServedModel* model = FindModel(served, unload->name());
  if (model != nullptr && MaySee(principal, model->id, model->tenant)) return std::nullopt;
  return NoSuchDeployment(unload->name());
}

HttpReply RefusedOrder(const absl::Status& status) {
  const v1::Reason reason = ReasonOf(status);
  Json error;
  error["message"] = reason.message();
  error["type"] = "order_refused";
  error["param"] = nullptr;
  error["code"] = reason.code();
  error["remedy"] = reason.remedy();
  HttpReply reply;
  reply.status = HttpStatusOf(status.code());
  reply.body = Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

std::string AccessBody(const Principal& principal) {
  Json body;
  body["scopes"] = Json::array();
  for (const char* name : {"infer", "read", "operate", "admin"}) {
    if ((principal.scopes & ScopeBit(name)) != 0) body["scopes"].push_back(name);
  }
  body["key_id"] = nullptr;
  if (!principal.key_id.empty()) body["key_id"] = principal.key_id;
  return body.dump();
}

}  // namespace macrame::agentd
