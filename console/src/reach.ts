// Whether the broker answers at all. Pages keep what they show while it does not, and ask again when it is back.

import { useEffect, useState } from 'preact/hooks';

/** Since when nothing has been answered, ms since 1970. */
let lostAt: number | null = null;
const listeners = new Set<() => void>();

export function noteReach(answered: boolean): void {
  if (answered === (lostAt === null)) return;
  lostAt = answered ? null : Date.now();
  for (const listener of [...listeners]) listener();
}

/** Tells of each change. */
export function watchReach(act: (lostAt: number | null) => void): () => void {
  const listener = (): void => act(lostAt);
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function useLost(): number | null {
  const [at, setAt] = useState(lostAt);
  useEffect(() => watchReach(setAt), []);
  return at;
}
