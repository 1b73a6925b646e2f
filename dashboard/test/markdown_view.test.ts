import assert from 'node:assert/strict';
import {test} from 'node:test';
import {blocks, spans} from '../src/markdown_view';

const brief = (text: string) => spans(text).map((span) => `${span.kind}:${span.text}`);

test('emphasis and code within a line', () => {
  assert.deepEqual(brief('a **b c** and *d*, `e * f`'), ['text:a ', 'strong:b c', 'text: and ', 'em:d', 'text:, ', 'code:e * f']);
  assert.deepEqual(brief('__b__ and _d_'), ['strong:b', 'text: and ', 'em:d']);
});

test('what is not closed, and what is arithmetic or a name, stays as it stands', () => {
  for (const text of ['2 * 3 * 4', 'a*b*c', 'snake_case_name', '**open', '`open', 'a ** b', '* ']) assert.deepEqual(brief(text), [`text:${text}`]);
});

test('links and pictures stay text', () => {
  assert.deepEqual(brief('![x](http://a/b.png) [y](http://c)'), ['text:![x](http://a/b.png) [y](http://c)']);
  assert.deepEqual(brief('<img src=x onerror=alert(1)>'), ['text:<img src=x onerror=alert(1)>']);
});

test('fenced code is told from text, also while its fence is open', () => {
  assert.deepEqual(blocks('a\n```py\nx = 1\n\n# y\n```\nb').map((one) => one.kind), ['text', 'code', 'text']);
  assert.deepEqual(blocks('a\n```py\nx = 1\n```\nb')[1], {kind: 'code', language: 'py', text: 'x = 1'});
  assert.deepEqual(blocks('```\nopen').map((one) => one.kind), ['code']);
  assert.deepEqual(blocks('1. one\n   ```sh\n   ls\n   ```\n2. two').map((one) => one.kind), ['list', 'code', 'list']);
  assert.deepEqual(blocks('````\n```\nin\n```\n````'), [{kind: 'code', language: '', text: '```\nin\n```'}]);
});

test('lists keep their numbers, their depth and what goes on below', () => {
  const [list] = blocks('3. one\n4. two\n   more\n    - deep');
  assert.ok(list?.kind === 'list');
  assert.deepEqual([list.isOrdered, list.start], [true, 3]);
  assert.deepEqual(list.items.map((item) => [item.depth, item.spans[0]!.text]), [[0, 'one'], [0, 'two\nmore'], [2, 'deep']]);
  const [plain] = blocks('- a\n* b');
  assert.ok(plain?.kind === 'list' && !plain.isOrdered && plain.items.length === 2);
});

test('headings, quotes, rules and paragraphs', () => {
  assert.deepEqual(blocks('# One ##\ntext\non\n\n> said\n> so\n\n---\n#hash').map((one) => one.kind),
                   ['heading', 'text', 'quote', 'rule', 'text']);
  assert.deepEqual(blocks('text\non'), [{kind: 'text', spans: [{kind: 'text', text: 'text\non'}]}]);
  assert.deepEqual(blocks(' \n\n'), []);
});

test('tables have a head, rows and cells, and a bar alone is none', () => {
  const [table] = blocks('| a | b |\n| --- | :-: |\n| 1 | `x` |\n| 2 \\| 3 | y |');
  assert.ok(table?.kind === 'table');
  assert.deepEqual(table.head.map((cell) => cell[0]!.text), ['a', 'b']);
  assert.deepEqual(table.rows.map((row) => row.map((cell) => cell[0]!.text)), [['1', 'x'], ['2 | 3', 'y']]);
  assert.deepEqual(blocks('| a | b |').map((one) => one.kind), ['text']);
});

test('a long answer of odd marks takes no time to speak of', () => {
  const begun = performance.now();
  for (const mark of ['*', '**', '_', '`', '|', '> ', '- ', '#', '~~~', '| - ']) blocks(`${mark.repeat(20_000)}\n${`${mark}a `.repeat(5000)}`);
  assert.ok(performance.now() - begun < 2000);
});
