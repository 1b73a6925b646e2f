// What the charts of latency draw. Pure.
import type {Latencies, LatencyPoint} from './types';

export type Figure = 'first_token' | 'inter_token';

export interface LatencyRow {
  model: string;
  /** Of the newest window in which there was something; null: in none. */
  first: LatencyPoint | null;
  between: LatencyPoint | null;
}

/** One row a model, by name. */
export function latencyRows(latencies: Latencies): LatencyRow[] {
  return latencies.models
    .map((one) => ({model: one.model, first: one.first_token[one.first_token.length - 1] ?? null,
                    between: one.inter_token[one.inter_token.length - 1] ?? null}))
    .sort((a, b) => a.model.localeCompare(b.model));
}

/** How long ago a row's newest figures are from, in seconds; 0 while something comes. */
export function ageOf(row: LatencyRow): number {
  return Math.min(row.first?.[0] ?? Infinity, row.between?.[0] ?? Infinity);
}

/**
 * Times in seconds since 1970, then for each model its median and its 95th percentile. All slots have their place, also
 * those in which nothing came: a line that crossed them would say that something did.
 */
export function latencyColumns(latencies: Latencies, figure: Figure, nowSeconds: number): (number | null)[][] {
  const {slot_seconds: slot, models} = latencies;
  const ages = new Set<number>();
  const all = models.flatMap((one) => one[figure]);
  for (const [age] of all) ages.add(age);
  const oldest = Math.max(0, ...ages);
  const closed = [...ages].filter((age) => age > 0);
  if (closed.length > 0 && slot > 0) {
    for (let age = Math.min(...closed) % slot; age < oldest; age += slot) {
      const near = closed.some((one) => Math.abs(one - age) < slot / 2);
      if (!near && age > 0) ages.add(age);
    }
  }
  const sorted = [...ages].sort((a, b) => b - a);
  const columns: (number | null)[][] = [sorted.map((age) => nowSeconds - age)];
  for (const one of [...models].sort((a, b) => a.model.localeCompare(b.model))) {
    const of = new Map(one[figure].map((point) => [point[0], point]));
    columns.push(sorted.map((age) => of.get(age)?.[2] ?? null), sorted.map((age) => of.get(age)?.[3] ?? null));
  }
  return columns;
}

/** Colours of the rows: a served model has that of its memory, others what is left over. */
export function latencyColours(models: string[], served: Map<string, number>): number[] {
  let next = served.size;
  return models.map((name) => served.get(name) ?? next++ % 6);
}
