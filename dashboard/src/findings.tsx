// What is wrong, and what to do about it.
import {Panel} from './parts';
import type {Snapshot} from './types';
import {findings} from './view';

export function Findings({snapshot}: {snapshot: Snapshot}) {
  const found = findings(snapshot);
  if (found.length === 0) return null;
  return (
    <Panel id="findings" title="Findings" note={String(found.length)} class="wide">
      <ul class="findings">
        {found.map((reason) => (
          <li key={`${reason.code} ${reason.message}`}>
            <code>{reason.code}</code>
            <div>
              <p>{reason.message}</p>
              {reason.remedy !== '' && <p class="remedy">{reason.remedy}</p>}
              {reason.evidence !== '' && <pre tabIndex={0}>{reason.evidence}</pre>}
            </div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
