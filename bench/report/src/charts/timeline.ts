// Charts over the seconds of a run: rates, backlog, latency p99, and what the target used.

import type { ChartOption, Picture } from '../chart.ts';
import { slug } from '../element.ts';
import { count, digits, grouped, megabytes, messageRate, milliseconds, short, trimmed } from '../format.ts';
import { range } from '../statistics.ts';
import type { Moment } from '../types.ts';
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
  nearest,
  NOTHING,
  pairNote,
  type Point,
  tooltip,
  tooltipBase,
  type View,
} from './common.ts';
import { bandSeries, laneHeight, lanes, sharedPhases } from './phases.ts';

/** What a chart over time may show. */
export interface Course {
  title: string;
  log: boolean;
  of(moment: Moment): number | null;
  write(value: number): string;
  tick(value: number): string;
}

const latencyCourse = (title: string, of: Course['of']): Course => ({
  title,
  log: true,
  of,
  write: milliseconds,
  tick: trimmed,
});

const rateCourse = (title: string, of: Course['of']): Course => ({
  title,
  log: false,
  of,
  write: messageRate,
  tick: short,
});

export const COURSES = {
  published: rateCourse('Published, msg/s', (moment) => moment.publish_rate),
  received: rateCourse('Received, msg/s', (moment) => moment.receive_rate),
  backlog: {
    title: 'Backlog, messages',
    log: false,
    tick: short,
    of: (moment) => moment.backlog,
    write: (value) => (value < 10_000 ? count(Math.round(value), 'message') : `${short(value)} messages`),
  },
  publish: latencyCourse('Publish p99, ms', (moment) => moment.publish_p99_ms),
  'end-to-end': latencyCourse('End-to-end p99, ms', (moment) => moment.end_to_end_p99_ms),
  cores: {
    title: 'Cores kept busy',
    log: false,
    tick: trimmed,
    of: (moment) => moment.broker_cores,
    write: (value) => `${digits(value)} cores`,
  },
  memory: {
    title: 'Memory, MB',
    log: false,
    tick: grouped,
    of: (moment) => moment.broker_memory_mb,
    write: megabytes,
  },
} satisfies Record<string, Course>;

/** Height of the drawing itself. */
const PLOT = 210;
const BELOW = 42;

export function timeline(
  title: string,
  view: () => View,
  course: () => Course,
  controls: HTMLElement[],
  name: string,
): Picture {
  const above = (): number => {
    const entries = withTimeline(lines(view()));
    return sharedPhases(entries) === null ? 10 + entries.length * laneHeight(entries.length) : 10;
  };
  return {
    title: () => course().title,
    subtitle: () => view().group.title,
    label: `${title} over time, one line per target.`,
    caption: () => {
      const { group } = view();
      const entries = withTimeline(lines(view()));
      const runs = group.contenders.flatMap((contender) => contender.runs);
      const phases =
        sharedPhases(entries) === null ? 'Lanes on top: the phases of each run.' : 'Bands: the phases of the runs.';
      const ended = entries.some(({ run }) => run.stopped !== null) ? ' A cross ends a run that stopped.' : '';
      return `Seconds since the first message. ${phases}${ended} ${pairNote(view())} ${context(runs)}`;
    },
    height: () => PLOT + BELOW + above(),
    option: (width) => option(withTimeline(lines(view())), course(), width, above()),
    empty: NOTHING,
    legend: () => linesLegend(view()),
    controls,
    fileName: () => slug(`${name} ${view().group.title} ${course().title}`),
  };
}

function withTimeline(entries: Line[]): Line[] {
  return entries.filter((entry) => entry.run.timeline.length > 0);
}

