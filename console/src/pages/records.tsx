// The records of a topic: look for some, look at one, publish one. The broker looks for a bounded time and says how far it came.

import { useEffect, useRef, useState } from 'preact/hooks';
import { asRefusal, get, isAborted, path, type Query, type Refusal } from '../api.ts';
import { bytes, count, localInput, plural, timeMillis, zone } from '../format.ts';
import { pretty } from '../pretty.ts';
import { adjust, to } from '../router.ts';
import type { FieldValue, RecordShown, RecordsFound } from '../types.ts';
import { Choice, Form, Text, type Work } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Empty, Notice } from '../ui/parts.tsx';
import { Publish } from './publish.tsx';

interface Wish {
  partition: string;
  order: string;
  from: string;
  offset: string;
  time: string;
  key: string;
  header: string;
  text: string;
  json: string;
}

const LIMIT = 50;

/** What the address asks for, under the names that the server has for it; moments are the same everywhere. */
const ASKED = ['partition', 'order', 'at_offset', 'at_time', 'key_contains', 'header', 'text', 'json'];

function wishOf(query: URLSearchParams): Wish {
  const of = (name: string): string => query.get(name) ?? '';
  const from = query.has('at_offset') ? 'offset' : query.has('at_time') ? 'time' : 'end';
  const order = of('order') === 'oldest' ? 'oldest' : 'newest';
  return { partition: of('partition'), order, from, offset: of('at_offset'), time: localInput(Number(of('at_time'))), key: of('key_contains'), header: of('header'), text: of('text'), json: of('json') };
}

function askedBy(wish: Wish): Record<string, string> {
  const moment = new Date(wish.time).getTime();
  return {
    partition: wish.partition,
    order: wish.order === 'oldest' ? 'oldest' : '',
    at_offset: wish.from === 'offset' ? wish.offset : '',
    at_time: wish.from === 'time' && Number.isFinite(moment) ? String(moment) : '',
    key_contains: wish.key,
    header: wish.header,
    text: wish.text,
    json: wish.json,
  };
}

const queryOf = (wish: Wish): Query => ({ ...askedBy(wish), order: wish.order, limit: LIMIT });

interface Found extends RecordsFound {
  of: Query;
}

/** Asks page by page; what was looked through adds up. */
function useRecords(topic: string) {
  const [found, setFound] = useState<Found | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const search = async (query: Query, before: Found | null): Promise<void> => {
    abort.current?.abort();
    const own = new AbortController();
    abort.current = own;
    setBusy(true);
    setRefusal(null);
    try {
      const cursor = before?.cursor ?? null;
      const next = await get<RecordsFound>(path('topics', topic, 'records'), { ...query, cursor }, own.signal);
      const sum = before ?? { records: [], looked_records: 0, looked_bytes: 0, unread: [] };
      setFound({
        of: query,
        records: [...sum.records, ...next.records],
        cursor: next.cursor,
        looked_records: sum.looked_records + next.looked_records,
        looked_bytes: sum.looked_bytes + next.looked_bytes,
        cut: next.cut,
        unread: [...sum.unread, ...next.unread],
      });
    } catch (error) {
      if (isAborted(error)) return;
      setRefusal(asRefusal(error));
    }
    if (abort.current === own) setBusy(false);
  };
  const stop = (): void => {
    abort.current?.abort();
    setBusy(false);
  };
  useEffect(() => () => abort.current?.abort(), []);
  return { found, refusal, busy, search, stop };
}

