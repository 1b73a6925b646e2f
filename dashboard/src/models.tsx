// What is served, by which ranks, how far a load has come; and what can be loaded.
import {useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {wantsKey} from './api';
import {bytes, count, percent, rate, words} from './format';
import {LoadForm, UnloadForm} from './load';
import {Badge, Bar, Panel} from './parts';
import {mayOperate, notice, ordered} from './store';
import type {DeploymentStatus, Snapshot} from './types';
import {deploymentTone, loadProgress, loadableModels, modelColours, shape} from './view';

function Ranks({snapshot, deployment}: {snapshot: Snapshot; deployment: DeploymentStatus}) {
  const nameOf = new Map(snapshot.nodes.map((node) => [node.identity.node_id, node.identity.hostname]));
  const statusOf = new Map(deployment.ranks.map((rank) => [rank.rank, rank]));
  const planned = deployment.plan?.assignments ?? [];
  if (planned.length === 0) return null;
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={`Ranks of ${deployment.deployment.name}`}>
      <table>
        <thead><tr><th>Rank</th><th>Node</th><th>Layers</th><th>Phase</th><th class="right">Memory</th></tr></thead>
        <tbody>
          {planned.map((assignment) => {
            const rank = statusOf.get(assignment.rank);
            const phase = rank === undefined ? 'waiting' : words(rank.phase);
            return (
              <tr key={assignment.rank}>
                <td>{assignment.rank}</td>
                <td>{nameOf.get(assignment.node_id) ?? assignment.hostname}</td>
                <td>{assignment.layer_begin}–{assignment.layer_end - 1}</td>
                <td>{rank !== undefined && rank.phase === 'loading' ? `${phase} ${percent(rank.progress)}` : phase}</td>
                <td class="right">{bytes(rank?.memory_bytes ?? 0)} <span class="dim">/ {bytes(assignment.need?.total_bytes ?? 0)}</span></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Served({snapshot, deployment, colour}: {
  snapshot: Snapshot; deployment: DeploymentStatus; colour: number;
}) {
  const name = deployment.deployment.name;
  const asks = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (ordered.value !== name) return;
    ordered.value = '';
    if (document.activeElement === null || document.activeElement === document.body) row.current?.focus();
  }, []);
  // A further replica goes with its deployment.
  const canUnload = mayOperate.value && deployment.state !== 'removing' && !name.includes('#');
  const progress = loadProgress(deployment);
  const running = deployment.ranks.reduce((sum, rank) => sum + rank.requests_running, 0);
  const queued = deployment.ranks.reduce((sum, rank) => sum + rank.requests_queued, 0);
  const predicted = deployment.plan?.prediction?.tokens_per_second ?? 0;
  return (
    <li class="row" data-model={name} tabIndex={-1} ref={row}>
      <div class="row-head">
        <i class={`dot dot-${colour}`} aria-hidden="true" />
        <strong>{name}</strong>
        <Badge tone={deploymentTone(deployment)}>{words(deployment.state)}</Badge>
        {canUnload && (
          <button type="button" class="small quiet push" ref={button} aria-expanded={asks.value} aria-label={`Unload ${name}`}
                  onClick={() => (asks.value = !asks.value)}>Unload</button>
        )}
      </div>
      {asks.value && canUnload && (
        <UnloadForm name={name} onClose={() => { asks.value = false; button.current?.focus(); }} />
      )}
      {deployment.state !== 'ready' && deployment.state !== 'removing' && (
        <Bar label={`${name}: ${percent(progress)} loaded`} total={1}
             parts={[{value: progress, class: `fill-model fill-${colour}`, title: percent(progress)}]} />
      )}
      <dl class="facts">
        <div><dt>shape</dt><dd>{shape(deployment.plan)}</dd></div>
        {deployment.plan !== undefined && <div><dt>context</dt><dd>{deployment.plan.context_length}</dd></div>}
        <div><dt>speed</dt><dd>{deployment.tokens_per_second > 0 ? `${rate(deployment.tokens_per_second)} tok/s` : 'idle'}</dd></div>
        {predicted > 0 && <div><dt>predicted</dt><dd>{rate(predicted)} tok/s</dd></div>}
        <div><dt>requests</dt><dd>{running}{queued > 0 ? ` + ${queued} queued` : ''}</dd></div>
      </dl>
      <Ranks snapshot={snapshot} deployment={deployment} />
      {(deployment.plan?.reasons.length ?? 0) > 0 && (
        <details>
          <summary>Why this plan</summary>
          <ul class="plain">{deployment.plan!.reasons.map((reason) => <li key={reason.message}>{reason.message}</li>)}</ul>
        </details>
      )}
    </li>
  );
}

function OnDisk({snapshot, model}: {snapshot: Snapshot; model: {name: string; bytes: number; nodes: number}}) {
  const isOpen = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  return (
    <li class="row slim" data-disk={model.name}>
      <div class="row-head">
        <span>{model.name}</span>
        <span class="dim grow-right">{bytes(model.bytes)}, on {count(model.nodes, 'node')}</span>
        {mayOperate.value && (
          <button type="button" class="small" ref={button} aria-expanded={isOpen.value} aria-label={`Load ${model.name}`}
                  onClick={() => (isOpen.value = !isOpen.value)}>Load</button>
        )}
      </div>
      {isOpen.value && mayOperate.value && (
        <LoadForm snapshot={snapshot} model={model.name} onClose={() => { isOpen.value = false; button.current?.focus(); }} />
      )}
    </li>
  );
}

export function Models({snapshot}: {snapshot: Snapshot}) {
  const colours = modelColours(snapshot);
  const others = loadableModels(snapshot);
  return (
    <Panel id="models" title="Models" note={count(snapshot.deployments.length, 'model') + ' served'}>
      {snapshot.deployments.length === 0 && (
        <p class="empty">
          No model is loaded. {mayOperate.value && others.length > 0 ? 'Load one of those below.'
            : <>Load one with <code>clusterctl model load NAME</code>.</>}
        </p>
      )}
      <p class="sr-only" role="status">{notice.value}</p>
      <ul class="rows">
        {snapshot.deployments.map((deployment) => (
          <Served key={deployment.deployment.name} snapshot={snapshot} deployment={deployment}
                  colour={colours.get(deployment.deployment.name) ?? 0} />
        ))}
      </ul>
      {others.length > 0 && (
        <>
          <h3>On disk, not loaded</h3>
          <ul class="rows">
            {others.map((model) => <OnDisk key={model.name} snapshot={snapshot} model={model} />)}
          </ul>
        </>
      )}
      {!mayOperate.value && (
        <p class="dim hint">
          Loading and unloading here takes a key with the scope <code>operate</code>.{' '}
          <button type="button" class="small quiet" onClick={() => (wantsKey.value = true)}>Give a key</button>
        </p>
      )}
    </Panel>
  );
}
