// Server-sent events out of text that comes in pieces. Pure.

export class EventParser {
  private rest = '';
  private data: string[] = [];

  /** The data of each event that `piece` completes. Comments and other fields are passed over. */
  push(piece: string): string[] {
    const events: string[] = [];
    this.rest += piece;
    for (;;) {
      const end = this.rest.indexOf('\n');
      if (end < 0) return events;
      const line = this.rest.slice(0, end).replace(/\r$/, '');
      this.rest = this.rest.slice(end + 1);
      if (line === '') {
        if (this.data.length > 0) events.push(this.data.join('\n'));
        this.data = [];
      } else if (line.startsWith('data:')) {
        this.data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
      }
    }
  }
}

/** Calls `onEvent` for each event of a body until it ends; true from `onEvent` ends it early. */
export async function readEvents(body: ReadableStream<Uint8Array>,
                                 onEvent: (data: string) => boolean | void,
                                 onBytes?: () => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    onBytes?.();
    for (const event of parser.push(decoder.decode(value, {stream: true}))) {
      if (onEvent(event) === true) {
        await reader.cancel();
        return;
      }
    }
  }
}
