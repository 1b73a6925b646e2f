// The last minutes of figures, for charts. Pure.

export class History {
  readonly times: number[] = [];
  readonly values: number[][];

  constructor(series: number, private readonly keepSeconds: number) {
    this.values = Array.from({length: series}, () => []);
  }

  /** Adds a point; one that is not later than the last one is passed over. What is too old goes. */
  add(seconds: number, values: number[]): void {
    const last = this.times[this.times.length - 1];
    if (last !== undefined && seconds <= last) return;
    this.times.push(seconds);
    this.values.forEach((list, i) => list.push(values[i] ?? 0));
    let old = 0;
    while ((this.times[old] ?? seconds) < seconds - this.keepSeconds) old += 1;
    if (old > 0) {
      this.times.splice(0, old);
      for (const list of this.values) list.splice(0, old);
    }
  }
}
