// One connection: who it is, what it moves, and why it is slow.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { ask, path } from '../api.ts';
import { byteRate, bytes, count, time } from '../format.ts';
import { useResource } from '../resource.ts';
import { go, to } from '../router.ts';
import type { Connection } from '../types.ts';
import { Chart, type Line } from '../ui/chart.tsx';
import { Confirm } from '../ui/dialog.tsx';
import { Loading, Notice, Refused, Section, Title } from '../ui/parts.tsx';
import { Why } from './why.tsx';

const KEPT = 300;

/** What the rates were since the page was opened. */
function useRates(connection: Connection | null) {
  const [points, setPoints] = useState<{ at: number; received: number; sent: number }[]>([]);
  useEffect(() => {
    if (connection === null) return;
    setPoints((before) => [...before, { at: Date.now(), received: connection.rates.in_bytes, sent: connection.rates.out_bytes }].slice(-KEPT));
  }, [connection]);
  return points;
}

export function ConnectionPage({ id }: { id: string }) {
  const { data, refusal, loading } = useResource<Connection>(path('connections', id), {}, 2000);
  const [asked, setAsked] = useState(false);
  const points = useRates(data);
  const at = useMemo(() => points.map((point) => point.at), [points]);
  const lines = useMemo<Line[]>(
    () => [
      { name: 'In', colour: 1, values: points.map((point) => point.received) },
      { name: 'Out', colour: 2, values: points.map((point) => point.sent) },
    ],
    [points],
  );
  const gone = refusal?.status === 404;
  return (
    <>
      <Title title={data?.client_id ?? data?.address ?? `Connection ${id}`} above={{ text: 'Connections', href: '#/connections' }} about={data?.name}>
        {data && (
          <button type="button" class="danger" onClick={() => setAsked(true)}>
            Close
          </button>
        )}
      </Title>
      {gone ? <Notice>The connection has ended.</Notice> : <Refused refusal={refusal} />}
      {loading && <Loading />}
      {data && (
        <>
          <Why subject={data.client_id ? { client: data.client_id } : {}} peer={data.address} />
          <div class="charts">
            <Chart title="Throughput" at={at} lines={lines} format={byteRate} binary />
          </div>
          <Facts connection={data} />
        </>
      )}
      {asked && (
        <Confirm title="Close the connection?" submit="Close it" act={() => ask('DELETE', path('connections', id))} onClose={() => setAsked(false)} onDone={() => go(['connections'])}>
          <p>Most clients connect again by themselves.</p>
        </Confirm>
      )}
    </>
  );
}

function Facts({ connection }: { connection: Connection }) {
  const rows: [string, string | null][] = [
    ['Protocol', connection.protocol],
    ['User', connection.user ?? 'nobody has logged in'],
    ['Logged in by', connection.mechanism],
    ['Software', connection.software],
    ['From', connection.address],
    ['To', connection.local],
    ['TLS', connection.tls === null || connection.tls === undefined ? null : connection.tls ? 'yes' : 'no'],
    ['Virtual host', connection.vhost],
    ['Channels', connection.channels === null ? null : count(connection.channels)],
    ['Connected (local)', time(connection.connected_at)],
    ['Received', bytes(connection.received_bytes)],
    ['Sent', bytes(connection.sent_bytes)],
  ];
  return (
    <Section title="What is known of it" actions={connection.user && <a href={to(['users', connection.user])}>User {connection.user}</a>}>
      <dl class="facts">
        {rows
          .filter(([, value]) => value !== null)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </Section>
  );
}
