// Addresses of pages.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { placeOf, to } from '../dist/test/router.js';

test('names survive their way through an address', () => {
  const names = ['queues', '/', 'a?b#c/d%'];
  const place = placeOf(to(names, { tab: 'x y' }));
  assert.deepEqual(place.names, names);
  assert.equal(place.query.get('tab'), 'x y');
  assert.deepEqual(placeOf('#/').names, []);
  assert.deepEqual(placeOf('#/%zz').names, ['%zz']);
});
