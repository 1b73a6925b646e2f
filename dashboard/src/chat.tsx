// Chats with loaded models: several of them, one looked at, each streamed and to be stopped; a question may go to two
// models at once.
import {signal, useSignal} from '@preact/signals';
import {useEffect, useRef} from 'preact/hooks';
import {ChatList, Sign} from './chat_list';
import {ChatSettings} from './chat_settings';
import {chatNotice, chatSaid, chats, current, drafts, elsewhere, openNew, put, putAgain, setDraft, setModels, stop} from './chat_store';
import {Turns} from './chat_turns';
import {isAnswering, type Chat} from './chats_view';
import {Panel} from './parts';
import type {Snapshot} from './types';
import {readyModels} from './view';

const WIDE_NAME = 'macrame-wide-chat';
function storedWide(): boolean {
  try {
    return localStorage.getItem(WIDE_NAME) === '1';
  } catch {
    return false;
  }
}

/** The chat has the width of the page. */
export const isWide = signal(storedWide());
isWide.subscribe((wide) => {
  try {
    localStorage.setItem(WIDE_NAME, wide ? '1' : '0');
  } catch {
    // It lasts as long as the page.
  }
});

function ModelChoice(props: {
  id: string; label: string; value: string; none: string; models: string[]; onChange: (name: string) => void;
}) {
  const {value, models} = props;
  return (
    <>
      <label class="sr-only" for={props.id}>{props.label}</label>
      <select id={props.id} value={value} disabled={models.length === 0 && value === ''}
              onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.none !== '' && <option value="">{props.none}</option>}
        {value !== '' && !models.includes(value) && <option value={value}>{value} (not loaded)</option>}
        {models.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </>
  );
}

