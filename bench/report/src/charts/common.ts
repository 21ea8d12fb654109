// What the charts have in common: text measures, axes, tooltips, and which runs are drawn as lines.

import type { ChartOption } from '../chart.ts';
import { h, svg } from '../element.ts';
import { counts, type Contender, type Group, middleRun } from '../group.ts';
import { type LegendEntry, legendEntry } from '../page/legend.ts';
import type { Maybe } from '../statistics.ts';
import { system } from '../system.ts';
import { colour, FONT } from '../theme.ts';
import type { Run } from '../types.ts';

/** Below this a chart has a phone's width. */
export const NARROW = 560;

/** In place of a drawing. */
export const NOTHING = 'Nothing to draw: not measured here, or every target is switched off.';

const ONE_NODE = 'One node, not replicated.';

/** How many copies of each message there were. */
export function copies(runs: readonly Run[]): string {
  const found = [...new Set(runs.map((run) => run.target.replication ?? 1))].sort((a, b) => a - b);
  if (found.every((number) => number === 1)) return ONE_NODE;
  return `Copies of each message: ${found.map((number) => (number === 0 ? 'as the broker sets' : String(number))).join(', ')}.`;
}

const measure = document.createElement('canvas').getContext('2d');

/** Width of a text in pixels. */
export function textWidth(text: string, size = 12, weight = 400): number {
  if (measure === null) return text.length * size * 0.56;
  measure.font = `${weight} ${size}px ${FONT}`;
  return measure.measureText(text).width;
}

/** Durability and scale of what is drawn. */
export function context(runs: readonly Run[]): string {
  const durability = distinct(runs.map((run) => run.target.durability));
  const scale = distinct(runs.map((run) => run.scale));
  return `${copies(runs)} Durability: ${durability.join(', ') || 'not stated'}. Scale: ${scale.join(', ') || 'not stated'}.`;
}

export function distinct(words: readonly string[]): string[] {
  return [...new Set(words)];
}

/** What the reader has chosen for the line charts of an experiment. */
export interface View {
  group: Group;
  /** Ids of contenders that the legend has switched off. */
  hidden: Set<string>;
  /** One run per target, that of the median, or all pairs. */
  allPairs: boolean;
  /** The figure whose median chooses that run. */
  figure(run: Run): Maybe;
}

/** A run as a line of a chart. */
export interface Line {
  title: string;
  run: Run;
  colour: string;
  width: number;
  dash: 'solid' | [number, number];
  marker: string;
  contender: Contender;
}

export function lines(view: View): Line[] {
  return view.group.contenders
    .filter((contender) => !view.hidden.has(contender.id))
    .flatMap((contender) => {
      const one = middleRun(contender, view.figure);
      const runs = view.allPairs ? contender.runs : one ? [one] : [];
      return runs.map((run) => line(contender, run, view.allPairs && contender.runs.length > 1));
    });
}

function line(contender: Contender, run: Run, nameThePair: boolean): Line {
  const kind = system(contender.target.name);
  const counted = counts(run);
  const notes = [
    nameThePair ? `pair ${run.pair}` : '',
    run.verdict.valid ? '' : 'invalid',
    run.stopped === null ? '' : 'stopped',
  ].filter((note) => note !== '');
  return {
    title: notes.length > 0 ? `${contender.title} (${notes.join(', ')})` : contender.title,
    run,
    colour: run.verdict.valid ? colour(kind.colour) : colour('--invalid'),
    width: contender.target.name.toLowerCase() === 'mainstem' ? 2.6 : 1.9,
    dash: counted && !contender.secondary ? 'solid' : counted ? [6, 4] : [2, 3],
    marker: kind.marker,
    contender,
  };
}

export function linesLegend(view: View): LegendEntry[] {
  return view.group.contenders.filter((contender) => !view.hidden.has(contender.id)).map(legendEntry);
}

/** Which run stands for a target, and how one that does not count is told, for captions. */
export function pairNote(view: View): string {
  const most = Math.max(0, ...view.group.contenders.map((contender) => contender.runs.length));
  const choice = view.allPairs ? 'All pairs.' : 'One run per target: that with the median figure.';
  const without = lines(view).some(({ run }) => !counts(run)) ? ' Dotted: in no median; grey: invalid.' : '';
  return `${most < 2 ? 'One run per target.' : choice}${without}`;
}

