// One chart: its heading, controls, drawing, caption and "Save SVG". Drawn when it comes near the viewport, not before;
// redrawn when its width, the colour scheme or what it shows changes.

import { CustomChart, type CustomSeriesOption, LineChart, type LineSeriesOption } from 'echarts/charts';
import {
  GridComponent,
  type GridComponentOption,
  MarkAreaComponent,
  TooltipComponent,
  type TooltipComponentOption,
} from 'echarts/components';
import { type ComposeOption, type ECharts, init, use } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';

import { h } from './element.ts';
import type { LegendEntry } from './page/legend.ts';
import { saveSvg } from './save.ts';
import { onThemeChange } from './theme.ts';

use([CustomChart, LineChart, GridComponent, MarkAreaComponent, TooltipComponent, SVGRenderer]);

export type ChartOption = ComposeOption<
  CustomSeriesOption | LineSeriesOption | GridComponentOption | TooltipComponentOption
>;

/** What a chart shows; asked anew at each drawing. */
export interface Picture {
  /** With the unit. */
  title(): string;
  /** Which runs of the experiment, for a saved file. */
  subtitle?(): string;
  /** Read out in place of the drawing. */
  label: string;
  /** How to read the marks, and what must be known of the runs. */
  caption(): string;
  height(width: number): number;
  /** Null when there is nothing to draw: then `empty` is written. */
  option(width: number): ChartOption | null;
  empty: string;
  /** Goes into a saved file, where the page's own legend is not at hand. */
  legend?(): LegendEntry[];
  controls?: HTMLElement[];
  fileName(): string;
}

const charts: Chart[] = [];

/** Far enough ahead that a reader who scrolls does not see an empty frame. */
const nearby = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      nearby.unobserve(entry.target);
      charts.find((chart) => chart.frame === entry.target)?.draw();
    }
  },
  { rootMargin: '800px 0px' },
);

const widths = new ResizeObserver((entries) => {
  for (const entry of entries) charts.find((chart) => chart.frame === entry.target)?.resize();
});

onThemeChange(() => {
  for (const chart of charts) chart.update();
});

/** For printing, and for those who want to search or measure the whole page. */
export function drawAllCharts(): void {
  for (const chart of charts) chart.draw();
}

export class Chart {
  readonly element: HTMLElement;
  readonly frame: HTMLElement;
  private readonly nothing: HTMLElement;
  private readonly heading: HTMLElement;
  private readonly caption: HTMLElement;
  private readonly save: HTMLButtonElement;
  private drawing: ECharts | null = null;
  private drawnWidth = 0;

  /** `experiment` is its title, for a saved file. */
  constructor(
    private readonly picture: Picture,
    private readonly experiment: string,
  ) {
    this.heading = h('h3', {}, picture.title());
    this.frame = h('div.chart', { role: 'img', 'aria-label': picture.label });
    this.nothing = h('p.chart-empty', { hidden: true }, picture.empty);
    this.caption = h('figcaption', {}, picture.caption());
    this.save = h('button.save', { type: 'button', click: () => this.download() }, 'Save SVG');
    this.save.setAttribute('aria-label', `Save SVG: ${picture.title()}`);
    this.element = h(
      'figure.chart-figure',
      {},
      h('div.chart-head', {}, this.heading, ...(picture.controls ?? []), this.save),
      this.frame,
      this.nothing,
      this.caption,
    );
    this.frame.style.height = `${picture.height(600)}px`;
    charts.push(this);
    nearby.observe(this.frame);
  }

  /** The first drawing; later calls do nothing. */
  draw(): void {
    if (this.drawnWidth > 0) return;
    widths.observe(this.frame);
    this.render();
  }

  /** After what it shows has changed. */
  update(): void {
    if (this.drawnWidth > 0) this.render();
  }

  resize(): void {
    if (this.frame.clientWidth > 0 && this.frame.clientWidth !== this.drawnWidth) this.render();
  }

  private render(): void {
    this.heading.textContent = this.picture.title();
    this.caption.textContent = this.picture.caption();
    this.frame.hidden = false;
    const width = this.frame.clientWidth;
    if (width === 0) return;
    this.drawnWidth = width;
    const option = this.picture.option(width);
    this.frame.hidden = option === null;
    this.nothing.hidden = option !== null;
    this.save.disabled = option === null;
    if (option === null) {
      this.drawing?.clear();
      return;
    }
    const height = this.picture.height(width);
    this.frame.style.height = `${height}px`;
    this.drawing ??= init(this.frame, null, { renderer: 'svg', width, height });
    this.drawing.resize({ width, height, silent: true });
    this.drawing.setOption({ animation: false, ...option }, { notMerge: true });
    // Lets print.css fit the drawing to the paper.
    this.frame.querySelector('svg')?.setAttribute('viewBox', `0 0 ${width} ${height}`);
  }

  private download(): void {
    this.draw();
    const drawn = this.frame.querySelector('svg');
    if (drawn === null) return;
    saveSvg(drawn, {
      title: `${this.experiment}: ${this.picture.title()}`,
      subtitle: this.picture.subtitle?.() ?? '',
      caption: this.caption.textContent ?? '',
      legend: this.picture.legend?.() ?? [],
      fileName: this.picture.fileName(),
    });
  }
}
