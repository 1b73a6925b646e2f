// Loading a model: what would be done, then a click; and unloading one.
import {useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {bytes} from './format';
import {load, plan, reasonOf, unload, type Placement} from './orders';
import {Confirm, ReasonNote} from './parts';
import {obstacle, planFacts, rankChoices} from './plan_view';
import {notice, ordered} from './store';
import type {PlanResult, Reason, Snapshot} from './types';

function Preview({result}: {result: PlanResult}) {
  const why = obstacle(result);
  return (
    <>
      {why !== null && <ReasonNote reason={why} />}
      {result.plan !== undefined && (
        <>
          <dl class="facts">
            {planFacts(result.plan).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
          </dl>
          <div class="table-box" tabIndex={0} role="region" aria-label="Where it would run">
            <table>
              <thead><tr><th>Rank</th><th>Node</th><th>Layers</th><th class="right">Memory</th></tr></thead>
              <tbody>
                {result.plan.assignments.map((one) => (
                  <tr key={one.rank}>
                    <td>{one.rank}</td>
                    <td>{one.hostname}</td>
                    <td>{one.layer_begin}–{one.layer_end - 1}</td>
                    <td class="right">{bytes(one.need?.total_bytes ?? 0)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      {result.evicted.length > 0 && <p class="caution">Ends before it loads: {result.evicted.join(', ')}</p>}
      {result.rejections.length > 0 && (
        <details>
          <summary>What was not taken, and why</summary>
          <ul class="plain">
            {result.rejections.map((one, i) => <li key={i}>{one.subject}: {one.reason?.message ?? ''}</li>)}
          </ul>
        </details>
      )}
    </>
  );
}

export function LoadForm({snapshot, model, onClose}: {snapshot: Snapshot; model: string; onClose: () => void}) {
  const ranks = useSignal(0);
  const parallelism = useSignal<'' | 'tensor' | 'pipeline'>('');
  const result = useSignal<PlanResult | null>(null);
  const failure = useSignal<Reason | null>(null);
  const isLoading = useSignal(false);
  const first = useRef<HTMLSelectElement>(null);
  useEffect(() => first.current?.focus(), []);

  const wanted: Placement = {model};
  if (ranks.value > 0) wanted.ranks = ranks.value;
  if (parallelism.value !== '' && ranks.value !== 1) wanted.parallelism = parallelism.value;
  useEffect(() => {
    const stop = new AbortController();
    result.value = null;
    failure.value = null;
    plan(wanted, stop.signal).then(
      (found) => { if (!stop.signal.aborted) result.value = found; },
      (error) => { if (!stop.signal.aborted) failure.value = reasonOf(error); });
    return () => stop.abort();
  }, [model, ranks.value, parallelism.value]);

  const start = async () => {
    isLoading.value = true;
    failure.value = null;
    try {
      await load(wanted);
      notice.value = `${model} is being loaded.`;
      ordered.value = model;
      onClose();
    } catch (error) {
      failure.value = reasonOf(error);
      isLoading.value = false;
    }
  };
  const fits = result.value !== null && obstacle(result.value) === null;
  return (
    <form class="box load-form" aria-label={`Load ${model}`}
          onSubmit={(event) => { event.preventDefault(); if (fits && !isLoading.value) void start(); }}
          onKeyDown={(event) => { if (event.key === 'Escape' && !isLoading.value) onClose(); }}>
      <div class="fields">
        <label>Ranks
          <select ref={first} value={String(ranks.value)} disabled={isLoading.value}
                  onChange={(event) => (ranks.value = Number(event.currentTarget.value))}>
            <option value="0">as fits best</option>
            {rankChoices(snapshot).map((n) => <option key={n} value={String(n)}>{n}</option>)}
          </select>
        </label>
        <label>Split
          <select value={parallelism.value} disabled={isLoading.value || ranks.value === 1}
                  onChange={(event) => (parallelism.value = event.currentTarget.value as '' | 'tensor' | 'pipeline')}>
            <option value="">as fits best</option>
            <option value="pipeline">by layers (pipeline)</option>
            <option value="tensor">within layers (tensor)</option>
          </select>
        </label>
      </div>
      <div aria-live="polite" aria-busy={result.value === null && failure.value === null}>
        {result.value === null && failure.value === null && <p class="dim">Planning…</p>}
        {failure.value !== null && <ReasonNote reason={failure.value} />}
        {result.value !== null && <Preview result={result.value} />}
      </div>
      <div class="buttons">
        <button type="submit" class="primary" disabled={!fits || isLoading.value}>
          {isLoading.value ? 'Beginning…' : 'Load it'}
        </button>
        <button type="button" class="quiet" disabled={isLoading.value} onClick={onClose}>Cancel</button>
      </div>
    </form>
  );
}

export function UnloadForm({name, onClose}: {name: string; onClose: () => void}) {
  return (
    <Confirm label={`Unload ${name}`} action="Unload it" busy="Unloading…" onClose={onClose}
             text={`Unload ${name}? Answers under way end, and its memory is free again.`}
             run={async () => {
               await unload(name);
               notice.value = `${name} is unloaded.`;
             }} />
  );
}
