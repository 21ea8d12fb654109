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
