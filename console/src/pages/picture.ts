// Where exchanges and queues stand in the picture: exchanges in columns by how far they are from those that nothing leads to, queues in the
// last column, each near those that lead to it. Between two columns is room for the labels of the lines, each at a height of its own, so that
// none lies on another. No drawing here.

import type { Binding, Exchange } from '../types.ts';

export interface Node {
  id: string;
  kind: 'exchange' | 'queue';
  name: string;
  /** Of an exchange. */
  type: string;
  column: number;
  x: number;
  y: number;
}

export interface Edge {
  from: Node;
  to: Node;
  /** Routing keys of all bindings between the two. */
  labels: string[];
  /** The box of its label, if it has one. */
  box: { x: number; y: number; width: number } | null;
}

/** What everything measures. */
export interface Scale {
  node: number;
  gap: number;
  /** From a node to a label. */
  inset: number;
}

export const WIDE: Scale = { node: 210, gap: 270, inset: 52 };
/** Two columns of it fit on a phone. */
export const NARROW: Scale = { node: 112, gap: 110, inset: 16 };

export interface Picture {
  nodes: Node[];
  edges: Edge[];
  scale: Scale;
  width: number;
  height: number;
  /** Bindings that are drawn, and those that there was no room for. */
  drawn: number;
  left: number;
}

export const NODE_HEIGHT = 40;
export const LABEL_HEIGHT = 18;
const LABEL_STEP = LABEL_HEIGHT + 4;
const GAP_Y = 14;
const MARGIN = 8;
/** Nodes and lines that a picture can show and still be read. */
const NODES_MAX = 80;
const EDGES_MAX = 60;
const COLUMNS_MAX = 6;
/** From one node of a column to the next. */
const STEP_MAX = 120;

const idOf = (kind: string, name: string): string => `${kind}:${name}`;

