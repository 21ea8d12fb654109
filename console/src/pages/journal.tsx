// The journals: one append-only sequence of chunks each, in segments, with an archive behind.

import { path, type List } from '../api.ts';
import { bytes, count } from '../format.ts';
import { useResource } from '../resource.ts';
import { adjust } from '../router.ts';
import type { Journal, Segment } from '../types.ts';
import { Badge, Empty, Loading, Meter, Notice, Refused, Section, Stat, Title } from '../ui/parts.tsx';
import { PagedTable, type Column } from '../ui/table.tsx';

interface Full extends Journal {
  segments: Segment[];
}

export function JournalPage({ query }: { query: URLSearchParams }) {
  const list = useResource<List<Journal>>('/v1/journals', { limit: 1000 });
  const chosen = query.get('journal') ?? String(list.data?.items[0]?.journal ?? 0);
  const { data, refusal, loading } = useResource<Full>(path('journals', chosen), {}, 3000);
  const numbers = list.data?.items.map((one) => one.journal) ?? [];
  return (
    <>
      <Title title="Journal" about="All partitions and queues share it. A chunk is one commit; segments are its files.">
        {numbers.length > 1 && (
          <label class="pick">
            Journal{' '}
            <select value={chosen} onChange={(event) => adjust({ journal: event.currentTarget.value })}>
              {numbers.map((number) => (
                <option key={number}>{number}</option>
              ))}
            </select>
          </label>
        )}
      </Title>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && <Shown journal={data} />}
    </>
  );
}

function Status({ journal }: { journal: Journal }) {
  if (journal.status === 'running') return <Badge tone="good">running</Badge>;
  return <Badge tone="bad">{journal.status === 'disk_full' ? 'disk full' : 'stopped'}</Badge>;
}

function Shown({ journal }: { journal: Full }) {
  const { archive } = journal;
  return (
    <>
      {journal.reason && <Notice tone="bad">{journal.reason}</Notice>}
      {journal.waits_for_archive && <Notice tone="warn">Appends wait for the archive: the window of the journal is full.</Notice>}
      <dl class="stats">
        <div class="stat">
          <dt>Status</dt>
          <dd>
            <Status journal={journal} />
          </dd>
          <dd class="note">term {journal.term}</dd>
        </div>
        <Stat name="Files" value={bytes(journal.file_bytes)} note={journal.window_bytes === null ? 'without a window' : `window ${bytes(journal.window_bytes)}`} />
        <Stat name="Segments" value={count(journal.segment_count)} note={`of ${bytes(journal.segment_bytes)}`} />
        <Stat name="Durable up to chunk" value={count(journal.durable_index)} />
        <Stat name="Live in sealed ones" value={bytes(journal.live_bytes)} />
        <Stat name="Waiting to be written" value={bytes(journal.queued_bytes)} />
      </dl>
      <div class="columns">
        <Section title="Archive" about="What lies beyond the window, and compacted logs. Since the start.">
          <dl class="facts">
            <Fact name="Objects written" value={count(archive.objects)} />
            <Fact name="Objects deleted" value={count(archive.deletes)} />
            <Fact name="Bytes written" value={bytes(archive.written_bytes)} />
            <Fact name="Bytes read" value={bytes(archive.read_bytes)} />
          </dl>
        </Section>
        <Section title="Memory">
          <div class="meters">
            <Meter cache name="Tail cache, held" part={journal.tail.used_bytes} whole={journal.tail.allocated_bytes} text={`${bytes(journal.tail.used_bytes)} of ${bytes(journal.tail.allocated_bytes)}`} />
          </div>
          <dl class="facts">
            <Fact name="Keyed state of the segment being written" value={bytes(journal.state_bytes)} />
          </dl>
        </Section>
      </div>
      <Segments segments={journal.segments} />
    </>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

const COLUMNS: Column<Segment>[] = [
  { head: 'Segment', cell: (one) => one.sequence },
  { head: 'File', main: true, cell: (one) => <span class="mono">{one.file}</span> },
  { head: 'State', cell: (one) => (one.sealed ? 'sealed' : <Badge>not sealed yet</Badge>) },
  { head: 'Size', number: true, cell: (one) => bytes(one.bytes) },
];

function Segments({ segments }: { segments: Segment[] }) {
  return (
    <Section title="Segments" about="Of a sealed segment with little that is live the rest is freed: its live parts move into another one.">
      {segments.length === 0 ? <Empty title="There is no segment yet." /> : <PagedTable label="Segments" columns={COLUMNS} rows={segments} id={(one) => String(one.sequence)} />}
    </Section>
  );
}
