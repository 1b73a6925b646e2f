// Chats: what they are, what is asked in them, and how they are kept and handed on. Pure.
import {rate} from './format';

export type AnswerState = 'waiting' | 'coming' | 'done' | 'stopped' | 'failed';

export interface Answer {
  model: string;
  state: AnswerState;
  text: string;
  reasoning: string;
  /** How far the prompt is, or why the answer ended as it did. */
  note: string;
  tokens: number;
  tokensPerSecond: number;
  /** From the question to the first token; 0: none came. */
  firstTokenMs: number;
}

/** A question, and the answer of each model that was asked. */
export interface Turn {
  question: string;
  answers: Answer[];
}

export interface ChatOptions {
  system: string;
  /** Null: the model's own. */
  temperature: number | null;
  answerTokens: number;
  /** Whether the model thinks before it answers; "": as it does by itself. */
  thinking: '' | 'on' | 'off';
}

export interface Chat {
  id: string;
  title: string;
  /** A person gave it its title. */
  isNamed: boolean;
  /** "": the first that is ready. */
  model: string;
  /** A second model that is asked each question; "": none. */
  also: string;
  options: ChatOptions;
  turns: Turn[];
  changedMs: number;
  /** An answer ended while another chat was looked at. */
  isUnread: boolean;
}

export const NEW_TITLE = 'New chat';
export const TITLE_MAX = 80;
export const SYSTEM_MAX = 20_000;
export const ANSWER_TOKENS = 1024;
export const ANSWER_TOKENS_MAX = 1_000_000;
export const PLAIN_OPTIONS: ChatOptions = {system: '', temperature: null, answerTokens: ANSWER_TOKENS, thinking: ''};
const TITLE_WORDS = 7;
const TITLE_CHARACTERS = 48;

export function newChat(id: string, nowMs: number, model = ''): Chat {
  return {id, title: NEW_TITLE, isNamed: false, model, also: '', options: PLAIN_OPTIONS, turns: [], changedMs: nowMs,
          isUnread: false};
}

/** The first words of a question. */
export function titleOf(question: string): string {
  const words = question.trim().split(/\s+/);
  let title = words.slice(0, TITLE_WORDS).join(' ');
  const characters = [...title];
  if (characters.length > TITLE_CHARACTERS) title = characters.slice(0, TITLE_CHARACTERS).join('').trimEnd();
  else if (words.length <= TITLE_WORDS) return title === '' ? NEW_TITLE : title;
  return `${title}…`;
}

export function renamed(chat: Chat, title: string): Chat {
  const clean = title.trim().replace(/\s+/g, ' ').slice(0, TITLE_MAX);
  if (clean !== '') return {...chat, title: clean, isNamed: true};
  return {...chat, title: chat.turns[0] === undefined ? NEW_TITLE : titleOf(chat.turns[0].question), isNamed: false};
}

export function emptyAnswer(model: string): Answer {
  return {model, state: 'waiting', text: '', reasoning: '', note: '', tokens: 0, tokensPerSecond: 0, firstTokenMs: 0};
}

export const isRunning = (answer: Answer) => answer.state === 'waiting' || answer.state === 'coming';
export const isAnswering = (chat: Chat) => chat.turns.some((turn) => turn.answers.some(isRunning));

/** The chat with one more question, whose answers are waited for. */
export function asked(chat: Chat, question: string, models: string[], nowMs: number): Chat {
  const title = chat.turns.length === 0 && !chat.isNamed ? titleOf(question) : chat.title;
  return {...chat, title, changedMs: nowMs, turns: [...chat.turns, {question, answers: models.map(emptyAnswer)}]};
}

/** The chat whose last question is put to `models` anew; answers of others stay. */
export function askedAgain(chat: Chat, models: string[], nowMs: number): Chat {
  const last = chat.turns[chat.turns.length - 1];
  if (last === undefined) return chat;
  const kept = last.answers.filter((answer) => !models.includes(answer.model));
  const order = [...last.answers.map((answer) => answer.model), ...models.filter((name) => !last.answers.some((one) => one.model === name))];
  const answers = order.map((name) => kept.find((answer) => answer.model === name) ?? emptyAnswer(name));
  return {...chat, changedMs: nowMs, turns: [...chat.turns.slice(0, -1), {...last, answers}]};
}

