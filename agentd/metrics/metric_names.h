#pragma once

// All metrics that an agent exposes, each declared once. docs/metrics.md lists them for people; a
// test holds it, the dashboard and the alert rules in deploy/monitoring against this.

#include <span>

#include "agentd/metrics/metric.h"

namespace macrame::agentd::metrics {

// Seconds; vLLM's own, so that its dashboards fit.
inline constexpr double kFirstTokenBounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                               0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                               20,    40,    80,   160,  640,  2560};
inline constexpr double kTokenBounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
inline constexpr double kRequestBounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
inline constexpr double kTokenCountBounds[] = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
inline constexpr double kHttpBounds[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300};
inline constexpr double kOverheadBounds[] = {0.0001, 0.0002, 0.0005, 0.001, 0.002,
                                             0.005,  0.01,   0.02,   0.05,  0.1};
inline constexpr double kStepBounds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                         0.1,    0.2,   0.5,   1,     2,    5};

// Serving, by vLLM's names. Rank figures are told by the node that holds the entry rank, request
// figures by the gateway that took the request: sums over all agents count each once.
inline constexpr Metric kVllmRequestsRunning = {
    "vllm:num_requests_running", MetricKind::kGauge, "", "model_name,engine",
    "Requests that are being answered by entry ranks of this node."};
inline constexpr Metric kVllmRequestsWaiting = {
    "vllm:num_requests_waiting", MetricKind::kGauge, "", "model_name,engine",
    "Requests that wait for a place at entry ranks of this node."};
inline constexpr Metric kVllmKvCacheUsage = {
    "vllm:kv_cache_usage_perc", MetricKind::kGauge, "", "model_name,engine",
    "Share of the KV cache that requests under way hold, 0 to 1 in hundredths, rounded up."};
inline constexpr Metric kVllmPreemptions = {
    "vllm:num_preemptions_total", MetricKind::kCounter, "", "model_name,engine",
    "Requests that gave their KV blocks to others and were taken up again later."};
inline constexpr Metric kVllmDraftTokens = {"vllm:spec_decode_num_draft_tokens_total",
                                            MetricKind::kCounter, "", "model_name,engine",
                                            "Tokens that were run before they were chosen."};
inline constexpr Metric kVllmAcceptedTokens = {"vllm:spec_decode_num_accepted_tokens_total",
                                               MetricKind::kCounter, "", "model_name,engine",
                                               "Tokens of these that were right."};
inline constexpr Metric kVllmQueueTime = {
    "vllm:request_queue_time_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model_name,engine",
    "From a request's arrival at the entry rank to its first step.",
    kRequestBounds};
inline constexpr Metric kVllmPromptTokens = {"vllm:prompt_tokens_total", MetricKind::kCounter, "",
                                             "model_name", "Tokens of prompts that were read."};
inline constexpr Metric kVllmGenerationTokens = {"vllm:generation_tokens_total",
                                                 MetricKind::kCounter, "", "model_name",
                                                 "Tokens that were generated."};
inline constexpr Metric kVllmPrefixQueries = {
    "vllm:prefix_cache_queries_total", MetricKind::kCounter, "", "model_name",
    "Tokens of prompts that were looked for in the prefix cache."};
inline constexpr Metric kVllmPrefixHits = {"vllm:prefix_cache_hits_total", MetricKind::kCounter, "",
                                           "model_name", "Tokens of these that were found there."};
inline constexpr Metric kVllmRequestSuccess = {
    "vllm:request_success_total", MetricKind::kCounter, "", "model_name,finished_reason",
    "Requests that ended: stop, length, or abort (the client or the cluster ended it)."};
inline constexpr Metric kVllmFirstToken = {
    "vllm:time_to_first_token_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model_name",
    "From the gateway handing a request on to its first token.",
    kFirstTokenBounds};
inline constexpr Metric kVllmInterToken = {"vllm:inter_token_latency_seconds",
                                           MetricKind::kHistogram,
                                           "seconds",
                                           "model_name",
                                           "Between two tokens of one answer.",
                                           kTokenBounds};
inline constexpr Metric kVllmPerOutputToken = {
    "vllm:time_per_output_token_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model_name",
    "The same under the name that vLLM had for it before.",
    kTokenBounds};
