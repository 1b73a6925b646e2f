// What the page shows, worked out of a snapshot. Pure.
import type {DeploymentStatus, NodeLoad, NodeStatus, Plan, Reason, Snapshot} from './types';

/** How good a state is: the page's status colours. */
export type Tone = 'good' | 'busy' | 'warn' | 'bad' | 'idle';

export interface MemoryPart {
  label: string;
  bytes: number;
  /** "model" parts are coloured by `colour`, an index of the palette of models. */
  kind: 'model' | 'awaited' | 'other' | 'free';
  colour: number;
}

export interface Place {
  x: number;
  y: number;
}

export interface Edge {
  a: string;
  b: string;
  kind: string;
  /** RDMA works over it. */
  rdma: boolean;
  roundTripUs: number;
  bytesPerSecond: number;
}

/** Colours of models in the order of their names; the same model keeps its colour on every node. */
export function modelColours(snapshot: Snapshot): Map<string, number> {
  const names = snapshot.deployments.map((one) => one.deployment.name).sort();
  return new Map(names.map((name, i) => [name, i % 6]));
}

/** "74 W (cpu+gpu+ane)": never without what it covers, as a processor is no machine. Empty: not known. */
export function powerText(load: NodeLoad): string {
  const parts = load.power_parts ?? [];
  if (load.power_watts < 0 || parts.length === 0) return '';
  return `${load.power_watts.toFixed(0)} W (${parts.join('+')})`;
}

/** The memory of one node: what models hold, what is promised to them, what else is used, what is free. */
export function memoryParts(snapshot: Snapshot, node: NodeStatus): MemoryPart[] {
  const total = node.inventory?.memory_total_bytes ?? 0;
  if (total <= 0 || node.load === undefined || isGone(node)) return [];
  const colours = modelColours(snapshot);
  const parts: MemoryPart[] = [];
  let held = 0;
  for (const deployment of snapshot.deployments) {
    const name = deployment.deployment.name;
    let own = 0;
    for (const rank of deployment.ranks) {
      if (rank.node_id === node.identity.node_id) own += rank.memory_bytes;
    }
    own = Math.min(own, total - held);
    if (own <= 0) continue;
    held += own;
    parts.push({label: name, bytes: own, kind: 'model', colour: colours.get(name) ?? 0});
  }
  const available = Math.min(node.load.memory_available_bytes, total - held);
  const awaited = Math.min(node.load.awaited_bytes, available);
  const other = total - held - available;
  if (awaited > 0) parts.push({label: 'reserved for models', bytes: awaited, kind: 'awaited', colour: 0});
  if (other > 0) parts.push({label: 'system and other programs', bytes: other, kind: 'other', colour: 0});
  if (available - awaited > 0) {
    parts.push({label: 'free', bytes: available - awaited, kind: 'free', colour: 0});
  }
  return parts;
}

/** One edge for each pair of nodes that reach each other, with the better direction's figures. */
export function edges(snapshot: Snapshot): Edge[] {
  const found = new Map<string, Edge>();
  const keyOf = (a: string, b: string) => (a < b ? `${a} ${b}` : `${b} ${a}`);
  for (const path of snapshot.links?.paths ?? []) {
    const key = keyOf(path.from_node_id, path.to_node_id);
    const known = found.get(key);
    if (known === undefined) {
      const [a, b] = key.split(' ') as [string, string];
      found.set(key, {a, b, kind: path.kind, rdma: false, roundTripUs: path.round_trip_us,
                      bytesPerSecond: path.bandwidth_bytes_per_second});
    } else {
      if (path.round_trip_us > 0 && (known.roundTripUs <= 0 || path.round_trip_us < known.roundTripUs)) {
        known.roundTripUs = path.round_trip_us;
      }
      known.bytesPerSecond = Math.max(known.bytesPerSecond, path.bandwidth_bytes_per_second);
    }
  }
  for (const link of snapshot.links?.links ?? []) {
    if (link.a === undefined || link.b === undefined) continue;
    if (link.kind !== 'thunderbolt' && link.kind !== 'verbs') continue;
    const key = keyOf(link.a.node_id, link.b.node_id);
    const [a, b] = key.split(' ') as [string, string];
    const edge = found.get(key) ?? {a, b, kind: link.kind, rdma: false, roundTripUs: 0, bytesPerSecond: 0};
    edge.kind = link.kind;
    edge.rdma = edge.rdma || link.rdma_usable === 'yes';
    found.set(key, edge);
  }
  return [...found.values()];
}

/** Where nodes stand in a box of 100 by 100: a circle, or two when there are many. */
export function layout(count: number): Place[] {
  if (count === 1) return [{x: 50, y: 50}];
  const outer = count <= 16 ? count : Math.ceil(count * 0.64);
  const ring = (n: number, radius: number, turn: number): Place[] =>
    Array.from({length: n}, (_, i) => {
      const angle = (i / n) * 2 * Math.PI - Math.PI / 2 + turn;
      return {x: 50 + radius * Math.cos(angle), y: 50 + radius * Math.sin(angle)};
    });
  if (count === 2) return [{x: 15, y: 50}, {x: 85, y: 50}];
  return [...ring(outer, 38, 0), ...ring(count - outer, 20, Math.PI / Math.max(1, count - outer))];
}

