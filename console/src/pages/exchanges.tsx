// Exchanges and bindings as a picture, and as tables for those who cannot see it.

import { useState } from 'preact/hooks';
import { ask, path, type List } from '../api.ts';
import { count, plural } from '../format.ts';
import { useLasting, useResource } from '../resource.ts';
import { to, useAsked, usePlace } from '../router.ts';
import type { Binding, Exchange } from '../types.ts';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Loading, Refused, Section, Title } from '../ui/parts.tsx';
import { Listing, Search, type Column } from '../ui/table.tsx';
import { Drawing } from './drawing.tsx';
import { PublishMessage } from './message.tsx';
import { BINDINGS } from './queue.tsx';
import { VhostChoice, useVhosts } from './queues.tsx';

type Asked = { kind: 'exchange' | 'binding' } | { kind: 'publish' | 'delete'; exchange: Exchange } | { kind: 'remove'; binding: Binding } | null;

const MOST = 1000;

export function Exchanges() {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useAsked('vhost', '/', RESETS);
  const search = usePlace().query.get('search') ?? '';
  const exchanges = useResource<List<Exchange>>(path('exchanges', vhost), { limit: MOST }, 5000);
  const bindings = useResource<List<Binding>>(path('bindings', vhost), { search, limit: MOST }, 5000);
  const shown = useLasting(bindings);
  const [asked, setAsked] = useState<Asked>(null);
  const [turn, setTurn] = useState(0);
  const close = (): void => setAsked(null);
  const reload = (): void => {
    exchanges.reload();
    bindings.reload();
    setTurn((number) => number + 1);
  };
  return (
    <>
      <Title title="Exchanges" about={`How messages come from exchanges to queues in virtual host ${vhost}.`}>
        <button type="button" onClick={() => setAsked({ kind: 'binding' })}>
          <Icon name="plus" /> Bind
        </button>
        <button type="button" class="primary" onClick={() => setAsked({ kind: 'exchange' })}>
          <Icon name="plus" /> New exchange
        </button>
      </Title>
      <div class="tools">
        <VhostChoice vhost={vhost} vhosts={vhosts} onVhost={setVhost} />
        <Search label="exchanges, queues and routing keys" placeholder="Exchange, queue or routing key" resets={RESETS} />
      </div>
      <Refused refusal={exchanges.refusal ?? bindings.refusal} />
      {(exchanges.loading || shown.loading) && <Loading />}
      {exchanges.data && shown.data && <Drawing vhost={vhost} exchanges={exchanges.data.items} bindings={shown.data} search={search} />}
      {exchanges.data && (
        <>
          <Bindings vhost={vhost} turn={turn} onAsk={setAsked} />
          <AllExchanges vhost={vhost} turn={turn} onAsk={setAsked} />
        </>
      )}
      {exchanges.data && <Windows vhost={vhost} asked={asked} exchanges={exchanges.data.items} onClose={close} onDone={reload} />}
    </>
  );
}

/** What another virtual host, or another search, has pages of its own of. */
const RESETS = ['page', 'bindings-page', 'exchanges-page'];

interface WindowProps {
  vhost: string;
  asked: Asked;
  exchanges: Exchange[];
  onClose: () => void;
  onDone: () => void;
}

function Windows({ vhost, asked, exchanges, onClose, onDone }: WindowProps) {
  switch (asked?.kind) {
    case 'exchange':
      return <NewExchange vhost={vhost} onClose={onClose} onDone={onDone} />;
    case 'binding':
      return <NewBinding vhost={vhost} exchanges={exchanges} onClose={onClose} onDone={onDone} />;
    case 'publish':
      return <PublishMessage vhost={vhost} exchange={asked.exchange.name} exchanges={exchanges.filter((one) => !one.internal).map((one) => one.name)} onClose={onClose} />;
    case 'delete':
      return (
        <Confirm title={`Delete ${asked.exchange.name}?`} submit="Delete exchange" act={() => ask('DELETE', path('exchanges', vhost, asked.exchange.name))} onClose={onClose} onDone={onDone}>
          <p>Its {plural(asked.exchange.bindings, 'binding')} go with it. Publishers to it get an error from then on.</p>
        </Confirm>
      );
    case 'remove':
      return (
        <Confirm title="Remove the binding?" submit="Remove" act={() => ask('POST', path('bindings', vhost, 'delete'), wanted(asked.binding))} onClose={onClose} onDone={onDone}>
          <p>
            {asked.binding.source} leads to {asked.binding.destination} by “{asked.binding.routing_key}” no more.
          </p>
        </Confirm>
      );
    default:
      return null;
  }
}

const wanted = ({ source, destination, destination_kind, routing_key, arguments: given }: Binding): Omit<Binding, 'vhost'> => ({ source, destination, destination_kind, routing_key, arguments: given });

interface PartProps {
  vhost: string;
  turn: number;
  onAsk: (asked: Asked) => void;
}

function Bindings({ vhost, turn, onAsk }: PartProps) {
  const columns: Column<Binding>[] = [
    ...BINDINGS,
    {
      head: '',
      cell: (one) => (
        <button type="button" class="small" aria-label={`Remove the binding of ${one.source} to ${one.destination} by ${one.routing_key}`} onClick={() => onAsk({ kind: 'remove', binding: one })}>
          Remove
        </button>
      ),
    },
  ];
  return (
    <Section title="Bindings">
      <Listing
        label="Bindings"
        address={path('bindings', vhost)}
        columns={columns}
        id={(one) => `${one.source}\n${one.destination_kind}\n${one.destination}\n${one.routing_key}\n${JSON.stringify(one.arguments)}`}
        sort=""
        prefix="bindings-"
        turn={turn}
        empty={<p class="faint">There is none beside those of the default exchange, which leads to every queue by its name.</p>}
      />
    </Section>
  );
}

function AllExchanges({ vhost, turn, onAsk }: PartProps) {
  const columns: Column<Exchange>[] = [
    {
      head: 'Exchange',
      sort: 'name',
      main: true,
      cell: (one) => (
        <>
          {one.name === '' ? <span class="faint">default exchange</span> : <a href={to(['exchanges'], { vhost: one.vhost, search: one.name })}>{one.name}</a>}
          {one.internal && <span class="tag">internal</span>}
          {!one.durable && <span class="tag">transient</span>}
        </>
      ),
    },
    { head: 'Type', sort: 'type', cell: (one) => one.type },
    { head: 'Bindings', sort: 'bindings', number: true, cell: (one) => count(one.bindings) },
    {
      head: '',
      cell: (one) => (
        <span class="pair-buttons">
          {!one.internal && (
            <button type="button" class="small" aria-label={`Publish to ${one.name === '' ? 'the default exchange' : one.name}`} onClick={() => onAsk({ kind: 'publish', exchange: one })}>
              Publish
            </button>
          )}
          {one.name !== '' && !one.name.startsWith('amq.') && (
            <button type="button" class="small" aria-label={`Delete ${one.name}`} onClick={() => onAsk({ kind: 'delete', exchange: one })}>
              Delete
            </button>
          )}
        </span>
      ),
    },
  ];
  return (
    <Section title="Exchanges">
      <Listing label="Exchanges" address={path('exchanges', vhost)} columns={columns} id={(one) => one.name} prefix="exchanges-" turn={turn} empty={<p class="faint">There is none.</p>} />
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
    <Dialog title={`Bind in ${vhost}`} onClose={onClose}>
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
