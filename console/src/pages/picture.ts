// Where exchanges and queues stand in the picture: exchanges in columns by how far they are from those that nothing leads to, queues in the
// last column, each near those that lead to it. No drawing here.

import type { Binding, Exchange } from '../types.ts';

export interface Node {
  id: string;
  kind: 'exchange' | 'queue';
  name: string;
  /** Of an exchange. */
  type: string;
  x: number;
  y: number;
}

export interface Edge {
  from: Node;
  to: Node;
  /** Routing keys of all bindings between the two. */
  labels: string[];
}

export interface Picture {
  nodes: Node[];
  edges: Edge[];
  width: number;
  height: number;
  /** What there was no room for. */
  left: number;
}

export const NODE_WIDTH = 190;
export const NODE_HEIGHT = 38;
const GAP_X = 150;
const GAP_Y = 16;
const MARGIN = 12;
/** Nodes that a picture can show and still be read. */
const NODES_MAX = 120;

const idOf = (kind: string, name: string): string => `${kind}:${name}`;

function columnOf(exchanges: Exchange[], bindings: Binding[]): Map<string, number> {
  const column = new Map(exchanges.map((one) => [one.name, 0]));
  const between = bindings.filter((one) => one.destination_kind === 'exchange' && one.source !== one.destination);
  // Bindings may go in circles: no longer way counts than there are exchanges.
  for (let turn = 0; turn < Math.min(exchanges.length, 6); turn += 1) {
    let moved = false;
    for (const one of between) {
      const wanted = (column.get(one.source) ?? 0) + 1;
      if (wanted > (column.get(one.destination) ?? 0) && wanted <= 6) {
        column.set(one.destination, wanted);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return column;
}

/** Only what is bound is drawn, and of it what a search wants: names with it, and their neighbours. */
export function chosen(exchanges: Exchange[], bindings: Binding[], search: string): { exchanges: Exchange[]; bindings: Binding[] } {
  const text = search.trim().toLowerCase();
  const has = (name: string): boolean => name.toLowerCase().includes(text);
  const wanted = bindings.filter((one) => one.source !== '' && (text === '' || has(one.source) || has(one.destination) || has(one.routing_key)));
  const names = new Set(wanted.flatMap((one) => (one.destination_kind === 'exchange' ? [one.source, one.destination] : [one.source])));
  return { exchanges: exchanges.filter((one) => names.has(one.name)), bindings: wanted };
}

export function layOut(exchanges: Exchange[], bindings: Binding[]): Picture {
  const column = columnOf(exchanges, bindings);
  const last = Math.max(0, ...column.values()) + 1;
  const nodes = new Map<string, Node>();
  const columns: Node[][] = Array.from({ length: last + 1 }, () => []);
  let left = 0;
  const add = (kind: Node['kind'], name: string, type: string, at: number): void => {
    const id = idOf(kind, name);
    if (nodes.has(id)) return;
    if (nodes.size >= NODES_MAX) {
      left += 1;
      return;
    }
    const node: Node = { id, kind, name, type, x: MARGIN + at * (NODE_WIDTH + GAP_X), y: 0 };
    nodes.set(id, node);
    columns[at]?.push(node);
  };
  for (const one of exchanges) add('exchange', one.name, one.type, column.get(one.name) ?? 0);
  for (const one of bindings) if (one.destination_kind === 'queue') add('queue', one.destination, '', last);
  const edges = edgesOf(nodes, bindings);
  for (const [at, all] of columns.entries()) {
    if (at > 0) sortByNeighbours(all, edges);
    all.forEach((node, number) => {
      node.y = MARGIN + number * (NODE_HEIGHT + GAP_Y);
    });
  }
  centre(columns);
  const tallest = Math.max(1, ...columns.map((all) => all.length));
  return {
    nodes: [...nodes.values()],
    edges,
    width: 2 * MARGIN + last * (NODE_WIDTH + GAP_X) + NODE_WIDTH,
    height: 2 * MARGIN + tallest * (NODE_HEIGHT + GAP_Y) - GAP_Y,
    left,
  };
}

function edgesOf(nodes: Map<string, Node>, bindings: Binding[]): Edge[] {
  const edges = new Map<string, Edge>();
  for (const one of bindings) {
    const from = nodes.get(idOf('exchange', one.source));
    const to = nodes.get(idOf(one.destination_kind, one.destination));
    if (!from || !to) continue;
    const id = `${from.id} ${to.id}`;
    const edge = edges.get(id) ?? { from, to, labels: [] };
    edge.labels.push(one.routing_key === '' && Object.keys(one.arguments).length > 0 ? 'by headers' : one.routing_key);
    edges.set(id, edge);
  }
  return [...edges.values()];
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

function centre(columns: Node[][]): void {
  const tallest = Math.max(1, ...columns.map((all) => all.length));
  for (const all of columns) {
    const space = ((tallest - all.length) * (NODE_HEIGHT + GAP_Y)) / 2;
    for (const node of all) node.y += space;
  }
}
