// Numbers as text.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  count,
  digits,
  grouped,
  list,
  megabytes,
  messageRate,
  microseconds,
  milliseconds,
  moment,
  rangeText,
  short,
  times,
  trimmed,
} from '../dist/test/format.js';

test('three digits count, two below 1', () => {
  assert.deepEqual([0, 0.0042, 0.0423, 0.423, 1.234, 12.34, 99.96, 123.4].map(digits), [
    '0',
    '0.004',
    '0.042',
    '0.42',
    '1.23',
    '12.3',
    '100',
    '123',
  ]);
});

test('a missing number is a dash', () => {
  for (const write of [digits, grouped, short, messageRate, milliseconds, times, moment]) {
    for (const nothing of [null, undefined, NaN, Infinity]) assert.equal(write(nothing), '–');
  }
});

test('rates are short', () => {
  assert.deepEqual([0, 7, 950, 999.6, 1000, 9870, 512_345, 999_600, 1_250_000].map(short), [
    '0',
    '7',
    '950',
    '1k',
    '1k',
    '9.87k',
    '512k',
    '1M',
    '1.25M',
  ]);
  assert.equal(messageRate(512_345), '512k msg/s');
});

test('thousands are apart', () => {
  assert.equal(grouped(1_234_567), '1\u202f234\u202f567');
  assert.equal(grouped(-1234), '-1\u202f234');
});

test('units change with size', () => {
  assert.deepEqual([0.05, 12, 9999, 12_345].map(milliseconds), ['0.050 ms', '12.0 ms', '9\u202f999 ms', '12.3 s']);
  assert.deepEqual([212, 1180].map(microseconds), ['212 µs', '1.18 ms']);
  assert.deepEqual([812, 65_536].map(megabytes), ['812 MB', '65.5 GB']);
});

test('an axis has no trailing zeros', () => {
  assert.deepEqual([0.5, 1, 2.5, 20, 100].map(trimmed), ['0.5', '1', '2.5', '20', '100']);
});

test('a range names its unit once', () => {
  assert.equal(rangeText(milliseconds, 4.16, 5), '4.16–5.00 ms');
  assert.equal(rangeText(microseconds, 900, 1290), '900 µs–1.29 ms');
  assert.equal(rangeText(times, 0.8, 1.1), '0.80–1.10×');
});

test('words', () => {
  assert.equal(count(1, 'pair'), '1 pair');
  assert.equal(count(2, 'loss', 'losses'), '2 losses');
  assert.equal(list(['a', 'b', 'c']), 'a, b and c');
  assert.equal(moment(1_751_450_400), '2025-07-02 10:00 UTC');
});
