// Which runs are compared with which, which count, and what is said of a finding.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { fixture } from '../fixture.mjs';
import { findingSentence, figureKind, undecided } from '../dist/test/figure.js';
import { contenderSpread, counts, groups, middleRun } from '../dist/test/group.js';

const report = fixture();
const of = (id) =>
  groups(
    report.runs.filter((run) => run.experiment === id),
    report.runs,
  );

test('the sample report is the same at every call, and small', () => {
  const text = JSON.stringify(report);
  assert.equal(JSON.stringify(fixture()), text);
  assert.ok(text.length < 500_000);
});

test('a group per variation, Mainstem first', () => {
  const found = of('highest-rate');
  assert.deepEqual(
    found.map((group) => group.title),
    ['durability=memory', 'durability=fsync'],
  );
  assert.deepEqual(
    found[0].contenders.map((one) => one.title),
    ['Mainstem stock', 'Kafka tuned', 'RabbitMQ tuned'],
  );
});

test('one variation with two durabilities is two groups', () => {
  const run = report.runs[0];
  const other = { ...run, target: { ...run.target, durability: 'fsync' } };
  const found = groups(
    [run, other].map((one) => ({ ...one, variation: 'batch=1' })),
    report.runs,
  );
  assert.deepEqual(
    found.map((group) => group.title),
    ['batch=1, durability=memory', 'batch=1, durability=fsync'],
  );
});

test('two versions are two targets', () => {
  const run = report.runs[0];
  const both = [run, { ...run, target: { ...run.target, version: '1.0.0' } }];
  assert.deepEqual(
    groups(both, both)[0].contenders.map((one) => one.title),
    ['Mainstem stock 0.9.0', 'Mainstem stock 1.0.0'],
  );
});

test('invalid and stopped runs do not count', () => {
  const [group] = of('many-topics');
  const counted = Object.fromEntries(group.contenders.map((one) => [one.title, one.runs.filter(counts).length]));
  assert.deepEqual(counted, { 'Mainstem stock': 1, 'Kafka tuned': 0, 'RabbitMQ tuned': 0, 'NATS tuned': 1 });
  const kafka = group.contenders[1];
  assert.equal(contenderSpread(kafka, figureKind('publish-rate').of), null);
  assert.equal(middleRun(kafka, figureKind('publish-rate').of), kafka.runs[0]);
});

test('stock is secondary only beside tuned', () => {
  const [group] = of('latency-at-fixed-rate');
  assert.deepEqual(
    group.contenders.filter((one) => one.secondary).map((one) => one.title),
    ['Kafka stock'],
  );
});

test('a loss and a win are said with a factor above 1', () => {
  const finding = { figure: 'publish-rate', advantage: 0.5, advantage_range: [0.4, 0.6], conclusion: 'worse' };
  assert.equal(
    findingSentence(finding, 'Mainstem', 'Kafka'),
    'Kafka publishes 2.00× as many messages a second as Mainstem.',
  );
  assert.equal(
    findingSentence({ ...finding, figure: 'publish-p99', advantage: 2, conclusion: 'better' }, 'Mainstem', 'Kafka'),
    'The publish p99 of Kafka is 2.00× that of Mainstem.',
  );
  assert.equal(
    findingSentence({ ...finding, figure: 'cpu-per-gb' }, 'Mainstem', 'Kafka'),
    'Mainstem spends 2.00× the CPU of Kafka per GB.',
  );
  assert.equal(undecided(finding), false);
  const equal = { ...finding, conclusion: 'no-difference' };
  assert.equal(undecided(equal), true);
  assert.equal(findingSentence(equal, 'Mainstem', 'Kafka'), 'Mainstem and Kafka: no difference that this session can tell.');
});

test('the sample for Rust has the fields of the fixture', () => {
  const sample = JSON.parse(readFileSync(new URL('../sample.json', import.meta.url), 'utf8'));
  const keys = (value) => Object.keys(value).sort();
  assert.deepEqual(keys(sample), keys(report));
  for (const run of sample.runs) {
    assert.deepEqual(keys(run), keys(report.runs[0]));
    for (const part of ['target', 'machine', 'verdict', 'measured', 'broker', 'generator'])
      assert.deepEqual(keys(run[part]), keys(report.runs[0][part]), part);
    for (const moment of run.timeline) assert.deepEqual(keys(moment), keys(report.runs[0].timeline[0]));
    for (const phase of run.phases) assert.deepEqual(keys(phase), keys(report.runs[0].phases[0]));
  }
  for (const finding of sample.findings) assert.deepEqual(keys(finding), keys(report.findings[0]));
});
