// What each target was set to beyond its defaults, and why.

import { h } from '../element.ts';
import { list, megabytes } from '../format.ts';
import { contenders, type Contender } from '../group.ts';
import { distinct } from '../charts/common.ts';
import type { Report, Setting } from '../types.ts';
import { swatch } from './legend.ts';

export function settings(report: Report): HTMLElement {
  const found = contenders(report.runs, report.runs);
  return h(
    'section',
    { id: 'settings' },
    h('h2', {}, 'Settings of the targets'),
    h(
      'p',
      {},
      'Stock is as shipped, tuned is changed for this load. Listed is every setting that differs from the default of the system, with the reason.',
    ),
    h('div.targets', {}, ...found.map(target)),
    h('p.back', {}, h('a', { href: '#experiments' }, '↑ Experiments')),
  );
}

function target(contender: Contender): HTMLElement {
  const records = contender.runs.map((run) => run.target);
  const limits = distinct(
    records.map((record) => (record.memory_limit_mb === null ? 'none' : megabytes(record.memory_limit_mb))),
  );
  const durability = new Map(records.map((record) => [record.durability, record.durability_note]));
  const heaps = distinct(records.map((record) => record.heap)).filter((heap) => heap !== '');
  const facts: [string, string][] = [
    ['Version', list(distinct(records.map((record) => record.version)))],
    ['Driver', list(distinct(records.map((record) => record.driver)))],
    ...(heaps.length > 0 ? [['Heap', heaps.join('; ')] as [string, string]] : []),
    ['Memory limit', `${limits.join('; ')}${limits.some((limit) => limit !== 'none') ? ', page cache included' : ''}`],
    ...[...durability].map(([name, note]): [string, string] => [`Durability ${name}`, note || 'not explained']),
  ];
  const found = settingsOf(contender);
  return h(
    'article.target-card',
    {},
    h('h3', {}, swatch(contender), contender.title),
    h('dl', {}, ...facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
    found.length > 0
      ? h('ul.settings', {}, ...found.map((one) => settingItem(one.setting, one.where)))
      : h('p.hint', {}, 'All defaults.'),
  );
}

/** All settings of a target's runs; `where` says with which durability, when not with all. */
function settingsOf(contender: Contender): { setting: Setting; where: string }[] {
  const all = new Set(contender.runs.map((run) => run.target.durability));
  const found = new Map<string, { setting: Setting; durability: Set<string>; runs: number }>();
  for (const run of contender.runs) {
    for (const setting of run.target.settings) {
      const key = JSON.stringify([setting.name, setting.value, setting.reason]);
      const known = found.get(key) ?? { setting, durability: new Set(), runs: 0 };
      known.durability.add(run.target.durability);
      known.runs += 1;
      found.set(key, known);
    }
  }
  return [...found.values()].map(({ setting, durability, runs }) => {
    const complete = contender.runs.filter((run) => durability.has(run.target.durability)).length === runs;
    const where = durability.size < all.size ? `with ${list([...durability])}` : '';
    return {
      setting,
      where: complete ? where : [where, 'in some experiments'].filter((part) => part !== '').join(', '),
    };
  });
}

function settingItem(setting: Setting, where: string): HTMLElement {
  return h(
    'li',
    {},
    h('code', {}, `${setting.name} = ${setting.value}`),
    where !== '' && h('span.where', {}, ` ${where}`),
    h('p', {}, setting.reason || 'No reason given.'),
  );
}
