// What the page asks the cluster to do.
import {ApiFailure, ask} from './api';
import type {ApiKey, PlanResult, Reason} from './types';

// Longer than the gateway waits for the cluster.
const ORDER_MS = 65_000;

export interface Placement {
  model: string;
  ranks?: number;
  parallelism?: 'tensor' | 'pipeline';
}

async function order<Answer>(what: string, body: object, signal?: AbortSignal): Promise<Answer> {
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), ORDER_MS);
  signal?.addEventListener('abort', () => stop.abort(), {once: true});
  try {
    const response = await ask(`/dashboard/api/${what}`, {
      method: 'POST',
      headers: {'content-type': 'application/json'},
      body: JSON.stringify(body),
      signal: stop.signal,
    });
    return (await response.json()) as Answer;
  } finally {
    clearTimeout(late);
  }
}

export const plan = (placement: Placement, signal: AbortSignal) => order<PlanResult>('plan', placement, signal);
/** Ends when the load has begun; the snapshots show how it goes on. */
export const load = (placement: Placement) => order<object>('load', placement);
export const unload = (model: string) => order<object>('unload', {model});
export const cordon = (node: string, what: 'cordon' | 'drain' | 'uncordon') =>
  order<object>('cordon', {node, order: what});

export async function listKeys(): Promise<ApiKey[]> {
  return ((await (await ask('/dashboard/api/keys')).json()) as {keys: ApiKey[]}).keys;
}
export const createKey = (name: string, scopes: string[], seconds: number) =>
  order<{secret_key: string; key: ApiKey}>(
    'keys/create', {name, scopes, ...(seconds > 0 ? {expires_in_seconds: seconds} : {})});
export const revokeKey = (key: string) => order<object>('keys/revoke', {key});

/** The newest lines of this agent's audit log as they stand in its file, the oldest of them first. */
export async function readAudit(): Promise<string[]> {
  return ((await (await ask('/dashboard/api/audit')).json()) as {lines: string[]}).lines;
}

/** Why an order failed, to be shown. */
export function reasonOf(error: unknown): Reason {
  const failure = error instanceof ApiFailure ? error : new ApiFailure(0, 'The agent does not answer.');
  return {code: failure.code, message: failure.message, remedy: failure.remedy, node_id: '', evidence: ''};
}
