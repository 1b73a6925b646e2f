// A chat with a loaded model: streamed, to be stopped, with its speed.
import {signal, useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {ApiFailure, ask} from './api';
import {blocks, readDelta, speed} from './chat_text';
import {readEvents} from './event_stream';
import {rate} from './format';
import {Panel} from './parts';
import type {Snapshot} from './types';
import {readyModels} from './view';

interface Message {
  role: 'user' | 'assistant';
  text: string;
  reasoning: string;
  note: string;
  failed: boolean;
}

const ANSWER_TOKENS_MAX = 1024;

const messages = signal<Message[]>([]);
const chosen = signal('');
let running: AbortController | null = null;
const isRunning = signal(false);

function changeLast(change: (message: Message) => Message): void {
  const all = messages.value;
  const last = all[all.length - 1];
  if (last !== undefined) messages.value = [...all.slice(0, -1), change(last)];
}

function bodyOf(model: string): string {
  return JSON.stringify({
    model,
    stream: true,
    return_progress: true,
    stream_options: {include_usage: true},
    max_tokens: ANSWER_TOKENS_MAX,
    messages: messages.value.filter((one) => one.text !== '').map((one) => ({role: one.role, content: one.text})),
  });
}

/** Streams one answer into the last message. */
async function answer(model: string): Promise<void> {
  const stop = new AbortController();
  running = stop;
  isRunning.value = true;
  const body = bodyOf(model);
  messages.value = [...messages.value, {role: 'assistant', text: '', reasoning: '', note: '', failed: false}];
  let pieces = 0;
  let first = 0;
  let last = 0;
  let finish = '';
  try {
    const response = await ask('/v1/chat/completions', {
      method: 'POST', headers: {'content-type': 'application/json'}, body, signal: stop.signal,
    });
    await readEvents(response.body!, (data) => {
      const delta = readDelta(data);
      if (delta === null) return true;
      if (delta.error !== '') throw new ApiFailure(200, delta.error);
      if (delta.finish !== '') finish = delta.finish;
      if (delta.tokens !== undefined) pieces = delta.tokens;
      if (delta.progress !== '' && first === 0) changeLast((message) => ({...message, note: delta.progress}));
      if (delta.text === '' && delta.reasoning === '') return false;
      last = performance.now();
      if (first === 0) first = last;
      if (delta.tokens === undefined) pieces += 1;
      changeLast((message) => ({...message, text: message.text + delta.text,
                                reasoning: message.reasoning + delta.reasoning,
                                note: `${rate(speed(pieces, first, last))} tokens/s`}));
      return false;
    });
    const why = finish === 'length' ? ', cut at its longest' : '';
    changeLast((message) => ({...message, note: `${pieces} tokens, ${rate(speed(pieces, first, last))} tokens/s${why}`}));
  } catch (error) {
    const stopped = stop.signal.aborted;
    const why = error instanceof ApiFailure ? error.message : 'The connection to the agent broke.';
    changeLast((message) => ({...message, failed: !stopped, note: stopped ? 'stopped' : why}));
  } finally {
    running = null;
    isRunning.value = false;
  }
}

function Text({text}: {text: string}) {
  return (
    <>
      {blocks(text).map((block, i) => block.kind === 'code'
        ? <pre key={i} tabIndex={0}><code>{block.text}</code></pre>
        : <p key={i} class="said">{block.text.trim()}</p>)}
    </>
  );
}

function Bubble({message, live}: {message: Message; live: boolean}) {
  return (
    <li class={`bubble ${message.role} ${message.failed ? 'failed' : ''}`}>
      <span class="sr-only">{message.role === 'user' ? 'You' : 'Model'}:</span>
      {message.reasoning !== '' && (
        <details><summary>{live && message.text === '' ? 'Thinking…' : 'Reasoning'}</summary><p class="said dim">{message.reasoning}</p></details>
      )}
      {message.text !== '' ? <Text text={message.text} /> : live && message.reasoning === '' && <span class="typing" role="status" aria-label="The model is working"><i /><i /><i /></span>}
      {message.note !== '' && <p class="bubble-note">{message.note}</p>}
    </li>
  );
}

export function Chat({snapshot}: {snapshot: Snapshot}) {
  const draft = useSignal('');
  const log = useRef<HTMLUListElement>(null);
  const ready = readyModels(snapshot);
  const model = ready.includes(chosen.value) ? chosen.value : (ready[0] ?? '');
  const all = messages.value;
  useEffect(() => {
    const list = log.current;
    if (list !== null) list.scrollTop = list.scrollHeight;
  }, [all]);
  const send = () => {
    const text = draft.value.trim();
    if (text === '' || model === '' || isRunning.value) return;
    messages.value = [...all, {role: 'user', text, reasoning: '', note: '', failed: false}];
    draft.value = '';
    void answer(model);
  };
  return (
    <Panel id="chat" title="Chat" note={all.length > 0 && !isRunning.value
      ? <button type="button" class="quiet" onClick={() => (messages.value = [])}>New chat</button> : undefined}>
      <ul class="log" ref={log} tabIndex={0} aria-label="Conversation" aria-live="polite" aria-busy={isRunning.value}>
        {all.length === 0 && (
          <li class="empty">{model === '' ? 'Load a model, and try it here.' : `Ask ${model} something.`}</li>
        )}
        {all.map((message, i) => <Bubble key={i} message={message} live={isRunning.value && i === all.length - 1} />)}
      </ul>
      <form class="composer" onSubmit={(event) => { event.preventDefault(); send(); }}>
        <label class="sr-only" for="chat-text">Message</label>
        <textarea id="chat-text" rows={2} placeholder={model === '' ? 'No model is ready' : 'Message (Enter sends, Shift-Enter breaks the line)'}
                  disabled={model === ''} value={draft.value} onInput={(event) => (draft.value = event.currentTarget.value)}
                  onKeyDown={(event) => {
                    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                      event.preventDefault();
                      send();
                    } else if (event.key === 'Escape') {
                      running?.abort();
                    }
                  }} />
        <div class="composer-foot">
          <label class="sr-only" for="chat-model">Model</label>
          <select id="chat-model" value={model} disabled={ready.length === 0} onChange={(event) => (chosen.value = event.currentTarget.value)}>
            {ready.length === 0 && <option value="">no model</option>}
            {ready.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
          {isRunning.value
            ? <button type="button" class="stop" onClick={() => running?.abort()}>Stop</button>
            : <button type="submit" class="primary" disabled={model === '' || draft.value.trim() === ''}>Send</button>}
        </div>
      </form>
    </Panel>
  );
}
