// The phases of runs behind a chart over time: bands over the whole height when all runs share them, else a lane per run.

import type { CustomSeriesRenderItem } from 'echarts';

import { colour, FONT } from '../theme.ts';
import type { Phase } from '../types.ts';
import { type Line, textWidth } from './common.ts';

/** Runs share their phases when names agree and no end is further off than this share of the run, or two seconds. */
const TOLERANCE = 0.03;

/** Height of a lane; many lanes share the room of six, without their names. */
export function laneHeight(number: number): number {
  return Math.max(5, Math.min(15, 90 / Math.max(1, number)));
}

/** The phases of all runs, or null when they differ; a run that stopped may lack the last ones. */
export function sharedPhases(entries: readonly Line[]): Phase[] | null {
  const length = (phases: readonly Phase[]): number => Math.max(0, ...phases.map((phase) => phase.to_s));
  const longest = entries
    .map(({ run }) => run.phases)
    .reduce((one, other) => (length(other) > length(one) ? other : one), []);
  const reach = Math.max(2, TOLERANCE * length(longest));
  const near = (one: number, other: number): boolean => Math.abs(one - other) <= reach;
  const same = entries.every(({ run }) => {
    const broken = run.stopped !== null;
    return (
      (broken || run.phases.length === longest.length) &&
      run.phases.every((phase, index) => {
        const other = longest[index];
        const cutOff = broken && index === run.phases.length - 1;
        return (
          other !== undefined &&
          phase.name === other.name &&
          near(phase.from_s, other.from_s) &&
          (cutOff || near(phase.to_s, other.to_s))
        );
      })
    );
  });
  return same ? longest : null;
}

/** What is measured stands out; what leads to it is shaded. */
export function phaseFill(name: string): string {
  if (name === 'measure' || name === 'drain') return colour('--band-measured');
  if (name === 'search' || name === 'backlog') return colour('--band-other');
  return colour('--band-beside');
}

/** Bands as a mark area of a series without data, so that they stay when a line is switched off. */
export function bandSeries(phases: readonly Phase[], pixelsPerSecond: number) {
  return {
    type: 'line' as const,
    name: 'phases',
    data: [],
    silent: true,
    markArea: {
      silent: true,
      data: phases.map((phase) => [
        {
          xAxis: phase.from_s,
          itemStyle: { color: phaseFill(phase.name) },
          label: {
            show: textWidth(phase.name, 11) + 6 < (phase.to_s - phase.from_s) * pixelsPerSecond,
            formatter: () => phase.name,
            position: 'insideTop',
            color: colour('--muted'),
            fontFamily: FONT,
            fontSize: 11,
            distance: 4,
          },
        },
        { xAxis: phase.to_s },
      ]) as never,
    },
  };
}

/** A lane per run above the drawing, where runs differ in their phases. */
export function lanes(entries: readonly Line[]): { data: number[][]; render: CustomSeriesRenderItem } {
  const height = laneHeight(entries.length);
  const boxes = entries.flatMap((entry, lane) => entry.run.phases.map((phase) => ({ entry, phase, lane })));
  const render: CustomSeriesRenderItem = (params, api) => {
    const { entry, phase, lane } = boxes[params.dataIndex]!;
    const from = api.coord([phase.from_s, lane]);
    const to = api.coord([phase.to_s, lane]);
    const x = from[0]!;
    const y = from[1]! - height / 2;
    const width = Math.max(1, to[0]! - x - 1);
    const fits = height >= 14 && textWidth(phase.name, 10) + 6 < width;
    return {
      type: 'group',
      children: [
        { type: 'rect', shape: { x, y: y + 1, width, height: height - 3 }, style: { fill: phaseFill(phase.name) } },
        { type: 'rect', shape: { x, y: y + height - 3, width, height: 2 }, style: { fill: entry.colour } },
        {
          type: 'text',
          style: {
            text: fits ? phase.name : '',
            x: x + width / 2,
            y: y + height / 2 - 1,
            textAlign: 'center',
            textVerticalAlign: 'middle',
            fill: colour('--muted'),
            fontFamily: FONT,
            fontSize: 10,
          },
        },
      ],
    };
  };
  return { data: boxes.map(({ phase, lane }) => [phase.from_s, lane]), render };
}