inline constexpr Metric kVllmEndToEnd = {"vllm:e2e_request_latency_seconds",
                                         MetricKind::kHistogram,
                                         "seconds",
                                         "model_name",
                                         "From the gateway handing a request on to its end.",
                                         kRequestBounds};
inline constexpr Metric kVllmPrefillTime = {"vllm:request_prefill_time_seconds",
                                            MetricKind::kHistogram,
                                            "seconds",
                                            "model_name",
                                            "Time that the entry rank took for the prompt.",
                                            kRequestBounds};
inline constexpr Metric kVllmDecodeTime = {
    "vllm:request_decode_time_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model_name",
    "Time that the entry rank took from the first token to the last.",
    kRequestBounds};
inline constexpr Metric kVllmRequestPromptTokens = {
    "vllm:request_prompt_tokens", MetricKind::kHistogram, "", "model_name",
    "Tokens of each prompt.",     kTokenCountBounds};
inline constexpr Metric kVllmRequestGenerationTokens = {
    "vllm:request_generation_tokens", MetricKind::kHistogram, "", "model_name",
    "Tokens of each answer.",         kTokenCountBounds};
// The HTTP gateway of this agent.
inline constexpr Metric kGatewayConnections = {"macrame_gateway_connections", MetricKind::kGauge,
                                               "", "", "HTTP connections that are open."};
inline constexpr Metric kGatewayConnectionsMax = {"macrame_gateway_connections_max",
                                                  MetricKind::kGauge, "", "",
                                                  "HTTP connections that may be open."};
inline constexpr Metric kGatewayInProgress = {"macrame_gateway_requests_in_progress",
                                              MetricKind::kGauge, "", "",
                                              "HTTP requests that are being read or answered."};
inline constexpr Metric kGatewayRequests = {"macrame_gateway_requests_total", MetricKind::kCounter,
                                            "", "method,route,status",
                                            "HTTP requests that were answered."};
inline constexpr Metric kGatewayDuration = {
    "macrame_gateway_request_duration_seconds",
    MetricKind::kHistogram,
    "seconds",
    "route",
    "From the first byte of a request to the last of its answer.",
    kHttpBounds};
inline constexpr Metric kGatewayOverhead = {
    "macrame_gateway_first_byte_overhead_seconds",
    MetricKind::kHistogram,
    "seconds",
    "",
    "The gateway's own part of a stream's time to its first byte: reading and checking the "
    "request, writing the first piece.",
    kOverheadBounds};
inline constexpr Metric kGatewayReceived = {"macrame_gateway_received_bytes_total",
                                            MetricKind::kCounter, "bytes", "",
                                            "Bytes of request bodies that were read."};
inline constexpr Metric kGatewaySent = {"macrame_gateway_sent_bytes_total", MetricKind::kCounter,
                                        "bytes", "", "Bytes of answers that were written."};
inline constexpr Metric kGatewayGone = {"macrame_gateway_clients_gone_total", MetricKind::kCounter,
                                        "", "",
                                        "Requests whose client left before the end of the answer."};
inline constexpr Metric kTraceSpansSent = {"macrame_trace_spans_sent_total", MetricKind::kCounter,
                                           "", "", "Spans that the OpenTelemetry collector took."};
inline constexpr Metric kTraceSpansDropped = {
    "macrame_trace_spans_dropped_total", MetricKind::kCounter, "", "",
    "Spans that found no place in the queue, or that the collector did not take."};
inline constexpr Metric kRequestFailures = {
    "macrame_request_failures_total", MetricKind::kCounter, "", "code",
    "Requests for text or embeddings that failed, by reason code."};
inline constexpr Metric kKeyEnergy = {
    "macrame_key_energy_joules_total", MetricKind::kCounter, "joules", "key",
    "Energy that requests with this key took, by its id; none: without a key."};
inline constexpr Metric kKeyEnergyTokens = {"macrame_key_energy_tokens_total", MetricKind::kCounter,
                                            "", "key", "Tokens that were generated with it."};
// The cluster, as the agent that is asked knows it: every agent tells of all nodes, so don't sum
// over agents.
inline constexpr Metric kClusterInfo = {"macrame_cluster_info", MetricKind::kGauge, "",
                                        "cluster,cluster_id",
                                        "1; the cluster that the agent is a member of."};
