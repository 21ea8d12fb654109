// Makes a sample report with all that the page can show: the same at every call. The figures are invented.
//
//   node fixture.mjs REPORT.json [PAGE.html]
//
// With PAGE.html it also puts the report into the built page, as the benchmark does.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { fixedRate, highestRate } from './fixture/experiments.mjs';
import { findingsOf } from './fixture/findings.mjs';
import { restart } from './fixture/random.mjs';
import { STARTED } from './fixture/run.mjs';
import { catchUp, manyTopics } from './fixture/trouble.mjs';

export function fixture() {
  restart();
  const parts = [highestRate(), fixedRate(), catchUp(), manyTopics()];
  return {
    format: 2,
    title: 'Message brokers on one machine',
    made: STARTED + 8 * 3600,
    version: '0.9.0',
    experiments: parts.map((part) => part.experiment),
    runs: parts.flatMap((part) => part.runs),
    matrix: [
      matrixRow('highest-rate', [['mainstem', 4, 4, ''], ['kafka', 4, 4, ''], ['pulsar', 0, 0, 'not asked']]),
      matrixRow('catch-up', [['mainstem', 2, 2, ''], ['kafka', 0, 0, 'not run'], ['pulsar', 1, 2, 'unstable']]),
    ],
    claims: CLAIMS,
    findings: parts.flatMap(findingsOf).sort((a, b) => a.advantage - b.advantage),
    cuts: ['many-topics: 1 of 6 pairs, too few to tell a difference'],
    missing: [
      'catch-up, kafka: not asked for.',
      'catch-up, nats: JetStream needs 24 GB of disk, 18 GB were free.',
      'many-topics, pulsar: 10 000 topics were not created within 600 s.',
      'highest-rate, nats with durability=fsync: sync_interval always is not supported by the pinned version.',
    ],
  };
}

function matrixRow(experiment, cells) {
  return {
    experiment,
    cells: cells.map(([system, ranked, runs, remark]) => ({
      system,
      ranked,
      runs,
      variations_ranked: ranked,
      variations: runs,
      remark,
    })),
  };
}

const CLAIMS = [
  {
    experiment: 'highest-rate',
    says: 'Kafka writes twice as much as RabbitMQ.',
    source: 'A comparison, https://example.org/a-comparison',
    judgement: 'confirmed',
    reason: 'the 1.8 to 2.2 times that are claimed, and more',
    ratio: 3.1,
    interval: [2.9, 3.4],
    pairs: 6,
  },
  {
    experiment: 'catch-up',
    says: 'Pulsar reads history 1.5 times as fast as Kafka.',
    source: 'Another comparison, https://example.org/another-comparison',
    judgement: 'refuted',
    reason: 'less than the 1.3 to 1.7 times that are claimed',
    ratio: 0.8,
    interval: [0.7, 0.9],
    pairs: 6,
  },
  {
    experiment: 'topics',
    says: 'TubeMQ is flat over partitions.',
    source: 'A third comparison',
    judgement: 'not-decidable',
    reason: 'TubeMQ is no target yet',
    ratio: null,
    interval: null,
    pairs: 0,
  },
];

/** As the benchmark does it: nothing in the data may end the element it stands in. */
export function inject(page, json) {
  return page.replace('/*DATA*/', () => json.replaceAll('</', '<\\/'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , reportPath, pagePath] = process.argv;
  if (reportPath === undefined) {
    console.error('usage: node fixture.mjs REPORT.json [PAGE.html]');
    process.exit(2);
  }
  const json = JSON.stringify(fixture());
  mkdirSync(dirname(reportPath), { recursive: true });
  writeFileSync(reportPath, json);
  if (pagePath !== undefined) {
    const built = new URL('dist/index.html', import.meta.url);
    writeFileSync(pagePath, inject(readFileSync(built, 'utf8'), json));
  }
}
