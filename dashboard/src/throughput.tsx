// Tokens a second over the last minutes.
import {useEffect, useRef} from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import {rate} from './format';
import {Panel} from './parts';
import {history, historyRevision, isDark, snapshot} from './store';

const HEIGHT = 150;
const SPAN_MIN_SECONDS = 60;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(width: number): uPlot.Options {
  const axis = {stroke: colour('--dim'), grid: {stroke: colour('--line'), width: 1}, ticks: {show: false},
                font: '11px system-ui'};
  return {
    width, height: HEIGHT, padding: [8, 28, 0, 0],
    legend: {show: false},
    cursor: {y: false, drag: {x: false, y: false}},
    scales: {x: {range: (_plot, low, high) => [Math.min(low, high - SPAN_MIN_SECONDS), high]}, y: {range: (_plot, _low, high) => [0, Math.max(1, high * 1.15)]}},
    axes: [
      {...axis, values: (_plot, ticks) => ticks.map((tick) =>
        new Date(tick * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit'})), space: 90, size: 28},
      {...axis, size: 44},
    ],
    series: [{}, {label: 'tokens/s', stroke: colour('--accent'), width: 2, fill: colour('--accent-soft'), points: {show: false}}],
  };
}

export function Throughput() {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = isDark.value;
  const revision = historyRevision.value;
  useEffect(() => {
    const element = box.current!;
    plot.current = new uPlot(options(element.clientWidth), [[], []], element);
    const resized = new ResizeObserver(() => plot.current?.setSize({width: element.clientWidth, height: HEIGHT}));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [dark]);
  useEffect(() => {
    plot.current?.setData([history.times, history.values[0]!]);
  }, [revision, dark]);
  const now = snapshot.value?.aggregate_load?.tokens_per_second ?? 0;
  return (
    <Panel id="throughput" title="Throughput" note={`${rate(now)} tokens/s now`}>
      <div class="chart" ref={box} role="img" aria-label={`Tokens a second over time; ${rate(now)} now`} />
    </Panel>
  );
}
