// Tokens a second over the last minutes.
import {useMemo} from 'preact/hooks';
import {Chart, type Line} from './chart';
import {rateNow} from './format';
import {Panel} from './parts';
import {history, historyRevision, snapshot} from './store';

const HEIGHT = 150;
const SPAN_MIN_SECONDS = 60;
const LINES: Line[] = [{label: 'tokens/s', colour: '--accent', fill: '--accent-soft'}];

export function Throughput() {
  const revision = historyRevision.value;
  const data = useMemo(() => [history.times, history.values[0]!], [revision]);
  const now = snapshot.value?.aggregate_load?.tokens_per_second ?? 0;
  return (
    <Panel id="throughput" title="Throughput" note={`${rateNow(now)} tokens/s now`}>
      <Chart label={`Tokens a second over time; ${rateNow(now)} now`} data={data} lines={LINES} height={HEIGHT}
             spanSeconds={SPAN_MIN_SECONDS} />
    </Panel>
  );
}
