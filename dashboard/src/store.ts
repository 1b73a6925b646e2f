// The page's state: the newest snapshot, kept up to date by the event stream or, where that is refused,
// by asking.
import {computed, effect, signal} from '@preact/signals';
import {ApiFailure, ask, keyRevision, needsKey} from './api';
import {readEvents} from './event_stream';
import {History} from './history';
import type {Snapshot} from './types';

export type Connection = 'connecting' | 'live' | 'lost';
export type Theme = 'auto' | 'light' | 'dark';

const RETRY_MS = 2000;
const POLL_MS = 2000;
// The agent sends a comment at least every ten seconds.
const SILENCE_MS = 25_000;
const HISTORY_SECONDS = 600;
const STILL_SECONDS = 2;
const THEME_NAME = 'macrame-theme';

export const snapshot = signal<Snapshot | null>(null);
export const connection = signal<Connection>('connecting');
export const failure = signal('');
/** The node or the model that is looked at. */
export const selected = signal('');
/** The model that was ordered last: its row takes the focus when the one on disk is gone. */
export const ordered = signal('');
/** What was done last, for those who don't see it. */
export const notice = signal('');
export const history = new History(2, HISTORY_SECONDS);
/** Rises when `history` has a new point. */
export const historyRevision = signal(0);

function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(THEME_NAME);
    return stored === 'light' || stored === 'dark' ? stored : 'auto';
  } catch {
    return 'auto';
  }
}

export const theme = signal<Theme>(storedTheme());
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(prefersDark.matches);
prefersDark.addEventListener('change', (event) => (systemDark.value = event.matches));
export const isDark = computed(() => (theme.value === 'auto' ? systemDark.value : theme.value === 'dark'));

effect(() => {
  document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light';
  try {
    localStorage.setItem(THEME_NAME, theme.value);
  } catch {
    // It lasts as long as the page.
  }
});

function note(load: Snapshot['aggregate_load']): void {
  history.add(Date.now() / 1000, [load?.tokens_per_second ?? 0, load?.requests_running ?? 0]);
  historyRevision.value += 1;
}

function take(text: string): void {
  const next = JSON.parse(text) as Snapshot;
  note(next.aggregate_load);
  snapshot.value = next;
  connection.value = 'live';
  failure.value = '';
}

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** A page that nobody sees holds no connection: browsers allow few to one host. */
async function untilSeen(): Promise<void> {
  while (document.hidden) {
    await new Promise<void>((seen) =>
      document.addEventListener('visibilitychange', () => seen(), {once: true}));
  }
}

/** Snapshots until the stream ends or falls silent, or the page is hidden. */
async function follow(): Promise<void> {
  const stop = new AbortController();
  let watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
  const heard = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  const hide = () => {
    if (document.hidden) stop.abort();
  };
  document.addEventListener('visibilitychange', hide);
  const given = keyRevision.peek();
  const forget = keyRevision.subscribe((revision) => {
    if (revision !== given) stop.abort();
  });
  try {
    const response = await ask('/dashboard/api/events', {signal: stop.signal});
    if (response.body !== null) await readEvents(response.body, take, heard);
  } finally {
    document.removeEventListener('visibilitychange', hide);
    forget();
    clearTimeout(watchdog);
  }
}

/** One snapshot by asking; `etag` is of the last one. */
async function poll(etag: string): Promise<string> {
  const response = await ask('/dashboard/api/snapshot',
                             {headers: etag === '' ? {} : {'if-none-match': etag}});
  if (response.status !== 304) take(await response.text());
  connection.value = 'live';
  return response.headers.get('etag') ?? '';
}

/** What whoever looks may do: "infer", "read", "operate", "admin". */
const scopes = signal<string[]>([]);
export const mayOperate = computed(() => scopes.value.includes('operate'));
export const mayAdmin = computed(() => scopes.value.includes('admin'));

async function askAccess(): Promise<void> {
  try {
    scopes.value = (await (await ask('/dashboard/api/access')).json()).scopes;
  } catch {
    scopes.value = [];
  }
}

// A first key may have been made while the connection was away.
effect(() => {
  keyRevision.value;
  if (connection.value === 'live') void askAccess();
});

/** Never returns. */
export async function keepUpToDate(): Promise<void> {
  // The agent is silent while nothing changes: the figures go on as they were, and so do the charts.
  setInterval(() => {
    const last = history.times[history.times.length - 1] ?? 0;
    if (connection.value === 'live' && !document.hidden && Date.now() / 1000 - last > STILL_SECONDS) {
      note(snapshot.value?.aggregate_load);
    }
  }, STILL_SECONDS * 1000);
  let etag = '';
  for (;;) {
    try {
      await untilSeen();
      await follow();
      await pause(RETRY_MS / 4);
    } catch (error) {
      if (document.hidden) continue;
      const full = error instanceof ApiFailure && error.status === 503 && snapshot.value !== null;
      if (!full) {
        connection.value = snapshot.value === null ? 'connecting' : 'lost';
        failure.value = error instanceof ApiFailure ? error.message : 'The agent does not answer.';
      }
      while (needsKey.value) await pause(200);
      await pause(POLL_MS);
      // Too many pages may be open for another stream: asking always works.
      try {
        etag = await poll(etag);
      } catch {
        // The next round says it.
      }
    }
  }
}
