// The conversation of one chat.
import {useSignal} from '@preact/signals';
import {useEffect, useLayoutEffect, useMemo, useRef} from 'preact/hooks';
import {answerNote, fastest, isAnswering, isRunning, type Answer, type Chat, type Turn} from './chats_view';
import {Markdown} from './markdown';

const COPIED_MS = 1500;
// So near to its end the log follows what comes.
const NEAR_PIXELS = 80;

function Copy({text}: {text: string}) {
  const isCopied = useSignal(false);
  if (navigator.clipboard === undefined || text === '') return null;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      isCopied.value = true;
      setTimeout(() => (isCopied.value = false), COPIED_MS);
    } catch {
      // The browser does not allow it.
    }
  };
  return <button type="button" class="tiny" onClick={() => void copy()}>{isCopied.value ? 'Copied' : 'Copy'}</button>;
}

function AnswerBubble({answer, isNamed, faster}: {answer: Answer; isNamed: boolean; faster: string}) {
  const live = isRunning(answer);
  const note = answerNote(answer);
  return (
    <article class={`bubble assistant ${answer.state === 'failed' ? 'failed' : ''}`} aria-busy={live}
             aria-label={`Answer of ${answer.model}`} data-answer={answer.model}>
      {isNamed && (
        <p class="answer-model"><strong>{answer.model}</strong>{faster !== '' && <span class="tag">{faster}</span>}</p>
      )}
      {answer.reasoning !== '' && (
        <details><summary>{live && answer.text === '' ? 'Thinking…' : 'Reasoning'}</summary><p class="said dim">{answer.reasoning}</p></details>
      )}
      {answer.text !== '' ? <Markdown text={answer.text} />
        : live && answer.reasoning === '' && <span class="typing" role="status" aria-label="The model is working"><i /><i /><i /></span>}
      {(note !== '' || !live) && (
        <div class="bubble-foot"><p class="bubble-note">{note}</p>{!live && <Copy text={answer.text} />}</div>
      )}
    </article>
  );
}

function TurnView({turn, before}: {turn: Turn; before: string}) {
  // What has not changed is not drawn again: an answer that comes changes its own turn alone.
  return useMemo(() => {
    const first = fastest(turn.answers);
    const isNamed = turn.answers.length > 1 || (before !== '' && turn.answers[0]?.model !== before);
    return (
      <li class="turn">
        <div class="bubble user"><span class="sr-only">You: </span><p class="said">{turn.question}</p></div>
        <div class={`answers ${turn.answers.length > 1 ? 'beside' : ''}`}>
          {turn.answers.map((answer) => (
            <AnswerBubble key={answer.model} answer={answer} isNamed={isNamed}
                          faster={first?.model === answer.model ? `${first.times.toFixed(1)}× as fast` : ''} />
          ))}
        </div>
      </li>
    );
  }, [turn, before]);
}

export function Turns({chat, model}: {chat: Chat; model: string}) {
  const log = useRef<HTMLUListElement>(null);
  const follows = useRef(true);
  const {turns} = chat;
  const asksMore = useRef(turns.length);
  useLayoutEffect(() => {
    const list = log.current;
    if (list === null) return;
    // A question of one's own is shown; else whoever reads further up is left there.
    if (turns.length !== asksMore.current) follows.current = true;
    asksMore.current = turns.length;
    if (follows.current) list.scrollTop = list.scrollHeight;
  }, [turns]);
  useEffect(() => {
    const list = log.current!;
    const resized = new ResizeObserver(() => { if (follows.current) list.scrollTop = list.scrollHeight; });
    resized.observe(list);
    return () => resized.disconnect();
  }, []);
  return (
    <ul class="log" ref={log} tabIndex={0} aria-label="Conversation" aria-live="polite" aria-busy={isAnswering(chat)}
        onScroll={(event) => {
          const list = event.currentTarget;
          follows.current = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_PIXELS;
        }}>
      {turns.length === 0 && (
        <li class="empty">{model === '' ? 'Load a model, and try it here.' : `Ask ${model} something.`}</li>
      )}
      {turns.map((turn, i) => (
        <TurnView key={i} turn={turn} before={turns[i - 1]?.answers[0]?.model ?? ''} />
      ))}
    </ul>
  );
}
