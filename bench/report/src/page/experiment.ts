// The section of one experiment: question, main figure, details of a variation, and all its runs.

import { Chart, type Picture } from '../chart.ts';
import { bars } from '../charts/bars.ts';
import type { View } from '../charts/common.ts';
import { drainLatency } from '../charts/drain.ts';
import { LATENCIES, percentiles } from '../charts/percentiles.ts';
import { COURSES, type Course, timeline } from '../charts/timeline.ts';
import { tried } from '../charts/tried.ts';
import { h } from '../element.ts';
import { figureKind } from '../figure.ts';
import { type Group, groups } from '../group.ts';
import { targetTitle } from '../system.ts';
import type { ExperimentRecord, Report, Run } from '../types.ts';
import { choice, select } from './controls.ts';
import { drainTable } from './drain-table.ts';
import { legend } from './legend.ts';
import { experimentAnchor } from './navigation.ts';
import { runsTable } from './runs-table.ts';

export function experimentSection(experiment: ExperimentRecord, report: Report): HTMLElement {
  const runs = report.runs.filter((run) => run.experiment === experiment.id);
  const found = groups(runs, report.runs);
  return h(
    'section.experiment',
    { id: experimentAnchor(experiment.id) },
    h('h2', {}, experiment.title),
    h('p.question', {}, experiment.question),
    experiment.published !== '' && h('p.published', {}, h('b', {}, 'Published: '), experiment.published),
    ...(found.length > 0
      ? [
          stoppedRuns(runs),
          overview(experiment, found),
          details(experiment, found),
          drainTable(found),
          runsTable(experiment, found),
        ]
      : [h('p', {}, 'No run of this experiment is in the report.')]),
    h('p.back', {}, h('a', { href: '#experiments' }, '↑ Experiments')),
  );
}

/** Where a run broke off is said before any figure. */
function stoppedRuns(runs: readonly Run[]): HTMLElement | null {
  const stopped = runs.filter((run) => run.stopped !== null);
  if (stopped.length === 0) return null;
  return h(
    'ul.stopped',
    {},
    ...stopped.map((run) =>
      h(
        'li',
        {},
        h('b', {}, `${targetTitle(run.target)}, pair ${run.pair}`),
        run.variation && ` (${run.variation})`,
        ` stopped: ${run.stopped}`,
      ),
    ),
  );
}

function overview(experiment: ExperimentRecord, found: readonly Group[]): HTMLElement {
  const pictures = [bars(found, figureKind(experiment.figure), experiment.id)];
  if (experiment.figure !== 'cpu-per-gb') pictures.push(bars(found, figureKind('cpu-per-gb'), experiment.id));
  return h('div.charts.overview', {}, ...pictures.map((picture) => new Chart(picture, experiment.title).element));
}

/** Line charts of one variation at a time, with one legend for all of them. */
function details(experiment: ExperimentRecord, found: readonly Group[]): HTMLElement {
  const view: View = { group: found[0]!, hidden: new Set(), allPairs: false, figure: figureKind(experiment.figure).of };
  const runs = found.flatMap((group) => group.contenders.flatMap((contender) => contender.runs));
  const charts: Chart[] = [];
  const update = (): void => charts.forEach((chart) => chart.update());
  const legendPlace = h('div', {});
  const showLegend = (): void => legendPlace.replaceChildren(legend(view.group.contenders, view.hidden, update));
  showLegend();
  const add = (picture: Picture): HTMLElement => {
    const chart = new Chart(picture, experiment.title);
    charts.push(chart);
    return chart.element;
  };
  const variations = select(
    'Variation',
    found.map((group) => group.title),
    (index) => {
      view.group = found[index]!;
      showLegend();
      update();
    },
  );
  const severalPairs = found.some((group) => group.contenders.some((contender) => contender.runs.length > 1));
  const pairs = choice(
    'Runs shown',
    [
      ['middle', 'Median pair'],
      ['all', 'All pairs'],
    ],
    (key) => {
      view.allPairs = key === 'all';
      update();
    },
  );
  return h(
    'div.details',
    {},
    h(
      'div.toolbar',
      {},
      found.length > 1 ? variations : view.group.title && h('span.variation', {}, view.group.title),
      severalPairs && pairs,
      legendPlace,
    ),
    h(
      'div.charts',
      {},
      ...latencyCharts(() => view, runs, experiment.id, update).map(add),
      ...courseCharts(() => view, runs, experiment.id, update).map(add),
      runs.some((run) => run.measured.tried.length > 0) && add(tried(() => view, experiment.id)),
      runs.some((run) => run.measured.drain !== null) && add(drainLatency(() => view, experiment.id)),
    ),
  );
}

const PUBLISH_OR_END_TO_END = [
  ['publish', 'Publish'],
  ['end-to-end', 'End-to-end'],
] as const;

function latencyCharts(view: () => View, runs: readonly Run[], name: string, update: () => void): Picture[] {
  const kinds = PUBLISH_OR_END_TO_END.filter(([key]) => runs.some((run) => LATENCIES[key].curve(run) !== null));
  if (kinds.length === 0) return [];
  let chosen = kinds[0]![0];
  const control = choice('Latency', kinds, (key) => {
    chosen = key;
    update();
  });
  return [percentiles(view, () => LATENCIES[chosen], kinds.length > 1 ? [control] : [], name)];
}

type CourseKey = keyof typeof COURSES;

function courseCharts(view: () => View, runs: readonly Run[], name: string, update: () => void): Picture[] {
  if (runs.every((run) => run.timeline.length === 0)) return [];
  const chart = (title: string, keys: readonly (readonly [CourseKey, string])[]): Picture => {
    const measured = keys.filter(([key]) =>
      runs.some((run) => run.timeline.some((moment) => COURSES[key].of(moment) !== null)),
    );
    let chosen: CourseKey = (measured[0] ?? keys[0]!)[0];
    const control = choice(title, measured, (key) => {
      chosen = key;
      update();
    });
    return timeline(title, view, (): Course => COURSES[chosen], measured.length > 1 ? [control] : [], name);
  };
  return [
    chart('Throughput', [
      ['published', 'Published'],
      ['received', 'Received'],
    ]),
    chart('Latency p99', PUBLISH_OR_END_TO_END),
    chart('Backlog', [['backlog', 'Backlog']]),
    chart('CPU and memory', [
      ['cores', 'Cores'],
      ['memory', 'Memory'],
    ]),
  ];
}
