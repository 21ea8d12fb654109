// Where things stand in the picture of exchanges.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LABEL_HEIGHT, NARROW, NODE_HEIGHT, WIDE, chosen, labelOf, layOut, wayOf } from '../dist/test/pages/picture.js';

const exchange = (name) => ({ name, type: 'topic' });
const binding = (source, destination, kind = 'queue', key = '') => ({ source, destination, destination_kind: kind, routing_key: key, arguments: {} });
const many = (count, make) => Array.from({ length: count }, (_, at) => make(at));

/** Boxes of nodes and of labels. */
const boxesOf = ({ nodes, edges, scale }) => [
  ...nodes.map(({ x, y }) => ({ x, y, width: scale.node, height: NODE_HEIGHT })),
  ...edges.filter(({ box }) => box).map(({ box }) => ({ ...box, height: LABEL_HEIGHT })),
];

const lieOnEachOther = (one, other) => one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

function checkApart(picture) {
  const boxes = boxesOf(picture);
  for (const [at, one] of boxes.entries()) {
    assert.ok(one.x >= 0 && one.y >= 0 && one.x + one.width <= picture.width && one.y + one.height <= picture.height, `box ${at} is inside`);
    for (const other of boxes.slice(at + 1)) assert.ok(!lieOnEachOther(one, other), JSON.stringify([one, other]));
  }
}

test('exchanges stand left of what they lead to, queues last', () => {
  const picture = layOut([exchange('a'), exchange('b'), exchange('c')], [binding('a', 'b', 'exchange'), binding('b', 'c', 'exchange'), binding('c', 'q'), binding('a', 'q')]);
  const x = (name) => picture.nodes.find((node) => node.name === name).x;
  assert.ok(x('a') < x('b') && x('b') < x('c') && x('c') < x('q'));
  assert.equal(picture.edges.length, 4);
});

test('circles come to an end, and bindings of a pair are one line', () => {
  const picture = layOut([exchange('a'), exchange('b')], [binding('a', 'b', 'exchange', '1'), binding('b', 'a', 'exchange', '3'), binding('a', 'b', 'exchange', '2'), binding('a', 'a', 'exchange', '4')]);
  assert.equal(picture.edges.length, 3);
  assert.deepEqual(picture.edges[0].labels, ['1', '2']);
  assert.equal(labelOf(picture.edges[0]), '1 +1');
  assert.ok(Number.isFinite(picture.width) && picture.width < 10_000);
  checkApart(picture);
});

test('no box and no label lies on another, on a phone neither', () => {
  const toOne = many(40, (at) => binding(`e${at}`, 'q', 'queue', `key.${at}`));
  const fromOne = many(40, (at) => binding('a', `q${at}`, 'queue', `key.${at}`));
  const mixed = many(60, (at) => binding(`e${at % 7}`, `q${at % 11}`, 'queue', `k${at}`)).concat(many(6, (at) => binding(`e${at}`, `e${at + 1}`, 'exchange', `up${at}`)));
  for (const scale of [WIDE, NARROW]) for (const bindings of [toOne, fromOne, mixed]) checkApart(layOut([], bindings, scale));
  const phone = layOut([], fromOne, NARROW);
  assert.ok(phone.width <= 358, `${phone.width}`);
  for (const edge of phone.edges) assert.ok(!wayOf(edge, NARROW).includes('NaN'));
});

test('what has no room is counted', () => {
  for (const bindings of [many(300, (at) => binding('a', `q${at}`)), many(200, (at) => binding(`e${at % 20}`, `q${at % 19}`, 'queue', `k${at}`))]) {
    const picture = layOut([exchange('a')], bindings);
    assert.equal(picture.drawn + picture.left, bindings.length);
    assert.ok(picture.left > 0 && picture.nodes.length <= 80 && picture.edges.length <= 60);
    assert.equal(picture.edges.reduce((sum, edge) => sum + edge.labels.length, 0), picture.drawn);
  }
});

test('a search keeps what has the name, with what it is bound to', () => {
  const found = chosen([binding('events', 'work', 'queue', 'k'), binding('other', 'mail')], 'WORK');
  assert.deepEqual(found.map((one) => [one.source, one.destination]), [['events', 'work']]);
});
