// The fields of the status message that the page reads; `clusterctl status -o json` prints the same ones.
// A message that is not set is left out of the JSON.

export interface Reason {
  code: string;
  message: string;
  remedy: string;
  node_id: string;
  evidence: string;
}

export interface LocalModel {
  name: string;
  size_bytes: number;
  fingerprint: string;
}

export interface Inventory {
  os_name: string;
  os_version: string;
  machine_model: string;
  chip: string;
  cpu_cores: number;
  gpu_cores: number;
  memory_total_bytes: number;
  memory_gpu_usable_bytes: number;
  memory_models_max_bytes: number;
  models: LocalModel[];
}

export interface NodeLoad {
  memory_available_bytes: number;
  memory_pressure: string;
  swap_used_bytes: number;
  cpu_busy_ratio: number;
  gpu_busy_ratio: number;
  thermal_state: string;
  power_watts: number;
  /** What the power is the power of: "package", "gpu", "machine"…; agents before it tell none. */
  power_parts?: string[];
  temperature_celsius?: number;
  tokens_per_second: number;
  requests_running: number;
  requests_queued: number;
  reserved_bytes: number;
  awaited_bytes: number;
  on_battery: boolean;
}

export interface NodeStatus {
  identity: {node_id: string; hostname: string; gateway_port: number; agent_version: string};
  state: string;
  inventory?: Inventory;
  load?: NodeLoad;
  is_coordinator: boolean;
  is_self: boolean;
  last_heartbeat_age_ms: number;
  transport_verdict: string;
  state_reason?: Reason;
  draining: boolean;
  cordon?: {drain: boolean};
}

export interface Assignment {
  rank: number;
  node_id: string;
  hostname: string;
  layer_begin: number;
  layer_end: number;
  tp_rank: number;
  need?: {total_bytes: number};
}

export interface Plan {
  tp: number;
  pp: number;
  world_size: number;
  backend: string;
  context_length: number;
  concurrent_sequences: number;
  assignments: Assignment[];
  reasons: Reason[];
  prediction?: {
    tokens_per_second: number;
    tokens_per_second_low?: number;
    tokens_per_second_high?: number;
    first_token_ms?: number;
    load_seconds?: number;
  };
}

export interface Rejection {
  subject: string;
  reason?: Reason;
}

/** What loading would do: a plan, or why there is none. */
export interface PlanResult {
  plan?: Plan;
  rejections: Rejection[];
  failure?: Reason;
  evicted: string[];
  not_served?: Reason;
}

/** Times are in milliseconds since 1970; 0: never. */
export interface ApiKey {
  id: string;
  name: string;
  scopes: string[];
  created_unix_ms: number;
  expires_unix_ms: number;
  revoked_unix_ms: number;
  models: string[];
  tenant: string;
}

/** A line of the audit log, as far as the page reads it. Somebody may have changed the file: nothing is sure to be there. */
export interface AuditEntry {
  unix_ms?: unknown;
  who?: unknown;
  what?: unknown;
  target?: unknown;
  from?: unknown;
  outcome?: unknown;
  left_out?: unknown;
}

export interface RankStatus {
  rank: number;
  node_id: string;
  phase: string;
  progress: number;
  bytes_loaded: number;
  bytes_total: number;
  memory_bytes: number;
  tokens_per_second: number;
  requests_running: number;
  requests_queued: number;
  phase_detail: string;
}

export interface DeploymentStatus {
  deployment: {name: string; model_name: string};
  state: string;
  plan?: Plan;
  ranks: RankStatus[];
  failure?: Reason;
  degraded?: Reason;
  retry_in_ms: number;
  entry_node_id: string;
  tokens_per_second: number;
}

// How one node reaches another: kind is that of the interface ("ethernet", "thunderbolt", "loopback", …).
export interface NodePath {
  from_node_id: string;
  to_node_id: string;
  kind: string;
  round_trip_us: number;
  bandwidth_bytes_per_second: number;
}

// What one link can do beyond IP.
export interface LinkVerdict {
  kind: string;
  a?: {node_id: string};
  b?: {node_id: string};
  rdma_usable: string;
  reasons: Reason[];
}

export interface Snapshot {
  cluster_name: string;
  coordinator?: {term: number; coordinator_id: string};
  nodes: NodeStatus[];
  deployments: DeploymentStatus[];
  aggregate_load?: {
    nodes_alive: number;
    nodes_total: number;
    memory_total_bytes: number;
    memory_available_bytes: number;
    gpu_cores: number;
    tokens_per_second: number;
    requests_running: number;
    requests_queued: number;
  };
  unknown_nodes: {node_id: string; hostname: string; reason?: Reason}[];
  healthy: boolean;
  problems: Reason[];
  insecure: boolean;
  links?: {links: LinkVerdict[]; paths: NodePath[]};
}

/** [seconds before the answer, values, median, 95th percentile]; the last two in milliseconds. */
export type LatencyPoint = [number, number, number, number];

/** How long tokens took in the last minutes, of the requests that came through the agent that is asked. */
export interface Latencies {
  slot_seconds: number;
  window_seconds: number;
  span_seconds: number;
  models: {model: string; first_token: LatencyPoint[]; inter_token: LatencyPoint[]}[];
}