inline constexpr Metric kClusterHealthy = {
    "macrame_cluster_healthy", MetricKind::kGauge, "", "",
    "1 when all nodes are alive, all models ready and nothing but notices is found."};
inline constexpr Metric kProblems = {
    "macrame_problems", MetricKind::kGauge, "", "code,severity",
    "Problems that `clusterctl status` lists; severity: error or notice."};
inline constexpr Metric kUnknownNodes = {"macrame_unknown_nodes", MetricKind::kGauge, "", "",
                                         "Nodes that are heard on the network and are no members."};
inline constexpr Metric kCoordinator = {"macrame_coordinator", MetricKind::kGauge, "", "node",
                                        "1 for the node that is coordinator."};
inline constexpr Metric kCoordinatorTerm = {
    "macrame_coordinator_term", MetricKind::kGauge, "", "",
    "Term of the coordinator; 0: none is agreed on. It rises with each election that is won."};
inline constexpr Metric kCoordinatorChanges = {
    "macrame_coordinator_changes_total", MetricKind::kCounter, "", "",
    "How often this agent came to obey another coordinator."};
inline constexpr Metric kNodeInfo = {"macrame_node_info", MetricKind::kGauge, "",
                                     "node,node_id,version,os,chip", "1; what a node is."};
inline constexpr Metric kNodeUp = {"macrame_node_up", MetricKind::kGauge, "", "node",
                                   "1 while the node is alive, else 0."};
inline constexpr Metric kNodeState = {
    "macrame_node_state", MetricKind::kGauge, "", "node,state",
    "1 for the state that the node is in: alive, suspect, dead or left."};
inline constexpr Metric kNodeDraining = {"macrame_node_draining", MetricKind::kGauge, "", "node",
                                         "1 while the node is about to stop."};
inline constexpr Metric kHeartbeatAge = {"macrame_node_heartbeat_age_seconds", MetricKind::kGauge,
                                         "seconds", "node", "Since this agent heard of the node."};
inline constexpr Metric kRoundTrip = {"macrame_node_heartbeat_round_trip_seconds",
                                      MetricKind::kGauge, "seconds", "node",
                                      "The node's last answer to a heartbeat of this agent."};
inline constexpr Metric kNodeDeaths = {"macrame_node_deaths_total", MetricKind::kCounter, "",
                                       "node", "How often this agent found the node dead."};
inline constexpr Metric kBootTime = {"macrame_node_boot_time_seconds", MetricKind::kGauge,
                                     "seconds", "node",
                                     "When the machine was started, as a Unix time."};
inline constexpr Metric kMemoryTotal = {"macrame_node_memory_total_bytes", MetricKind::kGauge,
                                        "bytes", "node", "Memory of the machine."};
inline constexpr Metric kMemoryUsable = {"macrame_node_memory_models_max_bytes", MetricKind::kGauge,
                                         "bytes", "node", "Memory that models may take."};
inline constexpr Metric kMemoryAvailable = {"macrame_node_memory_available_bytes",
                                            MetricKind::kGauge, "bytes", "node",
                                            "Memory that is free, or can be made free at once."};
inline constexpr Metric kMemoryHeld = {"macrame_node_memory_held_by_ranks_bytes",
                                       MetricKind::kGauge, "bytes", "node",
                                       "Memory that is kept for ranks, resident or not."};
inline constexpr Metric kMemoryPressure = {"macrame_node_memory_pressure", MetricKind::kGauge, "",
                                           "node", "0: normal, 1: warning, 2: critical."};
inline constexpr Metric kSwapTotal = {"macrame_node_swap_total_bytes", MetricKind::kGauge, "bytes",
                                      "node", "Swap space."};
inline constexpr Metric kSwapUsed = {"macrame_node_swap_used_bytes", MetricKind::kGauge, "bytes",
                                     "node", "Swap space in use."};
inline constexpr Metric kDiskTotal = {
    "macrame_node_disk_total_bytes", MetricKind::kGauge, "bytes", "node,path",
    "Size of the file system of a folder that matters: the root, state, models."};
inline constexpr Metric kDiskFree = {"macrame_node_disk_free_bytes", MetricKind::kGauge, "bytes",
                                     "node,path", "Free space there."};
inline constexpr Metric kCpuBusy = {"macrame_node_cpu_busy_ratio", MetricKind::kGauge, "ratio",
                                    "node", "Busy share of all cores."};
