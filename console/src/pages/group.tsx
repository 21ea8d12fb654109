// One group: its lag now and over time, its members, its offsets, and setting them anew.

import { useMemo, useState } from 'preact/hooks';
import { ask, get, path } from '../api.ts';
import { count, plural, time } from '../format.ts';
import { useWatched } from '../live.ts';
import { useResource } from '../resource.ts';
import { go, to } from '../router.ts';
import type { GroupFull, GroupMember, GroupOffset, Setting } from '../types.ts';
import { Chart, type Line } from '../ui/chart.tsx';
import { Confirm } from '../ui/dialog.tsx';
import { Empty, Loading, Refused, Stat, Tabs, Title } from '../ui/parts.tsx';
import { PagedTable, type Column } from '../ui/table.tsx';
import { GroupFilter } from './filter.tsx';
import { GroupState } from './groups.tsx';
import { Reset } from './reset.tsx';
import { SettingsTable } from './settings.tsx';
import { Why, useWhy } from './why.tsx';

interface LagSample {
  lag: number;
  without_offset: number;
}

const TABS = [
  { id: 'offsets', text: 'Offsets' },
  { id: 'members', text: 'Members' },
  { id: 'settings', text: 'Configuration' },
];

export function GroupPage({ name, query }: { name: string; query: URLSearchParams }) {
  const resource = useResource<GroupFull>(path('groups', name), {}, 3000);
  const { data, refusal, loading } = resource;
  const [asked, setAsked] = useState<'reset' | 'delete' | null>(null);
  const tab = query.get('tab') ?? 'offsets';
  const served = useWhy();
  const there = refusal?.status !== 404;
  return (
    <>
      <Title title={name} above={{ text: 'Consumer groups', href: '#/groups' }}>
        {data && there && (
          <button type="button" onClick={() => setAsked('reset')}>
            Reset offsets
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
      {data && <Sums group={data} />}
      {data && <GroupFilter group={name} onChanged={resource.reload} />}
      {data && <Lag name={name} />}
      {there && <Tabs tabs={served ? [...TABS, { id: 'why', text: 'Why slow?' }] : TABS} chosen={tab} />}
      <div role="tabpanel" aria-labelledby={`tab-${tab}`} class="panel">
        {data && tab === 'offsets' && <Offsets group={data} />}
        {data && tab === 'members' && <Members group={data} />}
        {there && tab === 'settings' && <Settings name={name} />}
        {there && tab === 'why' && <Why subject={{ group: name }} />}
      </div>
      {asked === 'reset' && data && <Reset group={data} onClose={() => setAsked(null)} onDone={resource.reload} />}
      {asked === 'delete' && (
        <Confirm title={`Delete ${name}?`} submit="Delete group" typed={name} act={() => ask('DELETE', path('groups', name))} onClose={() => setAsked(null)} onDone={() => go(['groups'])}>
          <p>What it has committed is forgotten: its consumers begin anew.</p>
        </Confirm>
      )}
    </>
  );
}

/** What the lag does not say. */
function unknown({ without_offset: { partitions, records } }: GroupFull): string {
  return partitions > 0 ? `records, and up to ${count(records)} in ${plural(partitions, 'partition')} without an offset` : 'records';
}

function Sums({ group }: { group: GroupFull }) {
  const flying = group.offsets.reduce((sum, one) => sum + (one.in_flight ?? 0), 0);
  return (
    <dl class="stats">
      <div class="stat">
        <dt>State</dt>
        <dd>
          <GroupState state={group.state} members={group.members} />
        </dd>
      </div>
      <Stat name="Kind" value={group.kind} note={group.assignor ?? undefined} />
      <Stat name="Members" value={count(group.members)} />
      <Stat name="Lag" value={count(group.lag)} note={unknown(group)} />
      {group.kind === 'share' && <Stat name="In flight" value={count(flying)} note="with members" />}
    </dl>
  );
}

function Lag({ name }: { name: string }) {
  const points = useWatched<LagSample>('groups', name);
  const at = useMemo(() => points.map((point) => point.at), [points]);
  const lines = useMemo<Line[]>(() => {
    const lag: Line = { name: 'Lag', colour: 1, values: points.map((point) => point.value.lag) };
    const more: Line = { name: 'At most, where it has no offset', colour: 2, values: points.map((point) => point.value.without_offset) };
    return points.some((point) => point.value.without_offset > 0) ? [lag, more] : [lag];
  }, [points]);
  return <Chart title="Lag, records" at={at} lines={lines} format={count} height={150} empty="The first values are on their way, if the group has offsets." />;
}

const OFFSETS: Column<GroupOffset>[] = [
  { head: 'Topic', main: true, cell: (one) => <a href={to(['topics', one.topic])}>{one.topic}</a> },
  { head: 'Partition', number: true, cell: (one) => one.partition },
  { head: 'Committed', number: true, cell: (one) => count(one.committed) },
  { head: 'End', number: true, cell: (one) => count(one.high_watermark) },
  { head: 'Lag', number: true, cell: (one) => count(one.lag) },
  { head: 'Committed at (local)', cell: (one) => time(one.committed_at) },
  { head: 'Member', cell: (one) => <span class="mono small">{one.member ?? '–'}</span> },
];

function Offsets({ group }: { group: GroupFull }) {
  if (group.offsets.length === 0) {
    return (
      <Empty title="The group has committed nothing yet.">
        <p>Offsets appear with the first commit of a member, or when they are set here.</p>
      </Empty>
    );
  }
  const rows = [...group.offsets].sort((one, other) => one.topic.localeCompare(other.topic) || one.partition - other.partition);
  const flying: Column<GroupOffset> = { head: 'In flight', number: true, cell: (one) => count(one.in_flight) };
  const columns = group.kind === 'share' ? [...OFFSETS.slice(0, 5), flying] : OFFSETS;
  return <PagedTable label="Offsets" columns={columns} rows={rows} id={(one) => `${one.topic}/${one.partition}`} />;
}

const MEMBERS: Column<GroupMember>[] = [
  {
    head: 'Member',
    main: true,
    cell: (one) => (
      <>
        <span>{one.client_id}</span>
        <p class="doc mono">{one.instance ?? one.id}</p>
      </>
    ),
  },
  { head: 'Host', cell: (one) => <span class="mono">{one.host}</span> },
  { head: 'Epoch', number: true, cell: (one) => count(one.epoch) },
  { head: 'Has', cell: (one) => one.assignment.map((part) => `${part.topic}: ${part.partitions.join(', ')}`).join('; ') || <span class="faint">nothing</span> },
];

function Members({ group }: { group: GroupFull }) {
  if (group.member_list.length === 0) return <Empty title="Nobody is in the group now." />;
  return <PagedTable label="Members" columns={MEMBERS} rows={group.member_list} id={(one) => one.id} />;
}

function Settings({ name }: { name: string }) {
  const address = path('groups', name, 'config');
  const { data, refusal, loading, reload } = useResource<{ config: Setting[] }>(address, {}, 5000);
  return (
    <>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && <SettingsTable settings={data.config} address={address} look={async () => (await get<{ config: Setting[] }>(address)).config} onChanged={reload} />}
    </>
  );
}
