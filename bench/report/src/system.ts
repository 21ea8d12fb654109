// The systems under test: how each is called, and its order, colour variable and marker, the same in every chart.

import type { TargetRecord } from './types.ts';

export interface System {
  title: string;
  /** Name of a custom property in style/theme.css. */
  colour: string;
  /** A symbol of ECharts. */
  marker: string;
  /** The same symbol as a path around (0, 0), about 10 wide, for a legend. */
  path: string;
}

const CROSS = 'M-5,-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z';

const MAINSTEM: System = {
  title: 'Mainstem',
  colour: '--mainstem',
  marker: 'circle',
  path: 'M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0Z',
};

const SYSTEMS: Record<string, System> = {
  mainstem: MAINSTEM,
  'mainstem-amqp': MAINSTEM,
  'mainstem-again': { ...MAINSTEM, title: 'Mainstem again' },
  'mainstem-amqp-again': { ...MAINSTEM, title: 'Mainstem again' },
  kafka: { title: 'Kafka', colour: '--kafka', marker: 'rect', path: 'M-4,-4H4V4H-4Z' },
  rabbitmq: { title: 'RabbitMQ', colour: '--rabbitmq', marker: 'triangle', path: 'M0,-5L5,4H-5Z' },
  pulsar: { title: 'Pulsar', colour: '--pulsar', marker: 'diamond', path: 'M0,-5.5L5.5,0L0,5.5L-5.5,0Z' },
  nats: { title: 'NATS', colour: '--nats', marker: `path://${CROSS}`, path: CROSS },
};

const ORDER = Object.keys(SYSTEMS);

export function system(name: string): System {
  return SYSTEMS[name.toLowerCase()] ?? { title: name, colour: '--other', marker: 'roundRect', path: 'M-4,-4H4V4H-4Z' };
}

/** Mainstem first, then the peers, then whoever else. */
export function systemOrder(name: string): number {
  const place = ORDER.indexOf(name.toLowerCase());
  return place < 0 ? ORDER.length : place;
}

/** `Kafka tuned`. */
export function targetTitle(target: TargetRecord): string {
  return [system(target.name).title, target.variant].filter((word) => word !== '').join(' ');
}

/** The peer of a finding: a name alone, or name and variant. */
export function peerTitle(peer: string): string {
  const [name = '', ...rest] = peer.split(' ');
  return [system(name).title, ...rest].join(' ');
}