inline constexpr Metric kGpuBusy = {"macrame_node_gpu_busy_ratio", MetricKind::kGauge, "ratio",
                                    "node", "Busy share of the GPU, where the machine tells it."};
inline constexpr Metric kPower = {
    "macrame_node_power_watts", MetricKind::kGauge, "watts", "node,covers",
    "Power, where the machine tells it; covers: what it is the power of."};
inline constexpr Metric kEnergy = {
    "macrame_node_energy_joules_total", MetricKind::kCounter, "joules", "node,covers",
    "Energy that this took since the agent was started, or since it covers the same."};
inline constexpr Metric kTemperature = {
    "macrame_node_temperature_celsius", MetricKind::kGauge, "celsius", "node",
    "The hottest sensor of the processor, where the machine tells it."};
inline constexpr Metric kThrottled = {
    "macrame_node_throttled", MetricKind::kGauge, "", "node",
    "1 while the machine is slowed down by heat; missing where it is not known."};
inline constexpr Metric kOnBattery = {"macrame_node_on_battery", MetricKind::kGauge, "", "node",
                                      "1 while the machine runs on its battery."};
inline constexpr Metric kNodeTransport = {
    "macrame_node_transport", MetricKind::kGauge, "", "node,transport",
    "1; the best way from the node to the others: jaccl, verbs, ring, or none."};
// Links, as the coordinator judges them.
inline constexpr Metric kLinkBandwidth = {
    "macrame_link_bandwidth_bytes_per_second", MetricKind::kGauge, "", "from,to,kind",
    "Measured payload of the way between two nodes, one direction."};
inline constexpr Metric kLinkLatency = {
    "macrame_link_round_trip_seconds", MetricKind::kGauge, "seconds", "from,to,kind",
    "Median round trip of a small message on the way between two nodes."};
inline constexpr Metric kLinkRdma = {
    "macrame_link_rdma_usable", MetricKind::kGauge, "", "a,b,kind,interface",
    "1 when RDMA works over this link, 0 when it does not; missing where it is not known."};
inline constexpr Metric kLinkProblems = {
    "macrame_link_problems", MetricKind::kGauge, "", "a,b,code",
    "1; why RDMA does not work over a link that has the hardware for it."};
inline constexpr Metric kTransportVerdict = {
    "macrame_transport_verdict", MetricKind::kGauge, "", "verdict",
    "1; what all live nodes can run together: jaccl-mesh, verbs, ring-only, …"};
// Models and their gangs.
inline constexpr Metric kModelState = {"macrame_model_state", MetricKind::kGauge, "", "model,state",
                                       "1 for the state that the deployment is in: pending, "
                                       "launching, ready, backing_off or removing."};
inline constexpr Metric kModelReady = {"macrame_model_ready", MetricKind::kGauge, "", "model",
                                       "1 while the deployment is ready."};
inline constexpr Metric kModelDegraded = {"macrame_model_degraded", MetricKind::kGauge, "",
                                          "model,code",
                                          "1; it is served by less than was asked for."};
inline constexpr Metric kModelFallback = {"macrame_model_transport_fallback", MetricKind::kGauge,
                                          "", "model,code",
                                          "1; a backend that the deployment fell from."};
inline constexpr Metric kModelTransport = {"macrame_model_transport", MetricKind::kGauge, "",
                                           "model,transport",
                                           "1; the backend that its plan runs over."};
inline constexpr Metric kModelSpeed = {"macrame_model_generation_tokens_per_second",
                                       MetricKind::kGauge, "tokens_per_second", "model",
                                       "Tokens that were generated in the last 10 s."};
inline constexpr Metric kModelRunning = {
    "macrame_model_requests_running", MetricKind::kGauge, "", "model",
    "Requests that are being answered, whatever node they came through."};
inline constexpr Metric kModelQueued = {"macrame_model_requests_queued", MetricKind::kGauge, "",
                                        "model", "Requests that wait for a place."};
inline constexpr Metric kGangEpoch = {"macrame_gang_epoch", MetricKind::kGauge, "", "model",
                                      "Epoch of the gang; it rises with each launch."};
inline constexpr Metric kGangAttempts = {"macrame_gang_launch_attempts", MetricKind::kGauge, "",
                                         "model", "Launches since the gang was last ready."};
