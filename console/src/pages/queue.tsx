// One queue: what lies in it, who takes it, and where it comes from.

import { useState } from 'preact/hooks';
import { ask, path } from '../api.ts';
import { bytes, count, rate } from '../format.ts';
import { useResource } from '../resource.ts';
import { go, to } from '../router.ts';
import type { Binding, Consumer, QueueFull } from '../types.ts';
import { Confirm } from '../ui/dialog.tsx';
import { Badge, Empty, Loading, Refused, Section, Stat, Title } from '../ui/parts.tsx';
import { Table, type Column } from '../ui/table.tsx';
import { PublishMessage } from './message.tsx';

export function QueuePage({ vhost, name }: { vhost: string; name: string }) {
  const resource = useResource<QueueFull>(path('queues', vhost, name), {}, 3000);
  const { data, refusal, loading } = resource;
  const [asked, setAsked] = useState<'publish' | 'purge' | 'delete' | null>(null);
  const there = refusal?.status !== 404;
  return (
    <>
      <Title title={name} above={{ text: `Queues in ${vhost}`, href: to(['queues'], { vhost }) }} about={`${data?.type ?? 'Queue'} queue in virtual host ${vhost}`}>
        {data?.topic && (
          <a class="button" href={to(['topics', data.topic], { tab: 'records' })}>
            Records
          </a>
        )}
        {there && (
          <button type="button" onClick={() => setAsked('publish')}>
            Publish
          </button>
        )}
        {data && there && data.type !== 'stream' && (
          <button type="button" onClick={() => setAsked('purge')}>
            Purge
          </button>
        )}
        {there && (
          <button type="button" class="danger" onClick={() => setAsked('delete')}>
            Delete
          </button>
        )}
      </Title>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && <Shown queue={data} />}
      {asked === 'publish' && <PublishMessage vhost={vhost} exchange="" routingKey={name} onClose={() => setAsked(null)} onDone={resource.reload} />}
      {asked === 'purge' && (
        <Confirm title={`Purge ${name}?`} submit="Purge" act={() => ask('POST', path('queues', vhost, name, 'purge'))} onClose={() => setAsked(null)} onDone={resource.reload}>
          <p>All {count(data?.ready)} messages that are ready go. What consumers have stays with them.</p>
        </Confirm>
      )}
      {asked === 'delete' && (
        <Confirm title={`Delete ${name}?`} submit="Delete queue" typed={name} act={() => ask('DELETE', path('queues', vhost, name))} onClose={() => setAsked(null)} onDone={() => go(['queues'], { vhost })}>
          <p>Its messages and bindings go, and its topic with them. This cannot be undone.</p>
        </Confirm>
      )}
    </>
  );
}

const CONSUMERS: Column<Consumer>[] = [
  { head: 'Consumer', main: true, cell: (one) => <span class="mono">{one.tag}</span> },
  { head: 'User', cell: (one) => one.user },
  { head: 'Prefetch', number: true, cell: (one) => (one.prefetch === 0 ? 'no limit' : count(one.prefetch)) },
  { head: 'Acknowledges', cell: (one) => (one.ack_required ? 'yes' : 'no') },
  { head: 'State', cell: (one) => <Badge tone={one.active ? 'good' : 'plain'}>{one.active ? 'active' : 'waiting'}</Badge> },
  { head: '', cell: (one) => <a href={to(['connections', one.connection])}>Connection</a> },
];

export const BINDINGS: Column<Binding>[] = [
  { head: 'From exchange', main: true, cell: (one) => (one.source === '' ? <span class="faint">default exchange</span> : one.source) },
  { head: 'Routing key', cell: (one) => (one.routing_key === '' ? <span class="faint">empty</span> : <code>{one.routing_key}</code>) },
  { head: 'To', cell: (one) => `${one.destination_kind} ${one.destination}` },
  { head: 'Arguments', cell: (one) => (Object.keys(one.arguments).length === 0 ? '' : <code>{JSON.stringify(one.arguments)}</code>) },
];

function Shown({ queue }: { queue: QueueFull }) {
  const known = Object.entries(queue.arguments);
  return (
    <>
      <dl class="stats">
        <Stat name="Ready" value={count(queue.ready)} />
        <Stat name="Unacknowledged" value={count(queue.unacknowledged)} />
        <Stat name="Size" value={bytes(queue.bytes)} />
        <Stat name="In" value={rate(queue.rates.in)} />
        <Stat name="Out" value={rate(queue.rates.out)} />
        <Stat name="Acknowledged" value={rate(queue.rates.acknowledged)} />
      </dl>
      <Section title="Consumers">
        {queue.consumers_list.length === 0 ? <Empty title="Nobody consumes from it." /> : <Table label="Consumers" columns={CONSUMERS} rows={queue.consumers_list} id={(one) => `${one.connection}/${one.tag}`} />}
      </Section>
      <Section title="Bindings" actions={<a href={to(['exchanges'], { vhost: queue.vhost, search: queue.name })}>As a picture</a>}>
        {queue.bindings.length === 0 ? (
          <Empty title="Only the default exchange leads here, by the queue's name." />
        ) : (
          <Table label="Bindings" columns={BINDINGS} rows={queue.bindings} id={(one) => `${one.source}/${one.routing_key}/${JSON.stringify(one.arguments)}`} />
        )}
      </Section>
      <Section title="How it was declared">
        <dl class="facts">
          <div>
            <dt>Durable</dt>
            <dd>{queue.durable ? 'yes' : 'no'}</dd>
          </div>
          <div>
            <dt>Goes with its last consumer</dt>
            <dd>{queue.auto_delete ? 'yes' : 'no'}</dd>
          </div>
          {queue.policy && (
            <div>
              <dt>Policy</dt>
              <dd>{queue.policy}</dd>
            </div>
          )}
          {known.map(([name, value]) => (
            <div key={name}>
              <dt class="mono">{name}</dt>
              <dd class="mono">{JSON.stringify(value)}</dd>
            </div>
          ))}
        </dl>
      </Section>
    </>
  );
}
