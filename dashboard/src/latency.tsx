// How long the first token and the times between tokens took over the last minutes, for each model.
import {signal} from '@preact/signals';
import {useEffect, useMemo} from 'preact/hooks';
import {ask, keyRevision} from './api';
import {Chart, type Line} from './chart';
import {ago, milliseconds} from './format';
import {ageOf, latencyColours, latencyColumns, latencyRows, type Figure, type LatencyRow} from './latency_view';
import {Panel} from './parts';
import {connection} from './store';
import type {Latencies, LatencyPoint, Snapshot} from './types';
import {modelColours} from './view';

// The agent makes a point each ten seconds, and the newest anew whenever it is asked.
const ASK_MS = 5000;
const HEIGHT = 120;
const SPAN_MIN_SECONDS = 120;
const FIGURES: [Figure, string][] = [['first_token', 'To the first token'], ['inter_token', 'Between two tokens']];

/** What was told, and when by this machine's clock, in seconds. */
const told = signal<{latencies: Latencies; at: number} | null>(null);

async function fill(): Promise<void> {
  if (document.hidden || connection.peek() !== 'live') return;
  try {
    const latencies = (await (await ask('/dashboard/api/latency')).json()) as Latencies;
    told.value = {latencies, at: Date.now() / 1000};
  } catch {
    // What was told last is shown, and the next time it is asked again.
  }
}

function Figures({point}: {point: LatencyPoint | null}) {
  return point === null
    ? <><td class="right dim">–</td><td class="right dim">–</td></>
    : <><td class="right">{milliseconds(point[2])}</td><td class="right">{milliseconds(point[3])}</td></>;
}

function Row({row, colour}: {row: LatencyRow; colour: number}) {
  const age = ageOf(row);
  return (
    <tr>
      <th scope="row"><span class="key"><i class={`dot-${colour}`} aria-hidden="true" />{row.model}</span>
        {age >= 10 && age < Infinity && <span class="dim"> {ago(age * 1000)}</span>}</th>
      <Figures point={row.first} />
      <Figures point={row.between} />
    </tr>
  );
}

export function Latency({snapshot}: {snapshot: Snapshot}) {
  const live = connection.value === 'live';
  useEffect(() => {
    void fill();
    const timer = setInterval(() => void fill(), ASK_MS);
    return () => clearInterval(timer);
  }, [live, keyRevision.value]);
  const now = told.value;
  const served = modelColours(snapshot);
  const rows = useMemo(() => (now === null ? [] : latencyRows(now.latencies)), [now]);
  const colours = latencyColours(rows.map((row) => row.model), served);
  const columns = useMemo(
    () => FIGURES.map(([figure]) => (now === null ? [[]] : latencyColumns(now.latencies, figure, now.at))), [now]);
  const lines: Line[] = rows.flatMap((row, i) => [
    {label: `${row.model} p50`, colour: `--m${colours[i]}`, points: true},
    {label: `${row.model} p95`, colour: `--m${colours[i]}`, width: 1.2, dash: [4, 4]},
  ]);
  return (
    <Panel id="latency" title="Latency" note="through this node, last 10 minutes">
      {rows.length === 0
        ? <p class="empty">{now === null ? 'Asking the agent…' : 'No answer came through this node in the last ten minutes. Ask a model something, and its times are drawn here.'}</p>
        : (
          <>
            {FIGURES.map(([figure, title], i) => (
              <div key={figure}>
                <h3>{title}</h3>
                <Chart label={`${title}, over the last minutes; the figures are in the table below`} data={columns[i]!}
                       lines={lines} height={HEIGHT} spanSeconds={SPAN_MIN_SECONDS} value={milliseconds} />
              </div>
            ))}
            <ul class="legend">
              <li><svg viewBox="0 0 18 4" aria-hidden="true"><line class="legend-line" x1="0" y1="2" x2="18" y2="2" /></svg>half are faster (p50)</li>
              <li><svg viewBox="0 0 18 4" aria-hidden="true"><line class="legend-line dashed" x1="0" y1="2" x2="18" y2="2" /></svg>95 of 100 are faster (p95)</li>
            </ul>
            <div class="table-box" tabIndex={0} role="region" aria-label="Latency of each model">
              <table>
                <thead>
                  <tr><th rowSpan={2}>Model</th><th colSpan={2} scope="colgroup" class="right">first token</th><th colSpan={2} scope="colgroup" class="right">between tokens</th></tr>
                  <tr><th scope="col" class="right">p50</th><th scope="col" class="right">p95</th><th scope="col" class="right">p50</th><th scope="col" class="right">p95</th></tr>
                </thead>
                <tbody>{rows.map((row, i) => <Row key={row.model} row={row} colour={colours[i]!} />)}</tbody>
              </table>
            </div>
          </>
        )}
    </Panel>
  );
}
