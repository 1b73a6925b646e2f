import assert from 'node:assert/strict';
import {test} from 'node:test';
import type {DeploymentStatus, NodeStatus, Snapshot} from '../src/types';
import {deploymentTone, drawnEdges, edges, findings, layout, loadProgress, loadableModels, memoryParts, powerText, shape, speedOf, viewBox} from '../src/view';

const GIB = 1024 ** 3;

function node(id: string, changes: Partial<NodeStatus> = {}): NodeStatus {
  return {
    identity: {node_id: id, hostname: id, gateway_port: 0, agent_version: ''},
    state: 'alive', is_coordinator: false, is_self: false, last_heartbeat_age_ms: 0, transport_verdict: '',
    draining: false,
    inventory: {os_name: '', os_version: '', machine_model: '', chip: '', cpu_cores: 1, gpu_cores: 0,
                memory_total_bytes: 16 * GIB, memory_gpu_usable_bytes: 0, memory_models_max_bytes: 0, models: []},
    load: {memory_available_bytes: 8 * GIB, memory_pressure: 'normal', swap_used_bytes: 0, cpu_busy_ratio: 0,
           gpu_busy_ratio: -1, thermal_state: 'unknown', power_watts: -1, tokens_per_second: 0, requests_running: 0,
           requests_queued: 0, reserved_bytes: 0, awaited_bytes: 0, on_battery: false},
    ...changes,
  };
}

function deployment(name: string, changes: Partial<DeploymentStatus> = {}): DeploymentStatus {
  return {deployment: {name, model_name: name}, state: 'ready', ranks: [], retry_in_ms: 0, entry_node_id: '',
          tokens_per_second: 0, ...changes};
}

function rank(nodeId: string, changes: object = {}) {
  return {rank: 0, node_id: nodeId, phase: 'ready', progress: 1, bytes_loaded: 0, bytes_total: 0, memory_bytes: 0,
          tokens_per_second: 0, requests_running: 0, requests_queued: 0, phase_detail: '', ...changes};
}

function snapshot(changes: Partial<Snapshot> = {}): Snapshot {
  return {cluster_name: 'lab', nodes: [], deployments: [], unknown_nodes: [], healthy: true, problems: [],
          insecure: false, ...changes};
}

const reason = (message: string) => ({code: 'X', message, remedy: '', node_id: '', evidence: ''});

test('the parts of a node\'s memory add up to all of it', () => {
  const ada = node('ada');
  ada.load!.awaited_bytes = GIB;
  const all = snapshot({nodes: [ada], deployments: [
    deployment('big', {ranks: [rank('ada', {memory_bytes: 3 * GIB}), rank('bess', {memory_bytes: 5 * GIB})]}),
  ]});
  const parts = memoryParts(all, ada);
  assert.deepEqual(parts.map((part) => [part.kind, part.bytes / GIB]),
                   [['model', 3], ['awaited', 1], ['other', 5], ['free', 7]]);
});

test('ranks that say more than the node has do not overflow its bar', () => {
  const ada = node('ada');
  const all = snapshot({nodes: [ada], deployments: [deployment('big', {ranks: [rank('ada', {memory_bytes: 99 * GIB})]})]});
  assert.equal(memoryParts(all, ada).reduce((sum, part) => sum + part.bytes, 0), 16 * GIB);
});

test('power is told with what it covers, or not at all', () => {
  const load = node('ada').load!;
  assert.equal(powerText(load), '');
  assert.equal(powerText({...load, power_watts: 74.4, power_parts: ['cpu', 'gpu', 'ane']}), '74 W (cpu+gpu+ane)');
  assert.equal(powerText({...load, power_watts: 74.4}), '');
  assert.equal(powerText({...load, power_watts: 0, power_parts: []}), '');
  assert.equal(powerText({...load, power_watts: -1, power_parts: ['package']}), '');
});

test('a node that told nothing has no parts', () => {
  const dead = node('ada');
  delete dead.load;
  assert.deepEqual(memoryParts(snapshot({nodes: [dead]}), dead), []);
});

test('what a dead node told of its memory is not shown', () => {
  const dead = node('ada', {state: 'dead'});
  assert.deepEqual(memoryParts(snapshot({nodes: [dead]}), dead), []);
});

test('a problem of a node names it, once', () => {
  const all = snapshot({nodes: [node('ada')], problems: [
    {...reason('was not heard for 3 s'), node_id: 'ada'}, {...reason('ada is full'), node_id: 'ada'}, {...reason('odd'), node_id: 'gone'},
  ]});
  assert.deepEqual(findings(all).map((one) => one.message), ['ada: was not heard for 3 s', 'ada is full', 'odd']);
});

