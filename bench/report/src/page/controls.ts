// Native controls: a select with a label, and a choice of a few as radio buttons.

import { h } from '../element.ts';

let names = 0;

/** A labelled select; calls back with the index chosen. */
export function select(label: string, options: readonly string[], chosen: (index: number) => void): HTMLElement {
  const element = h('select', {}, ...options.map((option, index) => h('option', { value: index }, option)));
  element.addEventListener('change', () => chosen(element.selectedIndex));
  return h('label.select', {}, h('span', {}, label), element);
}

/** One of a few, side by side. */
export function choice<Key extends string>(
  label: string,
  options: readonly (readonly [Key, string])[],
  chosen: (key: Key) => void,
): HTMLElement {
  names += 1;
  const name = `choice-${names}`;
  return h(
    'fieldset.choice',
    {},
    h('legend.unseen', {}, label),
    ...options.map(([key, text], index) =>
      h(
        'label',
        {},
        h('input', { type: 'radio', name, value: key, checked: index === 0, change: () => chosen(key) }),
        h('span', {}, text),
      ),
    ),
  );
}