/** The chat with one answer changed; a model answers a turn once. */
export function withAnswer(chat: Chat, turn: number, model: string, change: (answer: Answer) => Answer): Chat {
  const old = chat.turns[turn];
  if (old === undefined) return chat;
  const answers = old.answers.map((answer) => (answer.model === model ? change(answer) : answer));
  return {...chat, turns: chat.turns.map((one, i) => (i === turn ? {...old, answers} : one))};
}

/**
 * What a model is sent: all that was said before in this chat, where it has answered itself with its own answers, and
 * the question of `turn`.
 */
export function requestOf(chat: Chat, turn: number, model: string): object {
  const messages: {role: string; content: string}[] = [];
  if (chat.options.system.trim() !== '') messages.push({role: 'system', content: chat.options.system.trim()});
  chat.turns.slice(0, turn).forEach((one) => {
    const told = one.answers.filter((answer) => answer.text !== '');
    const answer = told.find((own) => own.model === model) ?? told[0];
    messages.push({role: 'user', content: one.question});
    if (answer !== undefined) messages.push({role: 'assistant', content: answer.text});
  });
  messages.push({role: 'user', content: chat.turns[turn]?.question ?? ''});
  const {temperature, answerTokens, thinking} = chat.options;
  return {
    model, stream: true, return_progress: true, stream_options: {include_usage: true}, max_tokens: answerTokens,
    ...(temperature === null ? {} : {temperature}),
    ...(thinking === '' ? {} : {enable_thinking: thinking === 'on'}),
    messages,
  };
}

/** "128 tokens, 42.1 tokens/s, first after 0.35 s"; what is not known is left out. */
export function answerNote(answer: Answer): string {
  if (answer.state === 'waiting') return answer.note;
  if (answer.state === 'failed' && answer.tokens === 0) return answer.note;
  const parts: string[] = [];
  if (answer.tokens > 0) {
    if (answer.state !== 'coming') parts.push(`${answer.tokens} token${answer.tokens === 1 ? '' : 's'}`);
    parts.push(`${rate(answer.tokensPerSecond)} tokens/s`);
    if (answer.firstTokenMs > 0) parts.push(`first after ${(answer.firstTokenMs / 1000).toFixed(2)} s`);
  }
  if (answer.note !== '') parts.push(answer.note);
  return parts.join(', ');
}

/** Which of two whole answers came faster, and how many times; null while that can't be said. */
export function fastest(answers: Answer[]): {model: string; times: number} | null {
  if (answers.length < 2 || answers.some((answer) => isRunning(answer) || answer.tokensPerSecond <= 0)) return null;
  const sorted = [...answers].sort((a, b) => b.tokensPerSecond - a.tokensPerSecond);
  const times = sorted[0]!.tokensPerSecond / sorted[1]!.tokensPerSecond;
  return times < 1.05 ? null : {model: sorted[0]!.model, times};
}

/** Chats as they are listed: what was asked last comes first, and a new one before all. */
export function listed(chats: Chat[]): Chat[] {
  return [...chats].sort((a, b) => Number(a.turns.length > 0) - Number(b.turns.length > 0) || b.changedMs - a.changedMs);
}

/** Where a key leads from place `at` in a list of `count`; null: the key is not for lists. */
export function movedTo(key: string, at: number, count: number): number | null {
  if (count === 0) return null;
  if (key === 'ArrowDown') return Math.min(at + 1, count - 1);
  if (key === 'ArrowUp') return Math.max(at - 1, 0);
  if (key === 'Home') return 0;
  return key === 'End' ? count - 1 : null;
}

/** A number that was typed, within its bounds; null when there is none. */
export function numberIn(text: string, low: number, high: number): number | null {
  const value = Number(text.trim().replace(',', '.'));
  return text.trim() === '' || !Number.isFinite(value) ? null : Math.min(Math.max(value, low), high);
}
