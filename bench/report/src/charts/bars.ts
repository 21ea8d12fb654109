// Bars of one figure: a row per target under a heading per variation; median, range, single runs, and the value as text.

import type { CustomSeriesRenderItem } from 'echarts';

import type { ChartOption, Picture } from '../chart.ts';
import { slug } from '../element.ts';
import type { FigureKind } from '../figure.ts';
import { rangeText } from '../format.ts';
import { type Contender, counts, type Group } from '../group.ts';
import { present } from '../statistics.ts';
import { system } from '../system.ts';
import { colour, FONT } from '../theme.ts';
import { legendOfMarks, type Row, rowsOf } from './bar-rows.ts';
import { axisLines, axisText, context, evenTicks, textWidth, tooltip, tooltipBase } from './common.ts';

const ROW = 24;
const AXIS = 28;

/** Widths of the column of values: with the range, and without it where the chart is small. */
const VALUES = 150;
const VALUES_NARROW = 82;
const NARROW_BARS = 420;

export function bars(groups: readonly Group[], kind: FigureKind, name: string): Picture {
  const runs = groups.flatMap((group) => group.contenders.flatMap((contender) => contender.runs));
  const better = kind.moreIsBetter ? 'Longer is better.' : 'Shorter is better.';
  return {
    title: () => kind.title,
    label: `${kind.title}. ${better} The table of runs below has the figures.`,
    caption: () => [better, legendOfMarks(rowsOf(groups, kind, Infinity)), context(runs)].join(' '),
    height: (width) => rowsOf(groups, kind, width).length * ROW + AXIS,
    option: (width) =>
      runs.some((run) => present([kind.of(run)]).length > 0) ? option(rowsOf(groups, kind, width), kind, width) : null,
    empty: `No run measured the ${kind.short}.`,
    fileName: () => slug(`${name} ${kind.short}`),
  };
}

function option(rows: readonly Row[], kind: FigureKind, width: number): ChartOption {
  const right = width < NARROW_BARS ? narrowValues(rows, kind) : VALUES;
  const titles = rows.flatMap((row) => (row.contender ? [textWidth(row.contender.title, 12, 600)] : []));
  const left = Math.min(width * 0.36, Math.max(...titles)) + 10;
  const counted = rows.map((row) => row.spread?.greatest ?? 0);
  // What enters no median must not stretch the axis, unless there is nothing else.
  const all = rows.flatMap((row) => present((row.contender?.runs ?? []).map(kind.of)));
  const greatest = Math.max(...counted) || Math.max(...all, 1);
  const ticks = evenTicks(greatest, width < NARROW_BARS ? 3 : 4);
  return {
    grid: { left, right, top: 2, bottom: AXIS - 4, outerBoundsMode: 'none' },
    xAxis: {
      type: 'value',
      min: 0,
      max: greatest * 1.03,
      ...axisLines(),
      axisLine: { show: false },
      axisTick: { show: false, customValues: ticks },
      axisLabel: { ...axisText(), customValues: ticks, formatter: kind.tick, hideOverlap: true },
    },
    yAxis: {
      type: 'category',
      inverse: true,
      data: rows.map((_, index) => String(index)),
      show: false,
    },
    tooltip: {
      ...tooltipBase(),
      trigger: 'item',
      formatter: (params) => rowTooltip(rows[(Array.isArray(params) ? params[0] : params)?.dataIndex ?? -1], kind),
    },
    series: [
      {
        type: 'custom',
        clip: false,
        renderItem: rowDrawing(rows, kind, width, left, right, greatest),
        data: rows.map((_, index) => [greatest, index]),
        encode: { x: 0, y: 1 },
      },
    ],
  };
}

/** The width of the column of values where the chart is small: also what takes the place of a figure has room. */
function narrowValues(rows: readonly Row[], kind: FigureKind): number {
  const absent = rows.some((row) => row.contender !== null && row.spread === null);
  return Math.max(VALUES_NARROW, absent ? Math.ceil(textWidth(kind.absent, 12, 600)) + 14 : 0);
}

function rowTooltip(row: Row | undefined, kind: FigureKind): HTMLElement | string {
  if (!row?.contender) return '';
  const { contender, spread } = row;
  return tooltip(`${contender.title} ${contender.target.version}`, [
    ...(spread
      ? [
          { name: 'Median', value: kind.write(spread.median) },
          { name: 'Range', value: rangeText(kind.write, spread.least, spread.greatest) },
        ]
      : []),
    ...contender.runs.map((run) => ({
      name: `Pair ${run.pair}${run.verdict.valid ? '' : ', invalid'}${run.stopped === null ? '' : ', stopped'}`,
      value: kind.write(kind.of(run)),
    })),
  ]);
}