/** A point of a line: a marker only at some, so that the line is told by shape without being hidden by it. */
export interface Point {
  value: [number, number | '-'];
  symbol?: string;
  symbolSize?: number;
}

export function lineSeries(entry: Line, data: Point[]): NonNullable<Extract<ChartOption['series'], unknown[]>>[number] {
  return {
    type: 'line',
    name: entry.title,
    data: data as never,
    symbol: 'none',
    showSymbol: true,
    connectNulls: false,
    color: entry.colour,
    lineStyle: { width: entry.width, type: entry.dash, color: entry.colour },
    itemStyle: { color: entry.colour },
    emphasis: { disabled: true },
    z: entry.contender.target.name.toLowerCase() === 'mainstem' ? 4 : 3,
  };
}

/** Text of axes. */
export function axisText(): { color: string; fontFamily: string; fontSize: number } {
  return { color: colour('--muted'), fontFamily: FONT, fontSize: 11 };
}

export function axisLines() {
  return {
    axisLine: { show: true, lineStyle: { color: colour('--rule-strong') } },
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: colour('--rule'), width: 1 } },
  };
}

/** 1, 2, 5, 10, 20 … over the range, thinned to decades when there are many; with the ends as powers of ten or so. */
export function logTicks(least: number, greatest: number): { min: number; max: number; ticks: number[] } {
  const steps = [1, 2, 5];
  const all: number[] = [];
  for (let decade = Math.floor(Math.log10(least)); decade <= Math.ceil(Math.log10(greatest)); decade += 1) {
    for (const step of steps) all.push(Number((step * 10 ** decade).toPrecision(6)));
  }
  const min = all.filter((tick) => tick <= least * 1.0001).pop() ?? least;
  const max = all.find((tick) => tick >= greatest * 0.9999) ?? greatest;
  const inside = all.filter((tick) => tick >= min && tick <= max);
  const decades = inside.filter((tick) => Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6));
  return { min, max: max > min ? max : min * 10, ticks: inside.length > 10 && decades.length > 2 ? decades : inside };
}

/** Round steps from 0 up to `greatest`, about `number` of them; the axis may then end at the greatest value itself. */
export function evenTicks(greatest: number, number: number): number[] {
  const rough = greatest / number;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((size) => size >= rough * 0.999) ?? unit;
  return Array.from({ length: Math.floor(greatest / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

export const tooltipBase = () => ({
  confine: true,
  backgroundColor: colour('--raised'),
  borderColor: colour('--rule-strong'),
  borderWidth: 1,
  padding: [8, 10] as [number, number],
  textStyle: { color: colour('--ink'), fontFamily: FONT, fontSize: 12 },
  extraCssText: 'max-width:min(22rem,80vw);white-space:normal;box-shadow:0 4px 16px rgba(0,0,0,.18)',
});

/** Where on the x axis a tooltip of `trigger: 'axis'` stands. */
export function axisPosition(params: unknown): number {
  const first = (Array.isArray(params) ? params[0] : params) as { value?: [number, number] } | undefined;
  return first?.value?.[0] ?? 0;
}

/** The value of the point next to a position; lines need not have their points at the same places. */
export function nearest(
  points: readonly (readonly [number, number | null])[],
  position: number,
  reach: number,
): number | null {
  let found: number | null = null;
  let distance = reach;
  for (const [at, value] of points) {
    if (Math.abs(at - position) <= distance && value !== null) {
      distance = Math.abs(at - position);
      found = value;
    }
  }
  return found;
}

/** Heading and rows of a tooltip, as elements. */
export function tooltip(heading: string, rows: { mark?: Line; name: string; value: string }[]): HTMLElement {
  return h(
    'div.tip',
    {},
    h('strong', {}, heading),
    h(
      'table',
      {},
      ...rows.map((row) => h('tr', {}, h('td', {}, row.mark ? dot(row.mark) : null, row.name), h('td', {}, row.value))),
    ),
  );
}

function dot(entry: Line): SVGElement {
  return svg(
    'svg',
    { class: 'dot', viewBox: '-6 -6 12 12', width: 10, height: 10, 'aria-hidden': 'true' },
    svg('path', { d: system(entry.contender.target.name).path, fill: entry.colour }),
  );
}
