// Small parts that all panels use.
import type {ComponentChildren} from 'preact';
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