/** Label, bar, whisker and value of a row; or a line of a heading. */
function rowDrawing(
  rows: readonly Row[],
  kind: FigureKind,
  width: number,
  left: number,
  right: number,
  greatest: number,
): CustomSeriesRenderItem {
  const ink = colour('--ink');
  const text = (content: string, x: number, y: number, style: object): object => ({
    type: 'text',
    silent: true,
    style: { text: content, x, y, fontFamily: FONT, fontSize: 12, fill: ink, textVerticalAlign: 'middle', ...style },
  });
  return (params, api) => {
    const row = rows[params.dataIndex]!;
    const y = api.coord([0, params.dataIndex])[1]!;
    const x = (value: number): number => api.coord([value, params.dataIndex])[0]!;
    const { contender, spread } = row;
    if (contender === null) {
      const shape = { x: 0, y: y - ROW / 2, width: textWidth(row.heading, 12, 600) + 6, height: ROW };
      const ground = { type: 'rect', silent: true, shape, style: { fill: colour('--page') } };
      return group([ground, text(row.heading, 0, y + 3, { fontWeight: 600, width, overflow: 'truncate' })]);
    }
    const fill = colour(system(contender.target.name).colour);
    const children: object[] = [
      { type: 'rect', shape: { x: 0, y: y - ROW / 2, width, height: ROW }, style: { fill: 'transparent' } },
      text(contender.title, left - 8, y, {
        textAlign: 'right',
        width: left - 8,
        overflow: 'truncate',
        fontWeight: contender.target.name.toLowerCase() === 'mainstem' ? 600 : 400,
      }),
    ];
    if (spread) {
      const shape = { x: x(0), y: y - 7, width: Math.max(1, x(spread.median) - x(0)), height: 14 };
      children.push({
        type: 'rect',
        silent: true,
        shape,
        style: contender.secondary ? { fill, opacity: 0.42 } : { fill },
      });
      if (spread.count > 1) {
        // A light line below the dark one, so that it is seen on every bar.
        for (const [stroke, lineWidth] of [
          [colour('--page'), 4],
          [ink, 1.5],
        ] as const) {
          children.push(...whisker(x(spread.least), x(spread.greatest), y, { stroke, lineWidth }));
        }
      }
    }
    for (const value of present(contender.runs.filter((run) => !counts(run)).map(kind.of))) {
      if (value <= greatest) {
        children.push(
          text('×', x(value), y, { textAlign: 'center', fontSize: 17, fontWeight: 700, fill: colour('--invalid') }),
        );
      }
    }
    children.push(
      ...valueTexts(row, contender, kind, width - right + 10, width, width >= NARROW_BARS).map((part) =>
        text(part.text, part.x, y, part.style),
      ),
    );
    return group(children);
  };
}

function group(children: object[]): ReturnType<CustomSeriesRenderItem> {
  return { type: 'group', children } as ReturnType<CustomSeriesRenderItem>;
}

function whisker(from: number, to: number, y: number, style: object): object[] {
  const stroke = (x1: number, y1: number, x2: number, y2: number): object => ({
    type: 'line',
    silent: true,
    shape: { x1, y1, x2, y2 },
    style,
  });
  return [stroke(from, y, to, y), stroke(from, y - 4, from, y + 4), stroke(to, y - 4, to, y + 4)];
}

/** The median and, where there is room, the range; without a median what there is of a run that does not count. */
function valueTexts(row: Row, contender: Contender, kind: FigureKind, x: number, end: number, wide: boolean) {
  const muted = colour('--muted');
  if (row.spread === null) {
    const reason = contender.runs.some((run) => run.stopped !== null)
      ? 'stopped'
      : contender.runs.every(counts)
        ? ''
        : 'invalid';
    const value = present(contender.runs.map(kind.of))[0];
    const figure = value === undefined ? kind.absent : kind.tick(value);
    const both = reason === '' ? figure : wide ? `${figure} ${reason}` : reason;
    return [{ text: both, x, style: { fill: muted, fontStyle: 'italic' } }];
  }
  const parts: { text: string; x: number; style: object }[] = [
    { text: `${kind.tick(row.spread.median)}${row.marks && ` ${row.marks}`}`, x, style: { fontWeight: 600 } },
  ];
  if (wide && row.spread.count > 1) {
    const ends = rangeText((value) => kind.tick(value ?? NaN), row.spread.least, row.spread.greatest);
    parts.push({ text: ends, x: end, style: { fill: muted, textAlign: 'right', fontSize: 11 } });
  }
  return parts;
}
