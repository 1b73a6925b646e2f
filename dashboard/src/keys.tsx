// The keys of the HTTP API: made, shown once, revoked.
import {useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {createKey, listKeys, reasonOf, revokeKey} from './orders';
import {Confirm, Panel, ReasonNote} from './parts';
import {keyHasEnded, keyState} from './plan_view';
import type {ApiKey, Reason} from './types';

const SCOPES = [
  ['infer', 'ask models'], ['read', 'see the cluster'], ['operate', 'load and unload'], ['admin', 'everything'],
] as const;
const DAY = 24 * 3600;
const LENGTHS = [['never', 0], ['in a day', DAY], ['in 30 days', 30 * DAY], ['in a year', 365 * DAY]] as const;

function NewKey({onMade}: {onMade: () => void}) {
  const name = useSignal('');
  const scopes = useSignal<string[]>(['infer']);
  const seconds = useSignal(0);
  const secret = useSignal('');
  const failure = useSignal<Reason | null>(null);
  const isBusy = useSignal(false);
  const shown = useRef<HTMLInputElement>(null);
  useEffect(() => { if (secret.value !== '') shown.current?.select(); }, [secret.value]);
  const make = async () => {
    isBusy.value = true;
    failure.value = null;
    try {
      secret.value = (await createKey(name.value.trim(), scopes.value, seconds.value)).secret_key;
      name.value = '';
      onMade();
    } catch (error) {
      failure.value = reasonOf(error);
    }
    isBusy.value = false;
  };
  const copy = () => {
    shown.current?.select();
    void navigator.clipboard?.writeText(secret.value).catch(() => undefined);
  };
  return (
    <form class="box" aria-label="New key" onSubmit={(event) => { event.preventDefault(); if (!isBusy.value) void make(); }}>
      <div class="fields">
        <label>Name
          <input id="key-name" autocomplete="off" maxLength={100} value={name.value}
                 onInput={(event) => (name.value = event.currentTarget.value)} />
        </label>
        <label>Ends
          <select value={String(seconds.value)} onChange={(event) => (seconds.value = Number(event.currentTarget.value))}>
            {LENGTHS.map(([text, length]) => <option key={text} value={String(length)}>{text}</option>)}
          </select>
        </label>
      </div>
      <fieldset class="choices">
        <legend>It may</legend>
        {SCOPES.map(([scope, text]) => (
          <label key={scope}>
            <input type="checkbox" checked={scopes.value.includes(scope)}
                   onChange={(event) => (scopes.value = event.currentTarget.checked
                     ? [...scopes.value, scope] : scopes.value.filter((one) => one !== scope))} />
            {text}
          </label>
        ))}
      </fieldset>
      {failure.value !== null && <ReasonNote reason={failure.value} />}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isBusy.value || scopes.value.length === 0}>Make a key</button>
      </div>
      {secret.value !== '' && (
        <div class="secret" role="status">
          <p>This key is shown once. Copy it now:</p>
          <div class="buttons">
            <input id="new-key" ref={shown} readOnly aria-label="The new key" value={secret.value} />
            <button type="button" onClick={copy}>Copy</button>
            <button type="button" class="quiet" onClick={() => (secret.value = '')}>Done</button>
          </div>
        </div>
      )}
    </form>
  );
}

function Row({apiKey, onEnded}: {apiKey: ApiKey; onEnded: () => void}) {
  const asks = useSignal(false);
  const name = apiKey.name === '' ? apiKey.id : apiKey.name;
  const limits = [apiKey.tenant !== '' ? `tenant ${apiKey.tenant}` : '', ...apiKey.models].filter((one) => one !== '');
  return (
    <li class="row slim" data-key={apiKey.id}>
      <div class="row-head">
        <strong>{name}</strong>
        {apiKey.scopes.map((scope) => <span class="tag" key={scope}>{scope}</span>)}
        <span class="dim grow-right">{keyState(apiKey, Date.now())}</span>
        <button type="button" class="small quiet" aria-expanded={asks.value} aria-label={`Revoke ${name}`}
                onClick={() => (asks.value = !asks.value)}>Revoke</button>
      </div>
      <p class="dim">{apiKey.id}{limits.length > 0 ? `, for ${limits.join(', ')} only` : ''}</p>
      {asks.value && (
        <Confirm label={`Revoke ${name}`} action="Revoke it" busy="Revoking…"
                 text={`Revoke ${name}? Every gateway refuses it from then on, and it can't be taken back.`}
                 onClose={() => (asks.value = false)}
                 run={async () => { await revokeKey(apiKey.id); onEnded(); }} />
      )}
    </li>
  );
}

export function Keys() {
  const keys = useSignal<ApiKey[] | null>(null);
  const failure = useSignal<Reason | null>(null);
  const fill = async () => {
    try {
      keys.value = (await listKeys()).sort((a, b) => b.created_unix_ms - a.created_unix_ms);
      failure.value = null;
    } catch (error) {
      failure.value = reasonOf(error);
    }
  };
  useEffect(() => { void fill(); }, []);
  const now = Date.now();
  const valid = (keys.value ?? []).filter((one) => !keyHasEnded(one, now));
  const ended = (keys.value?.length ?? 0) - valid.length;
  return (
    <Panel id="keys" title="Keys" note={keys.value === null ? undefined : `${valid.length} valid`}>
      {failure.value !== null && <ReasonNote reason={failure.value} />}
      <ul class={`rows ${valid.length > 8 ? 'scroll' : ''}`} tabIndex={valid.length > 8 ? 0 : undefined}>
        {valid.map((one) => <Row key={one.id} apiKey={one} onEnded={() => void fill()} />)}
      </ul>
      {ended > 0 && <p class="dim">{ended} more ended.</p>}
      <details>
        <summary>New key</summary>
        <NewKey onMade={() => void fill()} />
      </details>
    </Panel>
  );
}
