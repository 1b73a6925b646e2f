// The page as a whole.
import {useSignal} from '@preact/signals';
import {keyRefused, needsKey, setKey, wantsKey} from './api';
import {Audit} from './audit';
import {Chats, isWide} from './chat';
import {Findings} from './findings';
import {bytesOf, rateNow} from './format';
import {Keys} from './keys';
import {Latency} from './latency';
import {Models} from './models';
import {Nodes} from './nodes';
import {Badge} from './parts';
import {connection, failure, isDark, mayAdmin, snapshot, theme} from './store';
import {Throughput} from './throughput';
import {Topology} from './topology';
import type {Snapshot} from './types';

function Head({now}: {now: Snapshot | null}) {
  const lost = connection.value !== 'live';
  return (
    <header class="head">
      <img src="/dashboard/favicon.svg" alt="" width="30" height="30" />
      <h1>{now === null || now.cluster_name === '' ? 'Macrame' : now.cluster_name}</h1>
      {now !== null && !lost && (now.healthy
        ? <Badge tone="good">healthy</Badge>
        : <a href="#findings" class="plain-link"><Badge tone="warn">needs attention</Badge></a>)}
      {lost && <Badge tone={now === null ? 'busy' : 'bad'}>{now === null ? 'connecting' : 'connection lost'}</Badge>}
      {now?.insecure === true && <Badge tone="warn">insecure</Badge>}
      <span class="head-end">
        {now !== null && <a href="#chat" class="jump">Chat</a>}
        <button type="button" class="quiet theme" aria-label={isDark.value ? 'Switch to light colours' : 'Switch to dark colours'}
                onClick={() => (theme.value = isDark.value ? 'light' : 'dark')}>
          <svg viewBox="0 0 20 20" aria-hidden="true">
            {isDark.value
              ? <><circle cx="10" cy="10" r="3.6" /><path d="M10 1.8v2.4M10 15.8v2.4M1.8 10h2.4M15.8 10h2.4M4.2 4.2l1.7 1.7M14.1 14.1l1.7 1.7M15.8 4.2l-1.7 1.7M5.9 14.1l-1.7 1.7" /></>
              : <path d="M16.5 12.2A7 7 0 0 1 7.8 3.5a7 7 0 1 0 8.7 8.7z" />}
          </svg>
        </button>
      </span>
    </header>
  );
}

function Tile(props: {label: string; value: string; unit?: string}) {
  return (
    <div class="tile"><dt>{props.label}</dt><dd>{props.value}{props.unit !== undefined && <small> {props.unit}</small>}</dd></div>
  );
}

function Tiles({now}: {now: Snapshot}) {
  const load = now.aggregate_load;
  if (load === undefined) return null;
  const [free, ofAll] = bytesOf(load.memory_available_bytes, load.memory_total_bytes);
  return (
    <dl class="tiles" aria-label="Totals">
      <Tile label="Nodes alive" value={String(load.nodes_alive)} unit={`of ${load.nodes_total}`} />
      <Tile label="Memory free" value={free} unit={ofAll} />
      <Tile label="Throughput" value={rateNow(load.tokens_per_second)} unit="tokens/s" />
      <Tile label="Requests" value={String(load.requests_running)} unit={`running, ${load.requests_queued} queued`} />
    </dl>
  );
}

function KeyForm() {
  const text = useSignal('');
  return (
    <form class="panel key-form" onSubmit={(event) => { event.preventDefault(); setKey(text.value.trim()); }}>
      <h2>{needsKey.value ? 'This cluster asks for a key' : 'Use another key'}</h2>
      <p>
        {needsKey.value && keyRefused.value ? 'That key was refused. ' : ''}
        Paste a key that may read the cluster, or one with <code>operate</code> to load models. It stays in this tab only.
      </p>
      <label for="api-key">Key</label>
      <input id="api-key" type="password" autocomplete="off" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      <button class="primary" type="submit" disabled={text.value.trim() === ''}>Continue</button>
      {!needsKey.value && <button class="quiet" type="button" onClick={() => (wantsKey.value = false)}>Cancel</button>}
    </form>
  );
}

export function App() {
  const now = snapshot.value;
  const chat = now !== null && <div key="chat" class="column chat-column"><Chats snapshot={now} /></div>;
  return (
    <>
      <a class="skip" href="#main">Skip to the cluster</a>
      <Head now={now} />
      <main id="main">
        {(needsKey.value || wantsKey.value) && <KeyForm />}
        {failure.value !== '' && !needsKey.value && <p class="alert" role="alert">{failure.value} Trying again.</p>}
        {now !== null && (
          <>
            <Tiles now={now} />
            <Findings snapshot={now} />
            <div class={`columns ${isWide.value ? 'wide-chat' : ''}`}>
              {isWide.value && chat}
              <div class="column">
                <Topology snapshot={now} />
                <Throughput />
                <Latency snapshot={now} />
              </div>
              <div class="column">
                <Models snapshot={now} />
                <Nodes snapshot={now} />
                {mayAdmin.value && <Keys />}
                {mayAdmin.value && <Audit />}
              </div>
              {!isWide.value && chat}
            </div>
          </>
        )}
      </main>
    </>
  );
}
