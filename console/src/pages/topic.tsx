// One topic: its partitions, its records, its settings, and who reads it.

import { useMemo, useState } from 'preact/hooks';
import { ask, get, path } from '../api.ts';
import { byteRate, bytes, count, rate } from '../format.ts';
import { useWatched } from '../live.ts';
import { useLasting, useResource, type Resource } from '../resource.ts';
import { go, to } from '../router.ts';
import type { Partition, TopicFull } from '../types.ts';
import { Chart, type Line } from '../ui/chart.tsx';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Form, Text, useWork } from '../ui/form.tsx';
import { Empty, Loading, Refused, Section, Stat, Tabs, Title } from '../ui/parts.tsx';
import { Pager, Table, usePages, type Column } from '../ui/table.tsx';
import { Records } from './records.tsx';
import { SettingsTable } from './settings.tsx';
import { Why, useWhy } from './why.tsx';

const TABS = [
  { id: 'partitions', text: 'Partitions' },
  { id: 'records', text: 'Records' },
  { id: 'settings', text: 'Configuration' },
  { id: 'groups', text: 'Groups' },
];

type Asked = 'delete' | 'partitions' | 'truncate' | null;

export function TopicPage({ name, query }: { name: string; query: URLSearchParams }) {
  const { offset, setPage } = usePages(PARTITIONS);
  const resource = useLasting(useResource<TopicFull>(path('topics', name), { partition_offset: offset }, 3000));
  const { data, refusal, loading } = resource;
  const [asked, setAsked] = useState<Asked>(null);
  const tab = query.get('tab') ?? 'partitions';
  const served = useWhy();
  const there = refusal?.status !== 404;
  // What is a queue's own has one partition, and its messages go by the queue; of a topic that is compacted no records are deleted by their offsets.
  const owned = data?.queue != null && data.internal;
  const emptied = !(owned && data?.queue?.type !== 'stream') && data?.cleanup_policy !== 'compact';
  return (
    <>
      <Title
        title={name}
        above={{ text: 'Topics', href: '#/topics' }}
        about={
          data?.queue && (
            <>
              The records of the queue <a href={to(['queues', data.queue.vhost, data.queue.name])}>{data.queue.name}</a> in virtual host {data.queue.vhost}
            </>
          )
        }
      >
        {data && there && !owned && (
          <button type="button" onClick={() => setAsked('partitions')}>
            Add partitions
          </button>
        )}
        {data && there && emptied && (
          <button type="button" onClick={() => setAsked('truncate')}>
            Empty
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
      {data && <Sums topic={data} />}
      {there && <Tabs tabs={served ? [...TABS, { id: 'why', text: 'Why slow?' }] : TABS} chosen={tab} />}
      <div role="tabpanel" aria-labelledby={`tab-${tab}`} class="panel">
        {data && tab === 'partitions' && <Partitions topic={data} offset={offset} onPage={setPage} />}
        {data && tab === 'records' && <Records topic={name} partitions={data.partitions} query={query} />}
        {data && tab === 'settings' && <SettingsTable settings={data.config} address={path('topics', name, 'config')} look={async () => (await get<TopicFull>(path('topics', name))).config} onChanged={resource.reload} />}
        {data && tab === 'groups' && <Readers groups={data.groups} />}
        {there && tab === 'why' && <Why subject={{ topic: name }} />}
      </div>
      {asked === 'delete' && (
        <Confirm title={`Delete ${name}?`} submit="Delete topic" typed={name} act={() => ask('DELETE', path('topics', name))} onClose={() => setAsked(null)} onDone={() => go(['topics'])}>
          <p>All its records go, and what groups have committed of it. This cannot be undone.</p>
        </Confirm>
      )}
      {asked === 'truncate' && data && <Truncate topic={data} resource={resource} onClose={() => setAsked(null)} />}
      {asked === 'partitions' && data && <MorePartitions topic={data} resource={resource} onClose={() => setAsked(null)} />}
    </>
  );
}

function Sums({ topic }: { topic: TopicFull }) {
  return (
    <dl class="stats">
      <Stat name="Partitions" value={count(topic.partitions)} />
      <Stat name="Records" value={count(topic.records)} />
      <Stat name="Size" value={bytes(topic.bytes)} />
      <Stat name="Records in" value={rate(topic.rates.in_records)} />
      <Stat name="Durability" value={topic.durability} />
    </dl>
  );
}

interface TopicSample {
  in_records: number;
  in_bytes: number;
}

const columnsOf = (topic: string): Column<Partition>[] => [
  { head: 'Partition', number: true, cell: (one) => one.partition },
  { head: 'From offset', number: true, cell: (one) => count(one.start) },
  { head: 'To offset', number: true, cell: (one) => count(one.high_watermark) },
  { head: 'Committed to', number: true, cell: (one) => count(one.last_stable) },
  { head: 'Records', number: true, cell: (one) => count(one.records) },
  { head: 'Size', number: true, cell: (one) => bytes(one.bytes) },
  { head: 'Records in', number: true, cell: (one) => rate(one.rates.in_records) },
  { head: 'Archived to', number: true, cell: (one) => count(one.archived_until) },
  { head: 'Journal', number: true, cell: (one) => one.journal },
  {
    head: '',
    cell: (one) => (
      <a href={to(['topics', topic], { tab: 'records', partition: String(one.partition) })} aria-label={`Records of partition ${one.partition}`}>
        Records
      </a>
    ),
  },
];

/** Of a page: as many as the server names. */
const PARTITIONS = 1000;

function Partitions({ topic, offset, onPage }: { topic: TopicFull; offset: number; onPage: (page: string) => void }) {
  const points = useWatched<TopicSample>('topics', topic.name);
  const at = useMemo(() => points.map((point) => point.at), [points]);
  const records = useMemo<Line[]>(() => [{ name: 'Records in', colour: 1, values: points.map((point) => point.value.in_records) }], [points]);
  const sizes = useMemo<Line[]>(() => [{ name: 'Bytes in', colour: 2, values: points.map((point) => point.value.in_bytes) }], [points]);
  return (
    <>
      <div class="charts">
        <Chart title="Records in" at={at} lines={records} format={rate} height={140} />
        <Chart title="Bytes in" at={at} lines={sizes} format={byteRate} height={140} binary />
      </div>
      <Table label="Partitions" columns={columnsOf(topic.name)} rows={topic.partition_list} id={(one) => String(one.partition)} />
      {(topic.partitions > PARTITIONS || offset > 0) && <Pager list={{ offset, total: topic.partitions, items: topic.partition_list }} size={PARTITIONS} onPage={onPage} />}
    </>
  );
}

function Readers({ groups }: { groups: string[] }) {
  if (groups.length === 0) {
    return (
      <Empty title="No group has committed offsets of this topic.">
        <p>A group appears here when a consumer with a group id has read and committed.</p>
      </Empty>
    );
  }
  return (
    <Section title="Groups that read it">
      <ul class="names">
        {groups.map((group) => (
          <li key={group}>
            <a href={to(['groups', group])}>{group}</a>
          </li>
        ))}
      </ul>
    </Section>
  );
}

interface ChangeProps {
  topic: TopicFull;
  resource: Resource<TopicFull>;
  onClose: () => void;
}

function MorePartitions({ topic, resource, onClose }: ChangeProps) {
  const [wanted, setWanted] = useState(String(topic.partitions + 1));
  const work = useWork();
  const run = async (): Promise<void> => {
    if (await work.run(() => ask('POST', path('topics', topic.name, 'partitions'), { count: Number(wanted) }))) {
      onClose();
      resource.reload();
    }
  };
  return (
    <Dialog title="Add partitions" onClose={onClose}>
      <Form work={work} submit="Add partitions" onSubmit={() => void run()}>
        <p class="said">Records with a key go to another partition from then on: their order across the change is not kept.</p>
        <Text label="Partitions in all" name="count" type="number" value={wanted} onValue={setWanted} help={`There are ${count(topic.partitions)}.`} autofocus />
      </Form>
    </Dialog>
  );
}

function Truncate({ topic, resource, onClose }: ChangeProps) {
  // Of many partitions only the first are listed.
  const body = { partitions: Array.from({ length: topic.partitions }, (_, partition) => ({ partition, before: -1 })) };
  return (
    <Confirm
      title={`Empty ${topic.name}?`}
      submit="Delete all records"
      typed={topic.name}
      act={() => ask('POST', path('topics', topic.name, 'truncate'), body)}
      onClose={onClose}
      onDone={resource.reload}
    >
      <p>All {count(topic.records)} records go; the topic, its settings and its offsets stay. This cannot be undone.</p>
    </Confirm>
  );
}
