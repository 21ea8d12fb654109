// Median, range and places on the percentile axis.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { median, medianIndex, nines, range, spread } from '../dist/test/statistics.js';

test('median of odd, even and none', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(median([]), null);
});

test('what is not a number does not count', () => {
  assert.equal(median([null, 5, undefined, NaN, 7]), 6);
  assert.deepEqual(range([null, 5, NaN, 7]), [5, 7]);
  assert.equal(range([null]), null);
});

test('numbers are ordered as numbers', () => {
  assert.equal(median([10, 9, 100]), 10);
});

test('spread', () => {
  assert.deepEqual(spread([5, 1, 3]), { median: 3, least: 1, greatest: 5, count: 3 });
  assert.equal(spread([undefined]), null);
});

test('the run of the median', () => {
  assert.equal(medianIndex([30, 10, 20]), 2);
  assert.equal(medianIndex([30, 10]), 1);
  assert.equal(medianIndex([null, 10]), 1);
  assert.equal(medianIndex([]), -1);
});

test('each nine has the same width', () => {
  for (const [percentile, place] of [
    [0, 0],
    [90, 1],
    [99, 2],
    [99.9, 3],
  ])
    assert.ok(Math.abs(nines(percentile) - place) < 1e-9);
  assert.equal(nines(100), Infinity);
});