function option(entries: readonly Line[], course: Course, width: number, above: number): ChartOption | null {
  const courses = entries.map((entry) => ({
    entry,
    points: entry.run.timeline.map((moment) => [moment.at_s, course.of(moment)] as const),
  }));
  const ends = range(
    courses.flatMap(({ points }) => points.map(([, value]) => (course.log && !(value! > 0) ? null : value))),
  );
  if (ends === null) return null;
  const last = Math.max(
    ...entries.flatMap(({ run }) => [
      ...run.phases.map((phase) => phase.to_s),
      run.timeline[run.timeline.length - 1]!.at_s,
    ]),
  );
  const left = 52;
  const right = 14;
  const shared = sharedPhases(entries);
  const bottom = BELOW - 2;
  const time = { type: 'value' as const, min: 0, max: last, ...axisLines(), splitLine: { show: false } };
  const { min, max, ticks } = course.log ? logTicks(ends[0], ends[1]) : { min: 0, max: null, ticks: [] };
  const { data, render } = lanes(shared === null ? entries : []);
  return {
    grid: [
      { left, right, top: above, bottom, outerBoundsMode: 'none' },
      { left, right, top: 4, height: Math.max(1, above - 10), outerBoundsMode: 'none' },
    ],
    xAxis: [
      {
        ...time,
        name: 'seconds',
        nameLocation: 'middle',
        nameGap: 24,
        nameTextStyle: axisText(),
        splitNumber: width < 480 ? 4 : 6,
        axisLabel: {
          ...axisText(),
          formatter: (value: number) => trimmed(value),
          showMaxLabel: false,
          hideOverlap: true,
        },
      },
      { ...time, gridIndex: 1, show: false },
    ],
    yAxis: [
      {
        type: course.log ? 'log' : 'value',
        min,
        ...(max === null ? {} : { max }),
        splitNumber: 4,
        ...axisLines(),
        axisLine: { show: false },
        axisTick: { show: false, ...(course.log ? { customValues: ticks } : {}) },
        axisLabel: { ...axisText(), formatter: course.tick, ...(course.log ? { customValues: ticks } : {}) },
      },
      { type: 'category', gridIndex: 1, show: false, inverse: true, data: entries.map((_, index) => String(index)) },
    ],
    tooltip: {
      ...tooltipBase(),
      trigger: 'axis',
      axisPointer: { type: 'line', lineStyle: { type: 'dashed' } },
      formatter: (params) => {
        const at = axisPosition(params);
        const rows = courses
          .map(({ entry, points }) => ({ entry, value: nearest(points, at, Math.max(1, last / 60)) }))
          .filter((row): row is { entry: Line; value: number } => row.value !== null)
          .sort((one, other) => other.value - one.value)
          .map(({ entry, value }) => ({ mark: entry, name: entry.title, value: course.write(value) }));
        return tooltip(`${trimmed(at)} s`, rows);
      },
    },
    series: [
      ...(shared === null ? [] : [bandSeries(shared, (width - left - right) / last)]),
      ...courses.map(({ entry, points }) => lineSeries(entry, drawn(entry, points, course.log))),
      ...(shared === null
        ? [
            {
              type: 'custom' as const,
              xAxisIndex: 1,
              yAxisIndex: 1,
              silent: true,
              clip: false,
              tooltip: { show: false },
              data,
              renderItem: render,
            },
          ]
        : []),
    ],
  };
}

/** Markers far apart; a cross where a run stopped. */
function drawn(entry: Line, points: readonly (readonly [number, number | null])[], log: boolean): Point[] {
  const step = Math.max(1, Math.floor(points.length / 5));
  return points.map(([at, value], index) => {
    const missing = value === null || (log && value <= 0);
    const point: Point = { value: [at, missing ? '-' : value] };
    if (entry.run.stopped !== null && index === points.length - 1) return { ...point, symbol: STOP, symbolSize: 12 };
    return index % step === Math.floor(step / 2) ? { ...point, symbol: entry.marker, symbolSize: 7 } : point;
  });
}

const STOP = 'path://M-6,-4L-4,-6L0,-2L4,-6L6,-4L2,0L6,4L4,6L0,2L-4,6L-6,4L-2,0Z';
