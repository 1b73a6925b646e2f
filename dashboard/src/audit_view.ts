// What the page says of the audit log. Pure.
import {localTime} from './format';
import type {AuditEntry} from './types';
import type {Tone} from './view';

export interface AuditRow {
  /** A key that no other row of one answer has. */
  id: string;
  when: string;
  who: string;
  what: string;
  from: string;
  outcome: string;
  tone: Tone;
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number => (typeof value === 'number' ? value : 0);

function entryOf(line: string): AuditEntry | null {
  try {
    const entry = JSON.parse(line);
    return typeof entry === 'object' && entry !== null && !Array.isArray(entry) ? entry : null;
  } catch {
    return null;
  }
}

function rowOf(line: string, at: number): AuditRow {
  const entry = entryOf(line);
  if (entry === null) {
    return {id: String(at), when: '', who: '', what: 'not a line of the log', from: '', outcome: 'unreadable', tone: 'bad'};
  }
  const leftOut = number(entry.left_out);
  const outcome = text(entry.outcome);
  return {
    id: String(at),
    when: localTime(number(entry.unix_ms)),
    who: text(entry.who),
    what: `${text(entry.what)} ${text(entry.target)}`.trim(),
    from: text(entry.from),
    outcome: leftOut > 0 ? `${outcome} (and ${leftOut} before it)` : outcome,
    tone: outcome === 'ok' ? 'good' : 'warn',
  };
}

/** Rows of the log's lines, the newest first. A line that is none has a row too: whoever looks should see it. */
export function auditRows(lines: string[]): AuditRow[] {
  return lines.map(rowOf).reverse();
}

/** The rows in which each word of the filter stands somewhere, in capitals or not. */
export function filterRows(rows: AuditRow[], filter: string): AuditRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return rows.filter((row) => {
    const all = [row.when, row.who, row.what, row.from, row.outcome].join(' ').toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