/** The part of the drawing that nodes fill, with room for their names and speeds: an SVG viewBox. */
export function viewBox(places: Place[]): string {
  if (places.length === 0) return '0 0 100 20';
  const xs = places.map((place) => place.x);
  const ys = places.map((place) => place.y);
  const top = Math.min(...ys) - 10;
  const left = Math.min(Math.min(...xs) - 14, 6);
  return `${left} ${top} ${100 - 2 * left} ${Math.max(...ys) + 17 - top}`;
}

/**
 * The edges to draw. Many nodes on one network all reach each other: their lines would hide everything, so of
 * more than `most` only cables and the lines of the chosen node are drawn.
 */
export function drawnEdges(all: Edge[], chosen: string, most = 150): Edge[] {
  if (all.length <= most) return all;
  const isCable = (edge: Edge) => edge.kind === 'thunderbolt' || edge.kind === 'verbs';
  return all.filter((edge) => isCable(edge) || edge.a === chosen || edge.b === chosen);
}

/** What it told last of itself counts no more. */
export const isGone = (node: NodeStatus) => node.state === 'dead' || node.state === 'left';

/** Tokens a second that it generates now. */
export function speedOf(node: NodeStatus): number {
  return isGone(node) ? 0 : node.load?.tokens_per_second ?? 0;
}

export function nodeTone(node: NodeStatus): Tone {
  if (node.state === 'alive') return node.draining || node.cordon !== undefined ? 'busy' : 'good';
  if (node.state === 'suspect') return 'warn';
  return node.state === 'left' ? 'idle' : 'bad';
}

export function deploymentTone(deployment: DeploymentStatus): Tone {
  switch (deployment.state) {
    case 'ready':
      return deployment.degraded === undefined ? 'good' : 'warn';
    case 'launching':
    case 'removing':
      return 'busy';
    case 'backing_off':
      return 'bad';
    default:
      return deployment.failure === undefined ? 'busy' : 'bad';
  }
}

/** How far a load has come, 0 to 1, weighted by the bytes of the ranks; 1 when it serves. */
export function loadProgress(deployment: DeploymentStatus): number {
  if (deployment.state === 'ready') return 1;
  const asked = deployment.plan?.world_size ?? deployment.ranks.length;
  if (asked === 0) return 0;
  const total = deployment.ranks.reduce((sum, rank) => sum + rank.bytes_total, 0);
  if (total > 0 && deployment.ranks.length === asked) {
    const loaded = deployment.ranks.reduce((sum, rank) => sum + Math.min(rank.bytes_loaded, rank.bytes_total), 0);
    return loaded / total;
  }
  return deployment.ranks.reduce((sum, rank) => sum + Math.min(Math.max(rank.progress, 0), 1), 0) / asked;
}

/** "tensor × 2, pipeline × 3 over jaccl" or "one node". */
export function shape(plan: Plan | undefined): string {
  if (plan === undefined) return 'not planned yet';
  if (plan.world_size <= 1) return 'one node';
  const parts: string[] = [];
  if (plan.tp > 1) parts.push(`tensor × ${plan.tp}`);
  if (plan.pp > 1) parts.push(`pipeline × ${plan.pp}`);
  return `${parts.join(', ')} over ${plan.backend}`;
}

/** Models whose files some live node has and that are not asked for yet, by name. */
export function loadableModels(snapshot: Snapshot): {name: string; bytes: number; nodes: number}[] {
  const served = new Set(snapshot.deployments.map((one) => one.deployment.model_name));
  const found = new Map<string, {name: string; bytes: number; nodes: number}>();
  for (const node of snapshot.nodes) {
    if (node.state !== 'alive') continue;
    for (const model of node.inventory?.models ?? []) {
      if (served.has(model.name)) continue;
      const entry = found.get(model.name) ?? {name: model.name, bytes: model.size_bytes, nodes: 0};
      entry.nodes += 1;
      found.set(model.name, entry);
    }
  }
  return [...found.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** Problems of the cluster, each with the name of its node, then what deployments suffer from and is not among them. */
export function findings(snapshot: Snapshot): Reason[] {
  const nameOf = new Map(snapshot.nodes.map((node) => [node.identity.node_id, node.identity.hostname]));
  const all = snapshot.problems.map((reason) => {
    const name = nameOf.get(reason.node_id) ?? '';
    return name === '' || reason.message.includes(name) ? reason : {...reason, message: `${name}: ${reason.message}`};
  });
  for (const deployment of snapshot.deployments) {
    for (const reason of [deployment.degraded, deployment.state === 'ready' ? undefined : deployment.failure]) {
      if (reason === undefined || reason.message === '') continue;
      if (!all.some((known) => known.message.includes(reason.message))) {
        all.push({...reason, message: `${deployment.deployment.name}: ${reason.message}`});
      }
    }
  }
  for (const node of snapshot.unknown_nodes) {
    const reason = node.reason;
    if (reason === undefined || reason.message === '') continue;
    if (!all.some((known) => known.message.includes(reason.message))) all.push(reason);
  }
  return all;
}

/** The names that chat can be sent to. */
export function readyModels(snapshot: Snapshot): string[] {
  return snapshot.deployments.filter((one) => one.state === 'ready').map((one) => one.deployment.name);
}
