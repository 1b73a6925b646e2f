import assert from 'node:assert/strict';
import {test} from 'node:test';
import {droppedText, fileName, interrupted, overflow, readChat, toJson, toMarkdown} from '../src/chat_keep';
import {asked, emptyAnswer, newChat, withAnswer, type Chat} from '../src/chats_view';

function sample(): Chat {
  const chat = asked(newChat('id1', 0, 'a'), 'What is RDMA?', ['a', 'b'], 1_700_000_000_000);
  const one = withAnswer(chat, 0, 'a', (answer) => ({...answer, state: 'done', text: 'Direct **memory** access.', reasoning: 'Hm.\nWell.',
                                                     tokens: 5, tokensPerSecond: 40, firstTokenMs: 250}));
  return withAnswer(one, 0, 'b', (answer) => ({...answer, state: 'failed', note: 'The node went.'}));
}

test('a chat comes back as it was kept', () => {
  const chat = {...sample(), options: {system: 'Be brief.', temperature: .2, answerTokens: 50, thinking: 'on' as const}, also: 'b'};
  assert.deepEqual(readChat(JSON.stringify(chat)), chat);
});

test('what is no chat is passed over, and what is missing gets its default', () => {
  for (const text of ['', '{', 'null', '[]', '"x"', '{"id":"x"}', '{"id":"x","turns":[]}', '{"turns":[{}]}']) {
    assert.equal(readChat(text), null, text);
  }
  const odd = readChat(JSON.stringify({
    id: 'x', title: 7, turns: [{question: {}, answers: 'no'}, null, {question: 'q', answers: [{state: 'odd', tokens: -4, text: 'y'}]}],
    options: {temperature: 99, answerTokens: 'many', thinking: 'maybe', system: null}, changedMs: 'now',
  }))!;
  assert.equal(odd.title, 'New chat');
  assert.deepEqual(odd.turns.map((turn) => [turn.question, turn.answers.length]), [['', 0], ['', 0], ['q', 1]]);
  assert.deepEqual(odd.turns[2]!.answers[0], {...emptyAnswer(''), state: 'done', text: 'y'});
  assert.deepEqual(odd.options, {system: '', temperature: null, answerTokens: 1024, thinking: ''});
  assert.equal(odd.changedMs, 0);
});

test('an answer that was on its way when the page was closed has ended', () => {
  const chat = interrupted(asked(newChat('x', 0), 'q', ['a'], 1));
  assert.deepEqual([chat.turns[0]!.answers[0]!.state, chat.turns[0]!.answers[0]!.note], ['stopped', 'the page was closed before it ended']);
  assert.deepEqual(interrupted(sample()), sample());
});

test('the oldest go until number and size are kept, but not those that are spared', () => {
  const kept = (id: string, changedMs: number, characters = 10) => ({id, changedMs, characters});
  const five = [kept('c', 3), kept('a', 1), kept('e', 5), kept('b', 2), kept('d', 4)];
  assert.deepEqual(overflow(five, new Set(), 5, 50), []);
  assert.deepEqual(overflow(five, new Set(), 3, 100), ['a', 'b']);
  assert.deepEqual(overflow(five, new Set(), 5, 25), ['a', 'b', 'c']);
  assert.deepEqual(overflow(five, new Set(['a']), 4, 100), ['b']);
  assert.deepEqual(overflow([kept('a', 1, 999)], new Set(['a']), 5, 50), []);
});

test('what went is named', () => {
  assert.equal(droppedText([]), '');
  assert.match(droppedText(['Cables']), /^The oldest chat, “Cables”, was dropped: 50 chats and 2 MB/);
  assert.match(droppedText(['a', 'b']), /^The 2 oldest chats were dropped/);
});

test('a chat is exported for people', () => {
  const text = toMarkdown({...sample(), options: {...sample().options, system: 'Be brief.\nBe kind.'}});
  assert.ok(text.startsWith('# What is RDMA?\n\n20'));
  assert.ok(text.includes('**System prompt**\n\n> Be brief.\n> Be kind.\n'));
  assert.ok(text.includes('## You\n\nWhat is RDMA?\n\n## a\n\n**Reasoning**\n\n> Hm.\n> Well.\n\nDirect **memory** access.\n\n'
    + '*5 tokens, 40.0 tokens/s, first after 0.25 s*\n\n## b\n\n*The node went.*\n'));
});

test('a chat is exported for programs', () => {
  const value = JSON.parse(toJson(sample()));
  assert.equal(value.changed, '2023-11-14T22:13:20.000Z');
  assert.deepEqual(value.turns[0].answers.map((one: {model: string}) => one.model), ['a', 'b']);
  assert.ok(!('id' in value) && !('isUnread' in value));
});

test('files have names that every system takes', () => {
  assert.equal(fileName('What is RDMA, and why?', 'md'), 'What-is-RDMA-and-why.md');
  assert.equal(fileName('../../etc/passwd', 'json'), 'etc-passwd.json');
  assert.equal(fileName('Größe 寸法', 'md'), 'Größe-寸法.md');
  assert.equal(fileName('…', 'md'), 'chat.md');
});
