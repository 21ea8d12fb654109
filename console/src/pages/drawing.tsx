// The picture of exchanges and bindings. Boxes and labels are HTML in the drawing, so that what is too long for them is cut off by the browser;
// the whole of it is said below the picture for what is pointed at or has the keyboard.

import { useEffect, useMemo, useState } from 'preact/hooks';
import type { List } from '../api.ts';
import { count, plural } from '../format.ts';
import { to } from '../router.ts';
import type { Binding, Exchange } from '../types.ts';
import { Empty, Notice } from '../ui/parts.tsx';
import { LABEL_HEIGHT, NARROW, NODE_HEIGHT, WIDE, chosen, labelOf, layOut, wayOf, type Edge, type Node, type Picture } from './picture.ts';

const PHONE = matchMedia('(max-width: 600px)');

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(PHONE.matches);
  useEffect(() => {
    const changed = (): void => setNarrow(PHONE.matches);
    PHONE.addEventListener('change', changed);
    return () => PHONE.removeEventListener('change', changed);
  }, []);
  return narrow;
}

interface Props {
  vhost: string;
  exchanges: Exchange[];
  bindings: List<Binding>;
  search: string;
}

export function Drawing({ vhost, exchanges, bindings, search }: Props) {
  const narrow = useNarrow();
  const picture = useMemo(() => layOut(exchanges, chosen(bindings.items, search), narrow ? NARROW : WIDE), [exchanges, bindings.items, search, narrow]);
  if (picture.nodes.length === 0) {
    return (
      <Empty title={search === '' ? 'Nothing is bound yet.' : `Nothing is bound that has “${search}” in its name.`}>
        {search === '' && <p>The default exchange leads to every queue by its name. Bind an exchange to a queue, and it appears here.</p>}
      </Empty>
    );
  }
  const left = picture.left + Math.max(0, bindings.total - bindings.items.length);
  return (
    <>
      {left > 0 && (
        <Notice>
          The picture shows {count(picture.drawn)} of {plural(picture.drawn + left, 'binding')}: search for a name to see its part. The table below has all of them.
        </Notice>
      )}
      <Drawn vhost={vhost} picture={picture} />
    </>
  );
}

function Drawn({ vhost, picture }: { vhost: string; picture: Picture }) {
  const [chosenNode, setChosen] = useState<string | null>(null);
  const near = (edge: Edge): boolean => edge.from.id === chosenNode || edge.to.id === chosenNode;
  const lit = (node: Node): boolean => chosenNode === null || node.id === chosenNode || picture.edges.some((edge) => near(edge) && (edge.from === node || edge.to === node));
  const kinds = (kind: Node['kind']): number => picture.nodes.filter((node) => node.kind === kind).length;
  const said = `${plural(kinds('exchange'), 'exchange')} and ${plural(kinds('queue'), 'queue')} with ${plural(picture.edges.length, 'connection')}; the tables below say the same`;
  const node = picture.nodes.find((one) => one.id === chosenNode);
  return (
    <>
      <div class="picture scrolling" tabIndex={0} role="region" aria-label="Picture of exchanges and bindings">
        <svg width={picture.width} height={picture.height} viewBox={`0 0 ${picture.width} ${picture.height}`} role="group" aria-label={said}>
          {picture.edges.map((edge) => (
            <Line key={`${edge.from.id} ${edge.to.id}`} edge={edge} picture={picture} faint={chosenNode !== null && !near(edge)} />
          ))}
          {picture.edges.map((edge) => (
            <Label key={`${edge.from.id} ${edge.to.id}`} edge={edge} faint={chosenNode !== null && !near(edge)} />
          ))}
          {picture.nodes.map((one) => (
            <Box key={one.id} vhost={vhost} node={one} width={picture.scale.node} faint={!lit(one)} onChoose={(on) => setChosen(on ? one.id : null)} />
          ))}
        </svg>
      </div>
      <p class="caption">{node ? <Whole node={node} edges={picture.edges.filter(near)} /> : 'Point at a box, or go to it by the keyboard: its whole name and its keys stand here.'}</p>
    </>
  );
}

function Line({ edge, picture, faint }: { edge: Edge; picture: Picture; faint: boolean }) {
  const [x, y] = [edge.to.x, edge.to.y + NODE_HEIGHT / 2];
  return (
    <g class={`edge ${faint ? 'faint' : ''}`}>
      <path d={wayOf(edge, picture.scale)} />
      <path class="tip" d={`M${x - 7} ${y - 4} L${x} ${y} L${x - 7} ${y + 4}`} />
    </g>
  );
}

const LETTERS = new Intl.Segmenter();
const TAIL = 6;

/** What has no room is left out before its end: long names often differ there. */
function Cut({ text }: { text: string }) {
  const letters = [...LETTERS.segment(text)].map((letter) => letter.segment);
  const at = letters.length > 2 * TAIL ? letters.length - TAIL : letters.length;
  return (
    <span class="cut">
      <span>{letters.slice(0, at).join('')}</span>
      <span>{letters.slice(at).join('')}</span>
    </span>
  );
}

function Label({ edge, faint }: { edge: Edge; faint: boolean }) {
  if (edge.box === null) return null;
  return (
    <foreignObject x={edge.box.x} y={edge.box.y} width={edge.box.width} height={LABEL_HEIGHT}>
      <div class={`edge-key ${faint ? 'faint' : ''}`} title={edge.labels.filter((label) => label !== '').join(', ')}>
        <Cut text={labelOf(edge)} />
      </div>
    </foreignObject>
  );
}

function Box({ vhost, node, width, faint, onChoose }: { vhost: string; node: Node; width: number; faint: boolean; onChoose: (on: boolean) => void }) {
  const isQueue = node.kind === 'queue';
  const said = isQueue ? `Queue ${node.name}` : `Exchange ${node.name}, ${node.type}`;
  return (
    <foreignObject x={node.x} y={node.y} width={width} height={NODE_HEIGHT}>
      <a
        class={`node ${node.kind} ${faint ? 'faint' : ''}`}
        href={isQueue ? to(['queues', vhost, node.name]) : to(['exchanges'], { vhost, search: node.name })}
        title={said}
        onMouseEnter={() => onChoose(true)}
        onMouseLeave={() => onChoose(false)}
        onFocus={() => onChoose(true)}
        onBlur={() => onChoose(false)}
      >
        <span class="hidden">{isQueue ? 'Queue ' : 'Exchange '}</span>
        <span class="name">
          <Cut text={node.name} />
        </span>
        {!isQueue && <span class="type">{node.type}</span>}
      </a>
    </foreignObject>
  );
}

/** Lines of a box that are spelled out. */
const SPELLED = 8;

function Whole({ node, edges }: { node: Node; edges: Edge[] }) {
  return (
    <>
      {node.kind === 'queue' ? 'Queue' : `Exchange (${node.type})`} <strong>{node.name}</strong>
      {edges.slice(0, SPELLED).map((edge) => {
        const other = edge.from === node ? edge.to : edge.from;
        const keys = edge.labels.filter((label) => label !== '');
        return (
          <span key={other.id} class="way">
            {edge.from === node ? '→' : '←'} {other.name}
            {keys.length > 0 && (
              <>
                {' '}
                by <code>{keys.slice(0, SPELLED).join(', ')}</code>
                {keys.length > SPELLED && ` and ${count(keys.length - SPELLED)} more`}
              </>
            )}
          </span>
        );
      })}
      {edges.length > SPELLED && ` and ${plural(edges.length - SPELLED, 'more line')}`}
    </>
  );
}
