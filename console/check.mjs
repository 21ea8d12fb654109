// Drives a headless browser through every page of the console, as its users do, against a real broker.
//
//   node check.mjs BINARY SCREENSHOT_DIR
//
// The closing line is `N passed, M failed`; the exit status is 0 only when nothing failed.

import { mkdirSync } from 'node:fs';
import { Broker } from './check/broker.mjs';
import { PHONE, Visitor, WIDE, launch } from './check/browser.mjs';
import { chosenSteps } from './check/steps.mjs';

let [passed, failed] = [0, 0];

export function check(name, problems) {
  if (problems.length === 0) {
    passed += 1;
    return;
  }
  failed += 1;
  console.error(`FAILED ${name}`);
  for (const problem of problems.slice(0, 10)) console.error(`  ${problem}`);
}

/** Every page at both widths, light and dark: nothing sticks out, nothing is in the way of who cannot see, and a picture for who can. */
async function look(visitor, folder, name) {
  const { page } = visitor;
  check(`${name}: accessible`, await visitor.violations());
  await visitor.shoot(folder, name);
  await page.emulateMedia({ colorScheme: 'dark' });
  check(`${name}: accessible in the dark`, await visitor.violations());
  await visitor.shoot(folder, `${name}-dark`);
  await page.setViewportSize(PHONE);
  await page.waitForTimeout(60);
  check(`${name}: phone`, await visitor.overflowing());
  await visitor.shoot(folder, `${name}-phone-dark`);
  await page.emulateMedia({ colorScheme: 'light' });
  check(`${name}: accessible on a phone`, await visitor.violations());
  await visitor.shoot(folder, `${name}-phone`);
  await page.setViewportSize(WIDE);
}

async function run(binary, folder) {
  mkdirSync(folder, { recursive: true });
  const [broker, browser] = await Promise.all([Broker.start(binary), launch()]);
  try {
    const visitor = await Visitor.of(browser, broker.origin);
    const shown = (name) => look(visitor, folder, name);
    for (const [name, step] of chosenSteps(process.env.CHECK_STEPS)) {
      const begin = Date.now();
      try {
        check(name, (await step({ visitor, page: visitor.page, broker, browser, folder, shown, check })) ?? []);
      } catch (error) {
        check(name, [String(error?.message ?? error)]);
        await visitor.shoot(folder, 'failed').catch(() => {});
      }
      if (process.env.CHECK_TIMES) console.log(`${name}: ${Date.now() - begin} ms`);
    }
    check('console', visitor.complaints);
    check('requests to others', visitor.foreign);
    check('refusals that did not come', visitor.awaited.map(({ status, path }) => `${status} ${path}`));
  } finally {
    await browser.close();
    await broker.end();
  }
}

const [, , binary, folder] = process.argv;
if (binary === undefined || folder === undefined) {
  console.error('usage: node check.mjs BINARY SCREENSHOT_DIR');
  process.exit(2);
}
try {
  await run(binary, folder);
} catch (error) {
  check('the check itself', [String(error)]);
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
