// The gateway of this agent, and the traces of what passes it.

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/agent_impl.h"
#include "agentd/base/log_text.h"
#include "agentd/base/version.h"
#include "proto/reasons.h"

namespace macrame::agentd {

absl::Status Agent::Impl::StartTraces() {
  const std::optional<WebUrl> url = TracesUrl(config_.otlp_endpoint);
  if (!url.has_value() || !config_.gateway_enabled) return absl::OkStatus();
  TraceExporterOptions options;
  options.url = *url;
  if (!config_.otlp_headers_file.empty()) {
    absl::StatusOr<HttpFields> fields = ReadTraceFields(config_.otlp_headers_file);
    if (!fields.ok()) return fields.status();
    options.fields = *std::move(fields);
  }
  if (!url->is_secure && !options.fields.empty() && !IsLoopbackAddress(url->host)) {
    spdlog::warn("what otlp_headers_file has is sent to {} unencrypted: use https there",
                 url->host);
  }
  options.source =
      TraceSourceOf(parts_.self.value(), parts_.own.identity().hostname(), kAgentVersion);
  MetricsService& metrics = parts_.metrics_service;
  parts_.traces = std::make_unique<TraceExporter>(
      std::move(options),
      TraceExporter::Counters{[&metrics](uint64_t count) { metrics.NoteSpansSent(count); },
                              [&metrics](uint64_t count) { metrics.NoteSpansDropped(count); }});
  spdlog::info("traces go to {}:{}, {} of those that begin here", url->host, url->port,
               config_.trace_ratio);
  return absl::OkStatus();
}

void Agent::Impl::StartGateway() {
  if (!config_.gateway_enabled) return;
  GatewayOptions options;
  options.bind_address = config_.gateway_bind;
  options.port = static_cast<uint16_t>(config_.gateway_port);
  options.allowed_hosts = config_.gateway_hosts;
  options.tls_certificate = config_.gateway_tls_certificate;
  options.tls_key = config_.gateway_tls_key;
  if (parts_.gateway_certificate != nullptr) {
    options.tls_certificate = parts_.gateway_certificate->certificate_path();
    options.tls_key = parts_.gateway_certificate->key_path();
    options.tls_awaited = true;
  }
  options.keys_required = config_.gateway_keys == "required";
  options.open = config_.gateway_open;
  options.orders_group = config_.socket_group;
  if (!IsLoopbackAddress(config_.gateway_bind)) {
    // Its own names can't be another site's.
    const std::string& hostname = parts_.own.identity().hostname();
    options.allowed_hosts.push_back(hostname);
    options.allowed_hosts.push_back(absl::StrCat(hostname, ".local"));
  }
  options.version = kAgentVersion;
  options.ask_status = [this](std::function<void(v1::ClusterStatus)> told) {
    parts_.dispatcher.Post([this, told = std::move(told)]() mutable {
      parts_.cluster_service.AskStatus(std::move(told));
    });
  };
  options.latencies = [this] { return parts_.metrics_service.Latencies(); };
  options.give_order = [this](Orderer who, ClusterOrder order,
                              std::function<void(OrderAnswer)> done) {
    parts_.dispatcher.Post(
        [this, who = std::move(who), order = std::move(order), done = std::move(done)] {
          parts_.gateway_orders.Give(who, order, done);
        });
  };
  options.queue_limit = std::chrono::seconds(config_.gateway_queue_limit_s);
  options.cors_origins = config_.gateway_cors_origins;
  options.aliases = ModelAliases(config_.gateway_aliases);
  options.metrics = [this](const std::string& accept, std::function<void(MetricsPage)> reply) {
    parts_.metrics_service.Page(accept, std::move(reply));
  };
  if (parts_.traces != nullptr) {
    options.traces.take = [&traces = *parts_.traces](std::vector<Span> spans) {
      traces.Add(std::move(spans));
    };
    options.traces.ratio = ParseTraceRatio(config_.trace_ratio).value_or(0);
  }
  options.on_request = [this](const RequestRecord& record) {
    parts_.metrics_service.NoteRequest(record);
  };
  absl::StatusOr<std::unique_ptr<Gateway>> gateway =
      Gateway::Start(options, &parts_.metrics_service.backend(), parts_.access);
  if (!gateway.ok()) {
    spdlog::warn("no HTTP gateway on this node: {}", LogText(gateway.status()));
    gateway_trouble_ = ReasonOf(gateway.status());
    gateway_trouble_.set_node_id(parts_.self.value());
    return;
  }
  parts_.gateway = std::move(*gateway);
  parts_.own.SetGatewayPort(parts_.gateway->port());
  TellSelf();
  spdlog::info("HTTP gateway at http://{}", HostPort(config_.gateway_bind, parts_.gateway->port()));
  if (const auto keys = KeysReason()) spdlog::warn("{}", keys->message());
}

// What is to be said of keys, while there are none.
std::optional<v1::Reason> Agent::Impl::KeysReason() const {
  if (parts_.gateway == nullptr || !parts_.access->keys()->empty()) return std::nullopt;
  const std::string place =
      absl::StrCat("the HTTP API of ", parts_.own.identity().hostname(), " at ",
                   HostPort(config_.gateway_bind, parts_.gateway->port()));
  const bool is_local = IsLoopbackAddress(config_.gateway_bind);
  if (config_.gateway_keys == "required" || (!is_local && !config_.gateway_open)) {
    return MakeReason(
        reasons::kGatewayWithoutKeys,
        absl::StrCat(place, " refuses ",
                     config_.gateway_keys == "required" ? "everybody" : "other machines",
                     ": there is no key yet"),
        parts_.self.value());
  }
  if (is_local) return std::nullopt;
  return MakeReason(reasons::kGatewayOpen,
                    absl::StrCat(place, " serves whoever reaches it, without a key"),
                    parts_.self.value());
}

}  // namespace macrame::agentd
