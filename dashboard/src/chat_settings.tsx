// What belongs to one chat: its name, its system prompt, its options; as a file; deleted. What is typed is the field's
// own (defaultValue) until it is done: an answer that comes in draws the chat anew many times a second.
import {useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {fileName, toJson, toMarkdown} from './chat_keep';
import {remove, rename, setOptions} from './chat_store';
import {ANSWER_TOKENS, ANSWER_TOKENS_MAX, SYSTEM_MAX, TITLE_MAX, numberIn, type Chat, type ChatOptions} from './chats_view';
import {Confirm} from './parts';

function save(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export function ChatSettings({chat, onClose}: {chat: Chat; onClose: () => void}) {
  const asks = useSignal(false);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.select(), []);
  const {options} = chat;
  return (
    <form class="box chat-settings" id="chat-settings" aria-label={`Settings of ${chat.title}`}
          onSubmit={(event) => { event.preventDefault(); onClose(); }}
          onKeyDown={(event) => { if (event.key === 'Escape' && !asks.value) { event.stopPropagation(); onClose(); } }}>
      <div class="fields">
        <label class="wide-field">Name
          <input id="chat-name" ref={first} autocomplete="off" maxLength={TITLE_MAX} defaultValue={chat.title}
                 onChange={(event) => { event.currentTarget.value = rename(chat.id, event.currentTarget.value); }} />
        </label>
      </div>
      <div class="fields">
        <label class="wide-field">System prompt
          <textarea id="chat-system" rows={3} maxLength={SYSTEM_MAX} placeholder="What every answer should heed; the model's own when empty"
                    defaultValue={options.system} onChange={(event) => setOptions(chat.id, {system: event.currentTarget.value})} />
        </label>
      </div>
      <div class="fields">
        <label>Temperature
          <input id="chat-temperature" type="number" min="0" max="2" step="any" placeholder="model's own"
                 defaultValue={options.temperature ?? ''}
                 onChange={(event) => {
                   const temperature = numberIn(event.currentTarget.value, 0, 2);
                   event.currentTarget.value = temperature === null ? '' : String(temperature);
                   setOptions(chat.id, {temperature});
                 }} />
        </label>
        <label>Longest answer, tokens
          <input id="chat-tokens" type="number" min="1" max={ANSWER_TOKENS_MAX} step="1" defaultValue={String(options.answerTokens)}
                 onChange={(event) => {
                   const answerTokens = Math.round(numberIn(event.currentTarget.value, 1, ANSWER_TOKENS_MAX) ?? ANSWER_TOKENS);
                   event.currentTarget.value = String(answerTokens);
                   setOptions(chat.id, {answerTokens});
                 }} />
        </label>
        <label>Thinking
          <select value={options.thinking}
                  onChange={(event) => setOptions(chat.id, {thinking: event.currentTarget.value as ChatOptions['thinking']})}>
            <option value="">model's own</option>
            <option value="on">on</option>
            <option value="off">off</option>
          </select>
        </label>
      </div>
      {asks.value ? (
        <Confirm label={`Delete ${chat.title}`} action="Delete it" busy="Deleting…" onClose={() => (asks.value = false)}
                 text={`Delete “${chat.title}”? It can't be brought back.`}
                 run={async () => { remove(chat.id); onClose(); }} />
      ) : (
        <div class="buttons">
          <button type="submit" class="small primary">Done</button>
          {chat.turns.length > 0 && (
            <>
              <button type="button" class="small quiet" onClick={() => save(fileName(chat.title, 'md'), 'text/markdown', toMarkdown(chat))}>Export Markdown</button>
              <button type="button" class="small quiet" onClick={() => save(fileName(chat.title, 'json'), 'application/json', toJson(chat))}>Export JSON</button>
              <button type="button" class="small quiet" onClick={() => (asks.value = true)}>Delete chat</button>
            </>
          )}
        </div>
      )}
    </form>
  );
}
