// Exchanges and bindings as a picture, and as tables for those who cannot see it.

import { useMemo, useState } from 'preact/hooks';
import { ask, path, type List } from '../api.ts';
import { count, plural } from '../format.ts';
import { useResource } from '../resource.ts';
import { adjust, go, to } from '../router.ts';
import type { Binding, Exchange } from '../types.ts';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Empty, Loading, Notice, Refused, Section, Title } from '../ui/parts.tsx';
import { Table, type Column } from '../ui/table.tsx';
import { NODE_HEIGHT, NODE_WIDTH, chosen, layOut, type Edge, type Node, type Picture } from './picture.ts';
import { BINDINGS } from './queue.tsx';
import { useVhosts } from './queues.tsx';

type Asked = 'exchange' | 'binding' | Exchange | null;

export function Exchanges({ query }: { query: URLSearchParams }) {
  const vhosts = useVhosts();
  const vhost = query.get('vhost') ?? '/';
  const search = query.get('search') ?? '';
  const exchanges = useResource<List<Exchange>>(path('exchanges', vhost), { limit: 1000 }, 5000);
  const bindings = useResource<List<Binding>>(path('bindings', vhost), { limit: 1000 }, 5000);
  const [asked, setAsked] = useState<Asked>(null);
  const reload = (): void => {
    exchanges.reload();
    bindings.reload();
  };
  const [removed, setRemoved] = useState<Binding | null>(null);
  return (
    <>
      <Title title="Exchanges" about="How messages come from exchanges to queues.">
        <button type="button" onClick={() => setAsked('binding')}>
          <Icon name="plus" /> Bind
        </button>
        <button type="button" class="primary" onClick={() => setAsked('exchange')}>
          <Icon name="plus" /> New exchange
        </button>
      </Title>
      <div class="tools">
        <label class="pick">
          Virtual host{' '}
          <select value={vhost} onChange={(event) => adjust({ vhost: event.currentTarget.value })}>
            {[...new Set([vhost, ...vhosts])].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search exchanges, queues and routing keys</span>
          <input type="search" value={search} placeholder="Exchange, queue or routing key" onInput={(event) => adjust({ search: event.currentTarget.value })} />
        </label>
      </div>
      <Refused refusal={exchanges.refusal ?? bindings.refusal} />
      {(exchanges.loading || bindings.loading) && <Loading />}
      {exchanges.data && bindings.data && <Drawing exchanges={exchanges.data} bindings={bindings.data} search={search} />}
      {bindings.data && bindings.data.items.length > 0 && <BindingTable bindings={bindings.data.items} search={search} onRemove={setRemoved} />}
      {exchanges.data && <ExchangeTable exchanges={exchanges.data.items} search={search} onDelete={setAsked} />}
      {asked === 'exchange' && <NewExchange vhost={vhost} onClose={() => setAsked(null)} onDone={reload} />}
      {asked === 'binding' && exchanges.data && <NewBinding vhost={vhost} exchanges={exchanges.data.items} onClose={() => setAsked(null)} onDone={reload} />}
      {asked !== null && typeof asked === 'object' && (
        <Confirm title={`Delete ${asked.name}?`} submit="Delete exchange" act={() => ask('DELETE', path('exchanges', vhost, asked.name))} onClose={() => setAsked(null)} onDone={reload}>
          <p>Its {plural(asked.bindings, 'binding')} go with it. Publishers to it get an error from then on.</p>
        </Confirm>
      )}
      {removed && (
        <Confirm title="Remove the binding?" submit="Remove" act={() => ask('POST', path('bindings', vhost, 'delete'), wanted(removed))} onClose={() => setRemoved(null)} onDone={reload}>
          <p>
            {removed.source} leads to {removed.destination} by “{removed.routing_key}” no more.
          </p>
        </Confirm>
      )}
    </>
  );
}

const wanted = ({ source, destination, destination_kind, routing_key, arguments: given }: Binding): Omit<Binding, 'vhost'> => ({ source, destination, destination_kind, routing_key, arguments: given });

function Drawing({ exchanges, bindings, search }: { exchanges: List<Exchange>; bindings: List<Binding>; search: string }) {
  const picture = useMemo(() => {
    const shown = chosen(exchanges.items, bindings.items, search);
    return layOut(shown.exchanges, shown.bindings);
  }, [exchanges.items, bindings.items, search]);
  if (picture.nodes.length === 0) {
    return (
      <Empty title={search === '' ? 'Nothing is bound yet.' : `Nothing is bound that has “${search}” in its name.`}>
        {search === '' && <p>The default exchange leads to every queue by its name. Bind an exchange to a queue, and it appears here.</p>}
      </Empty>
    );
  }
  return (
    <>
      {(picture.left > 0 || bindings.total > bindings.items.length) && <Notice>There is more than a picture can show: search for a name to see its part.</Notice>}
      <Drawn picture={picture} />
    </>
  );
}

function Drawn({ picture }: { picture: Picture }) {
  const [chosenNode, setChosen] = useState<string | null>(null);
  const near = (edge: Edge): boolean => edge.from.id === chosenNode || edge.to.id === chosenNode;
  const lit = (node: Node): boolean => chosenNode === null || node.id === chosenNode || picture.edges.some((edge) => near(edge) && (edge.from === node || edge.to === node));
  const said = `${plural(picture.nodes.filter((node) => node.kind === 'exchange').length, 'exchange')} and ${plural(picture.nodes.filter((node) => node.kind === 'queue').length, 'queue')} with ${plural(picture.edges.length, 'connection')}; the tables below say the same`;
  return (
    <div class="picture scrolling" tabIndex={0} role="region" aria-label="Picture of exchanges and bindings">
      <svg width={picture.width} height={picture.height} viewBox={`0 0 ${picture.width} ${picture.height}`} role="group" aria-label={said}>
        {picture.edges.map((edge) => (
          <EdgeShape key={`${edge.from.id} ${edge.to.id}`} edge={edge} faint={chosenNode !== null && !near(edge)} />
        ))}
        {picture.nodes.map((node) => (
          <NodeShape key={node.id} node={node} faint={!lit(node)} onChoose={(on) => setChosen(on ? node.id : null)} />
        ))}
      </svg>
    </div>
  );
}

function EdgeShape({ edge, faint }: { edge: Edge; faint: boolean }) {
  const [x1, y1] = [edge.from.x + NODE_WIDTH, edge.from.y + NODE_HEIGHT / 2];
  const [x2, y2] = [edge.to.x, edge.to.y + NODE_HEIGHT / 2];
  const bend = Math.max(50, Math.abs(x2 - x1) / 2);
  const keys = edge.labels.filter((label) => label !== '');
  const text = keys.length === 0 ? '' : keys.length === 1 ? (keys[0] ?? '') : `${keys[0]} +${keys.length - 1}`;
  return (
    <g class={`edge ${faint ? 'faint' : ''}`}>
      <path d={`M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}`} />
      <path class="tip" d={`M${x2 - 7} ${y2 - 4} L${x2} ${y2} L${x2 - 7} ${y2 + 4}`} />
      {text !== '' && (
        <text x={x2 - 12} y={y2 - 5} text-anchor="end">
          {clipped(text, 20)}
          <title>{keys.join(', ')}</title>
        </text>
      )}
    </g>
  );
}

const clipped = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function NodeShape({ node, faint, onChoose }: { node: Node; faint: boolean; onChoose: (on: boolean) => void }) {
  const said = node.kind === 'queue' ? `Queue ${node.name}` : `Exchange ${node.name}, ${node.type}`;
  const open = (): void => {
    if (node.kind === 'queue') go(['queues', new URLSearchParams(location.hash.split('?')[1] ?? '').get('vhost') ?? '/', node.name]);
    else adjust({ search: node.name });
  };
  return (
    <g
      class={`node ${node.kind} ${faint ? 'faint' : ''}`}
      transform={`translate(${node.x} ${node.y})`}
      tabIndex={0}
      role="link"
      onMouseEnter={() => onChoose(true)}
      onMouseLeave={() => onChoose(false)}
      onFocus={() => onChoose(true)}
      onBlur={() => onChoose(false)}
      onClick={open}
      onKeyDown={(event) => event.key === 'Enter' && open()}
    >
      <rect width={NODE_WIDTH} height={NODE_HEIGHT} rx={node.kind === 'queue' ? 4 : NODE_HEIGHT / 2} />
      <text x={14} y={node.kind === 'queue' ? 24 : 17}>
        {clipped(node.name, 24)}
      </text>
      {node.kind === 'exchange' && (
        <text class="type" x={14} y={31}>
          {node.type}
        </text>
      )}
      <title>{said}</title>
    </g>
  );
}

function BindingTable({ bindings, search, onRemove }: { bindings: Binding[]; search: string; onRemove: (binding: Binding) => void }) {
  const shown = chosen([], bindings, search).bindings;
  const columns: Column<Binding>[] = [
    ...BINDINGS,
    {
      head: '',
      cell: (one) => (
        <button type="button" class="small" aria-label={`Remove the binding of ${one.source} to ${one.destination} by ${one.routing_key}`} onClick={() => onRemove(one)}>
          Remove
        </button>
      ),
    },
  ];
  if (shown.length === 0) return null;
  return (
    <Section title="Bindings">
      <Table label="Bindings" columns={columns} rows={shown.slice(0, 500)} id={(one) => `${one.source}/${one.destination_kind}/${one.destination}/${one.routing_key}/${JSON.stringify(one.arguments)}`} />
    </Section>
  );
}

function ExchangeTable({ exchanges, search, onDelete }: { exchanges: Exchange[]; search: string; onDelete: (exchange: Exchange) => void }) {
  const shown = exchanges.filter((one) => one.name.toLowerCase().includes(search.trim().toLowerCase()));
  const columns: Column<Exchange>[] = [
    {
      head: 'Exchange',
      main: true,
      cell: (one) => (
        <>
          {one.name === '' ? <span class="faint">default exchange</span> : <a href={to(['exchanges'], { vhost: one.vhost, search: one.name })}>{one.name}</a>}
          {one.internal && <span class="tag">internal</span>}
          {!one.durable && <span class="tag">transient</span>}
        </>
      ),
    },
    { head: 'Type', cell: (one) => one.type },
    { head: 'Bindings', number: true, cell: (one) => count(one.bindings) },
    {
      head: '',
      cell: (one) =>
        one.name === '' || one.name.startsWith('amq.') ? null : (
          <button type="button" class="small" aria-label={`Delete ${one.name}`} onClick={() => onDelete(one)}>
            Delete
          </button>
        ),
    },
  ];
  return (
    <Section title="Exchanges">
      <Table label="Exchanges" columns={columns} rows={shown} id={(one) => one.name} />
    </Section>
  );
}

const TYPES = ['topic', 'direct', 'fanout', 'headers'];

interface NewProps {
  vhost: string;
  onClose: () => void;
  onDone: () => void;
}

function NewExchange({ vhost, onClose, onDone }: NewProps) {
  const [name, setName] = useState('');
  const [type, setType] = useState('topic');
  const [durable, setDurable] = useState(true);
  const work = useWork();
  const make = async (): Promise<void> => {
    const body = { type, durable, auto_delete: false, internal: false, arguments: {} };
    if (await work.run(() => ask('PUT', path('exchanges', vhost, name), body))) {
      onClose();
      onDone();
    }
  };
  return (
    <Dialog title={`New exchange in ${vhost}`} onClose={onClose}>
      <Form work={work} submit="Create exchange" disabled={name === ''} onSubmit={() => void make()}>
        <Text label="Name" name="name" value={name} onValue={setName} autofocus wide />
        <Choice label="Type" name="type" value={type} onValue={setType} choices={TYPES.map((one) => ({ value: one, text: one }))} />
        <Check label="Durable: stays after a restart" value={durable} onValue={setDurable} />
      </Form>
    </Dialog>
  );
}

function NewBinding({ vhost, exchanges, onClose, onDone }: NewProps & { exchanges: Exchange[] }) {
  const named = exchanges.filter((one) => one.name !== '' && one.name !== 'amq.default').map((one) => one.name);
  const [source, setSource] = useState(named.find((one) => !one.startsWith('amq.')) ?? named[0] ?? '');
  const [kind, setKind] = useState<'queue' | 'exchange'>('queue');
  const [destination, setDestination] = useState('');
  const [key, setKey] = useState('');
  const work = useWork();
  const make = async (): Promise<void> => {
    const body = { source, destination, destination_kind: kind, routing_key: key, arguments: {} };
    if (await work.run(() => ask('POST', path('bindings', vhost), body))) {
      onClose();
      onDone();
    }
  };
  return (
    <Dialog title="Bind" onClose={onClose}>
      <Form work={work} submit="Bind" disabled={destination === ''} onSubmit={() => void make()}>
        <Choice label="From exchange" name="source" value={source} onValue={setSource} choices={named.map((one) => ({ value: one, text: one }))} />
        <Text label="Routing key" name="routing_key" value={key} onValue={setKey} help="For topics: * is one word, # any number of words." />
        <Choice
          label="To"
          name="destination_kind"
          value={kind}
          onValue={(value) => setKind(value === 'exchange' ? 'exchange' : 'queue')}
          choices={[
            { value: 'queue', text: 'a queue' },
            { value: 'exchange', text: 'an exchange' },
          ]}
        />
        <Text label={kind === 'queue' ? 'Queue' : 'Exchange'} name="destination" value={destination} onValue={setDestination} />
      </Form>
    </Dialog>
  );
}