function Composer({chat, ready, model}: {chat: Chat; ready: string[]; model: string}) {
  const field = useRef<HTMLTextAreaElement>(null);
  const draft = drafts.value.get(chat.id) ?? '';
  const runs = isAnswering(chat);
  const isReady = model !== '' && ready.includes(model);
  const also = chat.also !== model ? chat.also : '';
  const asked = [model, ...(also !== '' && ready.includes(also) ? [also] : [])];
  useEffect(() => {
    const element = field.current!;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight, 200)}px`;
  }, [draft, chat.id]);
  const send = () => {
    const text = draft.trim();
    if (text === '' || !isReady || runs) return;
    setModels(chat.id, model, also);
    put(chat.id, text, asked);
  };
  const last = chat.turns[chat.turns.length - 1];
  const missing = last === undefined ? [] : asked.filter((name) => !last.answers.some((answer) => answer.model === name));
  const again = (last?.answers ?? []).map((answer) => answer.model).filter((name) => ready.includes(name));
  const hint = model === '' ? 'No model is ready' : !isReady ? `${model} is not loaded: choose another`
    : 'Message (Enter sends, Shift-Enter breaks the line)';
  return (
    <>
      {last !== undefined && !runs && isReady && (
        <div class="again">
          {missing.map((name) => (
            <button key={name} type="button" class="small quiet" onClick={() => putAgain(chat.id, [name])}>Ask {name} this too</button>
          ))}
          {again.length > 0 && (
            <button type="button" class="small quiet" onClick={() => putAgain(chat.id, again)}>Ask again</button>
          )}
        </div>
      )}
      <form class="composer" onSubmit={(event) => { event.preventDefault(); send(); }}>
        <label class="sr-only" for="chat-text">Message</label>
        <textarea id="chat-text" ref={field} rows={2} placeholder={hint} disabled={model === ''} value={draft}
                  onInput={(event) => setDraft(chat.id, event.currentTarget.value)}
                  onKeyDown={(event) => {
                    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                      event.preventDefault();
                      send();
                    } else if (event.key === 'Escape') {
                      stop(chat.id);
                    }
                  }} />
        <div class="composer-foot">
          <ModelChoice id="chat-model" label="Model" value={model} none={ready.length === 0 && model === '' ? 'no model' : ''}
                       models={ready} onChange={(name) => setModels(chat.id, name, also)} />
          {(ready.length > 1 || also !== '') && (
            <ModelChoice id="chat-also" label="Second model, to compare" value={also} none="compare with…"
                         models={ready.filter((name) => name !== model)} onChange={(name) => setModels(chat.id, model, name)} />
          )}
          {runs
            ? <button type="button" class="stop" onClick={() => stop(chat.id)}>Stop</button>
            : <button type="submit" class="primary" disabled={!isReady || draft.trim() === ''}>{asked.length > 1 ? 'Ask both' : 'Send'}</button>}
        </div>
      </form>
    </>
  );
}

function Icon({path}: {path: string}) {
  return <svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d={path} /></svg>;
}

export function Chats({snapshot}: {snapshot: Snapshot}) {
  const showsList = useSignal(false);
  const showsSettings = useSignal(false);
  const listButton = useRef<HTMLButtonElement>(null);
  const settingsButton = useRef<HTMLButtonElement>(null);
  const chat = current.value;
  const ready = readyModels(snapshot);
  const model = chat.model !== '' ? chat.model : (ready[0] ?? '');
  const {answering, unread} = elsewhere.value;
  useEffect(() => { showsSettings.value = false; }, [chat.id]);
  const closeList = () => {
    if (!showsList.value) return;
    showsList.value = false;
    listButton.current?.focus();
  };
  const startNew = () => {
    openNew();
    showsList.value = false;
    // It may be hidden behind the list until this is drawn.
    setTimeout(() => document.getElementById('chat-text')?.focus());
  };
  const note = (
    <span class="chat-tools">
      <button type="button" class="icon-button" aria-label="New chat" title="New chat" onClick={startNew}><Icon path="M10 4v12M4 10h12" /></button>
      <button type="button" class="icon-button" ref={settingsButton} aria-label="Settings of this chat" title="Name, system prompt, options, export"
              aria-expanded={showsSettings.value} onClick={() => (showsSettings.value = !showsSettings.value)}>
        <Icon path="M3 6h7M14 6h3M3 14h3M10 14h7M12 6m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M8 14m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0" />
      </button>
      <button type="button" class="icon-button widen" aria-label={isWide.value ? 'Make the chat narrow' : 'Make the chat wide'}
              title={isWide.value ? 'Narrow' : 'Wide'} aria-pressed={isWide.value} onClick={() => (isWide.value = !isWide.value)}>
        <Icon path={isWide.value ? 'M8 3v5H3M12 17v-5h5M8 8L3.500 3.500M12 12l4.500 4.500' : 'M12 3h5v5M8 17H3v-5M17 3l-5 5M3 17l5-5'} />
      </button>
    </span>
  );
  return (
    <Panel id="chat" title="Chat" note={note}>
      <p class="sr-only" role="status">{chatSaid.value}</p>
      <div class="chat-bar">
        <button type="button" class="small quiet list-button" ref={listButton} aria-expanded={showsList.value} aria-controls="chat-list"
                onClick={() => (showsList.value = !showsList.value)}>
          Chats {chats.value.length}<Sign isLive={answering > 0} isUnread={unread > 0} />
        </button>
        <strong class="chat-title" title={chat.title}>{chat.title}</strong>
      </div>
      {chatNotice.value !== '' && (
        <div class="notice" role="status">
          <p>{chatNotice.value}</p>
          <button type="button" class="tiny" onClick={() => (chatNotice.value = '')}>Close</button>
        </div>
      )}
      <div class="chat-body">
        <ChatList isOpen={showsList.value} onClose={closeList} onNew={startNew} />
        <div class={`chat-main ${showsList.value ? 'covered' : ''}`}>
          {showsSettings.value && (
            <ChatSettings key={chat.id} chat={chat} onClose={() => { showsSettings.value = false; settingsButton.current?.focus(); }} />
          )}
          <Turns key={`turns ${chat.id}`} chat={chat} model={model} />
          <Composer chat={chat} ready={ready} model={model} />
        </div>
      </div>
    </Panel>
  );
}
