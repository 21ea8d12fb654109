// All topics, and a new one.

import { useState } from 'preact/hooks';
import { ask } from '../api.ts';
import { bytes, count, duration, rate } from '../format.ts';
import { go, to, useAsked } from '../router.ts';
import type { Topic } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Empty, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';

const COLUMNS: Column<Topic>[] = [
  {
    head: 'Topic',
    sort: 'name',
    main: true,
    cell: (topic) => (
      <>
        <a href={to(['topics', topic.name])}>{topic.name}</a>
        {topic.queue && <span class="tag">queue in {topic.queue.vhost}</span>}
        {topic.internal && !topic.queue && <span class="tag">internal</span>}
      </>
    ),
  },
  { head: 'Partitions', sort: 'partitions', number: true, cell: (topic) => count(topic.partitions) },
  { head: 'Records', sort: 'records', number: true, cell: (topic) => count(topic.records) },
  { head: 'Size', sort: 'bytes', number: true, cell: (topic) => bytes(topic.bytes) },
  { head: 'Records in', sort: 'rates.in_records', number: true, cell: (topic) => rate(topic.rates.in_records) },
  { head: 'Keeps', cell: (topic) => kept(topic) },
  { head: 'Durability', cell: (topic) => topic.durability },
];

function kept(topic: Topic): string {
  if (topic.cleanup_policy === 'compact') return 'newest of each key';
  const time = topic.retention_ms === null || topic.retention_ms < 0 ? 'all' : duration(topic.retention_ms);
  return topic.cleanup_policy.includes('compact') ? `${time}, compacted` : time;
}

export function Topics() {
  const [making, setMaking] = useState(false);
  const [internal, setInternal] = useAsked('internal', 'false');
  return (
    <>
      <Title title="Topics">
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          <Icon name="plus" /> New topic
        </button>
      </Title>
      <Listing
        label="topics"
        address="/v1/topics"
        query={{ internal: internal === 'true' }}
        columns={COLUMNS}
        id={(topic) => topic.name}
        more={<Check label="Internal and queues" value={internal === 'true'} onValue={(on) => setInternal(String(on))} />}
        empty={
          <Empty title="There is no topic yet.">
            <p>A topic is made on its first use by a Kafka client, or here.</p>
            <button type="button" class="primary" onClick={() => setMaking(true)}>
              New topic
            </button>
          </Empty>
        }
      />
      {making && <NewTopic onClose={() => setMaking(false)} />}
    </>
  );
}

const HOURS = 3_600_000;

function NewTopic({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [partitions, setPartitions] = useState('');
  const [retention, setRetention] = useState('');
  const [policy, setPolicy] = useState('');
  const [durability, setDurability] = useState('');
  const work = useWork();
  const make = async (): Promise<void> => {
    const config: Record<string, string> = {};
    if (retention !== '') config['retention.ms'] = retention;
    if (policy !== '') config['cleanup.policy'] = policy;
    if (durability !== '') config['mainstem.durability'] = durability;
    const body = { name, partitions: partitions === '' ? null : Number(partitions), config };
    if (await work.run(() => ask('POST', '/v1/topics', body))) {
      onClose();
      go(['topics', name]);
    }
  };
  return (
    <Dialog title="New topic" onClose={onClose}>
      <Form work={work} submit="Create topic" onSubmit={() => void make()}>
        <Text label="Name" name="name" value={name} onValue={setName} autofocus wide />
        <Text label="Partitions" name="partitions" type="number" value={partitions} onValue={setPartitions} placeholder="as the broker is set" help="More can be added later, never fewer." />
        <Choice
          label="Durability"
          name="config.mainstem.durability"
          value={durability}
          onValue={setDurability}
          choices={[
            { value: '', text: 'as the broker is set' },
            { value: 'fsync', text: 'fsync: on stable storage' },
            { value: 'memory', text: 'memory: written, not flushed' },
          ]}
        />
        <Choice
          label="Keeps records for"
          name="config.retention.ms"
          value={retention}
          onValue={setRetention}
          choices={[
            { value: '', text: 'as the broker is set' },
            { value: String(HOURS), text: '1 hour' },
            { value: String(24 * HOURS), text: '1 day' },
            { value: String(7 * 24 * HOURS), text: '7 days' },
            { value: String(30 * 24 * HOURS), text: '30 days' },
            { value: '-1', text: 'ever' },
          ]}
        />
        <Choice
          label="What goes"
          name="config.cleanup.policy"
          value={policy}
          onValue={setPolicy}
          choices={[
            { value: '', text: 'as the broker is set' },
            { value: 'delete', text: 'old records' },
            { value: 'compact', text: 'older records of a key (compaction)' },
            { value: 'compact,delete', text: 'both' },
          ]}
        />
      </Form>
    </Dialog>
  );
}