function columnOf(bindings: Binding[]): Map<string, number> {
  const column = new Map<string, number>();
  for (const one of bindings) {
    column.set(one.source, 0);
    if (one.destination_kind === 'exchange') column.set(one.destination, 0);
  }
  const between = bindings.filter((one) => one.destination_kind === 'exchange' && one.source !== one.destination);
  // Bindings may go in circles: no longer way counts than there are exchanges.
  for (let turn = 0; turn < Math.min(column.size, COLUMNS_MAX); turn += 1) {
    let moved = false;
    for (const one of between) {
      const wanted = (column.get(one.source) ?? 0) + 1;
      if (wanted > (column.get(one.destination) ?? 0) && wanted <= COLUMNS_MAX) {
        column.set(one.destination, wanted);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return column;
}

/** Only what is bound is drawn, and of it what a search wants: names with it, and their neighbours. */
export function chosen(bindings: Binding[], search: string): Binding[] {
  const text = search.trim().toLowerCase();
  const has = (name: string): boolean => name.toLowerCase().includes(text);
  return bindings.filter((one) => one.source !== '' && (text === '' || has(one.source) || has(one.destination) || has(one.routing_key)));
}

/** The bindings for which there is room: all of a line's are drawn, or none. */
function fitting(bindings: Binding[]): Binding[] {
  const [nodes, edges] = [new Set<string>(), new Set<string>()];
  return bindings.filter((one) => {
    const [from, to] = [idOf('exchange', one.source), idOf(one.destination_kind, one.destination)];
    const edge = `${from} ${to}`;
    if (edges.has(edge)) return true;
    const more = [from, to].filter((id, place, all) => !nodes.has(id) && all.indexOf(id) === place);
    if (edges.size >= EDGES_MAX || nodes.size + more.length > NODES_MAX) return false;
    edges.add(edge);
    more.forEach((id) => nodes.add(id));
    return true;
  });
}

export function layOut(exchanges: Exchange[], all: Binding[], scale: Scale = WIDE): Picture {
  const bindings = fitting(all);
  const column = columnOf(bindings);
  const types = new Map(exchanges.map((one) => [one.name, one.type]));
  const last = Math.max(0, ...column.values()) + 1;
  const nodes = new Map<string, Node>();
  const columns: Node[][] = Array.from({ length: last + 1 }, () => []);
  const add = (kind: Node['kind'], name: string, at: number): void => {
    const id = idOf(kind, name);
    if (nodes.has(id)) return;
    const node: Node = { id, kind, name, type: kind === 'exchange' ? (types.get(name) ?? '') : '', column: at, x: MARGIN + at * (scale.node + scale.gap), y: 0 };
    nodes.set(id, node);
    columns[at]?.push(node);
  };
  for (const [name, at] of column) add('exchange', name, at);
  for (const one of bindings) if (one.destination_kind === 'queue') add('queue', one.destination, last);
  const edges = edgesOf(nodes, bindings);
  const gaps = labelled(edges);
  const tallest = Math.max(...columns.map((some) => some.length * (NODE_HEIGHT + GAP_Y)), ...[...gaps.values()].map((some) => some.length * LABEL_STEP));
  for (const [at, some] of columns.entries()) {
    if (at > 0) sortByNeighbours(some, edges);
    spread(some, tallest);
  }
  const lowest = placeLabels(gaps, scale);
  return {
    nodes: [...nodes.values()],
    edges,
    scale,
    width: 2 * MARGIN + last * (scale.node + scale.gap) + scale.node,
    height: Math.max(2 * MARGIN + tallest - GAP_Y, lowest + MARGIN),
    drawn: bindings.length,
    left: all.length - bindings.length,
  };
}

function edgesOf(nodes: Map<string, Node>, bindings: Binding[]): Edge[] {
  const edges = new Map<string, Edge>();
  for (const one of bindings) {
    const from = nodes.get(idOf('exchange', one.source));
    const to = nodes.get(idOf(one.destination_kind, one.destination));
    if (!from || !to) continue;
    const id = `${from.id} ${to.id}`;
    const edge = edges.get(id) ?? { from, to, labels: [], box: null };
    edge.labels.push(one.routing_key === '' && Object.keys(one.arguments).length > 0 ? 'by headers' : one.routing_key);
    edges.set(id, edge);
  }
  return [...edges.values()];
}

/** What is written on a line: its first key, and how many more there are. */
export function labelOf(edge: Edge): string {
  const keys = edge.labels.filter((label) => label !== '');
  return keys.length <= 1 ? (keys[0] ?? '') : `${keys[0]} +${keys.length - 1}`;
}

/** Lines with a label, by the room between columns in which it stands: left of where a line leads to, or, where it leads back, right of where it
 * comes from. */
function labelled(edges: Edge[]): Map<number, Edge[]> {
  const gaps = new Map<number, Edge[]>();
  for (const edge of edges.filter((one) => labelOf(one) !== '')) {
    const gap = edge.to.column > edge.from.column ? edge.to.column - 1 : edge.from.column;
    gaps.set(gap, [...(gaps.get(gap) ?? []), edge]);
  }
  return gaps;
}

/** Each label at a height of its own, near its line. Returns how far down they reach. */
function placeLabels(gaps: Map<number, Edge[]>, scale: Scale): number {
  let lowest = 0;
  for (const [gap, some] of gaps) {
    const wanted = (edge: Edge): number => (edge.from.y + edge.to.y + NODE_HEIGHT) / 2 - LABEL_HEIGHT / 2;
    some.sort((one, other) => wanted(one) - wanted(other) || one.to.y - other.to.y || one.from.y - other.from.y);
    const heights: number[] = [];
    for (const edge of some) heights.push(Math.max(wanted(edge), (heights.at(-1) ?? Number.NEGATIVE_INFINITY) + LABEL_STEP));
    // As far above as below where they would like to be.
    const off = heights.reduce((sum, height, place) => sum + height - wanted(some[place] as Edge), 0) / some.length;
    const up = Math.min(off, (heights[0] ?? 0) - MARGIN);
    some.forEach((edge, place) => {
      const y = (heights[place] ?? 0) - up;
      edge.box = { x: MARGIN + gap * (scale.node + scale.gap) + scale.node + scale.inset, y, width: scale.gap - 2 * scale.inset };
      lowest = Math.max(lowest, y + LABEL_HEIGHT);
    });
  }
  return lowest;
}

/** The way of a line, through its label. */
export function wayOf(edge: Edge, scale: Scale): string {
  const [x1, y1] = [edge.from.x + scale.node, edge.from.y + NODE_HEIGHT / 2];
  const [x2, y2] = [edge.to.x - 5, edge.to.y + NODE_HEIGHT / 2];
  const curve = (fromX: number, fromY: number, toX: number, toY: number): string => {
    const bend = Math.max(12, Math.abs(toX - fromX) / 2);
    return `C${fromX + bend} ${fromY} ${toX - bend} ${toY} ${toX} ${toY}`;
  };
  if (edge.box === null) return `M${x1} ${y1} ${curve(x1, y1, x2, y2)}`;
  const { x, y, width } = edge.box;
  const middle = y + LABEL_HEIGHT / 2;
  return `M${x1} ${y1} ${curve(x1, y1, x, middle)} L${x + width} ${middle} ${curve(x + width, middle, x2, y2)}`;
}

/** Nodes come in the order of the middle of those that lead to them: fewer lines cross. */
function sortByNeighbours(all: Node[], edges: Edge[]): void {
  const middle = new Map<Node, number>();
  for (const node of all) {
    const before = edges.filter((edge) => edge.to === node && edge.from.x < node.x).map((edge) => edge.from.y);
    middle.set(node, before.length === 0 ? Number.MAX_SAFE_INTEGER : before.reduce((sum, y) => sum + y, 0) / before.length);
  }
  all.sort((one, other) => (middle.get(one) ?? 0) - (middle.get(other) ?? 0) || one.name.localeCompare(other.name));
}

/** Over the height of the picture, but not so far from each other that they cannot be seen together. */
function spread(all: Node[], height: number): void {
  const step = Math.min(height / Math.max(1, all.length), STEP_MAX);
  const above = (height - step * all.length) / 2 + (step - NODE_HEIGHT - GAP_Y) / 2;
  all.forEach((node, number) => {
    node.y = MARGIN + above + number * step;
  });
}
