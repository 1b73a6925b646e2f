// The chats of this page: asked, streamed, stopped, and kept in this browser or, where that is not wanted, in this tab.
import {computed, signal} from '@preact/signals';
import {ApiFailure, ask, hasKey} from './api';
import {droppedText, interrupted, overflow, readChat, type Kept} from './chat_keep';
import {readDelta, speed} from './chat_text';
import {asked, askedAgain, isAnswering, isRunning, listed, newChat, renamed, requestOf, withAnswer,
        type Answer, type Chat, type ChatOptions} from './chats_view';
import {readEvents} from './event_stream';

const PREFIX = 'macrame-chat-';  // then the chat's id
const KEEP_NAME = 'macrame-keep-chats';
const OPEN_NAME = 'macrame-open-chat';
// How often an answer that comes is drawn, and kept.
const DRAW_MS = 50;
const KEEP_MS = 3000;

function storageOf(name: 'localStorage' | 'sessionStorage'): Storage | null {
  try {
    return window[name];
  } catch {
    return null;
  }
}
const browser = storageOf('localStorage');
const tab = storageOf('sessionStorage');

function read(storage: Storage | null, name: string): string | null {
  try {
    return storage?.getItem(name) ?? null;
  } catch {
    return null;
  }
}

function write(storage: Storage | null, name: string, value: string | null): boolean {
  try {
    if (storage === null) return false;
    if (value === null) storage.removeItem(name);
    else storage.setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

function chatNames(storage: Storage | null): string[] {
  try {
    return Object.keys(storage ?? {}).filter((name) => name.startsWith(PREFIX));
  } catch {
    return [];
  }
}

function stored(): Chat[] {
  const found = new Map<string, Chat>();
  for (const storage of [browser, tab]) {
    for (const name of chatNames(storage)) {
      const chat = readChat(read(storage, name) ?? '');
      if (chat !== null && `${PREFIX}${chat.id}` === name) found.set(chat.id, interrupted(chat));
    }
  }
  return [...found.values()];
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** What a person chose; null: nothing yet. */
const keepChoice = signal<boolean | null>(read(browser, KEEP_NAME) === null ? null : read(browser, KEEP_NAME) === '1');
/** Chats stay in this browser. A page that was given a key forgets them with the tab, as it does the key. */
export const keeps = computed(() => keepChoice.value ?? !hasKey.value);

const all = signal<Chat[]>(stored());
const openId = signal('');
export const chats = computed(() => listed(all.value));
/** What happened to chats that somebody may miss; "": nothing. */
export const chatNotice = signal('');
/** What was not sent yet, of each chat. */
export const drafts = signal<ReadonlyMap<string, string>>(new Map());
/** What whoever does not see the list is told. */
export const chatSaid = signal('');

const running = new Map<string, Set<AbortController>>();

function blank(): Chat {
  const chat = newChat(newId(), Date.now());
  all.value = [...all.value, chat];
  return chat;
}

const remembered = read(tab, OPEN_NAME);
openId.value = all.value.find((chat) => chat.id === remembered)?.id
  ?? (remembered === null ? listed(all.value)[0]?.id : undefined) ?? blank().id;

export const current = computed(() => all.value.find((chat) => chat.id === openId.value) ?? all.value[0]!);

/** Signs for a list that is folded away: of chats that are not looked at. */
export const elsewhere = computed(() => {
  const others = all.value.filter((chat) => chat.id !== current.value.id);
  return {answering: others.filter(isAnswering).length, unread: others.filter((chat) => chat.isUnread).length};
});

function change(id: string, next: (chat: Chat) => Chat): Chat | undefined {
  let changed: Chat | undefined;
  all.value = all.value.map((chat) => (chat.id === id ? (changed = next(chat)) : chat));
  return changed;
}

// --- kept ---

function forget(id: string): void {
  for (const storage of [browser, tab]) write(storage, PREFIX + id, null);
}

/** Makes room by the bounds; says what went. */
function makeRoom(storage: Storage, spared: string): void {
  const kept: Kept[] = chatNames(storage).map((name) => {
    const id = name.slice(PREFIX.length);
    return {id, characters: read(storage, name)?.length ?? 0,
            changedMs: all.value.find((chat) => chat.id === id)?.changedMs ?? 0};
  });
  drop(overflow(kept, new Set([spared, openId.peek(), ...running.keys()])));
}

function drop(ids: string[]): void {
  if (ids.length === 0) return;
  const gone = all.value.filter((chat) => ids.includes(chat.id));
  ids.forEach(forget);
  all.value = all.value.filter((chat) => !ids.includes(chat.id));
  if (gone.length > 0) chatNotice.value = droppedText(gone.map((chat) => chat.title));
}

function keep(chat: Chat | undefined): void {
  if (chat === undefined || chat.turns.length === 0) return;
  // The first chat settles it: a key that is given later moves nothing.
  if (keepChoice.value === null) setChoice(keeps.value);
  const storage = keeps.value ? browser : tab;
  if (storage === null) return;
  write(keeps.value ? tab : browser, PREFIX + chat.id, null);
  const text = JSON.stringify(chat);
  if (!write(storage, PREFIX + chat.id, text)) {
    // The browser is full: the oldest goes, as long as there is one.
    const others = all.value.filter((one) => one.id !== chat.id && one.id !== openId.peek() && one.turns.length > 0
      && !running.has(one.id)).sort((a, b) => a.changedMs - b.changedMs);
    if (others[0] === undefined) {
      chatNotice.value = 'This browser has no room for this chat: it is gone when the page is closed.';
      return;
    }
    drop([others[0].id]);
    keep(chat);
    return;
  }
  makeRoom(storage, chat.id);
}

function setChoice(value: boolean): void {
  keepChoice.value = value;
  write(browser, KEEP_NAME, value ? '1' : '0');
}

export function setKeeps(value: boolean): void {
  setChoice(value);
  for (const chat of all.value) keep(chat);
}

// Another tab of this browser has the same chats.
window.addEventListener('storage', (event) => {
  if (event.storageArea !== browser || event.key === null) return;
  if (event.key === KEEP_NAME) keepChoice.value = event.newValue === null ? null : event.newValue === '1';
  if (!event.key.startsWith(PREFIX)) return;
  const id = event.key.slice(PREFIX.length);
  if (running.has(id)) return;
  const next = event.newValue === null ? null : readChat(event.newValue);
  if (next === null && read(tab, event.key) !== null) return;
  const others = all.value.filter((chat) => chat.id !== id);
  const known = all.value.some((chat) => chat.id === id);
  if (next !== null) all.value = [...others, interrupted(next, 'it goes on in another tab')];
  else if (known) {
    all.value = others;
    if (openId.value === id) open(listed(all.value)[0]?.id ?? blank().id);
  }
});

window.addEventListener('pagehide', () => {
  for (const id of running.keys()) keep(all.value.find((chat) => chat.id === id));
});

// --- what a person does ---

export function open(id: string): void {
  openId.value = id;
  write(tab, OPEN_NAME, id);
  const chat = all.value.find((one) => one.id === id);
  if (chat?.isUnread === true) keep(change(id, (one) => ({...one, isUnread: false})));
}

/** A new chat, with the model of the one before; there is one empty chat at the most. */
export function openNew(): void {
  const empty = all.value.find((chat) => chat.turns.length === 0) ?? blank();
  change(empty.id, (chat) => ({...chat, model: current.value.model, also: '', changedMs: Date.now()}));
  open(empty.id);
}

/** The name that the chat has now: an empty one gives it that of its first question. */
export function rename(id: string, title: string): string {
  const chat = change(id, (before) => renamed(before, title));
  keep(chat);
  return chat?.title ?? title;
}
export function setModels(id: string, model: string, also: string): void {
  keep(change(id, (chat) => ({...chat, model, also: also === model ? '' : also})));
}
export function setOptions(id: string, options: Partial<ChatOptions>): void {
  keep(change(id, (chat) => ({...chat, options: {...chat.options, ...options}})));
}
export function setDraft(id: string, text: string): void {
  drafts.value = new Map(drafts.value).set(id, text);
}

export function stop(id: string): void {
  for (const one of running.get(id) ?? []) one.abort();
}

export function remove(id: string): void {
  stop(id);
  forget(id);
  setDraft(id, '');
  all.value = all.value.filter((chat) => chat.id !== id);
  if (openId.value === id || all.value.length === 0) open(listed(all.value)[0]?.id ?? blank().id);
}

export function removeAll(): void {
  for (const chat of all.value) stop(chat.id);
  for (const storage of [browser, tab]) for (const name of chatNames(storage)) write(storage, name, null);
  all.value = [];
  drafts.value = new Map();
  chatNotice.value = '';
  open(blank().id);
}

/** Puts a question to `models` at once. */
export function put(id: string, question: string, models: string[]): void {
  const chat = change(id, (one) => asked(one, question, models, Date.now()));
  if (chat === undefined) return;
  setDraft(id, '');
  keep(chat);
  for (const model of models) void stream(chat, chat.turns.length - 1, model);
}

/** Puts the last question to `models` anew. */
export function putAgain(id: string, models: string[]): void {
  const chat = change(id, (one) => askedAgain(one, models, Date.now()));
  if (chat === undefined || chat.turns.length === 0) return;
  keep(chat);
  for (const model of models) void stream(chat, chat.turns.length - 1, model);
}

// --- an answer as it comes ---

function begin(id: string): AbortController {
  const stopper = new AbortController();
  running.set(id, (running.get(id) ?? new Set()).add(stopper));
  return stopper;
}

function end(id: string, stopper: AbortController): void {
  const left = running.get(id);
  left?.delete(stopper);
  if (left?.size === 0) running.delete(id);
  const chat = all.value.find((one) => one.id === id);
  if (chat === undefined) return;
  if (running.has(id)) return keep(chat);
  const isSeen = openId.value === id;
  if (!isSeen) chatSaid.value = `An answer in “${chat.title}” has ended.`;
  keep(isSeen ? chat : change(id, (one) => ({...one, isUnread: true})));
}

async function stream(chat: Chat, turn: number, model: string): Promise<void> {
  const {id} = chat;
  const stopper = begin(id);
  const asking = performance.now();
  let answer: Answer = {...chat.turns[turn]!.answers.find((one) => one.model === model)!};
  let pieces = 0;
  let first = 0;
  let last = 0;
  let drawing: ReturnType<typeof setTimeout> | undefined;
  let kept = asking;
  const draw = () => {
    clearTimeout(drawing);
    drawing = undefined;
    const changed = change(id, (one) => withAnswer(one, turn, model, () => answer));
    if (isRunning(answer) && performance.now() - kept > KEEP_MS) {
      kept = performance.now();
      keep(changed);
    }
  };
  const tell = (next: Partial<Answer>) => {
    answer = {...answer, ...next};
    drawing ??= setTimeout(draw, DRAW_MS);
  };
  try {
    const response = await ask('/v1/chat/completions', {
      method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(requestOf(chat, turn, model)),
      signal: stopper.signal,
    });
    let finish = '';
    let isWhole = false;
    await readEvents(response.body!, (data) => {
      const delta = readDelta(data);
      if (delta === null) return (isWhole = true);
      if (delta.error !== '') throw new ApiFailure(200, delta.error);
      if (delta.finish !== '') finish = delta.finish;
      if (delta.tokens !== undefined) pieces = delta.tokens;
      if (delta.progress !== '' && first === 0) tell({note: delta.progress});
      if (delta.text === '' && delta.reasoning === '') return false;
      last = performance.now();
      if (first === 0) first = last;
      if (delta.tokens === undefined) pieces += 1;
      tell({state: 'coming', text: answer.text + delta.text, reasoning: answer.reasoning + delta.reasoning, note: '',
            tokens: pieces, tokensPerSecond: speed(pieces, first, last), firstTokenMs: first - asking});
      return false;
    });
    if (!isWhole) throw new ApiFailure(200, 'The answer broke off: the agent or its connection went.');
    tell({state: 'done', tokens: pieces, tokensPerSecond: speed(pieces, first, last),
          note: finish === 'length' ? 'cut at its longest' : ''});
  } catch (error) {
    if (stopper.signal.aborted) tell({state: 'stopped', note: 'stopped'});
    else tell({state: 'failed', note: error instanceof ApiFailure ? error.message : 'The connection to the agent broke.'});
  }
  draw();
  end(id, stopper);
}
