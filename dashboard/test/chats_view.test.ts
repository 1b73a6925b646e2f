import assert from 'node:assert/strict';
import {test} from 'node:test';
import {answerNote, asked, askedAgain, emptyAnswer, fastest, isAnswering, listed, movedTo, newChat, numberIn, renamed,
        requestOf, titleOf, withAnswer, type Answer, type Chat} from '../src/chats_view';

const answer = (model: string, text: string, changes: Partial<Answer> = {}): Answer =>
  ({...emptyAnswer(model), state: 'done', text, ...changes});

function told(chat: Chat, texts: Record<string, string>): Chat {
  let next = chat;
  for (const [model, text] of Object.entries(texts)) {
    next = withAnswer(next, chat.turns.length - 1, model, (one) => ({...one, state: 'done', text}));
  }
  return next;
}

test('a chat is called by the first words of its first question, until somebody names it', () => {
  assert.equal(titleOf('  What is\n RDMA? '), 'What is RDMA?');
  assert.equal(titleOf('one two three four five six seven eight'), 'one two three four five six seven…');
  assert.equal([...titleOf('a'.repeat(300))].length, 49);
  assert.equal([...titleOf('🦙'.repeat(300))].length, 49);
  assert.equal(titleOf('   '), 'New chat');
  const first = asked(newChat('1', 0), 'What is RDMA?', ['m'], 5);
  assert.equal(first.title, 'What is RDMA?');
  const named = renamed(first, '  Cables   and cards ');
  assert.deepEqual([named.title, named.isNamed], ['Cables and cards', true]);
  assert.equal(asked(named, 'And Wi-Fi?', ['m'], 6).title, 'Cables and cards');
  assert.deepEqual([renamed(named, ' ').title, renamed(named, '').isNamed], ['What is RDMA?', false]);
});

test('a name given before the first question stays', () => {
  assert.equal(asked(renamed(newChat('1', 0), 'Mine'), 'What?', ['m'], 5).title, 'Mine');
});

test('a model is sent what it said itself, and else what another said', () => {
  let chat = told(asked(newChat('1', 0), 'one', ['a', 'b'], 1), {a: 'a1', b: 'b1'});
  chat = told(asked(chat, 'two', ['a'], 2), {a: 'a2'});
  chat = asked(chat, 'three', ['a', 'b'], 3);
  const messages = (model: string) => (requestOf(chat, 2, model) as {messages: {content: string}[]}).messages.map((one) => one.content);
  assert.deepEqual(messages('a'), ['one', 'a1', 'two', 'a2', 'three']);
  assert.deepEqual(messages('b'), ['one', 'b1', 'two', 'a2', 'three']);
});

test('an answer that never came leaves its question', () => {
  const chat = asked(asked(newChat('1', 0), 'one', ['a'], 1), 'two', ['a'], 2);
  assert.deepEqual((requestOf(chat, 1, 'a') as {messages: object[]}).messages,
                   [{role: 'user', content: 'one'}, {role: 'user', content: 'two'}]);
});

test('options are sent where they were chosen, and a system prompt comes first', () => {
  const plain = asked(newChat('1', 0), 'one', ['a'], 1);
  const request = requestOf(plain, 0, 'a') as Record<string, unknown>;
  assert.equal(request.max_tokens, 1024);
  assert.ok(!('temperature' in request) && !('enable_thinking' in request));
  const chosen = {...plain, options: {system: ' Be brief. ', temperature: 0, answerTokens: 7, thinking: 'off' as const}};
  const full = requestOf(chosen, 0, 'a') as Record<string, any>;
  assert.deepEqual([full.temperature, full.max_tokens, full.enable_thinking], [0, 7, false]);
  assert.deepEqual(full.messages[0], {role: 'system', content: 'Be brief.'});
});

test('a last question that is put again replaces the answers of those that are asked', () => {
  const chat = told(asked(newChat('1', 0), 'one', ['a'], 1), {a: 'a1'});
  const more = askedAgain(chat, ['b'], 2);
  assert.deepEqual(more.turns[0]!.answers.map((one) => [one.model, one.text, one.state]), [['a', 'a1', 'done'], ['b', '', 'waiting']]);
  const both = askedAgain(told(more, {b: 'b1'}), ['a', 'b'], 3);
  assert.deepEqual(both.turns[0]!.answers.map((one) => [one.model, one.state]), [['a', 'waiting'], ['b', 'waiting']]);
  assert.ok(isAnswering(both));
  assert.equal(askedAgain(newChat('2', 0), ['a'], 1).turns.length, 0);
});

test('changing one answer leaves other turns as they are', () => {
  const chat = asked(told(asked(newChat('1', 0), 'one', ['a'], 1), {a: 'a1'}), 'two', ['a'], 2);
  const next = told(chat, {a: 'a2'});
  assert.equal(next.turns[0], chat.turns[0]);
  assert.equal(withAnswer(chat, 9, 'a', (one) => one), chat);
});

test('the note says speed, length and why it ended', () => {
  const done = answer('a', 'x', {tokens: 128, tokensPerSecond: 42.13, firstTokenMs: 352});
  assert.equal(answerNote(done), '128 tokens, 42.1 tokens/s, first after 0.35 s');
  assert.equal(answerNote({...done, note: 'cut at its longest'}), '128 tokens, 42.1 tokens/s, first after 0.35 s, cut at its longest');
  assert.equal(answerNote({...done, state: 'coming'}), '42.1 tokens/s, first after 0.35 s');
  assert.equal(answerNote({...emptyAnswer('a'), note: 'Reading the prompt'}), 'Reading the prompt');
  assert.equal(answerNote({...emptyAnswer('a'), state: 'failed', note: 'gone'}), 'gone');
  assert.match(answerNote({...done, tokens: 1}), /^1 token,/);
});

test('the faster of two whole answers is named, when it is', () => {
  const at = (model: string, speed: number, state: Answer['state'] = 'done') => answer(model, 'x', {tokensPerSecond: speed, state});
  assert.deepEqual(fastest([at('a', 20), at('b', 50)]), {model: 'b', times: 2.5});
  assert.equal(fastest([at('a', 20), at('b', 20.5)]), null);
  assert.equal(fastest([at('a', 20), at('b', 50, 'coming')]), null);
  assert.equal(fastest([at('a', 20), at('b', 0)]), null);
  assert.equal(fastest([at('a', 20)]), null);
});

test('what was asked last is listed first, behind a chat in which nothing was asked', () => {
  const one = asked(newChat('one', 0), 'x', ['a'], 10);
  const two = asked(newChat('two', 0), 'x', ['a'], 20);
  assert.deepEqual(listed([one, newChat('new', 5), two]).map((chat) => chat.id), ['new', 'two', 'one']);
});

test('keys lead through a list and not beyond it', () => {
  assert.deepEqual(['ArrowDown', 'ArrowUp', 'Home', 'End', 'x'].map((key) => movedTo(key, 1, 3)), [2, 0, 0, 2, null]);
  assert.deepEqual([movedTo('ArrowDown', 2, 3), movedTo('ArrowUp', 0, 3), movedTo('Home', 0, 0)], [2, 0, null]);
});

test('typed numbers stay within their bounds', () => {
  assert.deepEqual(['0,7', ' 3 ', '-1', '', 'x'].map((text) => numberIn(text, 0, 2)), [.7, 2, 0, null, null]);
});
