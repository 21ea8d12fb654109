// What the node does now: throughput, latency, memory, and whether something is wrong.

import { useMemo } from 'preact/hooks';
import type { Session } from '../api.ts';
import { byteRate, bytes, count, duration, millis, rate, short, time } from '../format.ts';
import { useNode } from '../live.ts';
import { useResource } from '../resource.ts';
import { useAsked } from '../router.ts';
import type { NodeSample, Overview } from '../types.ts';
import { Chart, type Line } from '../ui/chart.tsx';
import { Badge, Loading, Meter, Notice, Refused, Section, Stat, Title } from '../ui/parts.tsx';
import { Why } from './why.tsx';

type Operation = 'produce' | 'fetch' | 'commit';
const OPERATIONS: { id: Operation; text: string }[] = [
  { id: 'produce', text: 'Produce' },
  { id: 'fetch', text: 'Fetch' },
  { id: 'commit', text: 'Commit' },
];

export function OverviewPage({ session }: { session: Session }) {
  const { data, refusal, loading } = useResource<Overview>('/v1/overview', {}, 5000);
  // What the first notice says need not be said twice.
  const warnings = data?.warnings.filter((warning) => !(session.anonymous && warning.code === 'no_users')) ?? [];
  return (
    <>
      <Title title="Overview" about={data && `${data.host}, version ${data.version}, up ${duration(data.uptime_ms)}`}>
        {data && <Phase phase={data.phase} />}
      </Title>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {session.anonymous && (
        <Notice tone="warn">
          Nobody has to log in: no user is defined, so whoever is on this machine may do everything. <a href="#/users">Define an administrator</a>, and everybody logs in from
          then on.
        </Notice>
      )}
      {warnings.map((warning) => (
        <Notice key={warning.code} tone="bad">
          {warning.text}
        </Notice>
      ))}
      {session.monitoring && <Now overview={data} />}
      {session.monitoring && <Why subject={{}} every={10_000} />}
      {data && <Counts overview={data} />}
      {data && <Facts overview={data} />}
    </>
  );
}

function Phase({ phase }: { phase: Overview['phase'] }) {
  const tone = phase === 'ready' ? 'good' : phase === 'stopped' ? 'bad' : 'warn';
  return <Badge tone={tone}>{phase === 'ready' ? 'Ready' : phase === 'stopped' ? 'Reads only' : phase}</Badge>;
}

function Now({ overview }: { overview: Overview | null }) {
  const { samples } = useNode();
  const [asked, setAsked] = useAsked('latency', 'produce');
  const operation = OPERATIONS.find((one) => one.id === asked)?.id ?? 'produce';
  const at = useMemo(() => samples.map((sample) => sample.at), [samples]);
  const throughput = useMemo<Line[]>(() => [line('In', 1, samples, (one) => one.rates.in_bytes), line('Out', 2, samples, (one) => one.rates.out_bytes)], [samples]);
  const latency = useMemo<Line[]>(
    () => [
      line('p50', 1, samples, (one) => one.latency[operation].p50_ms),
      line('p99', 2, samples, (one) => one.latency[operation].p99_ms),
      line('p99.9', 3, samples, (one) => one.latency[operation].p999_ms),
    ],
    [samples, operation],
  );
  const records = useMemo<Line[]>(
    () => [line('Kafka records', 1, samples, (one) => one.rates.kafka_in_records), line('AMQP messages', 2, samples, (one) => one.rates.amqp_published)],
    [samples],
  );
  const memory = useMemo<Line[]>(() => [line('Resident', 1, samples, (one) => one.memory.resident_bytes), line('Budget', 4, samples, (one) => one.memory.budget_bytes)], [samples]);
  const last = samples.at(-1);
  return (
    <>
      <dl class="stats">
        <Stat name="In" value={byteRate(last?.rates.in_bytes)} note={last && `${short(last.rates.kafka_in_records + last.rates.amqp_published)} records/s`} />
        <Stat name="Out" value={byteRate(last?.rates.out_bytes)} />
        <Stat name="Produce, p99" value={millis(last?.latency.produce.p99_ms)} note={last && `commit ${millis(last.latency.commit.p99_ms)}`} />
        <Stat name="Connections" value={count(last?.connections ?? overview?.counts.connections)} />
        <Stat name="Memory" value={bytes(last?.memory.resident_bytes)} note={last && `of a budget of ${bytes(last.memory.budget_bytes)}`} />
      </dl>
      <div class="charts">
        <Chart title="Throughput" at={at} lines={throughput} format={byteRate} binary />
        <Chart title="Latency" at={at} lines={latency} format={millis} empty="No requests yet.">
          <div class="choice" role="group" aria-label="Latency of">
            {OPERATIONS.map((one) => (
              <button key={one.id} type="button" aria-pressed={one.id === operation} onClick={() => setAsked(one.id)}>
                {one.text}
              </button>
            ))}
          </div>
        </Chart>
        <Chart title="Records in" at={at} lines={records} format={rate} />
        <Chart title="Memory" at={at} lines={memory} format={bytes} binary />
      </div>
      {last && <MemoryUses memory={last.memory} />}
    </>
  );
}

function line(name: string, colour: Line['colour'], samples: NodeSample[], value: (sample: NodeSample) => number | null): Line {
  return { name, colour, values: samples.map(value) };
}

function MemoryUses({ memory }: { memory: NodeSample['memory'] }) {
  const uses = [...memory.uses].sort((one, other) => other.bytes - one.bytes);
  return (
    <Section title="Memory budget" about={`Caches and buffers take their shares of ${bytes(memory.budget_bytes)} on first use. At the bound connections are not read until there is room.`}>
      <div class="meters">
        {uses.map((use) => (
          <Meter key={use.name} name={use.text} part={use.bytes} whole={memory.budget_bytes} text={bytes(use.bytes)} />
        ))}
      </div>
    </Section>
  );
}

const COUNTED: [string, string, string][] = [
  ['topics', 'Topics', '#/topics'],
  ['partitions', 'Partitions', '#/topics'],
  ['groups', 'Groups', '#/groups'],
  ['queues', 'Queues', '#/queues'],
  ['exchanges', 'Exchanges', '#/exchanges'],
  ['connections', 'Connections', '#/connections'],
  ['channels', 'Channels', '#/connections'],
  ['consumers', 'Consumers', '#/queues'],
];

function Counts({ overview }: { overview: Overview }) {
  return (
    <Section title="What there is">
      <ul class="counts">
        {COUNTED.filter(([id]) => overview.counts[id] !== undefined).map(([id, text, href]) => (
          <li key={id}>
            <a href={href}>
              <strong>{short(overview.counts[id])}</strong> {text}
            </a>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Facts({ overview }: { overview: Overview }) {
  return (
    <Section title="This node">
      <dl class="facts">
        <div>
          <dt>Cluster</dt>
          <dd class="mono">{overview.cluster_id}</dd>
        </div>
        <div>
          <dt>Started (local)</dt>
          <dd>{time(overview.started_at)}</dd>
        </div>
        {overview.disk && (
          <div>
            <dt>Data</dt>
            <dd>
              <span class="mono">{overview.disk.folder}</span>, {bytes(overview.disk.journal_bytes)} used, {bytes(overview.disk.free_bytes)} free
            </dd>
          </div>
        )}
        {overview.listeners?.map((listener) => (
          <div key={`${listener.protocol} ${listener.address}`}>
            <dt>{listener.protocol}</dt>
            <dd>
              <span class="mono">{listener.address}</span> {listener.tls ? 'with TLS' : ''}
            </dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}