export function Records({ topic, partitions, query }: { topic: string; partitions: number; query: URLSearchParams }) {
  const asked = JSON.stringify(ASKED.map((name) => query.get(name)));
  const [wish, setWish] = useState<Wish>(wishOf(query));
  const [publishing, setPublishing] = useState(false);
  const { found, refusal, busy, search, stop } = useRecords(topic);
  const change = (changes: Partial<Wish>): void => setWish({ ...wish, ...changes });
  const begin = (): void => void search(queryOf(wishOf(query)), null);
  useEffect(() => {
    setWish(wishOf(query));
    begin();
  }, [asked]);
  const submit = (): void => {
    const before = location.hash;
    adjust(askedBy(wish));
    // The same again: there may be more by now.
    if (location.hash === before) begin();
  };
  const work: Work = { busy: false, refusal, run: () => Promise.resolve(true), clear: () => {} };
  return (
    <>
      <Form
        work={work}
        submit="Search"
        class="filters"
        onSubmit={submit}
        more={
          <>
            {busy && (
              <button type="button" onClick={stop}>
                Stop
              </button>
            )}
            <button type="button" onClick={() => setPublishing(true)}>
              <Icon name="plus" /> Publish a record
            </button>
          </>
        }
      >
        <Where wish={wish} change={change} partitions={partitions} />
        <Text label="Key contains" name="key_contains" value={wish.key} onValue={(key) => change({ key })} />
        <Text label="Header" name="header" value={wish.header} onValue={(header) => change({ header })} placeholder="name or name=value" />
        <Text label="Value contains" name="text" value={wish.text} onValue={(text) => change({ text })} />
        <Text label="JSON in the value" name="json" value={wish.json} onValue={(json) => change({ json })} placeholder="order.total >= 100" mono />
      </Form>
      {found && <Outcome topic={topic} found={found} busy={busy} onMore={() => void search(found.of, found)} onPublish={() => setPublishing(true)} />}
      {!found && busy && (
        <p class="loading" role="status">
          Looking…
        </p>
      )}
      {publishing && <Publish topic={topic} partitions={partitions} onClose={() => setPublishing(false)} onDone={begin} />}
    </>
  );
}

function Where({ wish, change, partitions }: { wish: Wish; change: (changes: Partial<Wish>) => void; partitions: number }) {
  const all = Array.from({ length: Math.min(partitions, 1000) }, (_, number) => ({ value: String(number), text: String(number) }));
  const forward = wish.order === 'oldest';
  return (
    <>
      <Choice label="Partition" name="partition" value={wish.partition} onValue={(partition) => change({ partition })} choices={[{ value: '', text: 'all' }, ...all]} />
      <Choice
        label="Order"
        name="order"
        value={wish.order}
        onValue={(order) => change({ order })}
        choices={[
          { value: 'newest', text: 'newest first' },
          { value: 'oldest', text: 'oldest first' },
        ]}
      />
      <Choice
        label={forward ? 'Beginning at' : 'Going back from'}
        name="from"
        value={wish.from}
        onValue={(from) => change({ from })}
        choices={[
          { value: 'end', text: forward ? 'the oldest record' : 'the newest record' },
          { value: 'offset', text: 'an offset' },
          { value: 'time', text: 'a time' },
        ]}
      />
      {wish.from === 'offset' && <Text label="Offset" name="at_offset" value={wish.offset} onValue={(offset) => change({ offset })} />}
      {wish.from === 'time' && <Text label="Local time" name="at_time" type="datetime-local" step="1" value={wish.time} onValue={(time) => change({ time })} help={zone()} />}
    </>
  );
}