inline constexpr Metric kGangRestarts = {
    "macrame_gang_restarts_total", MetricKind::kCounter, "", "model",
    "Launches of the gang that this agent saw, beyond the first that it heard of."};
inline constexpr Metric kRankState = {"macrame_rank_ready", MetricKind::kGauge, "",
                                      "model,rank,node", "1 while the rank is ready."};
inline constexpr Metric kRankMemory = {"macrame_rank_memory_bytes", MetricKind::kGauge, "bytes",
                                       "model,rank,node", "Memory that the rank holds."};
inline constexpr Metric kRankProgress = {"macrame_rank_load_ratio", MetricKind::kGauge, "ratio",
                                         "model,rank,node",
                                         "How much of its weights the rank has loaded."};
inline constexpr Metric kRankCollectiveBytes = {"macrame_rank_collective_bytes_total",
                                                MetricKind::kCounter, "bytes", "model,rank,node",
                                                "Bytes that the rank sent to its group."};
inline constexpr Metric kModelEnergy = {
    "macrame_model_energy_joules_total", MetricKind::kCounter, "joules", "model,covers",
    "Energy of the gang's nodes while its ranks computed, where all of them tell it."};
inline constexpr Metric kModelEnergyTokens = {"macrame_model_energy_tokens_total",
                                              MetricKind::kCounter, "", "model,covers",
                                              "Tokens that were generated with it."};
inline constexpr Metric kModelTokensPerJoule = {
    "macrame_model_tokens_per_joule", MetricKind::kGauge, "", "model,covers",
    "The same tokens a joule; prompts' energy is in it."};
// Ranks of the node of this agent.
inline constexpr Metric kRankFirstToken = {
    "macrame_rank_first_token_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model",
    "Entry ranks of this node: from a request's arrival to its first token.",
    kFirstTokenBounds};
inline constexpr Metric kRankPrefillStep = {"macrame_rank_prefill_step_seconds",
                                            MetricKind::kHistogram,
                                            "seconds",
                                            "model,rank",
                                            "Steps that had tokens of a prompt in them.",
                                            kStepBounds};
inline constexpr Metric kRankDecodeStep = {"macrame_rank_decode_step_seconds",
                                           MetricKind::kHistogram,
                                           "seconds",
                                           "model,rank",
                                           "Steps of answers' next tokens alone.",
                                           kStepBounds};
inline constexpr Metric kRankCollective = {
    "macrame_rank_collective_wait_seconds",
    MetricKind::kHistogram,
    "seconds",
    "model,rank",
    "Of each step, the time that was waited for other ranks.",
    kStepBounds};
// The process of this agent.
inline constexpr Metric kBuildInfo = {"macrame_build_info", MetricKind::kGauge, "",
                                      "version,mlx_version", "1; what this agent is built as."};
inline constexpr Metric kProcessCpu = {"process_cpu_seconds_total", MetricKind::kCounter, "seconds",
                                       "", "Processor time of this agent."};
inline constexpr Metric kProcessMemory = {"process_resident_memory_bytes", MetricKind::kGauge,
                                          "bytes", "", "Memory of this agent."};
inline constexpr Metric kProcessStart = {"process_start_time_seconds", MetricKind::kGauge,
                                         "seconds", "",
                                         "When this agent was started, as a Unix time."};
inline constexpr Metric kProcessMaxFds = {"process_max_fds", MetricKind::kGauge, "", "",
                                          "Files that this agent may have open."};
inline constexpr Metric kOwnerThreadDelay = {
    "macrame_owner_thread_delay_seconds",
    MetricKind::kHistogram,
    "seconds",
    "",
    "How much later than they should timers of the thread that decides ran.",
    kStepBounds};
inline constexpr Metric kScrapeCpu = {
    "macrame_metrics_cpu_seconds_total", MetricKind::kCounter, "seconds", "",
    "Processor time of this agent that went into answers like this one."};
inline constexpr Metric kScrapes = {"macrame_metrics_scrapes_total", MetricKind::kCounter, "", "",
                                    "Pages like this one. Those who ask at once share one."};

// In the order above.
std::span<const Metric* const> All();
// Null: there is none of this name.
const Metric* Find(std::string_view name);

}  // namespace macrame::agentd::metrics
