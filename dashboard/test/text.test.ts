import assert from 'node:assert/strict';
import {test} from 'node:test';
import {readDelta, speed} from '../src/chat_text';
import {EventParser} from '../src/event_stream';
import {ago, bits, bytes, bytesOf, count, microseconds, percent, rate, rateNow, words} from '../src/format';
import {History} from '../src/history';

test('sizes have a unit and few digits', () => {
  assert.deepEqual([0, 1023, 1536, 1023.9 * 1024, 25276063744, -1].map(bytes),
                   ['0 B', '1023 B', '1.5 KiB', '1.0 MiB', '23.5 GiB', '–']);
});

test('figures that are not known are a dash', () => {
  assert.deepEqual([rate(0), rate(NaN), percent(-1), microseconds(0), bits(0)], ['–', '–', '–', '–', '–']);
});

test('what is known to be nothing is no dash, and a unit is told once', () => {
  assert.deepEqual([rateNow(0), rateNow(12.34)], ['0', '12.3']);
  assert.deepEqual([bytesOf(21.2 * 1024 ** 3, 23.5 * 1024 ** 3), bytesOf(512 * 1024 ** 2, 23.5 * 1024 ** 3), bytesOf(-1, 1024)],
                   [['21.2', 'of 23.5 GiB'], ['512', 'MiB of 23.5 GiB'], ['–', 'of 1.0 KiB']]);
});

test('figures as people read them', () => {
  assert.deepEqual([rate(12.34), rate(456.7), percent(.071), percent(1.2)], ['12.3', '457', '7 %', '100 %']);
  assert.deepEqual([microseconds(57.9), microseconds(2300), bits(1.25e9), bits(5e9)],
                   ['58 µs', '2.3 ms', '10 Gb/s', '40 Gb/s']);
  assert.deepEqual([ago(300), ago(5000), ago(600_000), count(1, 'node'), count(3, 'node'), words('warming_up')],
                   ['now', '5 s ago', '10 min ago', '1 node', '3 nodes', 'warming up']);
});

test('events are whole however the bytes come', () => {
  const text = ': waiting\n\ndata: {"a":1}\r\n\r\nevent: x\ndata: one\ndata: two\n\ndata: unfinished';
  for (const size of [1, 3, 7, 1000]) {
    const parser = new EventParser();
    const events: string[] = [];
    for (let i = 0; i < text.length; i += size) events.push(...parser.push(text.slice(i, i + size)));
    assert.deepEqual(events, ['{"a":1}', 'one\ntwo']);
  }
});

test('an answer\'s events give text, reasoning, end and failure', () => {
  assert.equal(readDelta('[DONE]'), null);
  assert.equal(readDelta('{"choices":[{"delta":{"content":"hi"}}]}')!.text, 'hi');
  assert.equal(readDelta('{"choices":[{"delta":{"reasoning_content":"hm"}}]}')!.reasoning, 'hm');
  assert.equal(readDelta('{"choices":[{"delta":{},"finish_reason":"length"}]}')!.finish, 'length');
  assert.equal(readDelta('{"choices":[],"usage":{"completion_tokens":7}}')!.tokens, 7);
  assert.equal(readDelta('{"error":{"message":"gone"}}')!.error, 'gone');
  assert.notEqual(readDelta('{')!.error, '');
  assert.equal(readDelta('{"choices":[],"prompt_progress":{"total":1200,"processed":413,"queued":false}}')!.progress,
               'Reading the prompt: 34 % of 1200 tokens');
  assert.match(readDelta('{"choices":[],"prompt_progress":{"total":9,"processed":0,"queued":true}}')!.progress, /^Waiting/);
});

test('speed counts from the first token', () => {
  assert.equal(speed(11, 1000, 2000), 10);
  assert.equal(speed(1, 1000, 1000), 0);
  assert.equal(speed(60, 1000, 1002), 0);
});

test('history keeps its span and its order', () => {
  const history = new History(2, 10);
  history.add(1, [5, 1]);
  history.add(1, [9, 9]);
  history.add(5, [6]);
  history.add(12, [7, 3]);
  assert.deepEqual(history.times, [5, 12]);
  assert.deepEqual(history.values, [[6, 7], [0, 3]]);
});
