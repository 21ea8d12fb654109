// Filters of groups: which groups get which records only. What an expression cannot be is said at its place, by the server.

import { useState } from 'preact/hooks';
import { ask, get, path, withQuery, type List } from '../api.ts';
import { useResource } from '../resource.ts';
import { to } from '../router.ts';
import type { Filter } from '../types.ts';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Form, Text, useWork } from '../ui/form.tsx';
import { Empty, Notice } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';

/** The filter of one group, by its exact name. */
async function filterOf(group: string): Promise<Filter | null> {
  const found = await get<List<Filter>>('/v1/filters', { search: group, limit: 1000 });
  return found.items.find((one) => one.name === group) ?? null;
}

/** Of the page of a group: what its members get, and changing that. */
export function GroupFilter({ group, onChanged }: { group: string; onChanged: () => void }) {
  const { data, reload } = useResource<List<Filter>>('/v1/filters', { search: group, limit: 1000 }, 5000);
  const [asked, setAsked] = useState<'set' | 'remove' | null>(null);
  const filter = data?.items.find((one) => one.name === group) ?? null;
  const changed = (): void => {
    reload();
    onChanged();
  };
  return (
    <>
      {filter ? (
        <Notice>
          Only records pass for which <code>{filter.expression}</code> is true.{' '}
          <span class="pair-buttons">
            <button type="button" class="small" onClick={() => setAsked('set')}>
              Change filter
            </button>
            <button type="button" class="small" onClick={() => setAsked('remove')}>
              Remove filter
            </button>
          </span>
        </Notice>
      ) : (
        data && (
          <p class="said">
            Members get all records.{' '}
            <button type="button" class="small" onClick={() => setAsked('set')}>
              Set a filter
            </button>
          </p>
        )
      )}
      {asked === 'set' && <FilterForm group={group} filter={filter} onClose={() => setAsked(null)} onDone={changed} />}
      {asked === 'remove' && <RemoveFilter group={group} onClose={() => setAsked(null)} onDone={changed} />}
    </>
  );
}

export function Filters() {
  const [asked, setAsked] = useState<{ remove: boolean; filter: Filter } | 'new' | null>(null);
  const [turn, setTurn] = useState(0);
  const close = (): void => setAsked(null);
  const changed = (): void => setTurn((number) => number + 1);
  const columns: Column<Filter>[] = [
    { head: 'Group', sort: 'name', main: true, cell: (one) => <a href={to(['groups', one.name])}>{one.name}</a> },
    { head: 'Gets only records for which', cell: (one) => <code>{one.expression}</code> },
    { head: 'Client ids of members', cell: (one) => one.client_ids.join(', ') },
    {
      head: '',
      cell: (one) => (
        <span class="pair-buttons">
          <button type="button" class="small" aria-label={`Change the filter of ${one.name}`} onClick={() => setAsked({ remove: false, filter: one })}>
            Change
          </button>
          <button type="button" class="small" aria-label={`Remove the filter of ${one.name}`} onClick={() => setAsked({ remove: true, filter: one })}>
            Remove
          </button>
        </span>
      ),
    },
  ];
  const make = (
    <button type="button" class="primary" onClick={() => setAsked('new')}>
      New filter
    </button>
  );
  return (
    <>
      <Listing
        label="filters"
        address="/v1/filters"
        columns={columns}
        id={(one) => one.name}
        placeholder="Search by group"
        turn={turn}
        more={make}
        empty={
          <Empty title="No group has a filter.">
            <p>Members of a group with a filter get only the records for which it is true, whatever client they are.</p>
          </Empty>
        }
      />
      {asked === 'new' && <FilterForm group={null} filter={null} onClose={close} onDone={changed} />}
      {asked !== null && asked !== 'new' && !asked.remove && <FilterForm group={asked.filter.name} filter={asked.filter} onClose={close} onDone={changed} />}
      {asked !== null && asked !== 'new' && asked.remove && <RemoveFilter group={asked.filter.name} onClose={close} onDone={changed} />}
    </>
  );
}

interface FormProps {
  /** None: it is asked for. */
  group: string | null;
  filter: Filter | null;
  onClose: () => void;
  onDone: () => void;
}

function FilterForm({ group, filter, onClose, onDone }: FormProps) {
  const [name, setName] = useState(group ?? '');
  const [expression, setExpression] = useState(filter?.expression ?? '');
  const [ids, setIds] = useState(filter?.client_ids.join(', ') ?? '');
  const [seen, setSeen] = useState(filter?.expression ?? null);
  const [before, setBefore] = useState<Filter | null>(null);
  const work = useWork();
  const save = async (): Promise<void> => {
    const body = { expression, client_ids: ids.split(',').map((id) => id.trim()).filter((id) => id !== '') };
    let replaced: Filter | null = null;
    const done = await work.run(async () => {
      await ask('PUT', withQuery(path('filters', name), { dry_run: true }), body);
      const now = await filterOf(name);
      if ((now?.expression ?? null) !== seen) replaced = now;
      if (replaced === null) await ask('PUT', path('filters', name), body);
    });
    setBefore(replaced);
    if (replaced !== null) setSeen((replaced as Filter).expression);
    if (!done || replaced !== null) return;
    onClose();
    onDone();
  };
  return (
    <Dialog title={group === null ? 'New filter' : `Filter of ${group}`} onClose={onClose} wide>
      <Form work={work} submit="Save" disabled={name === ''} onSubmit={() => void save()}>
        {group === null && <Text label="Group" name="group" value={name} onValue={setName} autofocus wide mono />}
        <Text
          label="Only records for which this is true"
          name="expression"
          value={expression}
          onValue={setExpression}
          rows={3}
          wide
          mono
          placeholder="key IN ('eu', 'us') AND header.type = 'invoice'"
          help="key, header.NAME and timestamp, with =, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT."
        />
        <Text label="Client ids of members" name="client_ids" value={ids} onValue={setIds} wide mono help="Only for clients whose connections do not tell which group they fetch for, such as franz-go. With commas between." />
        {before && (
          <Notice tone="warn">
            Meanwhile the group has the filter <code>{before.expression}</code>. Save once more to replace it.
          </Notice>
        )}
      </Form>
    </Dialog>
  );
}

function RemoveFilter({ group, onClose, onDone }: { group: string; onClose: () => void; onDone: () => void }) {
  return (
    <Confirm title={`Remove the filter of ${group}?`} submit="Remove filter" act={() => ask('DELETE', path('filters', group))} onClose={onClose} onDone={onDone}>
      <p>Its members get all records from then on.</p>
    </Confirm>
  );
}
