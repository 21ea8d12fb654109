// What could not be run and why, and what was cut to end in time.

import { h } from '../element.ts';

/** Longer lists are folded. */
const OPEN = 6;

export function missing(entries: readonly string[]): HTMLElement | null {
  return section('not-run', 'Not run', entries, `${entries.length} combinations could not be run`);
}

export function cuts(entries: readonly string[]): HTMLElement | null {
  return section('cuts', 'Cut to end in time', entries, `${entries.length} things were cut`);
}

function section(id: string, title: string, entries: readonly string[], folded: string): HTMLElement | null {
  if (entries.length === 0) return null;
  const items = h('ul.missing', {}, ...entries.map((entry) => h('li', {}, entry)));
  return h(
    'section',
    { id },
    h('h2', {}, title, h('span.number', {}, String(entries.length))),
    entries.length > OPEN ? h('details.more', {}, h('summary', {}, folded), items) : items,
  );
}
