// A quota: for whom, and how much. It is checked as a whole before anything is changed.

import { useRef, useState } from 'preact/hooks';
import { Refusal, ask, asRefusal, path, withQuery } from '../api.ts';
import { sizeOf, sizeText } from '../format.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { ADDRESS_KEYS, CLIENT_KEYS, LAGGARD_RULES, TOPIC_KEYS, isSize, labelOf, said, textOf, type Limits } from './limits.ts';

type Kind = Limits['kind'];

const CHOICES: { value: Kind; text: string }[] = [
  { value: 'user', text: 'a user' },
  { value: 'client-id', text: 'a client id' },
  { value: 'both', text: 'a user with a client id' },
  { value: 'ip', text: 'an address' },
  { value: 'topic', text: 'a topic, all its clients together' },
  { value: 'group', text: 'a group while it is far behind' },
];

const PARTS: Record<Kind, string[]> = { user: ['user'], 'client-id': ['client-id'], both: ['user', 'client-id'], ip: ['ip'], topic: ['topic'], group: ['group'] };
const NAMES: Record<string, string> = { user: 'User', 'client-id': 'Client id', ip: 'Address', topic: 'Topic', group: 'Group' };
const OTHERS: Record<string, string> = { user: 'All users without one of their own', 'client-id': 'All client ids without one of their own', ip: 'All addresses without one of their own' };

function keysOf(kind: Kind): string[] {
  if (kind === 'topic') return TOPIC_KEYS;
  if (kind === 'group') return [];
  return kind === 'ip' ? ADDRESS_KEYS : CLIENT_KEYS;
}

/** What is asked for, as the server wants it: the method, the path and the body. */
function request(kind: Kind, entity: Record<string, string | null>, given: Record<string, string>, rules: string): [string, string, unknown] {
  const keys = keysOf(kind);
  const number = (key: string): number | string => {
    const text = (given[key] ?? '').trim();
    return isSize(key) ? sizeOf(text) : text !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
  };
  const isGiven = (key: string): boolean => (given[key] ?? '').trim() !== '';
  if (kind === 'topic') {
    const set = Object.fromEntries(keys.filter(isGiven).map((key) => [key, String(number(key))]));
    return ['PATCH', path('topics', entity.topic ?? '', 'config'), { set, unset: keys.filter((key) => !isGiven(key)) }];
  }
  if (kind === 'group') return ['PATCH', path('groups', entity.group ?? '', 'config'), { set: { [LAGGARD_RULES]: rules } }];
  return ['PUT', '/v1/quotas', { entity, values: Object.fromEntries(keys.map((key) => [key, isGiven(key) ? number(key) : null])) }];
}

/** The field that a refusal is about, by the name that it has here. */
function fieldOf(refusal: Refusal, kind: Kind): string | null {
  if (refusal.status === 404 && (kind === 'topic' || kind === 'group')) return `entity.${kind}`;
  return refusal.field?.replace(/^set\./, 'values.') ?? null;
}

const inWords = (limits: Limits | undefined): string => (limits ? said(limits).join(', ') : '');

interface Props {
  /** What is there, or a new one. */
  limits: Limits | null;
  /** What is set now. */
  look: () => Promise<Limits[]>;
  onClose: () => void;
  onDone: () => void;
}

export function LimitForm({ limits, look, onClose, onDone }: Props) {
  const [kind, setKind] = useState<Kind>(limits?.kind ?? 'user');
  const [names, setNames] = useState<Record<string, string>>(Object.fromEntries(Object.entries(limits?.entity ?? {}).map(([part, name]) => [part, name ?? ''])));
  const [others, setOthers] = useState<Record<string, boolean>>(Object.fromEntries(Object.entries(limits?.entity ?? {}).map(([part, name]) => [part, name === null])));
  const [given, setGiven] = useState<Record<string, string>>(Object.fromEntries(Object.entries(limits?.values ?? {}).map(([key, value]) => [key, isSize(key) ? sizeText(value) : String(value)])));
  const [rules, setRules] = useState(limits?.rules ?? '');
  // What somebody else has set meanwhile is not overwritten before it was seen.
  const seen = useRef({ whose: limits ? textOf(limits.entity) : '', said: limits ? inWords(limits) : '' });
  const work = useWork();
  const entity = Object.fromEntries(PARTS[kind].map((part) => [part, others[part] ? null : (names[part] ?? '').trim()]));
  const isNamed = Object.values(entity).every((name) => name !== '');
  const isFilled = kind === 'group' ? rules.trim() !== '' : keysOf(kind).some((key) => (given[key] ?? '').trim() !== '');
  const save = async (): Promise<void> => {
    const [method, address, body] = request(kind, entity, given, rules);
    const done = await work.run(async () => {
      try {
        await ask(method, withQuery(address, { dry_run: true }), body);
        const whose = textOf(entity);
        const now = inWords((await look()).find((one) => textOf(one.entity) === whose));
        if (now !== (seen.current.whose === whose ? seen.current.said : '')) {
          seen.current = { whose, said: now };
          throw new Refusal(409, 'conflict', `Meanwhile ${whose} has ${now === '' ? 'no quota any more' : now}. Save once more to replace that.`, null);
        }
        await ask(method, address, body);
      } catch (error) {
        const refusal = asRefusal(error);
        throw new Refusal(refusal.status, refusal.code, refusal.message, fieldOf(refusal, kind));
      }
    });
    if (!done) return;
    onClose();
    onDone();
  };
  return (
    <Dialog title={limits === null ? 'New quota' : `Quota of ${textOf(limits.entity)}`} onClose={onClose} wide>
      <Form work={work} submit="Save" disabled={!isNamed || (limits === null && !isFilled)} onSubmit={() => void save()}>
        {limits === null && <Choice label="For" name="entity" value={kind} onValue={(value) => (work.clear(), setKind(value as Kind))} choices={CHOICES} />}
        {limits === null && PARTS[kind].map((part) => <Name key={part} part={part} name={names[part] ?? ''} all={others[part] ?? false} onName={(name) => setNames({ ...names, [part]: name })} onAll={(all) => setOthers({ ...others, [part]: all })} />)}
        {keysOf(kind).map((key) => (
          <Text
            key={key}
            label={labelOf(key)}
            name={`values.${key}`}
            value={given[key] ?? ''}
            onValue={(value) => setGiven({ ...given, [key]: value })}
            placeholder="no limit"
            help={isSize(key) ? 'Like 10 MiB, or 10485760.' : undefined}
          />
        ))}
        {kind === 'group' && (
          <Text
            label="Rules"
            name={`values.${LAGGARD_RULES}`}
            value={rules}
            onValue={setRules}
            placeholder="lag>1GiB 600MiB/min"
            mono
            wide
            rows={3}
            help="From which lag on the group gets only so much a minute; with ; between, the lowest that applies counts. Hours before it, in UTC: 08:00-18:00 lag>100000 records 60MiB/min."
          />
        )}
      </Form>
    </Dialog>
  );
}

interface NameProps {
  part: string;
  name: string;
  all: boolean;
  onName: (name: string) => void;
  onAll: (all: boolean) => void;
}

function Name({ part, name, all, onName, onAll }: NameProps) {
  return (
    <div class="named">
      {!all && <Text label={NAMES[part] ?? part} name={`entity.${part}`} value={name} onValue={onName} mono />}
      {OTHERS[part] && <Check label={OTHERS[part]} value={all} onValue={onAll} />}
    </div>
  );
}
