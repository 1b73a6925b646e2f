// Requests to the agent that served the page, with the key that the user gave.
import {computed, signal} from '@preact/signals';

const KEY_NAME = 'macrame-key';

/** An answer said 401: the page asks for a key. */
export const needsKey = signal(false);
/** The last key was given and refused. */
export const keyRefused = signal(false);
/** The user wants to give another key. */
export const wantsKey = signal(false);
/** Rises when a key was given: what was asked with the one before is asked anew. */
export const keyRevision = signal(0);

// Storage may be forbidden; the key then lasts as long as the page.
let key = '';
try {
  key = sessionStorage.getItem(KEY_NAME) ?? '';
} catch {
  key = '';
}

/** Whether the page was given a key. */
export const hasKey = computed(() => keyRevision.value >= 0 && key !== '');

export function setKey(value: string): void {
  key = value;
  try {
    sessionStorage.setItem(KEY_NAME, value);
  } catch {
    // It lasts as long as the page.
  }
  needsKey.value = false;
  wantsKey.value = false;
  keyRevision.value += 1;
}

export class ApiFailure extends Error {
  constructor(readonly status: number, message: string, readonly code = '', readonly remedy = '') {
    super(message);
  }
}

/** fetch with the key; an answer that is no success becomes an ApiFailure with the gateway's message. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key !== '') headers.set('authorization', `Bearer ${key}`);
  const response = await fetch(path, {...init, headers, cache: 'no-store', credentials: 'omit'});
  if (response.ok || response.status === 304) return response;
  if (response.status === 401) {
    keyRefused.value = key !== '';
    needsKey.value = true;
  }
  const message = `The gateway answered ${response.status}.`;
  try {
    const error = (await response.json())?.error;
    throw new ApiFailure(response.status, error?.message ?? message, error?.code ?? '', error?.remedy ?? '');
  } catch (failure) {
    if (failure instanceof ApiFailure) throw failure;
    // The status has to do.
  }
  throw new ApiFailure(response.status, message);
}
