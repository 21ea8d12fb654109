// The list of experiments, with what came out of each; beside the page where there is room.

import { h, slug } from '../element.ts';
import { loses, wins } from '../figure.ts';
import { count } from '../format.ts';
import type { Finding, Report } from '../types.ts';

export function experimentAnchor(id: string): string {
  return `experiment-${slug(id)}`;
}

export function navigation(report: Report): HTMLElement {
  const entry = (anchor: string, title: string, outcome: string): HTMLElement =>
    h('li', {}, h('a', { href: `#${anchor}` }, h('span.title', {}, title), h('span.outcome', {}, outcome)));
  return h(
    'nav.experiments',
    { id: 'experiments', 'aria-label': 'Experiments' },
    h('h2', {}, 'Experiments'),
    h(
      'ol',
      {},
      entry('loses', 'Losses and wins', outcomes(report.findings)),
      ...report.experiments.map((experiment) =>
        entry(experimentAnchor(experiment.id), experiment.title, outcome(report, experiment.id)),
      ),
      entry('settings', 'Settings of the targets', ''),
    ),
  );
}

function outcome(report: Report, id: string): string {
  const runs = report.runs.filter((run) => run.experiment === id).length;
  if (runs === 0) return 'not run';
  const found = report.findings.filter((finding) => finding.experiment === id);
  if (found.length === 0) return count(runs, 'run');
  return outcomes(found);
}

function outcomes(found: readonly Finding[]): string {
  const lost = found.filter(loses).length;
  const won = found.filter(wins).length;
  return [lost > 0 ? count(lost, 'loss', 'losses') : '', won > 0 ? count(won, 'win') : '']
    .filter((part) => part !== '')
    .join(', ');
}

/** Marks the entry of the section that is being read. */
export function followReader(navigationElement: HTMLElement): void {
  const links = [...navigationElement.querySelectorAll('a')];
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links) {
          if (link.hash === `#${entry.target.id}`) link.setAttribute('aria-current', 'true');
          else link.removeAttribute('aria-current');
        }
      }
    },
    { rootMargin: '-20% 0px -75% 0px' },
  );
  for (const link of links) {
    const target = document.getElementById(link.hash.slice(1));
    if (target) observer.observe(target);
  }
}
