// A chart as a file of its own: the drawing with title, legend and caption, because a figure that has lost what it was
// measured under says nothing.

import { svg } from './element.ts';
import type { LegendEntry } from './page/legend.ts';
import { colour, FONT } from './theme.ts';

export interface Frame {
  title: string;
  subtitle: string;
  caption: string;
  legend: LegendEntry[];
  fileName: string;
}

const MARGIN = 16;
const LINE = 17;
/** Width of a letter of the text's size, on the large side. */
const LETTER = 0.56;

export function saveSvg(drawing: SVGSVGElement, frame: Frame): void {
  const text = framed(drawing, frame);
  const address = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = `${frame.fileName}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function framed(drawing: SVGSVGElement, frame: Frame): string {
  const inner = drawing.cloneNode(true) as SVGSVGElement;
  inner.removeAttribute('style');
  const width = Number(inner.getAttribute('width'));
  const height = Number(inner.getAttribute('height'));
  const legend = legendRows(frame.legend, width);
  const caption = wrapped(frame.caption, width, 12);
  const subtitle = frame.subtitle === '' ? [] : wrapped(frame.subtitle, width, 12);
  const under = MARGIN + 24 + subtitle.length * LINE;
  const top = under + legend.length * 20;
  const total = top + height + MARGIN / 2 + caption.length * LINE + MARGIN;
  inner.setAttribute('x', String(MARGIN));
  inner.setAttribute('y', String(top));
  const outer = svg('svg', {
    width: width + 2 * MARGIN,
    height: total,
    viewBox: `0 0 ${width + 2 * MARGIN} ${total}`,
    'font-family': FONT,
  });
  outer.append(
    svg('rect', { width: '100%', height: '100%', fill: colour('--page') }),
    svg('text', { x: MARGIN, y: MARGIN + 12, 'font-size': 15, 'font-weight': 600, fill: colour('--ink') }, frame.title),
    ...subtitle.map((line, index) => smallText(line, MARGIN + 31 + index * LINE)),
    ...legend.flatMap((row, index) => row.map((entry) => legendMark(entry, under + 6 + index * 20))),
    inner,
    ...caption.map((line, index) => smallText(line, top + height + MARGIN + index * LINE)),
  );
  return new XMLSerializer().serializeToString(outer);
}

function smallText(line: string, y: number): SVGElement {
  return svg('text', { x: MARGIN, y, 'font-size': 12, fill: colour('--muted') }, line);
}

interface Placed {
  entry: LegendEntry;
  x: number;
}

function legendRows(entries: readonly LegendEntry[], width: number): Placed[][] {
  const rows: Placed[][] = [];
  let x = Infinity;
  for (const entry of entries) {
    const needed = 52 + entry.title.length * 12 * LETTER;
    if (x + needed > width) {
      rows.push([]);
      x = 0;
    }
    rows[rows.length - 1]!.push({ entry, x: MARGIN + x });
    x += needed;
  }
  return rows;
}

function legendMark({ entry, x }: Placed, y: number): SVGElement {
  return svg(
    'g',
    { transform: `translate(${x + 14} ${y + 4})` },
    svg('line', {
      x1: -14,
      x2: 14,
      stroke: entry.colour,
      'stroke-width': 2.5,
      'stroke-dasharray': entry.dashed ? '5 3' : null,
    }),
    svg('path', { d: entry.path, fill: entry.colour }),
    svg('text', { x: 20, y: 4, 'font-size': 12, fill: colour('--ink') }, entry.title),
  );
}

function wrapped(text: string, width: number, size: number): string[] {
  const most = Math.floor(width / (size * LETTER));
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines[lines.length - 1];
    if (line !== undefined && line.length + 1 + word.length <= most) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}
