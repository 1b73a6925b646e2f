// The nodes and what joins them.
import {count, bits, microseconds, percent, rate, words} from './format';
import {Panel} from './parts';
import {selected} from './store';
import type {NodeStatus, Snapshot} from './types';
import {drawnEdges, edges, layout, nodeTone, speedOf, viewBox} from './view';

const KINDS: Record<string, string> = {
  thunderbolt: 'Thunderbolt', verbs: 'RDMA', ethernet: 'Ethernet', wifi: 'Wi-Fi',
  loopback: 'same machine', bridge: 'bridge', vpn: 'VPN',
};

function kindClass(kind: string): string {
  return KINDS[kind] === undefined ? 'edge-other' : `edge-${kind}`;
}

function describe(node: NodeStatus): string {
  const parts = [node.identity.hostname, words(node.state)];
  if (node.is_coordinator) parts.push('coordinator');
  if (node.is_self) parts.push('serves this page');
  if (node.load !== undefined && node.state === 'alive') parts.push(`processor ${percent(node.load.cpu_busy_ratio)}`);
  return parts.join(', ');
}

export function Topology({snapshot}: {snapshot: Snapshot}) {
  const nodes = snapshot.nodes;
  const places = layout(nodes.length);
  const placeOf = new Map(nodes.map((node, i) => [node.identity.node_id, places[i]!]));
  const nameOf = new Map(nodes.map((node) => [node.identity.node_id, node.identity.hostname]));
  const links = edges(snapshot).filter((edge) => placeOf.has(edge.a) && placeOf.has(edge.b));
  const drawn = drawnEdges(links, selected.value);
  const kinds = [...new Set(links.map((edge) => edge.kind))].sort();
  const many = nodes.length > 8;
  const size = many ? Math.max(2.2, 5.6 - nodes.length / 18) : 7;
  const select = (id: string) => (selected.value = selected.value === id ? '' : id);
  return (
    <Panel id="topology" title="Topology" note={`${count(nodes.length, 'node')}, ${count(links.length, 'link')}`}>
      <svg class="topology" viewBox={viewBox(places)} role="group" aria-label="Nodes and links">
        {drawn.map((edge) => {
          const a = placeOf.get(edge.a)!;
          const b = placeOf.get(edge.b)!;
          const lit = selected.value === edge.a || selected.value === edge.b;
          return (
            <line key={`${edge.a} ${edge.b}`} x1={a.x} y1={a.y} x2={b.x} y2={b.y}
                  class={`edge ${kindClass(edge.kind)} ${lit ? 'lit' : ''} ${many ? 'thin' : ''}`}>
              <title>{`${nameOf.get(edge.a)} – ${nameOf.get(edge.b)}: ${KINDS[edge.kind] ?? words(edge.kind)}` +
                `${edge.rdma ? ' with RDMA' : ''}, ${bits(edge.bytesPerSecond)}, ` +
                `round trip ${microseconds(edge.roundTripUs)}`}</title>
            </line>
          );
        })}
        {nodes.map((node, i) => {
          const place = places[i]!;
          const id = node.identity.node_id;
          const busy = speedOf(node);
          return (
            <g key={id} class={`node tone-${nodeTone(node)} ${selected.value === id ? 'lit' : ''}`}
               transform={`translate(${place.x} ${place.y})`} role="button" tabindex={0} aria-label={describe(node)}
               aria-pressed={selected.value === id} onClick={() => select(id)}
               onKeyDown={(event) => {
                 if (event.key !== 'Enter' && event.key !== ' ') return;
                 event.preventDefault();
                 select(id);
               }}>
              {busy > 0 && <circle class="pulse" r={size + 1.6} />}
              <circle class="body" r={size} />
              {node.is_coordinator && (
                <path class="crown" transform={`scale(${size / 7})`} d="M-3.4 1.9h6.8l.8-4.6-2.4 1.7L0-3.6l-1.8 2.6-2.4-1.7z" />
              )}
              {!node.is_coordinator && !many && (
                <g class="machine"><rect x="-3" y="-2.8" width="6" height="2.3" rx=".6" /><rect x="-3" y=".5" width="6" height="2.3" rx=".6" /></g>
              )}
              {!many && <text class="name" y={size + 4.6}>{node.identity.hostname.slice(0, 18)}</text>}
            </g>
          );
        })}
        {/* Beside the buttons: what changes each second is no part of a button's name. */}
        {!many && nodes.map((node, i) => {
          const busy = speedOf(node);
          return busy > 0 && (
            <text key={node.identity.node_id} class="speed" aria-hidden="true" x={places[i]!.x}
                  y={places[i]!.y + size + 8.2}>{`${rate(busy)} tok/s`}</text>
          );
        })}
      </svg>
      <ul class="legend">
        {kinds.map((kind) => (
          <li key={kind}><svg viewBox="0 0 18 4" aria-hidden="true"><line x1="0" y1="2" x2="18" y2="2" class={`edge ${kindClass(kind)}`} /></svg>{KINDS[kind] ?? words(kind)}</li>
        ))}
        <li><svg viewBox="-5 -5 10 10" aria-hidden="true" class="square"><path class="crown-key" d="M-3.4 1.9h6.8l.8-4.6-2.4 1.7L0-3.6l-1.8 2.6-2.4-1.7z" /></svg>coordinator</li>
        {drawn.length < links.length && <li>choose a node for the others of its links</li>}
      </ul>
    </Panel>
  );
}
