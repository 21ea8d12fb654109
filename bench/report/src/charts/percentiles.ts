// Percentile curves: how late the late ones are. The x axis gives each nine the same width (1/(1-p), logarithmic).

import type { ChartOption, Picture } from '../chart.ts';
import { slug } from '../element.ts';
import { milliseconds, trimmed } from '../format.ts';
import { nines, range } from '../statistics.ts';
import type { Curve, Run } from '../types.ts';
import {
  axisLines,
  axisPosition,
  axisText,
  context,
  type Line,
  lines,
  lineSeries,
  linesLegend,
  logTicks,
  NARROW,
  nearest,
  NOTHING,
  pairNote,
  type Point,
  tooltip,
  tooltipBase,
  type View,
} from './common.ts';

/** Which latency; the choice is shared with the charts over time. */
export interface LatencyKind {
  title: string;
  curve(run: Run): Curve | null;
}

export const LATENCIES: Record<'publish' | 'end-to-end', LatencyKind> = {
  publish: { title: 'Publish latency, from due time to acknowledgement', curve: (run) => run.measured.publish_latency },
  'end-to-end': {
    title: 'End-to-end latency, from due time to receipt',
    curve: (run) => run.measured.end_to_end_latency,
  },
};

export function percentiles(
  view: () => View,
  latency: () => LatencyKind,
  controls: HTMLElement[],
  name: string,
): Picture {
  return {
    title: () => 'Latency by percentile, ms',
    subtitle: () => view().group.title,
    label: 'Latency by percentile, one curve per target. The table of runs below has p50, p99, p99.9 and max.',
    caption: () => {
      const { group } = view();
      const runs = group.contenders.flatMap((contender) => contender.runs);
      return `${latency().title}. Lower is better; both axes are logarithmic. ${pairNote(view())} ${context(runs)}`;
    },
    height: (width) => (width < NARROW ? 320 : 380),
    option: () => option(lines(view()), latency()),
    empty: NOTHING,
    legend: () => linesLegend(view()),
    controls,
    fileName: () => slug(`${name} ${view().group.title} percentiles`),
  };
}

function option(entries: readonly Line[], latency: LatencyKind): ChartOption | null {
  const curves = entries
    .map((entry) => ({ entry, points: points(latency.curve(entry.run)) }))
    .filter((curve) => curve.points.length > 1);
  const values = curves.flatMap((curve) => curve.points.map(([, value]) => value));
  const ends = range(values);
  if (ends === null) return null;
  const furthest = Math.max(...curves.flatMap((curve) => curve.points.map(([at]) => at)));
  const { min, max, ticks } = logTicks(ends[0], ends[1]);
  return {
    grid: { left: 52, right: 22, top: 12, bottom: 44, outerBoundsMode: 'none' },
    xAxis: {
      type: 'value',
      min: 0,
      max: Math.max(1, Math.ceil(furthest * 10) / 10),
      interval: 1,
      name: 'percentile',
      nameLocation: 'middle',
      nameGap: 26,
      nameTextStyle: axisText(),
      ...axisLines(),
      axisLabel: {
        ...axisText(),
        formatter: (value: number) => (Number.isInteger(value) ? percentileText(value) : ''),
        hideOverlap: true,
      },
    },
    yAxis: {
      type: 'log',
      min,
      max,
      ...axisLines(),
      axisTick: { show: false, customValues: ticks },
      axisLabel: { ...axisText(), customValues: ticks, formatter: trimmed },
    },
    tooltip: {
      ...tooltipBase(),
      trigger: 'axis',
      axisPointer: { type: 'line', lineStyle: { type: 'dashed' } },
      formatter: (params) => {
        const position = axisPosition(params);
        const rows = curves
          .map(({ entry, points: at }) => ({ entry, value: nearest(at, position, 0.3) }))
          .filter((row): row is { entry: Line; value: number } => row.value !== null)
          .sort((one, other) => other.value - one.value)
          .map(({ entry, value }) => ({ mark: entry, name: entry.title, value: milliseconds(value) }));
        return tooltip(`p${percentileText(position)}`, rows);
      },
    },
    series: curves.map(({ entry, points: at }) => lineSeries(entry, marked(at, entry.marker))),
  };
}

/** 0, 90, 99, 99.9 … */
function percentileText(position: number): string {
  if (position === 0) return '0';
  const percentile = 100 - 100 * 10 ** -position;
  return String(
    Number(percentile.toFixed(Math.max(0, Math.ceil(position - 2 + (Number.isInteger(position) ? 0 : 1))))),
  );
}

/**
 * The points of the curve, or the few that every curve has. The 100th percentile stands where the largest of `count`
 * stands; a log axis has no place for 0 ms.
 */
function points(curve: Curve | null): [number, number][] {
  if (curve === null) return [];
  const last = Math.log10(Math.max(10, curve.count));
  const { p50_ms, p75_ms, p95_ms, p99_ms, p999_ms, p9999_ms, max_ms } = curve;
  const few: [number, number | null][] = [
    [50, p50_ms],
    [75, p75_ms],
    [95, p95_ms],
    [99, p99_ms],
    [99.9, p999_ms],
    [99.99, p9999_ms],
    [100, max_ms],
  ];
  return (curve.points.length > 1 ? curve.points : few)
    .filter((point): point is [number, number] => point[1] !== null && point[1] > 0)
    .map(([percentile, value]): [number, number] => [Math.min(nines(percentile), last), value]);
}

/** A marker where the curve passes each nine. */
function marked(points: readonly [number, number][], marker: string): Point[] {
  const places = new Set<number>();
  for (let nine = 0; nine <= 8; nine += 1) {
    const distances = points.map(([at]) => Math.abs(at - nine));
    const nearest = Math.min(...distances);
    if (nearest < 0.25) places.add(distances.indexOf(nearest));
  }
  return points.map((value, index) => (places.has(index) ? { value, symbol: marker, symbolSize: 8 } : { value }));
}
