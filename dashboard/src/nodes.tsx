// One row per node: state, memory and what holds it, load.
import {ago, bytes, percent, rate, words} from './format';
import {useSignal} from '@preact/signals';
import {cordon, reasonOf} from './orders';
import {Badge, Bar, Confirm, Panel, ReasonNote} from './parts';
import {mayOperate, selected} from './store';
import type {NodeStatus, Reason, Snapshot} from './types';
import {isGone, memoryParts, nodeTone, powerText} from './view';

function stateWord(node: NodeStatus): string {
  if (node.state !== 'alive') return words(node.state);
  if (node.draining) return 'stopping';
  if (node.cordon === undefined) return 'alive';
  return node.cordon.drain ? 'drained' : 'cordoned';
}

// Whether the node takes new ranks: the buttons, and what belongs below them.
function usePlacing(node: NodeStatus) {
  const asks = useSignal(false);
  const isBusy = useSignal(false);
  const failure = useSignal<Reason | null>(null);
  const {node_id: id, hostname: name} = node.identity;
  const give = async (what: 'cordon' | 'uncordon') => {
    isBusy.value = true;
    failure.value = null;
    try {
      await cordon(id, what);
    } catch (error) {
      failure.value = reasonOf(error);
    }
    isBusy.value = false;
  };
  if (!mayOperate.value || node.state !== 'alive' || node.draining) return {buttons: null, below: null};
  return {
    buttons: (
      <div class="buttons">
        {node.cordon === undefined
          ? <button type="button" class="small quiet" disabled={isBusy.value} aria-label={`Cordon ${name}`}
                    title="It takes no new ranks" onClick={() => void give('cordon')}>Cordon</button>
          : <button type="button" class="small quiet" disabled={isBusy.value} aria-label={`Uncordon ${name}`}
                    title="It takes ranks again" onClick={() => void give('uncordon')}>Uncordon</button>}
        {node.cordon?.drain !== true && (
          <button type="button" class="small quiet" aria-expanded={asks.value} aria-label={`Drain ${name}`}
                  title="Its ranks move to other nodes" onClick={() => (asks.value = !asks.value)}>Drain</button>
        )}
      </div>
    ),
    below: (
      <>
        {failure.value !== null && <ReasonNote reason={failure.value} />}
        {asks.value && (
          <Confirm label={`Drain ${name}`} action="Drain it" busy="Ordering…"
                   text={`Drain ${name}? Its ranks are moved to other nodes, and it takes no new ones until it is uncordoned.`}
                   onClose={() => (asks.value = false)} run={async () => { await cordon(id, 'drain'); }} />
        )}
      </>
    ),
  };
}

function Facts({node}: {node: NodeStatus}) {
  const load = node.load;
  const facts: [string, string][] = [];
  const chip = node.inventory?.chip ?? '';
  if (chip !== '') facts.push(['', chip]);
  if (load !== undefined && node.state === 'alive') {
    facts.push(['CPU', percent(load.cpu_busy_ratio)]);
    if (load.gpu_busy_ratio >= 0) facts.push(['GPU', percent(load.gpu_busy_ratio)]);
    if (load.tokens_per_second > 0) facts.push(['speed', `${rate(load.tokens_per_second)} tok/s`]);
    if (load.requests_running + load.requests_queued > 0) {
      facts.push(['requests', `${load.requests_running}${load.requests_queued > 0 ? ` + ${load.requests_queued} queued` : ''}`]);
    }
    const power = powerText(load);
    if (power !== '') facts.push(['draws', power]);
    if (load.temperature_celsius !== undefined) facts.push(['heat', `${load.temperature_celsius.toFixed(0)} °C`]);
    if (load.thermal_state === 'throttled') facts.push(['thermal', 'throttled']);
    if (load.swap_used_bytes > 0) facts.push(['swap', bytes(load.swap_used_bytes)]);
    if (load.on_battery) facts.push(['power', 'battery']);
  } else {
    facts.push(['heard', ago(node.last_heartbeat_age_ms)]);
  }
  return <dl class="facts">{facts.map(([name, value]) => <div key={name}><dt class={name === '' ? 'sr-only' : ''}>{name === '' ? 'chip' : name}</dt><dd class={name === '' ? 'dim' : ''}>{value}</dd></div>)}</dl>;
}

function NodeRow({snapshot, node}: {snapshot: Snapshot; node: NodeStatus}) {
  const id = node.identity.node_id;
  const total = node.inventory?.memory_total_bytes ?? 0;
  const parts = memoryParts(snapshot, node);
  const free = node.load?.memory_available_bytes ?? -1;
  const lit = selected.value === id;
  const {buttons, below} = usePlacing(node);
  const held = parts.filter((part) => part.kind === 'model' || part.kind === 'awaited');
  return (
    <li class={`row ${lit ? 'lit' : ''}`} data-node={node.identity.hostname}>
      <div class="row-head">
        <strong>{node.identity.hostname}</strong>
        <Badge tone={nodeTone(node)}>{stateWord(node)}</Badge>
        {node.is_coordinator && <span class="tag">coordinator</span>}
        {node.is_self && <span class="tag">this node</span>}
        {buttons}
      </div>
      {below}
      {!isGone(node) && <Bar label={`Memory of ${node.identity.hostname}: ${bytes(free)} of ${bytes(total)} free`} total={total}
           parts={parts.map((part) => ({
             value: part.bytes, title: `${part.label}: ${bytes(part.bytes)}`,
             class: part.kind === 'model' ? `fill-model fill-${part.colour}` : `fill-${part.kind}`,
           }))} />}
      <div class="row-foot">
        <span class="keys">
          {held.map((part) => (
            <span class="key" key={part.label}>
              <i class={part.kind === 'model' ? `dot-${part.colour}` : 'dot-awaited'} aria-hidden="true" />
              {part.label} {bytes(part.bytes)}
            </span>
          ))}
          <span class="key dim">{isGone(node) ? `${bytes(total)} of memory` : `${bytes(free)} of ${bytes(total)} free`}</span>
        </span>
        <Facts node={node} />
      </div>
      {node.state !== 'alive' && node.state_reason !== undefined && node.state_reason.message !== '' && (
        <p class="dim">{node.state_reason.message}</p>
      )}
    </li>
  );
}

export function Nodes({snapshot}: {snapshot: Snapshot}) {
  return (
    <Panel id="nodes" title="Nodes and memory">
      <ul class={`rows ${snapshot.nodes.length > 8 ? 'scroll' : ''}`} tabIndex={snapshot.nodes.length > 8 ? 0 : undefined}>
        {snapshot.nodes.map((node) => <NodeRow key={node.identity.node_id} snapshot={snapshot} node={node} />)}
      </ul>
    </Panel>
  );
}
