// Quotas: what is set for whom, and what is taken of it now.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, path, withQuery, type List, type Session } from '../api.ts';
import { count, duration } from '../format.ts';
import { useResource } from '../resource.ts';
import { to } from '../router.ts';
import type { Quota, QuotaUse } from '../types.ts';
import { Confirm } from '../ui/dialog.tsx';
import { Icon } from '../ui/icon.tsx';
import { Badge, Empty, Loading, Meter, Notice, Refused, Section, Title } from '../ui/parts.tsx';
import { Table, type Column } from '../ui/table.tsx';
import { LAGGARD_RULES, said, sayLimit, sayUse, textOf, type Limits } from './limits.ts';
import { LimitForm } from './limit-form.tsx';

const EVERY = 3000;
const MOST = 1000;

/** What is set of somebody, wherever it is kept. */
function limitsOf(quotas: Quota[], uses: QuotaUse[]): Limits[] {
  const entities = quotas.map((one) => ({ kind: kindOf(one.entity), entity: one.entity, values: one.values, rules: null }));
  const others = new Map<string, Limits>();
  for (const use of uses) {
    const kind = kindOf(use.entity);
    if (kind !== 'topic' && kind !== 'group') continue;
    const found = others.get(use.name) ?? { kind, entity: use.entity, values: {}, rules: use.rules };
    if (kind === 'topic' && use.limit !== null) found.values[use.key] = use.limit;
    others.set(use.name, found);
  }
  return [...entities, ...others.values()];
}

/** What is set now. */
async function look(): Promise<Limits[]> {
  const [quotas, uses] = await Promise.all([
    ask<List<Quota>>('GET', withQuery('/v1/quotas', { limit: MOST })),
    ask<List<QuotaUse>>('GET', withQuery('/v1/quotas/use', { limit: MOST })),
  ]);
  return limitsOf(quotas.items, uses.items);
}

function kindOf(entity: Record<string, string | null>): Limits['kind'] {
  if ('topic' in entity) return 'topic';
  if ('group' in entity) return 'group';
  if ('ip' in entity) return 'ip';
  if ('user' in entity) return 'client-id' in entity ? 'both' : 'user';
  return 'client-id';
}

/** How fast accounts are taken from, of what two answers say: by account, units a second. */
function useRates(uses: QuotaUse[] | undefined): Map<string, number> {
  const before = useRef(new Map<string, { at: number; taken: number }>());
  const [rates, setRates] = useState(new Map<string, number>());
  useEffect(() => {
    if (uses === undefined) return;
    const at = performance.now();
    const next = new Map<string, { at: number; taken: number }>();
    const found = new Map<string, number>();
    for (const use of uses) {
      const last = before.current.get(accountOf(use));
      next.set(accountOf(use), { at, taken: use.taken });
      // An account that has begun anew says nothing of the time before.
      if (last && use.taken >= last.taken && at > last.at) found.set(accountOf(use), ((use.taken - last.taken) / (at - last.at)) * 1000);
    }
    before.current = next;
    setRates(found);
  }, [uses]);
  return rates;
}

const accountOf = (use: QuotaUse): string => `${use.name}\n${use.key}`;

export function Quotas({ session }: { session: Session }) {
  const quotas = useResource<List<Quota>>('/v1/quotas', { limit: MOST }, EVERY);
  const uses = useResource<List<QuotaUse>>('/v1/quotas/use', { limit: MOST }, EVERY);
  const [edited, setEdited] = useState<Limits | 'new' | null>(null);
  const [removed, setRemoved] = useState<Limits | null>(null);
  const rates = useRates(uses.data?.items);
  const reload = (): void => {
    quotas.reload();
    uses.reload();
  };
  const all = quotas.data && uses.data ? limitsOf(quotas.data.items, uses.data.items) : null;
  const cut = [quotas.data, uses.data].some((list) => list !== null && list.total > list.items.length);
  return (
    <>
      <Title title="Quotas" about="How much users, clients, addresses, topics and groups may do in a second. A change counts at once, for connections that are there too.">
        {session.administrator && (
          <button type="button" class="primary" onClick={() => setEdited('new')}>
            <Icon name="plus" /> New quota
          </button>
        )}
      </Title>
      <Refused refusal={quotas.refusal ?? uses.refusal} />
      {all === null && quotas.refusal === null && uses.refusal === null && <Loading />}
      {cut && <Notice>There are more than are shown: at most {count(MOST)} of each.</Notice>}
      {all !== null && uses.data && uses.data.items.length > 0 && <InUse uses={uses.data.items} rates={rates} />}
      {all !== null && <AllSet all={all} fixed={!session.administrator} onEdit={setEdited} onRemove={setRemoved} />}
      {edited && <LimitForm limits={edited === 'new' ? null : edited} look={look} onClose={() => setEdited(null)} onDone={reload} />}
      {removed && (
        <Confirm title="Take the quota away?" submit="Take away" act={() => takeAway(removed)} onClose={() => setRemoved(null)} onDone={reload}>
          <p>
            {textOf(removed.entity)}: {said(removed).join(', ')}. Who waits because of it goes on at once.
          </p>
        </Confirm>
      )}
    </>
  );
}

