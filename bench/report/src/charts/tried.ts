// The rates that a search tried, a row per run: filled where the target kept up, a cross where it did not.

import type { CustomSeriesRenderItem } from 'echarts';

import type { ChartOption, Picture } from '../chart.ts';
import { slug } from '../element.ts';
import { messageRate, short } from '../format.ts';
import { system } from '../system.ts';
import { colour, FONT } from '../theme.ts';
import type { Run, Trial } from '../types.ts';
import type { Contender } from '../group.ts';
import { axisLines, axisText, context, NARROW, textWidth, tooltip, tooltipBase, type View } from './common.ts';

const ROW = 22;
const AXIS = 30;

interface Row {
  contender: Contender;
  run: Run;
  title: string;
}

export function tried(view: () => View, name: string): Picture {
  return {
    title: () => 'Rates tried, msg/s',
    subtitle: () => view().group.title,
    label: 'Rates that the search tried, a row per run. The details of each run list them.',
    caption: () => {
      const runs = rowsOf(view()).map((row) => row.run);
      return `A row per run. Filled: stable. Cross: not stable. ${context(runs)}`;
    },
    height: () => rowsOf(view()).length * ROW + AXIS,
    option: (width) => option(rowsOf(view()), width),
    empty: 'No rate was searched here.',
    fileName: () => slug(`${name} ${view().group.title} rates tried`),
  };
}

function rowsOf({ group, hidden }: View): Row[] {
  return group.contenders
    .filter((contender) => !hidden.has(contender.id))
    .flatMap((contender) =>
      contender.runs
        .filter((run) => run.measured.tried.length > 0)
        .map((run) => ({
          contender,
          run,
          title: contender.runs.length > 1 ? `${contender.title}, ${run.pair}` : contender.title,
        })),
    );
}

function option(rows: readonly Row[], width: number): ChartOption | null {
  const trials = rows.flatMap((row, index) => row.run.measured.tried.map((trial) => ({ row, index, trial })));
  if (trials.length === 0) return null;
  const left = Math.min(width * 0.36, Math.max(...rows.map((row) => textWidth(row.title, 12)))) + 14;
  return {
    grid: { left, right: 16, top: 4, bottom: AXIS - 4, outerBoundsMode: 'none' },
    xAxis: {
      type: 'value',
      min: 0,
      max: Math.max(...trials.map(({ trial }) => trial.rate)) * 1.04,
      splitNumber: width < NARROW ? 3 : 6,
      ...axisLines(),
      axisLabel: { ...axisText(), formatter: short, showMaxLabel: false, hideOverlap: true },
    },
    yAxis: {
      type: 'category',
      inverse: true,
      data: rows.map((row) => row.title),
      axisLine: { show: false },
      axisTick: { show: false },
      splitLine: { show: true, lineStyle: { color: colour('--rule') } },
      axisLabel: {
        color: colour('--ink'),
        fontFamily: FONT,
        fontSize: 12,
        interval: 0,
        width: left - 10,
        overflow: 'truncate',
      },
    },
    tooltip: {
      ...tooltipBase(),
      trigger: 'item',
      formatter: (params) => trialTooltip(trials[(Array.isArray(params) ? params[0] : params)?.dataIndex ?? -1]),
    },
    series: [
      {
        type: 'custom',
        data: trials.map(({ index, trial }) => [trial.rate, index]),
        encode: { x: 0, y: 1 },
        clip: false,
        renderItem: trialDrawing(trials),
      },
    ],
  };
}

function trialTooltip(entry: { row: Row; trial: Trial } | undefined): HTMLElement | string {
  if (!entry) return '';
  const rows = [{ name: entry.trial.stable ? 'Stable' : 'Not stable', value: messageRate(entry.trial.rate) }];
  if (entry.trial.remark !== '') rows.push({ name: entry.trial.remark, value: '' });
  return tooltip(entry.row.title, rows);
}

function trialDrawing(trials: readonly { row: Row; trial: Trial; index: number }[]): CustomSeriesRenderItem {
  return (params, api) => {
    const { row, trial, index } = trials[params.dataIndex]!;
    const [x, y] = api.coord([trial.rate, index]) as [number, number];
    const fill = row.run.verdict.valid ? colour(system(row.contender.target.name).colour) : colour('--invalid');
    if (trial.stable)
      return {
        type: 'circle',
        shape: { cx: x, cy: y, r: 4.5 },
        style: { fill, stroke: colour('--page'), lineWidth: 1 },
      };
    const arm = 4;
    const stroke = (x1: number, y1: number, x2: number, y2: number) =>
      ({
        type: 'line',
        shape: { x1: x + x1, y1: y + y1, x2: x + x2, y2: y + y2 },
        style: { stroke: fill, lineWidth: 2 },
      }) as const;
    return {
      type: 'group',
      children: [
        { type: 'circle', shape: { cx: x, cy: y, r: 7 }, style: { fill: 'transparent' } },
        stroke(-arm, -arm, arm, arm),
        stroke(-arm, arm, arm, -arm),
      ],
    };
  };
}
