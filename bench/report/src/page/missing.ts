// What could not be run, and why.

import { h } from '../element.ts';

/** Longer lists are folded. */
const OPEN = 6;

export function missing(entries: readonly string[]): HTMLElement | null {
  if (entries.length === 0) return null;
  const items = h('ul.missing', {}, ...entries.map((entry) => h('li', {}, entry)));
  return h(
    'section',
    { id: 'not-run' },
    h('h2', {}, 'Not run', h('span.number', {}, String(entries.length))),
    entries.length > OPEN
      ? h('details.more', {}, h('summary', {}, `${entries.length} combinations could not be run`), items)
      : items,
  );
}