function takeAway({ kind, entity, values }: Limits): Promise<unknown> {
  if (kind === 'topic') return ask('PATCH', path('topics', entity.topic ?? '', 'config'), { unset: Object.keys(values) });
  if (kind === 'group') return ask('PATCH', path('groups', entity.group ?? '', 'config'), { unset: [LAGGARD_RULES] });
  return ask('PUT', '/v1/quotas', { entity, values: Object.fromEntries(Object.keys(values).map((key) => [key, null])) });
}

function InUse({ uses, rates }: { uses: QuotaUse[]; rates: Map<string, number> }) {
  const share = (use: QuotaUse): number => (use.limit ? (rates.get(accountOf(use)) ?? 0) / use.limit : 0);
  // Who is held up stands first.
  const rows = [...uses].sort((one, other) => other.wait_ms - one.wait_ms || share(other) - share(one) || one.name.localeCompare(other.name));
  const columns: Column<QuotaUse>[] = [
    { head: 'Who', main: true, cell: (use) => <Whose entity={use.entity} /> },
    { head: 'What', cell: (use) => sayUse(use.key) },
    { head: 'May', number: true, cell: (use) => (use.limit === null ? <span class="faint">no rule applies</span> : sayLimit(use.key, use.limit, true)) },
    { head: 'Now', cell: (use) => <Now use={use} now={rates.get(accountOf(use))} /> },
    { head: 'Held up', cell: (use) => (use.wait_ms > 0 ? <Badge tone="warn">next waits {duration(Math.ceil(use.wait_ms))}</Badge> : <span class="faint">no</span>) },
  ];
  return (
    <Section title="In use now" about="Users, clients and addresses that have been there since their quota was last changed. The mean of the last seconds; short bursts may go beyond.">
      <Table label="In use now" columns={columns} rows={rows} id={accountOf} />
    </Section>
  );
}

function Now({ use, now }: { use: QuotaUse; now: number | undefined }) {
  if (use.limit === null || now === undefined) return <span class="faint">–</span>;
  return <Meter name={sayUse(use.key)} part={now} whole={use.limit} text={sayLimit(use.key, now, true)} />;
}

interface SetProps {
  all: Limits[];
  fixed: boolean;
  onEdit: (limits: Limits | 'new') => void;
  onRemove: (limits: Limits) => void;
}

function AllSet({ all, fixed, onEdit, onRemove }: SetProps) {
  if (all.length === 0) {
    return (
      <Empty title="There is no quota: everybody may do as much as the machine can.">
        {!fixed && (
          <button type="button" class="primary" onClick={() => onEdit('new')}>
            New quota
          </button>
        )}
      </Empty>
    );
  }
  const columns: Column<Limits>[] = [
    { head: 'Who', main: true, cell: (one) => <Whose entity={one.entity} /> },
    { head: 'May', cell: (one) => <Said limits={one} /> },
    {
      head: '',
      cell: (one) =>
        fixed ? null : (
          <span class="pair-buttons">
            <button type="button" class="small" aria-label={`Change the quota of ${textOf(one.entity)}`} onClick={() => onEdit(one)}>
              Change
            </button>
            <button type="button" class="small" aria-label={`Take away the quota of ${textOf(one.entity)}`} onClick={() => onRemove(one)}>
              Take away
            </button>
          </span>
        ),
    },
  ];
  return (
    <Section title="What is set" about="Of a connection the first counts that fits: its user with its client id, its user, the default user, its client id, the default client id.">
      <Table label="What is set" columns={columns} rows={all} id={(one) => JSON.stringify(one.entity)} />
    </Section>
  );
}

function Said({ limits }: { limits: Limits }) {
  return (
    <ul class="names">
      {said(limits).map((text) => (
        <li key={text}>{limits.rules === null ? text : <code>{text}</code>}</li>
      ))}
    </ul>
  );
}

/** Whose it is; what has a page is a link. */
function Whose({ entity }: { entity: Record<string, string | null> }) {
  if (entity.topic) return <>topic <a href={to(['topics', entity.topic])}>{entity.topic}</a></>;
  if (entity.group) return <>group <a href={to(['groups', entity.group])}>{entity.group}</a></>;
  return <>{textOf(entity)}</>;
}
