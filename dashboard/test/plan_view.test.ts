import assert from 'node:assert/strict';
import {test} from 'node:test';
import {ApiFailure} from '../src/api';
import {reasonOf} from '../src/orders';
import {keyHasEnded, keyState, milliseconds, obstacle, planFacts, rankChoices} from '../src/plan_view';
import type {ApiKey, NodeStatus, Plan, PlanResult, Snapshot} from '../src/types';

const plan: Plan = {tp: 1, pp: 3, world_size: 3, backend: 'ring', context_length: 4096, concurrent_sequences: 1,
                    assignments: [], reasons: []};
const reason = {code: 'MEMORY_SHORT', message: 'no room', remedy: 'unload something', node_id: '', evidence: ''};
const result = (changes: Partial<PlanResult>): PlanResult => ({rejections: [], evicted: [], ...changes});

function snapshotOf(nodes: Partial<NodeStatus>[]): Snapshot {
  return {cluster_name: '', deployments: [], unknown_nodes: [], healthy: true, problems: [], insecure: false,
          nodes: nodes.map((node) => ({state: 'alive', draining: false, ...node}) as NodeStatus)};
}

test('as many ranks can be asked for as nodes take them', () => {
  assert.deepEqual(rankChoices(snapshotOf([{}, {}, {state: 'dead'}, {draining: true}, {cordon: {drain: false}}])), [1, 2]);
  assert.deepEqual(rankChoices(snapshotOf([])), []);
});

test('a plan tells what is known of it, and no more', () => {
  assert.deepEqual(planFacts(plan), [['shape', 'pipeline × 3 over ring'], ['context', '4096']]);
  const estimate = {tokens_per_second: 20, tokens_per_second_low: 15, tokens_per_second_high: 30, first_token_ms: 850,
                    load_seconds: 12};
  assert.deepEqual(planFacts({...plan, prediction: estimate}).slice(1, 4),
                   [['predicted', '20.0 tok/s (15.0 to 30.0)'], ['first token', '850 ms'], ['loads in', '12 s']]);
  assert.deepEqual(planFacts({...plan, prediction: {tokens_per_second: 20}})[1], ['predicted', '20.0 tok/s']);
});

test('short times are told in milliseconds', () => {
  assert.deepEqual([0.2, 850, 1500, 90_000].map(milliseconds), ['1 ms', '850 ms', '1.5 s', '90 s']);
});

test('what can\'t be loaded says why', () => {
  assert.equal(obstacle(result({plan})), null);
  assert.equal(obstacle(result({failure: reason}))?.code, 'MEMORY_SHORT');
  assert.equal(obstacle(result({plan, not_served: reason}))?.code, 'MEMORY_SHORT');
  assert.equal(obstacle(result({}))?.code, 'NO_PLAN');
});

test('a key says how long it holds', () => {
  const key = (changes: Partial<ApiKey>): ApiKey => ({id: 'a', name: '', scopes: [], created_unix_ms: 1,
    expires_unix_ms: 0, revoked_unix_ms: 0, models: [], tenant: '', ...changes});
  const hour = 3_600_000;
  assert.deepEqual([key({}), key({revoked_unix_ms: 5}), key({expires_unix_ms: 9}), key({expires_unix_ms: 10 + 20 * hour}),
                    key({expires_unix_ms: 10 + 30 * 24 * hour})].map((one) => keyState(one, 10)),
                   ['for ever', 'revoked', 'expired', '20 hours left', '30 days left']);
  assert.equal(keyHasEnded(key({expires_unix_ms: 10}), 10), true);
  assert.equal(keyHasEnded(key({expires_unix_ms: 11}), 10), false);
});

test('an order that fails is told with its code and remedy', () => {
  assert.deepEqual(reasonOf(new ApiFailure(422, 'no room', 'MEMORY_SHORT', 'unload something')), reason);
  assert.equal(reasonOf(new TypeError('fetch')).message, 'The agent does not answer.');
});
