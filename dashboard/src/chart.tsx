// A chart over time, in the colours of the page.
import {useEffect, useRef} from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import {isDark} from './store';

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export interface Line {
  label: string;
  /** The name of a variable of the page's colours. */
  colour: string;
  fill?: string;
  dash?: number[];
  width?: number;
  points?: boolean;
}

const clock = (_plot: uPlot, ticks: number[]) =>
  ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit'}));

function options(width: number, height: number, lines: Line[], spanSeconds: number, value?: (y: number) => string): uPlot.Options {
  const axis = {stroke: colour('--dim'), grid: {stroke: colour('--line'), width: 1}, ticks: {show: false}, font: '11px system-ui'};
  return {
    width, height, padding: [8, 28, 0, 0],
    legend: {show: false},
    cursor: {y: false, drag: {x: false, y: false}, points: {show: false}},
    scales: {
      // Of a single point uPlot would show the day that follows.
      x: {range: (plot, low, high) => (plot.data[0].length === 1 ? [low - spanSeconds, low] : [Math.min(low, high - spanSeconds), high])},
      y: {range: (_plot, _low, high) => [0, value === undefined ? Math.max(1, high * 1.15) : Math.max(high * 1.15, 0.01)]},
    },
    axes: [
      {...axis, values: clock, space: 90, size: 28},
      {...axis, size: value === undefined ? 44 : 58, space: 28,
       ...(value === undefined ? {} : {values: (_plot: uPlot, ticks: number[]) => ticks.map((tick) => (tick === 0 ? '0' : value(tick)))})},
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.label, stroke: colour(line.colour), width: line.width ?? 2, points: {show: line.points ?? false, size: 4, fill: colour(line.colour)},
      ...(line.fill === undefined ? {} : {fill: colour(line.fill)}), ...(line.dash === undefined ? {} : {dash: line.dash}),
    }))],
  };
}

/** `value` names the figures of the upright axis; `spanSeconds` are shown at the least. */
export function Chart(props: {
  label: string; data: (number | null)[][]; lines: Line[]; height: number; spanSeconds: number; value?: (y: number) => string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = isDark.value;
  const {height, lines} = props;
  const drawn = lines.map((line) => `${line.label} ${line.colour}`).join('\n');
  useEffect(() => {
    const element = box.current!;
    plot.current = new uPlot(options(element.clientWidth, height, lines, props.spanSeconds, props.value),
                             props.data as uPlot.AlignedData, element);
    const resized = new ResizeObserver(() => plot.current?.setSize({width: element.clientWidth, height}));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [dark, drawn]);
  useEffect(() => {
    plot.current?.setData(props.data as uPlot.AlignedData);
  }, [props.data]);
  return <div class={`chart ${height < 130 ? 'low' : ''}`} ref={box} role="img" aria-label={props.label} />;
}
