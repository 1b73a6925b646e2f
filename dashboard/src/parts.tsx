// Small parts that all panels use.
import {useSignal} from '@preact/signals';
import type {ComponentChildren} from 'preact';
import {useEffect, useRef} from 'preact/hooks';
import {reasonOf} from './orders';
import type {Reason} from './types';
import type {Tone} from './view';

export function Panel(props: {
  id: string; title: string; note?: ComponentChildren; class?: string; children: ComponentChildren;
}) {
  return (
    <section class={`panel ${props.class ?? ''}`} id={props.id} aria-labelledby={`${props.id}-title`}>
      <header class="panel-head">
        <h2 id={`${props.id}-title`}>{props.title}</h2>
        {props.note !== undefined && <span class="note">{props.note}</span>}
      </header>
      {props.children}
    </section>
  );
}

export function Badge(props: {tone: Tone; children: ComponentChildren}) {
  return <span class={`badge tone-${props.tone}`}><i aria-hidden="true" />{props.children}</span>;
}

/** A bar of parts; `total` is its whole width. Drawn as SVG, so that it needs no inline style. */
export function Bar(props: {
  label: string; total: number; parts: {value: number; class: string; title: string}[];
}) {
  let at = 0;
  return (
    <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={props.label}>
      <rect class="bar-back" width="100" height="10" />
      {props.parts.map((part) => {
        const width = props.total > 0 ? (part.value / props.total) * 100 : 0;
        const x = at;
        at += width;
        return <rect key={part.title} class={part.class} x={x} width={width} height="10"><title>{part.title}</title></rect>;
      })}
    </svg>
  );
}

/** Why something was not done, and what to do about it. */
export function ReasonNote({reason}: {reason: Reason}) {
  return (
    <div class="reason" role="alert">
      <p>{reason.code !== '' && <code>{reason.code}</code>} {reason.message}</p>
      {reason.remedy !== '' && <p class="remedy">{reason.remedy}</p>}
    </div>
  );
}

/** Asks once more before `run`; closes when that is done, and says why when it fails. */
export function Confirm(props: {
  label: string; text: string; action: string; busy: string; run: () => Promise<void>; onClose: () => void;
}) {
  const isBusy = useSignal(false);
  const failure = useSignal<Reason | null>(null);
  const keep = useRef<HTMLButtonElement>(null);
  useEffect(() => keep.current?.focus(), []);
  const go = async () => {
    isBusy.value = true;
    failure.value = null;
    try {
      await props.run();
      props.onClose();
    } catch (error) {
      failure.value = reasonOf(error);
      isBusy.value = false;
    }
  };
  return (
    <div class="box" role="group" aria-label={props.label}
         onKeyDown={(event) => {
           if (event.key !== 'Escape' || isBusy.value) return;
           event.stopPropagation();
           props.onClose();
         }}>
      <p>{props.text}</p>
      {failure.value !== null && <ReasonNote reason={failure.value} />}
      <div class="buttons">
        <button type="button" class="stop" disabled={isBusy.value} onClick={() => void go()}>
          {isBusy.value ? props.busy : props.action}
        </button>
        <button type="button" class="quiet" ref={keep} disabled={isBusy.value} onClick={props.onClose}>Cancel</button>
      </div>
    </div>
  );
}