function Outcome({ topic, found, busy, onMore, onPublish }: { topic: string; found: Found; busy: boolean; onMore: () => void; onPublish: () => void }) {
  const filtered = ['key_contains', 'header', 'text', 'json'].some((name) => found.of[name] !== '');
  return (
    <>
      {found.unread.length > 0 && (
        <Notice tone="warn">
          {plural(found.unread.length, 'batch', 'batches')} could not be read, the first at partition {found.unread[0]?.partition}, offset {found.unread[0]?.offset}: {found.unread[0]?.reason}
        </Notice>
      )}
      {found.records.length > 0 && <RecordList topic={topic} records={found.records} />}
      {found.records.length === 0 && found.cursor === null && (
        <Empty title={filtered ? 'No record is like that.' : 'There is no record here.'}>
          {!filtered && (
            <button type="button" onClick={onPublish}>
              Publish a record
            </button>
          )}
        </Empty>
      )}
      <p class="looked" role="status">
        {filtered ? `${plural(found.records.length, 'record')} found among ${count(found.looked_records)} (${bytes(found.looked_bytes)}).` : `${plural(found.records.length, 'record')}.`}{' '}
        {found.cursor === null ? 'That is all.' : found.cut ? 'There is more to look through.' : ''}
      </p>
      {found.cursor !== null && (
        <button type="button" disabled={busy} aria-busy={busy} onClick={onMore}>
          {busy ? 'Looking…' : found.records.length === 0 || found.cut ? 'Look further' : 'Show more'}
        </button>
      )}
    </>
  );
}

const idOf = (record: RecordShown): string => `${record.partition}/${record.offset}`;

function RecordList({ topic, records }: { topic: string; records: RecordShown[] }) {
  return (
    <div class="records">
      <div class="record-head" aria-hidden="true">
        <span>Time (local)</span>
        <span>Partition</span>
        <span>Offset</span>
        <span>Key</span>
        <span>Value</span>
      </div>
      {records.map((record) => (
        <details key={idOf(record)} class="record">
          <summary>
            <span class="at">{timeMillis(record.timestamp)}</span>
            <span class="partition" title="Partition">
              {record.partition}
            </span>
            <span class="offset" title="Offset">
              {record.offset}
            </span>
            <span class="key">{short(record.key)}</span>
            <span class="value">{short(record.value)}</span>
          </summary>
          <Detail topic={topic} record={record} />
        </details>
      ))}
    </div>
  );
}

/** The beginning, in a line. */
function short(field: FieldValue | null) {
  if (field === null) return <span class="faint">none</span>;
  if (field.bytes === 0) return <span class="faint">empty</span>;
  if (field.text === null) return <span class="faint">{bytes(field.bytes)} that are no text</span>;
  return field.text.slice(0, 300).replace(/\s+/g, ' ');
}

function Detail({ topic, record }: { topic: string; record: RecordShown }) {
  const address = to(['topics', topic], { tab: 'records', partition: String(record.partition), order: 'oldest', at_offset: String(record.offset) });
  return (
    <div class="detail">
      <p class="faint">
        Partition {record.partition}, offset {record.offset}, {bytes(record.bytes)}
        {record.amqp && (
          <>
            , published to {record.amqp.exchange === '' ? 'the default exchange' : <>exchange “{record.amqp.exchange}”</>} with routing key “{record.amqp.routing_key}”
          </>
        )}{' '}
        <a href={address}>Address of this record</a>
      </p>
      {record.key !== null && <Content name="Key" field={record.key} />}
      {record.value === null ? <p class="faint">No value: a tombstone.</p> : <Content name="Value" field={record.value} />}
      {record.headers.length > 0 && (
        <>
          <h4>Headers</h4>
          <dl class="headers">
            {record.headers.map((header, number) => (
              <div key={number}>
                <dt>{header.name}</dt>
                <dd>{header.value === null ? <span class="faint">none</span> : (header.value.text ?? <span class="faint">base64 {header.value.base64}</span>)}</dd>
              </div>
            ))}
          </dl>
          {record.headers_left_out > 0 && <p class="faint">and {count(record.headers_left_out)} more that are not shown</p>}
        </>
      )}
    </div>
  );
}

function Content({ name, field }: { name: string; field: FieldValue }) {
  const text = field.text ?? field.base64 ?? '';
  return (
    <>
      <h4>
        {name}
        {field.text === null && <span class="faint"> as base64</span>}
        {field.truncated && <span class="faint"> (the beginning of {bytes(field.bytes)})</span>}
      </h4>
      <pre tabIndex={0}>{field.truncated ? text : pretty(text)}</pre>
    </>
  );
}
