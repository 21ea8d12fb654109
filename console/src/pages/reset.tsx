// Sets the offsets of a group anew: first what would change, then the change.

import { useState } from 'preact/hooks';
import { ask, path, withQuery } from '../api.ts';
import { count, zone } from '../format.ts';
import type { GroupFull } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Empty, Notice } from '../ui/parts.tsx';
import { Table, type Column } from '../ui/table.tsx';

interface Change {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
  change: number | null;
}

const COLUMNS: Column<Change>[] = [
  { head: 'Topic', main: true, cell: (one) => one.topic },
  { head: 'Partition', number: true, cell: (one) => one.partition },
  { head: 'From', number: true, cell: (one) => count(one.from) },
  { head: 'To', number: true, cell: (one) => count(one.to) },
  { head: 'Change', number: true, cell: (one) => (one.change === null ? 'new' : `${one.change > 0 ? '+' : one.change < 0 ? '−' : ''}${count(Math.abs(one.change))}`) },
];

const HOUR = 3_600_000;

/** What is asked for, as the server wants it. */
function wish(to: string, number: string, moment: string): unknown {
  switch (to) {
    case 'offset':
      return { offset: Number(number) };
    case 'shift':
      return { shift: Number(number) };
    case 'ago':
      return { duration_ms: Math.round(Number(number) * HOUR) };
    case 'time':
      return { timestamp: new Date(moment).getTime() };
    default:
      return to;
  }
}

export function Reset({ group, onClose, onDone }: { group: GroupFull; onClose: () => void; onDone: () => void }) {
  const [to, setTo] = useState('earliest');
  const [number, setNumber] = useState('');
  const [moment, setMoment] = useState('');
  const [topic, setTopic] = useState('');
  const [preview, setPreview] = useState<Change[] | null>(null);
  const [done, setDone] = useState(false);
  const work = useWork();
  const topics = [...new Set(group.offsets.map((one) => one.topic))].sort();
  const body = { to: wish(to, number, moment), topics: topic === '' ? null : [topic], partitions: null };
  const address = path('groups', group.name, 'reset');
  // What was looked at counts only as long as nothing else is asked for.
  const change = (set: (value: string) => void) => (value: string) => {
    set(value);
    setPreview(null);
    setDone(false);
  };
  const look = (): Promise<boolean> =>
    work.run(async () => {
      const answer = await ask<{ offsets: Change[] }>('POST', withQuery(address, { dry_run: true }), body);
      setPreview(answer.offsets);
    });
  const apply = (): Promise<boolean> =>
    work.run(async () => {
      const answer = await ask<{ offsets: Change[] }>('POST', address, body);
      setPreview(answer.offsets);
      setDone(true);
      onDone();
    });
  return (
    <Dialog title={`Reset offsets of ${group.name}`} onClose={onClose} wide>
      {group.members > 0 && <Notice tone="warn">The group has members. Offsets can be set only while nobody is in it: stop its consumers first.</Notice>}
      <Form
        work={work}
        submit={preview === null ? 'Preview' : 'Reset offsets'}
        disabled={done || (preview !== null && preview.length === 0)}
        danger={preview !== null}
        onSubmit={() => void (preview === null ? look() : apply())}
        more={
          <button type="button" onClick={onClose}>
            {done ? 'Close' : 'Cancel'}
          </button>
        }
      >
        <Choice label="Topic" name="topics" value={topic} onValue={change(setTopic)} choices={[{ value: '', text: 'all that it has offsets of' }, ...topics.map((one) => ({ value: one, text: one }))]} />
        <Choice
          label="To"
          name="to"
          value={to}
          onValue={change(setTo)}
          choices={[
            { value: 'earliest', text: 'the oldest record' },
            { value: 'latest', text: 'the end' },
            { value: 'time', text: 'a time' },
            { value: 'ago', text: 'hours ago' },
            { value: 'offset', text: 'an offset' },
            ...(group.kind === 'share' ? [] : [{ value: 'shift', text: 'forward or back by records' }]),
          ]}
        />
        {['offset', 'shift', 'ago'].includes(to) && (
          <Text
            label={to === 'offset' ? 'Offset' : to === 'ago' ? 'Hours' : 'Records'}
            name={`to.${to === 'ago' ? 'duration_ms' : to}`}
            type="number"
            step={to === 'ago' ? 'any' : '1'}
            value={number}
            onValue={change(setNumber)}
            help={to === 'shift' ? 'Negative: back.' : undefined}
          />
        )}
        {to === 'time' && <Text label="Local time" name="to.timestamp" type="datetime-local" step="1" value={moment} onValue={change(setMoment)} help={zone()} />}
        {done && <Notice tone="good">The offsets are set.</Notice>}
        {preview !== null && preview.length > 0 && (
          <div class="wide">
            <h3>{done ? 'What has changed' : 'What would change'}</h3>
            <Table label="Offsets before and after" columns={COLUMNS} rows={preview} id={(one) => `${one.topic}/${one.partition}`} />
          </div>
        )}
        {preview !== null && preview.length === 0 && <Empty title="Nothing would change." />}
      </Form>
    </Dialog>
  );
}
