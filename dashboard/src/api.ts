// Requests to the agent that served the page, with the key that the user gave.
import {signal} from '@preact/signals';

const KEY_NAME = 'macrame-key';

/** An answer said 401: the page asks for a key. */
export const needsKey = signal(false);
/** The last key was given and refused. */
export const keyRefused = signal(false);

// Storage may be forbidden; the key then lasts as long as the page.
let key = '';
try {
  key = sessionStorage.getItem(KEY_NAME) ?? '';
} catch {
  key = '';
}

export function setKey(value: string): void {
  key = value;
  try {
    sessionStorage.setItem(KEY_NAME, value);
  } catch {
    // It lasts as long as the page.
  }
  needsKey.value = false;
}

export class ApiFailure extends Error {
  constructor(readonly status: number, message: string) {
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
  let message = `The gateway answered ${response.status}.`;
  try {
    message = (await response.json())?.error?.message ?? message;
  } catch {
    // The status has to do.
  }
  throw new ApiFailure(response.status, message);
}
