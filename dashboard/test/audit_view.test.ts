import assert from 'node:assert/strict';
import {test} from 'node:test';
import {auditRows, filterRows} from '../src/audit_view';
import {localTime} from '../src/format';

const AT = new Date(2026, 4, 3, 14, 5, 9).getTime();

function line(changes: object = {}): string {
  return JSON.stringify({seq: 1, unix_ms: AT, time: '', who: 'local', what: 'LoadModel', target: 'tiny', from: 'socket',
                         outcome: 'ok', prev: '', hash: '', ...changes});
}

test('a row says who, what, when, from where and how it ended', () => {
  assert.deepEqual(auditRows([line()]), [{id: '0', when: '2026-05-03 14:05:09', who: 'local', what: 'LoadModel tiny',
                                          from: 'socket', outcome: 'ok', tone: 'good'}]);
});

test('the newest entry is the first, and each row has a key of its own', () => {
  const rows = auditRows([line({target: 'old'}), line({target: 'new'})]);
  assert.deepEqual(rows.map((row) => row.what), ['LoadModel new', 'LoadModel old']);
  assert.equal(new Set(rows.map((row) => row.id)).size, 2);
});

test('what went wrong stands out, with what has no line of its own', () => {
  const [row] = auditRows([line({what: 'GET /v1/models', target: '', outcome: '401 invalid_api_key', left_out: 12})]);
  assert.deepEqual([row!.what, row!.outcome, row!.tone],
                   ['GET /v1/models', '401 invalid_api_key (and 12 before it)', 'warn']);
});

test('a line that was changed by hand is shown, whatever it is', () => {
  for (const broken of ['', '{"seq":1', '[]', 'null', '"text"', '7']) {
    assert.deepEqual(auditRows([broken]).map((row) => [row.what, row.tone]), [['not a line of the log', 'bad']], broken);
  }
  const [row] = auditRows(['{"who":7,"what":{},"unix_ms":"now","outcome":null}']);
  assert.deepEqual([row!.who, row!.what, row!.when, row!.outcome, row!.tone], ['', '', '', '', 'warn']);
});

test('each word of the filter has to be there, wherever', () => {
  const rows = auditRows([line(), line({who: 'key 0a1b', from: '10.0.0.9'}), line({what: 'RevokeKey', target: '0a1b'})]);
  const found = (filter: string) => filterRows(rows, filter).map((row) => row.id);
  assert.deepEqual(found(''), ['2', '1', '0']);
  assert.deepEqual(found('  '), ['2', '1', '0']);
  assert.deepEqual(found('0A1B'), ['2', '1']);
  assert.deepEqual(found('10.0.0.9 loadmodel'), ['1']);
  assert.deepEqual(found('2026-05-03 socket revokekey'), ['2']);
  assert.deepEqual(found('nobody'), []);
});

test('times that are none are left out', () => {
  assert.deepEqual([localTime(0), localTime(-5), localTime(NaN), localTime(1e300), localTime(AT)],
                   ['', '', '', '', '2026-05-03 14:05:09']);
});
