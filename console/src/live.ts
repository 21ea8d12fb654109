// What happens now, by server-sent events: one stream for the node as long as somebody is logged in, and one for each page that
// watches topics or groups.

import { useEffect, useRef, useState } from 'preact/hooks';
import { get, withQuery } from './api.ts';
import type { NodeSample } from './types.ts';

/** Seconds that are kept. */
const KEPT = 600;
/** Milliseconds after a refusal. */
const AGAIN = 5000;

export type LiveState = 'off' | 'connecting' | 'live' | 'lost';

interface Shown {
  state: LiveState;
  samples: NodeSample[];
}

let samples: NodeSample[] = [];
let state: LiveState = 'off';
let source: EventSource | null = null;
const listeners = new Set<() => void>();

function tell(): void {
  for (const listener of listeners) listener();
}

function add(...more: NodeSample[]): void {
  const last = samples.at(-1)?.at ?? 0;
  samples = [...samples, ...more.filter((sample) => sample.at > last)].slice(-KEPT);
  state = 'live';
  tell();
}

/** The node's stream begins; the browser connects again by itself when it is cut off. */
export function watchNode(): () => void {
  source = new EventSource('/v1/live');
  state = 'connecting';
  source.addEventListener('history', (event) => add(...(JSON.parse(event.data as string) as NodeSample[])));
  source.addEventListener('node', (event) => add(JSON.parse(event.data as string) as NodeSample));
  source.addEventListener('error', () => {
    state = 'lost';
    tell();
    // Has the broker gone, has the login ended? What finds that out tells the page.
    get('/v1/session').catch(() => {});
    // A refusal ends the stream for good: try again later.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => source && (source.close(), watchNode()), AGAIN);
  });
  return () => {
    source?.close();
    source = null;
    state = 'off';
    samples = [];
    tell();
  };
}

export function useNode(): Shown {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = (): void => redraw((number) => number + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return { state, samples };
}

/** One thing over time: milliseconds since 1970, and values by name. */
export interface Point<Value> {
  at: number;
  value: Value;
}

/** Watches one topic or one group: what its event says of it each second. */
export function useWatched<Value>(kind: 'topics' | 'groups', name: string | null): Point<Value>[] {
  const [points, setPoints] = useState<Point<Value>[]>([]);
  const kept = useRef<Point<Value>[]>([]);
  useEffect(() => {
    kept.current = [];
    setPoints([]);
    if (name === null) return undefined;
    const address = withQuery('/v1/live', { [kind === 'topics' ? 'topic' : 'group']: name, node: 'false' });
    let stream: EventSource;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const open = (): void => {
      stream = new EventSource(address);
      stream.addEventListener(kind, (event) => {
        const told = JSON.parse(event.data as string) as { at: number } & Record<string, Record<string, Value>>;
        const all = told[kind] ?? {};
        const value = Object.hasOwn(all, name) ? all[name] : undefined;
        if (value === undefined) return;
        kept.current = [...kept.current, { at: told.at, value }].slice(-KEPT);
        setPoints(kept.current);
      });
      // A refusal ends it for good: the broker has just come back, or has too many of them.
      stream.addEventListener('error', () => {
        if (stream.readyState === EventSource.CLOSED) timer = setTimeout(open, AGAIN);
      });
    };
    open();
    return () => {
      stream.close();
      clearTimeout(timer);
    };
  }, [kind, name]);
  return points;
}
