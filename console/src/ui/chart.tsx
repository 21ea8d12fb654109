// A chart of lines over time. Lines differ by colour and by dashes, and the legend says their last values as text.

import uPlot from 'uplot';
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { time } from '../format.ts';
import { withGaps } from './gaps.ts';

export interface Line {
  name: string;
  /** One of the palette, `--line-1` to `--line-4`. */
  colour: 1 | 2 | 3 | 4;
  values: (number | null)[];
}

interface Props {
  title: string;
  /** Milliseconds since 1970. */
  at: number[];
  lines: Line[];
  format: (value: number | null | undefined) => string;
  height?: number;
  empty?: string;
  /** Values are bytes: the axis has powers of two. */
  binary?: boolean;
  /** Beside the title. */
  children?: ComponentChildren;
}

const DASHES: Record<number, number[]> = { 1: [], 2: [6, 4], 3: [2, 3], 4: [10, 3, 2, 3] };

/** Times at the lower edge: whole seconds. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
/** Distances of marks on an axis of bytes. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(props: Props, width: number, hover: (index: number | null) => void): uPlot.Options {
  const grid = { stroke: colour('--grid'), width: 1 };
  const font = '11px system-ui, sans-serif';
  return {
    width,
    height: props.height ?? 180,
    padding: [8, 28, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time: true }, y: { range: (_chart, low, high) => [Math.min(0, low ?? 0), nice(high ?? 0)] } },
    axes: [
      { stroke: colour('--muted'), grid: { show: false }, ticks: { ...grid, size: 4 }, font, size: 26, space: 70, incrs: SECONDS, values: (_chart, splits) => splits.map((at) => time(at * 1000).slice(11)) },
      { stroke: colour('--muted'), grid, ticks: { show: false }, font, size: 70, space: 34, ...(props.binary ? { incrs: BINARY } : {}), values: (_chart, splits) => splits.map((value) => props.format(value)) },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.name,
        stroke: colour(`--line-${line.colour}`),
        width: 2,
        dash: DASHES[line.colour] ?? [],
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(chart) => hover(chart.cursor.idx ?? null)] },
  };
}

/** Room above the highest value; never nothing. */
function nice(high: number): number {
  return high <= 0 ? 1 : high * 1.12;
}

function dataOf(props: Props): uPlot.AlignedData {
  return [props.at.map((at) => at / 1000), ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
}

export function Chart(given: Props) {
  const props = { ...given, ...useMemo(() => withGaps(given), [given.at, given.lines]) };
  const place = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const shape = props.lines.map((line) => line.name).join('\n');
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const draw = (): void => {
      chart.current?.destroy();
      chart.current = new uPlot(options(latest.current, Math.max(element.clientWidth, 120), setHovered), dataOf(latest.current), element);
    };
    draw();
    const resized = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (chart.current && width > 0 && width !== chart.current.width) chart.current.setSize({ width, height: props.height ?? 180 });
    });
    resized.observe(element);
    window.addEventListener('themechange', draw);
    return () => {
      window.removeEventListener('themechange', draw);
      resized.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => chart.current?.setData(dataOf(props)), [props.at, props.lines]);
  const last = props.at.length - 1;
  const shown = hovered ?? last;
  const spoken = props.lines.map((line) => `${line.name} ${props.format(line.values[last])}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <h3>{props.title}</h3>
        {props.children}
        <dl class="legend">
          {props.lines.map((line) => (
            <div key={line.name}>
              <dt>
                <svg width="22" height="8" aria-hidden="true">
                  <line x1="0" x2="22" y1="4" y2="4" class={`line-${line.colour}`} stroke-width="2.5" stroke-dasharray={(DASHES[line.colour] ?? []).join(' ')} />
                </svg>
                {line.name}
              </dt>
              <dd>{props.format(line.values[shown])}</dd>
            </div>
          ))}
        </dl>
      </figcaption>
      <div class={`plot ${props.at.length < 2 ? 'early' : ''}`} ref={place} role="img" aria-label={`${props.title}, now: ${spoken}`} />
      {props.at.length < 2 && <p class="waiting">{props.empty ?? 'The first values are on their way.'}</p>}
    </figure>
  );
}
