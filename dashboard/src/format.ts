// Figures as people read them. Pure.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** 1536 → "1.5 KiB". Three digits at most; negative and unknown sizes are "–". */
export function bytes(count: number): string {
  if (!Number.isFinite(count) || count < 0) return '–';
  let value = count;
  let unit = 0;
  while (value >= 1023.5 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** Bytes a second as the bits that cables are named by: 1.25e9 → "10 Gb/s". */
export function bits(bytesPerSecond: number): string {
  if (!(bytesPerSecond > 0)) return '–';
  const value = bytesPerSecond * 8;
  for (const [size, unit] of [[1e12, 'Tb/s'], [1e9, 'Gb/s'], [1e6, 'Mb/s']] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${(value / 1e3).toFixed(0)} kb/s`;
}

/** Tokens a second; "–" while there are none. */
export function rate(tokensPerSecond: number): string {
  if (!(tokensPerSecond > 0)) return '–';
  return tokensPerSecond < 100 ? tokensPerSecond.toFixed(1) : tokensPerSecond.toFixed(0);
}

/** The same where it is known that there are none. */
export const rateNow = (tokensPerSecond: number) => (tokensPerSecond > 0 ? rate(tokensPerSecond) : '0');

/** Two sizes as "21.2 of 23.5 GiB", in two parts: the figure, and what follows it. */
export function bytesOf(part: number, all: number): [string, string] {
  const [value, unit] = bytes(part).split(' ') as [string, string?];
  const whole = bytes(all);
  return [value, unit === undefined || whole.endsWith(` ${unit}`) ? `of ${whole}` : `${unit} of ${whole}`];
}

export function percent(ratio: number): string {
  if (!(ratio >= 0)) return '–';
  return `${Math.round(Math.min(ratio, 1) * 100)} %`;
}

export function microseconds(us: number): string {
  if (!(us > 0)) return '–';
  return us < 1000 ? `${us.toFixed(0)} µs` : `${(us / 1000).toFixed(1)} ms`;
}

/** 8.46 → "8.5 ms", 350 → "350 ms", 1250 → "1.3 s". */
export function milliseconds(ms: number): string {
  if (!(ms > 0)) return '–';
  if (ms >= 999.5) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  return `${ms.toFixed(ms < 1 ? 2 : ms < 9.95 ? 1 : 0)} ms`;
}

/** "3 nodes", "1 node". */
export function count(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}

/** How long ago, from milliseconds. */
export function ago(ms: number): string {
  if (ms < 2000) return 'now';
  if (ms < 120_000) return `${Math.round(ms / 1000)} s ago`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min ago`;
  return `${Math.round(ms / 3_600_000)} h ago`;
}

/** A time of the clock on the wall here, from milliseconds since 1970: "2026-05-03 14:05:09"; "" when there is none. */
export function localTime(unixMs: number): string {
  const at = new Date(unixMs);
  if (unixMs <= 0 || Number.isNaN(at.getTime())) return '';
  const two = (value: number) => String(value).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `
    + `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** "warming_up" → "warming up". */
export function words(name: string): string {
  return name.replaceAll('_', ' ');
}
