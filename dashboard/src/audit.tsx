// The last entries of this agent's audit log.
import {useSignal} from '@preact/signals';
import {useEffect} from 'preact/hooks';
import {keyRevision} from './api';
import {auditRows, filterRows, type AuditRow} from './audit_view';
import {readAudit, reasonOf} from './orders';
import {Badge, Panel, ReasonNote} from './parts';
import type {Reason} from './types';

function Row({row}: {row: AuditRow}) {
  return (
    <li class="row slim">
      <div class="row-head">
        <strong>{row.what}</strong>
        <span class="grow-right"><Badge tone={row.tone}>{row.outcome}</Badge></span>
      </div>
      <dl class="facts">
        {row.who !== '' && <div><dt>by</dt><dd>{row.who}</dd></div>}
        {row.from !== '' && <div><dt>from</dt><dd>{row.from}</dd></div>}
        {row.when !== '' && <div><dt>at</dt><dd>{row.when}</dd></div>}
      </dl>
    </li>
  );
}

export function Audit() {
  const rows = useSignal<AuditRow[] | null>(null);
  const filter = useSignal('');
  const failure = useSignal<Reason | null>(null);
  const isBusy = useSignal(false);
  const fill = async () => {
    isBusy.value = true;
    try {
      rows.value = auditRows(await readAudit());
      failure.value = null;
    } catch (error) {
      failure.value = reasonOf(error);
    }
    isBusy.value = false;
  };
  useEffect(() => { void fill(); }, [keyRevision.value]);
  const all = rows.value ?? [];
  const shown = filterRows(all, filter.value);
  const note = (
    <>
      {rows.value !== null && `${shown.length} of the last ${all.length} `}
      <button type="button" class="quiet" disabled={isBusy.value} onClick={() => void fill()}>Refresh</button>
    </>
  );
  return (
    <Panel id="audit" title="Audit" note={note}>
      {failure.value !== null && <ReasonNote reason={failure.value} />}
      <div class="fields">
        <label class="wide-field">Filter
          <input id="audit-filter" type="search" autocomplete="off" maxLength={200} value={filter.value}
                 onInput={(event) => (filter.value = event.currentTarget.value)} />
        </label>
      </div>
      <ul class={`rows ${shown.length > 4 ? 'scroll' : ''}`} tabIndex={shown.length > 4 ? 0 : undefined}
          aria-label="Entries, the newest first">
        {shown.map((row) => <Row key={row.id} row={row} />)}
      </ul>
      <p class="empty" role="status" hidden={rows.value === null || shown.length > 0}>
        {all.length === 0 ? 'Nothing was written yet.' : 'No entry has that text.'}
      </p>
    </Panel>
  );
}
