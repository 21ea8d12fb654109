// All groups of consumers, of every kind.

import { count } from '../format.ts';
import { to, useAsked } from '../router.ts';
import type { Group } from '../types.ts';
import { Badge, Empty, Tabs, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';
import { Filters } from './filter.tsx';

const KINDS: Record<string, string> = { classic: 'classic', consumer: 'consumer', share: 'share', streams: 'streams' };

export function GroupState({ state, members }: { state: string; members: number }) {
  const settled = /stable/i.test(state);
  const moving = /rebalance|reconciling|assigning|preparing|completing|notready/i.test(state);
  return <Badge tone={settled && members > 0 ? 'good' : moving ? 'warn' : 'plain'}>{state}</Badge>;
}

const COLUMNS: Column<Group>[] = [
  {
    head: 'Group',
    sort: 'name',
    main: true,
    cell: (group) => (
      <>
        <a href={to(['groups', group.name])}>{group.name}</a>
        {group.filter !== null && <span class="tag">filtered</span>}
      </>
    ),
  },
  { head: 'Kind', sort: 'kind', cell: (group) => KINDS[group.kind] ?? group.kind },
  { head: 'State', sort: 'state', cell: (group) => <GroupState state={group.state} members={group.members} /> },
  { head: 'Members', sort: 'members', number: true, cell: (group) => count(group.members) },
  { head: 'Topics', sort: 'topics', number: true, cell: (group) => count(group.topics) },
  { head: 'Lag', sort: 'lag', number: true, cell: (group) => (group.without_offset.partitions > 0 ? `${count(group.lag)} and up to ${count(group.without_offset.records)}` : count(group.lag)) },
];

const TABS = [
  { id: 'groups', text: 'Groups' },
  { id: 'filters', text: 'Filters' },
];

export function Groups({ query }: { query: URLSearchParams }) {
  const tab = query.get('tab') ?? 'groups';
  return (
    <>
      <Title title="Consumer groups" about="Kafka groups and shared subscriptions. Lag is the records that a group has not done with. Where it has no offset yet, its clients say where it begins: at most all records there come on top." />
      <Tabs tabs={TABS} chosen={tab} />
      <div role="tabpanel" aria-labelledby={`tab-${tab}`} class="panel">
        {tab === 'filters' ? <Filters /> : <All />}
      </div>
    </>
  );
}

function All() {
  const [kind, setKind] = useAsked('kind');
  return (
    <Listing
      label="groups"
      address="/v1/groups"
      query={{ kind }}
      columns={COLUMNS}
      id={(group) => group.name}
      more={
        <label class="pick">
          Kind{' '}
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="">all</option>
            {Object.keys(KINDS).map((id) => (
              <option key={id} value={id}>
                {KINDS[id]}
              </option>
            ))}
          </select>
        </label>
      }
      empty={
        <Empty title={kind === '' ? 'There is no group yet.' : 'There is no group of this kind.'}>
          <p>A group appears when a consumer with a group id joins or commits. Start one, for instance:</p>
          <pre tabIndex={0}>kcat -b {location.hostname}:9092 -G readers -X auto.offset.reset=earliest TOPIC</pre>
        </Empty>
      }
    />
  );
}
