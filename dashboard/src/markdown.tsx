// What a model said, drawn.
import {useMemo} from 'preact/hooks';
import {blocks, type Block, type Span} from './markdown_view';

function Spans({spans}: {spans: Span[]}) {
  return (
    <>
      {spans.map((span, i) => {
        switch (span.kind) {
          case 'code': return <code key={i}>{span.text}</code>;
          case 'strong': return <strong key={i}>{span.text}</strong>;
          case 'em': return <em key={i}>{span.text}</em>;
          default: return span.text;
        }
      })}
    </>
  );
}

function Drawn({block}: {block: Block}) {
  switch (block.kind) {
    case 'text': return <p class="said"><Spans spans={block.spans} /></p>;
    // No heading of the page: a screen reader's list of those stays the page's own.
    case 'heading': return <p class="said said-heading"><Spans spans={block.spans} /></p>;
    case 'quote': return <blockquote class="said"><Spans spans={block.spans} /></blockquote>;
    case 'rule': return <hr />;
    case 'code': return <pre tabIndex={0}><code>{block.text}</code></pre>;
    case 'list': {
      const items = block.items.map((item, i) => <li key={i} class={`said depth-${item.depth}`}><Spans spans={item.spans} /></li>);
      return block.isOrdered ? <ol class="said-list" start={block.start}>{items}</ol> : <ul class="said-list">{items}</ul>;
    }
    case 'table':
      return (
        <div class="table-box" tabIndex={0} role="region" aria-label="Table">
          <table>
            <thead><tr>{block.head.map((cell, i) => <th key={i} scope="col"><Spans spans={cell} /></th>)}</tr></thead>
            <tbody>{block.rows.map((row, i) => <tr key={i}>{row.map((cell, k) => <td key={k}><Spans spans={cell} /></td>)}</tr>)}</tbody>
          </table>
        </div>
      );
  }
}

export function Markdown({text}: {text: string}) {
  const all = useMemo(() => blocks(text), [text]);
  return <>{all.map((block, i) => <Drawn key={i} block={block} />)}</>;
}
