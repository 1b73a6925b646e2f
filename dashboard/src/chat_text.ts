// What a streamed answer adds to the chat. Pure.

export interface Delta {
  text: string;
  reasoning: string;
  finish: string;
  error: string;
  tokens: number | undefined;
  progress: string;
}

/** One event of `/v1/chat/completions`; null for the one that ends the stream. */
export function readDelta(data: string): Delta | null {
  if (data === '[DONE]') return null;
  const delta: Delta = {text: '', reasoning: '', finish: '', error: '', tokens: undefined, progress: ''};
  let event: any;
  try {
    event = JSON.parse(data);
  } catch {
    return {...delta, error: 'The gateway sent an event that is no JSON.'};
  }
  if (event?.error !== undefined) return {...delta, error: String(event.error?.message ?? 'The answer failed.')};
  const choice = event?.choices?.[0];
  delta.text = choice?.delta?.content ?? '';
  delta.reasoning = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? '';
  delta.finish = choice?.finish_reason ?? '';
  delta.tokens = event?.usage?.completion_tokens;
  if (event?.prompt_progress != null) delta.progress = progressText(event.prompt_progress);
  return delta;
}

/** How far the prompt is, of an answer that has not begun. */
function progressText(progress: {total?: number; processed?: number; queued?: boolean}): string {
  if (progress.queued === true) return 'Waiting for a turn: other requests are answered first.';
  const total = progress.total ?? 0;
  return `Reading the prompt: ${Math.floor(((progress.processed ?? 0) * 100) / Math.max(total, 1))} % of ${total} tokens`;
}

// Tokens that come all at once were kept together on their way: how fast they were made nobody can see.
const SPAN_MIN_MS = 10;

/** Tokens a second from the first token to the last one; 0 when that can't be said (yet). */
export function speed(tokens: number, firstMs: number, lastMs: number): number {
  return tokens > 1 && lastMs - firstMs >= SPAN_MIN_MS ? ((tokens - 1) * 1000) / (lastMs - firstMs) : 0;
}
