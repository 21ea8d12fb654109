// Gaps in charts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withGaps } from '../dist/test/ui/gaps.js';

test('a line does not lead over a time of which nothing is known', () => {
  const found = withGaps({ at: [1000, 2000, 60_000, 61_000], lines: [{ name: 'in', values: [1, 2, 3, 4] }] });
  assert.deepEqual(found, { at: [1000, 2000, 2001, 60_000, 61_000], lines: [{ name: 'in', values: [1, 2, null, 3, 4] }] });
});

test('without a gap everything stays', () => {
  const given = { at: [1000, 2000, 11_000], lines: [{ values: [1, null, 2] }] };
  assert.deepEqual(withGaps(given), given);
});
