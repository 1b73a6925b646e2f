// How chats are kept in a browser and handed on as files. Pure. What is read may have been written by another version
// of the page, or by somebody: nothing is sure to be there.
import {ANSWER_TOKENS_MAX, NEW_TITLE, PLAIN_OPTIONS, SYSTEM_MAX, TITLE_MAX, answerNote, isRunning,
        type Answer, type AnswerState, type Chat, type ChatOptions, type Turn} from './chats_view';
import {localTime} from './format';

export const CHATS_MAX = 50;
/** Of all chats together. Browsers count two bytes a character and give a site five megabytes. */
export const CHARACTERS_MAX = 1_000_000;
const TURNS_MAX = 2000;
const ANSWERS_MAX = 8;

const text = (value: unknown, most = CHARACTERS_MAX): string => (typeof value === 'string' ? value.slice(0, most) : '');
const number = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0);
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const fields = (value: unknown): Record<string, unknown> =>
  (typeof value === 'object' && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {});

const STATES: AnswerState[] = ['waiting', 'coming', 'done', 'stopped', 'failed'];

function answerOf(value: unknown): Answer {
  const one = fields(value);
  return {
    model: text(one.model, 200), state: STATES.find((state) => state === one.state) ?? 'done',
    text: text(one.text), reasoning: text(one.reasoning), note: text(one.note, 2000), tokens: number(one.tokens),
    tokensPerSecond: number(one.tokensPerSecond), firstTokenMs: number(one.firstTokenMs),
  };
}

function turnOf(value: unknown): Turn {
  const one = fields(value);
  return {question: text(one.question), answers: list(one.answers).slice(0, ANSWERS_MAX).map(answerOf)};
}

function optionsOf(value: unknown): ChatOptions {
  const one = fields(value);
  const temperature = one.temperature;
  const tokens = Math.min(number(one.answerTokens), ANSWER_TOKENS_MAX);
  return {
    system: text(one.system, SYSTEM_MAX),
    temperature: typeof temperature === 'number' && temperature >= 0 && temperature <= 2 ? temperature : null,
    answerTokens: tokens >= 1 ? Math.round(tokens) : PLAIN_OPTIONS.answerTokens,
    thinking: one.thinking === 'on' || one.thinking === 'off' ? one.thinking : '',
  };
}

/** A chat out of its JSON; null when it is none. */
export function readChat(json: string): Chat | null {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return null;
  }
  const one = fields(value);
  const turns = list(one.turns).slice(0, TURNS_MAX).map(turnOf);
  const id = text(one.id, 64);
  if (id === '' || turns.length === 0) return null;
  return {
    id, title: text(one.title, TITLE_MAX) || NEW_TITLE, isNamed: one.isNamed === true, model: text(one.model, 200),
    also: text(one.also, 200), options: optionsOf(one.options), turns, changedMs: number(one.changedMs),
    isUnread: one.isUnread === true,
  };
}

/** A chat that was read, and not asked by this page: what was on its way does not come here. */
export function interrupted(chat: Chat, note = 'the page was closed before it ended'): Chat {
  const end = (answer: Answer): Answer => (isRunning(answer) ? {...answer, state: 'stopped', note} : answer);
  return {...chat, turns: chat.turns.map((turn) => ({...turn, answers: turn.answers.map(end)}))};
}

export interface Kept {
  id: string;
  characters: number;
  changedMs: number;
}

/** The chats that have to go, the oldest first, until the others keep the bounds; never one of `spared`. */
export function overflow(kept: Kept[], spared: Set<string>, most = CHATS_MAX, characters = CHARACTERS_MAX): string[] {
  let count = kept.length;
  let all = kept.reduce((sum, one) => sum + one.characters, 0);
  const gone: string[] = [];
  for (const one of [...kept].sort((a, b) => a.changedMs - b.changedMs)) {
    if (count <= most && all <= characters) break;
    if (spared.has(one.id)) continue;
    gone.push(one.id);
    count -= 1;
    all -= one.characters;
  }
  return gone;
}

/** What is said of chats that went. */
export function droppedText(titles: string[]): string {
  if (titles.length === 0) return '';
  const which = titles.length === 1 ? `The oldest chat, “${titles[0]}”, was` : `The ${titles.length} oldest chats were`;
  return `${which} dropped: ${CHATS_MAX} chats and ${CHARACTERS_MAX * 2 / 1e6} MB of them are kept. Export what should stay.`;
}

const quoted = (lines: string) => lines.split('\n').map((line) => `> ${line}`.trimEnd()).join('\n');

/** The chat to be read by people. */
export function toMarkdown(chat: Chat): string {
  const parts = [`# ${chat.title}`];
  if (chat.changedMs > 0) parts.push(`${localTime(chat.changedMs)}`);
  if (chat.options.system.trim() !== '') parts.push(`**System prompt**\n\n${quoted(chat.options.system.trim())}`);
  for (const turn of chat.turns) {
    parts.push(`## You\n\n${turn.question}`);
    for (const answer of turn.answers) {
      parts.push(`## ${answer.model === '' ? 'Model' : answer.model}`);
      if (answer.reasoning.trim() !== '') parts.push(`**Reasoning**\n\n${quoted(answer.reasoning.trim())}`);
      if (answer.text.trim() !== '') parts.push(answer.text.trim());
      const note = answerNote(answer);
      if (note !== '') parts.push(`*${note}*`);
    }
  }
  return `${parts.join('\n\n')}\n`;
}

/** The chat for programs. */
export function toJson(chat: Chat): string {
  const {id: _id, isUnread: _isUnread, isNamed: _isNamed, changedMs, ...rest} = chat;
  return `${JSON.stringify({...rest, changed: changedMs > 0 ? new Date(changedMs).toISOString() : null}, null, 2)}\n`;
}

/** A name that every system takes for a file. */
export function fileName(title: string, ending: string): string {
  const clean = title.normalize('NFKC').replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60);
  return `${clean === '' ? 'chat' : clean}.${ending}`;
}
