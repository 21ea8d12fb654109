// What a reader of the backlog does to the producers: publish p99 before, while and after it was read.

import type { ChartOption, Picture } from '../chart.ts';
import { slug } from '../element.ts';
import { milliseconds, trimmed } from '../format.ts';
import { range } from '../statistics.ts';
import type { Drain } from '../types.ts';
import {
  axisLines,
  axisText,
  context,
  type Line,
  lines,
  lineSeries,
  linesLegend,
  logTicks,
  pairNote,
  tooltip,
  tooltipBase,
  type View,
} from './common.ts';

const TIMES: { title: string; of(drain: Drain): number | null }[] = [
  { title: 'before', of: (drain) => drain.publish_p99_before_ms },
  { title: 'during', of: (drain) => drain.publish_p99_during_ms },
  { title: 'after', of: (drain) => drain.publish_p99_after_ms },
];

export function drainLatency(view: () => View, name: string): Picture {
  return {
    title: () => 'Publish p99 around the reading, ms',
    subtitle: () => view().group.title,
    label:
      'Publish latency p99 before, during and after the backlog was read, a line per target. The drain table has the figures.',
    caption: () => {
      const { group } = view();
      const runs = group.contenders.flatMap((contender) => contender.runs);
      return `Before, during and after the backlog was read. Lower and flatter is better; the axis is logarithmic. ${pairNote(view())} ${context(runs)}`;
    },
    height: () => 260,
    option: () => option(lines(view())),
    empty: 'No backlog was read here.',
    legend: () => linesLegend(view()),
    fileName: () => slug(`${name} ${view().group.title} publish p99 around drain`),
  };
}

function option(entries: readonly Line[]): ChartOption | null {
  const drained = entries
    .map((entry) => ({ entry, drain: entry.run.measured.drain }))
    .filter((one): one is { entry: Line; drain: Drain } => one.drain !== null);
  const ends = range(drained.flatMap(({ drain }) => TIMES.map((time) => ((time.of(drain) ?? 0) > 0 ? time.of(drain) : null))));
  if (ends === null) return null;
  const { min, max, ticks } = logTicks(ends[0], ends[1]);
  return {
    grid: { left: 52, right: 22, top: 14, bottom: 30, outerBoundsMode: 'none' },
    xAxis: {
      type: 'category',
      data: TIMES.map((time) => time.title),
      boundaryGap: true,
      ...axisLines(),
      axisLabel: { ...axisText(), fontSize: 12 },
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
      formatter: (params) => {
        const time = TIMES[(Array.isArray(params) ? params[0] : params)?.dataIndex ?? 0]!;
        const rows = drained.map(({ entry, drain }) => ({
          mark: entry,
          name: entry.title,
          value: milliseconds(time.of(drain)),
        }));
        return tooltip(`Publish p99 ${time.title}`, rows);
      },
    },
    series: drained.map(({ entry, drain }) =>
      lineSeries(
        entry,
        TIMES.map((time, index) => ({
          value: [index, time.of(drain) || '-'],
          symbol: entry.marker,
          symbolSize: 10,
        })),
      ),
    ),
  };
}
