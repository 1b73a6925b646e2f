import assert from 'node:assert/strict';
import {test} from 'node:test';
import {milliseconds} from '../src/format';
import {ageOf, latencyColours, latencyColumns, latencyRows} from '../src/latency_view';
import type {Latencies, LatencyPoint} from '../src/types';

function told(models: Latencies['models']): Latencies {
  return {slot_seconds: 10, window_seconds: 30, span_seconds: 600, models};
}
const point = (age: number, median: number): LatencyPoint => [age, 4, median, median * 2];

test('times are read at a glance', () => {
  assert.deepEqual([.42, 8.46, 31.2, 999.4, 1250, 12_300, 0, NaN].map(milliseconds),
                   ['0.42 ms', '8.5 ms', '31 ms', '999 ms', '1.3 s', '12 s', '–', '–']);
});

test('each model has a row with what is newest', () => {
  const rows = latencyRows(told([
    {model: 'b', first_token: [point(23, 500), point(3, 700)], inter_token: [point(3, 30), point(0, 31)]},
    {model: 'a', first_token: [point(203, 90)], inter_token: []},
  ]));
  assert.deepEqual(rows.map((row) => [row.model, row.first?.[2], row.between?.[2], ageOf(row)]),
                   [['a', 90, undefined, 203], ['b', 700, 31, 0]]);
});

test('columns have the times in order, and a hole where nothing came', () => {
  const columns = latencyColumns(told([
    {model: 'a', first_token: [point(43, 5), point(13, 6), point(3, 7), point(0, 8)], inter_token: []},
    {model: 'b', first_token: [point(13, 50)], inter_token: []},
  ]), 'first_token', 1000);
  assert.deepEqual(columns, [
    [957, 967, 977, 987, 997, 1000],
    [5, null, null, 6, 7, 8], [10, null, null, 12, 14, 16],
    [null, null, null, 50, null, null], [null, null, null, 100, null, null],
  ]);
});

test('no model and no point make empty columns', () => {
  assert.deepEqual(latencyColumns(told([]), 'first_token', 1000), [[]]);
  assert.deepEqual(latencyColumns(told([{model: 'a', first_token: [], inter_token: [point(0, 5)]}]), 'first_token', 1000), [[], [], []]);
  assert.deepEqual(latencyColumns(told([{model: 'a', first_token: [], inter_token: [point(0, 5)]}]), 'inter_token', 1000), [[1000], [5], [10]]);
});

test('a model that is served keeps its colour, others get one of those left', () => {
  assert.deepEqual(latencyColours(['x', 'tiny', 'y'], new Map([['tiny', 0], ['big', 1]])), [2, 0, 3]);
});
