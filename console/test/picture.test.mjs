// Where things stand in the picture of exchanges.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chosen, layOut } from '../dist/test/pages/picture.js';

const exchange = (name) => ({ name, type: 'topic' });
const binding = (source, destination, kind = 'queue', key = '') => ({ source, destination, destination_kind: kind, routing_key: key, arguments: {} });

test('exchanges stand left of what they lead to, queues last', () => {
  const picture = layOut([exchange('a'), exchange('b'), exchange('c')], [binding('a', 'b', 'exchange'), binding('b', 'c', 'exchange'), binding('c', 'q'), binding('a', 'q')]);
  const x = (name) => picture.nodes.find((node) => node.name === name).x;
  assert.ok(x('a') < x('b') && x('b') < x('c') && x('c') < x('q'));
  assert.equal(picture.edges.length, 4);
});

test('circles come to an end, and bindings of a pair are one line', () => {
  const picture = layOut([exchange('a'), exchange('b')], [binding('a', 'b', 'exchange', '1'), binding('b', 'a', 'exchange'), binding('a', 'b', 'exchange', '2')]);
  assert.equal(picture.edges.length, 2);
  assert.deepEqual(picture.edges[0].labels, ['1', '2']);
  assert.ok(Number.isFinite(picture.width) && picture.width < 10_000);
});

test('no two nodes lie on each other, and what has no room is counted', () => {
  const picture = layOut([exchange('a')], Array.from({ length: 300 }, (_, at) => binding('a', `q${at}`)));
  assert.equal(new Set(picture.nodes.map((node) => `${node.x},${node.y}`)).size, picture.nodes.length);
  assert.equal(picture.nodes.length + picture.left, 301);
});

test('a search keeps what has the name, and its neighbours', () => {
  const found = chosen([exchange('events'), exchange('other')], [binding('events', 'work', 'queue', 'k'), binding('other', 'mail')], 'WORK');
  assert.deepEqual(found.exchanges.map((one) => one.name), ['events']);
  assert.deepEqual(found.bindings.map((one) => one.destination), ['work']);
});
