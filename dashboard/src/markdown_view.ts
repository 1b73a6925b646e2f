// The Markdown that models write, as blocks to be drawn: headings, lists, tables, quotes, code, and emphasis within
// lines. Links and pictures stay text: nothing that a model says leads out of the page. Pure.

export interface Span {
  kind: 'text' | 'code' | 'strong' | 'em';
  text: string;
}

export type Block =
  | {kind: 'text'; spans: Span[]}
  | {kind: 'heading'; spans: Span[]}
  | {kind: 'quote'; spans: Span[]}
  | {kind: 'list'; isOrdered: boolean; start: number; items: {depth: number; spans: Span[]}[]}
  | {kind: 'table'; head: Span[][]; rows: Span[][][]}
  | {kind: 'code'; text: string; language: string}
  | {kind: 'rule'};

const SPAN = /`([^`]+)`|\*\*(?=\S)([^*]+?)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+?)\*(?![\w*])|(?<!\w)__(?=\S)([^_]+?)__(?!\w)|(?<!\w)_(?=[^\s_])([^_\n]+?)_(?!\w)/g;

/** A line's emphasis and code. What is not closed is text as it stands. */
export function spans(text: string): Span[] {
  const found: Span[] = [];
  let at = 0;
  const add = (kind: Span['kind'], part: string) => { if (part !== '') found.push({kind, text: part}); };
  for (const match of text.matchAll(SPAN)) {
    add('text', text.slice(at, match.index));
    const [whole, code, strong, em, strongToo, emToo] = match;
    if (code !== undefined) add('code', code);
    else if (strong !== undefined || strongToo !== undefined) add('strong', (strong ?? strongToo)!);
    else add('em', (em ?? emToo)!);
    at = match.index + whole.length;
  }
  add('text', text.slice(at));
  return found;
}

const FENCE = /^\s*(```+|~~~+)\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const SEPARATOR = /^\s*\|(?:\s*:?-+:?\s*\|)+\s*$/;

const cells = (line: string): Span[][] =>
  line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => spans(cell.trim().replaceAll('\\|', '|')));

/** Text as blocks; a fence that is open at the end counts as code. */
export function blocks(text: string): Block[] {
  const found: Block[] = [];
  const lines = text.split('\n');
  let said: string[] = [];
  const flush = () => {
    const joined = said.join('\n').trim();
    if (joined !== '') found.push({kind: 'text', spans: spans(joined)});
    said = [];
  };
  let i = 0;
  // Lines from `i` on that fit, joined; `i` is then behind them.
  const run = (fits: (line: string) => boolean): string[] => {
    const begin = i;
    while (i < lines.length && fits(lines[i]!)) i += 1;
    return lines.slice(begin, i);
  };
  while (i < lines.length) {
    const line = lines[i]!;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence !== null) {
      flush();
      i += 1;
      const mark = fence[1]!;
      const code = run((one) => !(one.trim().startsWith(mark) && /^[`~]+$/.test(one.trim())));
      i += 1;
      found.push({kind: 'code', text: code.join('\n'), language: fence[2] ?? ''});
    } else if (heading !== null) {
      flush();
      i += 1;
      found.push({kind: 'heading', spans: spans(heading[1]!)});
    } else if (RULE.test(line)) {
      flush();
      i += 1;
      found.push({kind: 'rule'});
    } else if (/^\s*>/.test(line)) {
      flush();
      const quote = run((one) => /^\s*>/.test(one)).map((one) => one.replace(/^\s*>\s?/, ''));
      found.push({kind: 'quote', spans: spans(quote.join('\n').trim())});
    } else if (ROW.test(line) && SEPARATOR.test(lines[i + 1] ?? '')) {
      flush();
      const [head, , ...rows] = run((one) => ROW.test(one));
      found.push({kind: 'table', head: cells(head!), rows: rows.map(cells)});
    } else if (ITEM.test(line)) {
      flush();
      found.push(listOf(run((one) => !FENCE.test(one) && (ITEM.test(one) || /^\s{2,}\S/.test(one)))));
    } else {
      i += 1;
      if (line.trim() === '') flush();
      else said.push(line);
    }
  }
  flush();
  return found;
}

function listOf(lines: string[]): Block {
  const first = ITEM.exec(lines[0]!)!;
  const items: {depth: number; text: string}[] = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    const last = items[items.length - 1];
    if (item !== null) items.push({depth: Math.min(3, Math.floor(item[1]!.length / 2)), text: item[3]!});
    else if (last !== undefined) last.text += `\n${line.trim()}`;
  }
  return {kind: 'list', isOrdered: first[2] !== undefined, start: Number(first[2] ?? 1),
          items: items.map((item) => ({depth: item.depth, spans: spans(item.text)}))};
}