test('two directions are one edge, with the better figures, and RDMA names the link', () => {
  const path = (from: string, to: string, us: number, speed: number) =>
    ({from_node_id: from, to_node_id: to, kind: 'ethernet', round_trip_us: us, bandwidth_bytes_per_second: speed});
  const found = edges(snapshot({links: {
    paths: [path('a', 'b', 90, 1e9), path('b', 'a', 40, 2e9), path('b', 'c', 0, 1e8)],
    links: [{kind: 'thunderbolt', a: {node_id: 'b'}, b: {node_id: 'a'}, rdma_usable: 'yes', reasons: []}],
  }}));
  assert.deepEqual(found.map((edge) => [edge.a + edge.b, edge.kind, edge.rdma, edge.roundTripUs, edge.bytesPerSecond]),
                   [['ab', 'thunderbolt', true, 40, 2e9], ['bc', 'ethernet', false, 0, 1e8]]);
});

test('any number of nodes stands inside the box, each on a place of its own', () => {
  for (const count of [0, 1, 2, 3, 16, 17, 64]) {
    const places = layout(count);
    assert.equal(places.length, count);
    assert.ok(places.every((place) => place.x >= 10 && place.x <= 90 && place.y >= 10 && place.y <= 90));
    assert.equal(new Set(places.map((place) => `${place.x.toFixed(2)} ${place.y.toFixed(2)}`)).size, count);
  }
});

test('the drawing holds every node with its name', () => {
  for (const count of [1, 2, 3, 4, 20]) {
    const places = layout(count);
    const [left, top, width, height] = viewBox(places).split(' ').map(Number) as [number, number, number, number];
    for (const place of places) {
      assert.ok(place.x - 10 >= left && place.x + 10 <= left + width, `${count} nodes`);
      assert.ok(place.y - 10 >= top && place.y + 16 <= top + height, `${count} nodes`);
    }
  }
});

test('a dead node generates nothing, whatever it told last', () => {
  const node = (state: string) => ({identity: {node_id: 'a'}, state, load: {tokens_per_second: 5}}) as unknown as NodeStatus;
  assert.equal(speedOf(node('alive')), 5);
  assert.equal(speedOf(node('dead')), 0);
});

test('of too many lines those of the chosen node and the cables stay', () => {
  const edge = (a: string, b: string, kind: string) => ({a, b, kind, rdma: false, roundTripUs: 0, bytesPerSecond: 0});
  const all = [edge('a', 'b', 'ethernet'), edge('b', 'c', 'ethernet'), edge('c', 'd', 'thunderbolt')];
  assert.equal(drawnEdges(all, '', 3).length, 3);
  assert.deepEqual(drawnEdges(all, 'a', 2).map((one) => one.a + one.b), ['ab', 'cd']);
});

test('a load counts the bytes of all ranks, and those that have not begun', () => {
  const plan = {tp: 1, pp: 2, world_size: 2, backend: 'ring', context_length: 1, concurrent_sequences: 1,
                assignments: [], reasons: []};
  const first = rank('a', {phase: 'loading', progress: .5, bytes_loaded: 50, bytes_total: 100});
  const second = rank('b', {phase: 'loading', progress: 0, bytes_loaded: 0, bytes_total: 300});
  const loading = (ranks: ReturnType<typeof rank>[]) => deployment('m', {state: 'launching', plan, ranks});
  assert.equal(loadProgress(loading([first, second])), 50 / 400);
  assert.equal(loadProgress(loading([first])), .25);
  assert.equal(loadProgress(deployment('m')), 1);
  assert.equal(loadProgress(deployment('m', {state: 'pending'})), 0);
});

test('shapes and tones are told as people call them', () => {
  const plan = {tp: 2, pp: 3, world_size: 6, backend: 'jaccl', context_length: 1, concurrent_sequences: 1,
                assignments: [], reasons: []};
  assert.equal(shape(plan), 'tensor × 2, pipeline × 3 over jaccl');
  assert.equal(shape({...plan, tp: 1, pp: 1, world_size: 1}), 'one node');
  assert.equal(deploymentTone(deployment('m', {degraded: reason('slow')})), 'warn');
  assert.equal(deploymentTone(deployment('m', {state: 'pending', failure: reason('no room')})), 'bad');
});

test('what a live node has and nobody asked for can be loaded', () => {
  const files = (names: string[]) => names.map((name) => ({name, size_bytes: 5, fingerprint: ''}));
  const ada = node('ada');
  const bess = node('bess', {state: 'dead'});
  ada.inventory!.models = files(['used', 'spare']);
  bess.inventory!.models = files(['gone']);
  const found = loadableModels(snapshot({nodes: [ada, bess], deployments: [deployment('used')]}));
  assert.deepEqual(found, [{name: 'spare', bytes: 5, nodes: 1}]);
});

test('a deployment\'s trouble is told once', () => {
  const all = snapshot({problems: [reason('m: no room')], deployments: [
    deployment('m', {state: 'pending', failure: reason('no room')}),
    deployment('n', {degraded: reason('two of three ranks')}),
    deployment('o', {failure: reason('an old failure of one that is ready')}),
  ]});
  assert.deepEqual(findings(all).map((one) => one.message), ['m: no room', 'n: two of three ranks']);
});
