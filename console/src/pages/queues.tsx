// All queues, and a new one.

import { useState } from 'preact/hooks';
import { ask, path, type List } from '../api.ts';
import { bytes, count, rate } from '../format.ts';
import { useResource } from '../resource.ts';
import { go, to, useAsked } from '../router.ts';
import type { Queue, Vhost } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Empty, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';

const COLUMNS: Column<Queue>[] = [
  {
    head: 'Queue',
    sort: 'name',
    main: true,
    cell: (queue) => (
      <>
        <a href={to(['queues', queue.vhost, queue.name])}>{queue.name}</a>
        {!queue.durable && <span class="tag">transient</span>}
        {queue.exclusive && <span class="tag">exclusive</span>}
        {queue.policy && <span class="tag">policy {queue.policy}</span>}
      </>
    ),
  },
  { head: 'Virtual host', sort: 'vhost', cell: (queue) => queue.vhost },
  { head: 'Type', sort: 'type', cell: (queue) => queue.type },
  { head: 'Ready', sort: 'ready', number: true, cell: (queue) => count(queue.ready) },
  { head: 'Unacked', sort: 'unacknowledged', number: true, cell: (queue) => count(queue.unacknowledged) },
  { head: 'Size', sort: 'bytes', number: true, cell: (queue) => bytes(queue.bytes) },
  { head: 'Consumers', sort: 'consumers', number: true, cell: (queue) => count(queue.consumers) },
  { head: 'In', sort: 'rates.in', number: true, cell: (queue) => rate(queue.rates.in) },
  { head: 'Out', sort: 'rates.out', number: true, cell: (queue) => rate(queue.rates.out) },
];

export function useVhosts(): string[] {
  const { data } = useResource<List<Vhost>>('/v1/vhosts', { limit: 1000 });
  return data?.items.map((one) => one.name) ?? ['/'];
}

interface VhostProps {
  vhost: string;
  vhosts: string[];
  onVhost: (vhost: string) => void;
  /** The text for all of them, if they can be shown together. */
  all?: string;
}

/** Which virtual host is shown; one that the address names and there is not is among them. */
export function VhostChoice({ vhost, vhosts, onVhost, all }: VhostProps) {
  const names = [...new Set([vhost, ...vhosts])].filter((name) => name !== '');
  return (
    <label class="pick">
      Virtual host{' '}
      <select value={vhost} onChange={(event) => onVhost(event.currentTarget.value)}>
        {all && <option value="">{all}</option>}
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Queues() {
  const [making, setMaking] = useState(false);
  const vhosts = useVhosts();
  const [vhost, setVhost] = useAsked('vhost');
  return (
    <>
      <Title title="Queues" about={`AMQP queues of ${vhost === '' ? 'all virtual hosts' : `virtual host ${vhost}`}. A durable queue is a topic, too.`}>
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          <Icon name="plus" /> New queue
        </button>
      </Title>
      <Listing
        label="queues"
        address={vhost === '' ? '/v1/queues' : path('queues', vhost)}
        more={<VhostChoice vhost={vhost} vhosts={vhosts} onVhost={setVhost} all="all" />}
        columns={COLUMNS}
        id={(queue) => `${queue.vhost}/${queue.name}`}
        empty={
          <Empty title={vhost === '' ? 'There is no queue yet.' : `There is no queue in virtual host ${vhost}.`}>
            <p>AMQP clients declare their queues, or one is made here.</p>
            <button type="button" class="primary" onClick={() => setMaking(true)}>
              New queue
            </button>
          </Empty>
        }
      />
      {making && <NewQueue vhost={vhost === '' ? '/' : vhost} onClose={() => setMaking(false)} />}
    </>
  );
}

/** Arguments that people set most, with the type of their value. */
const ARGUMENTS: { id: string; text: string; number: boolean }[] = [
  { id: 'x-message-ttl', text: 'Messages expire after, ms', number: true },
  { id: 'x-max-length', text: 'At most messages', number: true },
  { id: 'x-dead-letter-exchange', text: 'Dead letters go to exchange', number: false },
  { id: 'x-dead-letter-routing-key', text: 'with routing key', number: false },
];

function NewQueue({ vhost: first, onClose }: { vhost: string; onClose: () => void }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState(first);
  const [name, setName] = useState('');
  const [type, setType] = useState('classic');
  const [durable, setDurable] = useState(true);
  const [remove, setRemove] = useState(false);
  const [given, setGiven] = useState<Record<string, string>>({});
  const work = useWork();
  const make = async (): Promise<void> => {
    const filled = ARGUMENTS.filter((one) => (given[one.id] ?? '') !== '');
    const body = { durable, auto_delete: remove, type, arguments: Object.fromEntries(filled.map((one) => [one.id, one.number ? Number(given[one.id]) : given[one.id]])) };
    if (await work.run(() => ask('PUT', path('queues', vhost, name), body))) {
      onClose();
      go(['queues', vhost, name]);
    }
  };
  return (
    <Dialog title="New queue" onClose={onClose} wide>
      <Form work={work} submit="Create queue" disabled={name === ''} onSubmit={() => void make()}>
        <Text label="Name" name="name" value={name} onValue={setName} autofocus />
        <Choice label="Virtual host" name="vhost" value={vhost} onValue={setVhost} choices={[...new Set([first, ...vhosts])].map((one) => ({ value: one, text: one }))} />
        <Choice
          label="Type"
          name="type"
          value={type}
          onValue={setType}
          choices={[
            { value: 'classic', text: 'classic' },
            { value: 'quorum', text: 'quorum' },
            { value: 'stream', text: 'stream' },
          ]}
        />
        <div class="checks">
          <Check label="Durable: stays after a restart" value={durable} onValue={setDurable} />
          <Check label="Goes with its last consumer" value={remove} onValue={setRemove} />
        </div>
        {ARGUMENTS.map((one) => (
          <Text key={one.id} label={one.text} name={`arguments.${one.id}`} type={one.number ? 'number' : 'text'} value={given[one.id] ?? ''} onValue={(value) => setGiven({ ...given, [one.id]: value })} />
        ))}
      </Form>
    </Dialog>
  );
}
