// The list of chats.
import {useSignal} from '@preact/signals';
import {useRef} from 'preact/hooks';
import {chats, current, keeps, open, removeAll, setKeeps} from './chat_store';
import {isAnswering, movedTo, type Chat} from './chats_view';
import {count} from './format';
import {Confirm} from './parts';

/** What goes on in a chat that is not looked at. */
export function Sign({isLive, isUnread}: {isLive: boolean; isUnread: boolean}) {
  if (isLive) return <span class="sign live"><span class="sr-only">, is answering</span></span>;
  return isUnread ? <span class="sign"><span class="sr-only">, has a new answer</span></span> : null;
}

function Entry({chat, isOpen, onOpen}: {chat: Chat; isOpen: boolean; onOpen: () => void}) {
  const models = [...new Set(chat.turns.flatMap((turn) => turn.answers.map((answer) => answer.model)))];
  return (
    <li>
      <button type="button" class="chat-entry" data-chat={chat.id} aria-current={isOpen ? 'true' : undefined}
              onClick={() => { open(chat.id); onOpen(); }}>
        <span class="chat-title">{chat.title}</span>
        <Sign isLive={isAnswering(chat)} isUnread={chat.isUnread} />
        <span class="chat-models dim">{models.length === 0 ? 'nothing asked yet' : models.join(', ')}</span>
      </button>
    </li>
  );
}

export function ChatList({isOpen, onClose, onNew}: {isOpen: boolean; onClose: () => void; onNew: () => void}) {
  const asks = useSignal(false);
  const list = useRef<HTMLUListElement>(null);
  const all = chats.value;
  const kept = all.filter((chat) => chat.turns.length > 0).length;
  const move = (event: KeyboardEvent) => {
    const buttons = [...list.current!.querySelectorAll<HTMLButtonElement>('.chat-entry')];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = at < 0 ? null : movedTo(event.key, at, buttons.length);
    if (to === null) return;
    event.preventDefault();
    buttons[to]?.focus();
  };
  return (
    <nav class={`chat-list ${isOpen ? 'open' : ''}`} id="chat-list" aria-label="Chats"
         onKeyDown={(event) => { if (event.key === 'Escape' && isOpen && !asks.value) onClose(); }}>
      <button type="button" class="new-chat" onClick={onNew}>New chat</button>
      <ul ref={list} class="chat-entries" onKeyDown={move}>
        {all.map((chat) => <Entry key={chat.id} chat={chat} isOpen={chat.id === current.value.id} onOpen={onClose} />)}
      </ul>
      <div class="chat-keep">
        <label>
          <input type="checkbox" id="keep-chats" checked={keeps.value} onChange={(event) => setKeeps(event.currentTarget.checked)} />
          Keep chats in this browser
        </label>
        <p class="dim">{keeps.value ? 'They stay until they are deleted, and are kept nowhere else.' : 'They are gone when this tab is closed.'}</p>
        {kept > 0 && !asks.value && (
          <button type="button" class="small quiet" onClick={() => (asks.value = true)}>Delete all</button>
        )}
        {asks.value && (
          <Confirm label="Delete all chats" action="Delete them" busy="Deleting…" onClose={() => (asks.value = false)}
                   text={`Delete ${count(kept, 'chat')}? They can't be brought back.`} run={async () => removeAll()} />
        )}
      </div>
    </nav>
  );
}
