// The words of quotas: whom they are for, what they limit, in which unit.

import { byteRate, rate } from '../format.ts';

/** What is set for somebody: quotas of Kafka's kinds, the settings of a topic, the rules of a group. */
export interface Limits {
  kind: 'user' | 'client-id' | 'both' | 'ip' | 'topic' | 'group';
  /** By kind the name; null is whoever has none of his own. */
  entity: Record<string, string | null>;
  values: Record<string, number>;
  rules: string | null;
}

interface Key {
  /** What is limited. */
  text: string;
  /** As a label of a field, with its unit. */
  label: string;
  say: (value: number) => string;
  /** A number of bytes, which may be written with a unit. */
  size?: boolean;
}

const percent = (value: number): string => `${Number(value.toFixed(value < 10 ? 1 : 0))} %`;

const KEYS: Record<string, Key> = {
  producer_byte_rate: { text: 'Produce', label: 'Produce, bytes a second', say: byteRate, size: true },
  consumer_byte_rate: { text: 'Consume', label: 'Consume, bytes a second', say: byteRate, size: true },
  request_percentage: { text: 'Time of network threads', label: 'Time of network threads, % of one', say: percent },
  controller_mutation_rate: { text: 'Partitions made and deleted', label: 'Partitions made and deleted, a second', say: rate },
  connection_creation_rate: { text: 'New connections', label: 'New connections, a second', say: rate },
  'mainstem.producer.byte.rate': { text: 'Produce', label: 'Produce, all clients together, bytes a second', say: byteRate, size: true },
  'mainstem.consumer.byte.rate': { text: 'Fetch', label: 'Fetch, all clients together, bytes a second', say: byteRate, size: true },
  'mainstem.laggard.rules': { text: 'Fetch while far behind', label: 'Rules', say: byteRate },
};

export const LAGGARD_RULES = 'mainstem.laggard.rules';
export const CLIENT_KEYS = ['producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate'];
export const ADDRESS_KEYS = ['connection_creation_rate'];
export const TOPIC_KEYS = ['mainstem.producer.byte.rate', 'mainstem.consumer.byte.rate'];

export const labelOf = (key: string): string => KEYS[key]?.label ?? key;
export const isSize = (key: string): boolean => KEYS[key]?.size ?? false;
export const sayUse = (key: string): string => KEYS[key]?.text ?? key;

/** A limit in words: `Produce 10 MiB/s`; bare: the number alone. */
export function sayLimit(key: string, value: number, bare = false): string {
  const number = KEYS[key]?.say(value) ?? String(value);
  return bare ? number : `${sayUse(key)}: ${number}`;
}

const KINDS: Record<string, [named: string, others: string]> = {
  user: ['user', 'every other user'],
  'client-id': ['client id', 'every other client id'],
  ip: ['address', 'every other address'],
  topic: ['topic', ''],
  group: ['group', ''],
};

/** `user bob, every other client id`. */
export function textOf(entity: Record<string, string | null>): string {
  return ['user', 'client-id', 'ip', 'topic', 'group']
    .filter((kind) => kind in entity)
    .map((kind) => (entity[kind] === null ? KINDS[kind]![1] : `${KINDS[kind]![0]} ${entity[kind]}`))
    .join(', ');
}

/** Each limit in words. */
export function said({ values, rules }: Limits): string[] {
  return [...Object.entries(values).map(([key, value]) => sayLimit(key, value)), ...(rules === null ? [] : [rules])];
}
