// Numbers, sizes and times for people.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, count, duration, millis, short, sizeOf, sizeText, spelled, time } from '../dist/test/format.js';

test('sizes and counts have three digits that count', () => {
  assert.deepEqual([0, 1, 1023, 1024, 1536, 10_240, 123_456_789].map(bytes), ['0 B', '1 B', '1,023 B', '1 KiB', '1.5 KiB', '10 KiB', '118 MiB']);
  assert.deepEqual([0, 999, 9999, 12_345, 1_234_567].map(short), ['0', '999', '9,999', '12.3 k', '1.23 M']);
  assert.deepEqual([null, undefined, 1234].map(count), ['–', '–', '1,234']);
  assert.deepEqual([0.123, 1.5, 42, 1500].map(millis), ['0.12 ms', '1.5 ms', '42 ms', '1.5 s']);
});

test('durations and settings are said in words', () => {
  assert.deepEqual([500, 61_000, 3_660_000, 90_000_000, 604_800_000].map(duration), ['500 ms', '1 min 1 s', '1 h 1 min', '25 h', '7 d']);
  assert.equal(spelled('retention.ms', '604800000'), '7 d');
  assert.equal(spelled('retention.bytes', '-1'), 'no limit');
  assert.equal(spelled('local.retention.ms', '-2'), 'as retention.ms');
  assert.equal(spelled('local.retention.bytes', '-2'), 'as retention.bytes');
  assert.equal(spelled('local.retention.bytes', '-1'), 'no limit');
  assert.equal(spelled('retention.ms', '-2'), null);
  assert.equal(spelled('compression.zstd.level', '-1'), null);
  assert.equal(spelled('mainstem.producer.byte.rate', '1048576'), '1 MiB/s');
  assert.equal(spelled('num.partitions', '3'), null);
  assert.equal(spelled('segment.bytes', '1073741824'), '1 GiB');
});

test('sizes are read as people write them', () => {
  assert.deepEqual(['10485760', '10 MiB', '10MiB', '1.5 MB', '2k', '3 GiB', '7 b'].map(sizeOf), [10_485_760, 10_485_760, 10_485_760, 1_500_000, 2000, 3 * 2 ** 30, 7]);
  assert.deepEqual([0, 7, 1000, 1536, 524_288, 2 ** 40].map(sizeText), ['0', '7', '1000', '1536', '512 KiB', '1 TiB']);
  assert.equal(sizeOf(sizeText(524_288)), 524_288);
  assert.deepEqual(['much', '-1', '', '1 MiB/s'].map(sizeOf), ['much', '-1', '', '1 MiB/s']);
});

test('times are local', () => {
  const at = new Date(2026, 2, 1, 14, 5, 9).getTime();
  assert.equal(time(at), '2026-03-01 14:05:09');
  assert.equal(time(-1), '–');
});
