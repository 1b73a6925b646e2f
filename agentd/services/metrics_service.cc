#include "agentd/services/metrics_service.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/health.h"
#include "agentd/metrics/metric_names.h"
#include "agentd/services/process_metrics.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;

// After it a page is begun again: the coordinator's answer is lost where the channel to it goes.
constexpr std::chrono::seconds kPagePatience{5};

double Seconds(RequestRecord::Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace

MetricsService::MetricsService(Parts parts)
    : parts_(std::move(parts)),
      registry_(std::make_shared<MetricRegistry>()),
      latencies_(std::make_shared<LatencyHistory>()),
      backend_(parts_.router, registry_, latencies_, parts_.dispatcher,
               [dispatcher = &parts_.dispatcher, energy = &parts_.energy,
                alive = std::weak_ptr(alive_)](UsedRequest used) {
                 dispatcher->Post([energy, alive, used = std::move(used)] {
                   if (!alive.expired()) energy->Note(used);
                 });
               }),
      started_unix_seconds_(static_cast<double>(parts_.dispatcher.UnixMs()) / 1000) {
  parts_.dispatcher.ObserveDelays([registry = registry_](Duration delay) {
    registry->Observe(m::kOwnerThreadDelay, {}, std::chrono::duration<double>(delay).count());
  });
}

void MetricsService::RegisterLocal(transport::RpcServer& server) {
  server.HandleUnary(
      kGetMetrics, [this](const transport::Caller&, v1::GetMetricsRequest request,
                          transport::RpcServer::Reply<v1::GetMetricsResponse> reply) {
        const auto format = MetricsFormatFromName(request.format());
        if (!format.has_value()) {
          return reply(ReasonStatus(
              absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
              absl::StrCat("no metrics in the format '", request.format().substr(0, 64),
                           "': there are prometheus, openmetrics and json")));
        }
        TellPage(*format, [reply](const std::shared_ptr<const std::string>& text) {
          v1::GetMetricsResponse response;
          response.set_text(*text);
          reply(std::move(response));
        });
      });
}

void MetricsService::NoteRequest(const RequestRecord& record) {
  registry_->Count(m::kGatewayRequests, {record.method, record.route, absl::StrCat(record.status)});
  registry_->Observe(m::kGatewayDuration, {record.route}, Seconds(record.ended - record.begun));
  registry_->Count(m::kGatewayReceived, {}, static_cast<double>(record.bytes_received));
  registry_->Count(m::kGatewaySent, {}, static_cast<double>(record.bytes_sent));
  if (record.client_gone) registry_->Count(m::kGatewayGone, {});
  if (const auto overhead = FirstByteOverhead(record)) {
    registry_->Observe(m::kGatewayOverhead, {}, std::chrono::duration<double>(*overhead).count());
  }
}

void MetricsService::NoteSpansSent(uint64_t count) {
  registry_->Count(m::kTraceSpansSent, {}, static_cast<double>(count));
}

void MetricsService::NoteSpansDropped(uint64_t count) {
  registry_->Count(m::kTraceSpansDropped, {}, static_cast<double>(count));
}

void MetricsService::Page(const std::string& accept, std::function<void(MetricsPage)> reply) {
  const MetricsFormat format = FormatForAccept(accept);
  TellPage(format, [format, reply = std::move(reply)](std::shared_ptr<const std::string> text) {
    reply({std::string(ContentTypeOf(format)), std::move(text)});
  });
}

void MetricsService::TellPage(MetricsFormat format, TakeText take) {
  {
    const MonotonicTime now = parts_.dispatcher.Now();
    const std::lock_guard lock(pages_mutex_);
    PageUnderWay& page = pages_[format];
    page.waiting.push_back(std::move(take));
    if (page.waiting.size() > 1 && now - page.begun < kPagePatience) return;
    page.begun = now;
  }
  parts_.dispatcher.Post([this, format] {
    parts_.cluster_service.RefreshFromCoordinator([this, format] {
      std::vector<TakeText> waiting;
      {
        // Before the figures are read: who asks from here on may know of newer ones.
        const std::lock_guard lock(pages_mutex_);
        waiting.swap(pages_[format].waiting);
      }
      if (waiting.empty()) return;  // an earlier one came late, and has told them
      const auto text = std::make_shared<const std::string>(Text(format));
      for (const TakeText& told : waiting) told(text);
    });
  });
}

std::shared_ptr<const std::string> MetricsService::Latencies() {
  return latencies_->Json(parts_.dispatcher.Now());
}

void MetricsService::NoteCoordinator(const std::string& node_id) {
  if (node_id.empty() || node_id == coordinator_) return;
  coordinator_ = node_id;
  registry_->Count(m::kCoordinatorChanges, {});
}

void MetricsService::NoteGangs(const DesiredState& desired) {
  for (const auto& [name, gang] : desired.gangs()) {
    uint64_t& epoch = epochs_[name];
    if (gang.epoch() <= epoch) continue;
    // What was launched before it was first heard of is not this agent's to count.
    registry_->Count(m::kGangRestarts, {name},
                     epoch == 0 ? 0.0 : static_cast<double>(gang.epoch() - epoch));
    epoch = gang.epoch();
  }
}

void MetricsService::AddOwn(MetricSet& set) const {
  AddProcessMetrics(started_unix_seconds_, set);
  AddKeyEnergy(parts_.energy.Keys(), set);
  const Gateway* gateway = parts_.gateway();
  if (gateway == nullptr) return;
  set.Set(m::kGatewayConnections, {}, static_cast<double>(gateway->connections()));
  set.Set(m::kGatewayConnectionsMax, {}, static_cast<double>(parts_.connections_max));
  set.Set(m::kGatewayInProgress, {}, static_cast<double>(gateway->requests()));
}

std::string MetricsService::Text(MetricsFormat format) {
  const double began = ThreadCpuSeconds();
  const v1::ClusterStatus status = parts_.reporter.Status();
  seen_.round_trip_seconds.clear();
  for (const v1::NodeStatus& node : status.nodes()) {
    const std::string& id = node.identity().node_id();
    if (node.state() != v1::NODE_STATE_ALIVE || node.is_self()) continue;
    if (const auto round_trip = parts_.heartbeats.RoundTrip(NodeId(id))) {
      seen_.round_trip_seconds[id] = std::chrono::duration<double>(*round_trip).count();
    }
  }
  MetricSet set;
  AddClusterMetrics(status, seen_, IsNotice, set);
  AddRankMetrics(parts_.own.ranks(), set);
  AddOwn(set);
  registry_->Count(m::kScrapes, {});
  registry_->CopyTo(set);
  std::string text = Expose(set, format);
  registry_->Count(m::kScrapeCpu, {}, ThreadCpuSeconds() - began);
  return text;
}

}  // namespace macrame::agentd
