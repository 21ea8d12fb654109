// The legend of the line charts of an experiment: one for all of them, as buttons, so that a keyboard can use it.

import { h, svg } from '../element.ts';
import type { Contender } from '../group.ts';
import { system } from '../system.ts';
import { colour } from '../theme.ts';

export interface LegendEntry {
  title: string;
  colour: string;
  dashed: boolean;
  path: string;
}

export function legendEntry(contender: Contender): LegendEntry {
  const { colour: property, path } = system(contender.target.name);
  return { title: contender.title, colour: colour(property), dashed: contender.secondary, path };
}

/** Line and marker as in the charts, 28 by 12. */
export function swatch(contender: Contender): SVGElement {
  const { colour: property, path } = system(contender.target.name);
  return svg(
    'svg',
    { class: 'swatch', viewBox: '-14 -6 28 12', width: 28, height: 12, 'aria-hidden': 'true' },
    svg('line', {
      x1: -14,
      x2: 14,
      stroke: `var(${property})`,
      'stroke-width': 2.5,
      'stroke-dasharray': contender.secondary ? '5 3' : null,
    }),
    svg('path', { d: path, fill: `var(${property})` }),
  );
}

/** Buttons that put targets into `hidden` and take them out again. */
export function legend(contenders: readonly Contender[], hidden: Set<string>, changed: () => void): HTMLElement {
  const buttons = contenders.map((contender) => {
    const button = h(
      'button.legend-entry',
      { type: 'button', 'aria-pressed': String(!hidden.has(contender.id)) },
      swatch(contender),
      contender.title,
    );
    button.addEventListener('click', () => {
      const shown = hidden.delete(contender.id);
      if (!shown) hidden.add(contender.id);
      button.setAttribute('aria-pressed', String(shown));
      changed();
    });
    return button;
  });
  return h('div.legend', { role: 'group', 'aria-label': 'Show or hide targets' }, ...buttons);
}
