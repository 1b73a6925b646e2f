// What the page says of plans and keys. Pure.
import {count, rate} from './format';
import type {ApiKey, Plan, PlanResult, Reason, Snapshot} from './types';
import {shape} from './view';

/** The numbers of ranks that can be asked for: one a live node that takes new ones. */
export function rankChoices(snapshot: Snapshot): number[] {
  const usable = snapshot.nodes.filter(
    (node) => node.state === 'alive' && !node.draining && node.cordon === undefined).length;
  return Array.from({length: usable}, (_, i) => i + 1);
}

/** A plan's figures, as name and value; those that are not known are left out. */
export function planFacts(plan: Plan): [string, string][] {
  const facts: [string, string][] = [['shape', shape(plan)]];
  const estimate = plan.prediction;
  if (estimate !== undefined && estimate.tokens_per_second > 0) {
    const low = estimate.tokens_per_second_low ?? 0;
    const high = estimate.tokens_per_second_high ?? 0;
    const range = low > 0 && high > 0 ? ` (${rate(low)} to ${rate(high)})` : '';
    facts.push(['predicted', `${rate(estimate.tokens_per_second)} tok/s${range}`]);
  }
  if ((estimate?.first_token_ms ?? 0) > 0) facts.push(['first token', milliseconds(estimate!.first_token_ms!)]);
  if ((estimate?.load_seconds ?? 0) > 0) facts.push(['loads in', milliseconds(estimate!.load_seconds! * 1000)]);
  facts.push(['context', String(plan.context_length)]);
  return facts;
}

/** 850 → "850 ms", 1500 → "1.5 s", 90000 → "90 s". */
export function milliseconds(ms: number): string {
  if (ms < 1000) return `${Math.max(1, Math.round(ms))} ms`;
  return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
}

/** Why this can't be loaded; null: it can. */
export function obstacle(result: PlanResult): Reason | null {
  if (result.plan === undefined) {
    return result.failure ?? {code: 'NO_PLAN', message: 'There is no plan for it.', remedy: '', node_id: '', evidence: ''};
  }
  return result.not_served !== undefined && result.not_served.message !== '' ? result.not_served : null;
}

/** "revoked", "expired", "for ever" or "12 days left". */
export function keyState(key: ApiKey, nowMs: number): string {
  if (key.revoked_unix_ms > 0) return 'revoked';
  if (key.expires_unix_ms === 0) return 'for ever';
  const left = key.expires_unix_ms - nowMs;
  if (left <= 0) return 'expired';
  const hours = left / 3_600_000;
  return hours < 48 ? `${count(Math.max(1, Math.round(hours)), 'hour')} left` : `${count(Math.round(hours / 24), 'day')} left`;
}

export function keyHasEnded(key: ApiKey, nowMs: number): boolean {
  return key.revoked_unix_ms > 0 || (key.expires_unix_ms > 0 && key.expires_unix_ms <= nowMs);
}
