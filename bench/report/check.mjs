// Opens a report in a headless browser as readers do (desktop and phone, light and dark) and fails on what they would trip over.
//
//   node check.mjs REPORT.html [SCREENSHOT_DIR]
//
// The closing line is `N passed, M failed`; the exit status is 0 only when nothing failed.

import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const SIZES = [
  { name: 'desktop', width: 1280, height: 900 },
  { name: 'phone', width: 390, height: 844 },
];
const SCHEMES = ['light', 'dark'];

let passed = 0;
let failed = 0;

function check(name, problems) {
  if (problems.length === 0) {
    passed += 1;
    return;
  }
  failed += 1;
  console.error(`FAILED ${name}`);
  for (const problem of problems.slice(0, 10)) console.error(`  ${problem}`);
  if (problems.length > 10) console.error(`  and ${problems.length - 10} more`);
}

/** How many charts the data calls for, counted without the page's own code. */
function expectedCharts(report) {
  let charts = 0;
  for (const experiment of report.experiments) {
    const runs = report.runs.filter((run) => run.experiment === experiment.id);
    if (runs.length === 0) continue;
    charts += experiment.figure === 'cpu-per-gb' ? 1 : 2;
    if (runs.some((run) => run.measured.publish_latency || run.measured.end_to_end_latency)) charts += 1;
    if (runs.some((run) => run.timeline.length > 0)) charts += 4;
    if (runs.some((run) => run.measured.tried.length > 0)) charts += 1;
    if (runs.some((run) => run.measured.drain)) charts += 1;
  }
  return charts;
}

function dataOf(file) {
  const text = readFileSync(file, 'utf8');
  const match = /<script type="application\/json" id="data">([\s\S]*?)<\/script>/.exec(text);
  if (!match) throw new Error(`${file} has no element with data`);
  return JSON.parse(match[1]);
}

/** A page that notes all that it complains of and all that it asks for. */
async function open(browser, file, size, scheme, query = '') {
  const page = await browser.newPage({
    viewport: { width: size.width, height: size.height },
    colorScheme: scheme,
    acceptDownloads: true,
  });
  const address = pathToFileURL(file).href;
  const notes = { console: [], requests: [] };
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) notes.console.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => notes.console.push(`page error: ${error.message}`));
  page.on('request', (request) => {
    const url = request.url();
    if (url.split(/[?#]/)[0] !== address && !/^(data|blob):/.test(url)) notes.requests.push(url);
  });
  await page.goto(address + query, { waitUntil: 'load' });
  return { page, notes };
}

/** Frames that are shown but hold no drawing. */
function undrawn(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('.chart')]
      .filter((frame) => !frame.hidden)
      .map((frame) => {
        const title = `${frame.closest('section')?.id}: ${frame.closest('figure')?.querySelector('h3')?.textContent}`;
        const svg = frame.querySelector('svg');
        const box = svg?.getBoundingClientRect();
        if (!svg || !box) return `${title}: not drawn`;
        if (box.width < 50 || box.height < 50) return `${title}: ${box.width} x ${box.height}`;
        if (svg.querySelectorAll('path').length < 2 || svg.querySelectorAll('text').length < 2)
          return `${title}: nothing in it`;
        return '';
      })
      .filter((problem) => problem !== ''),
  );
}

/** What sticks out to the right of the page. */
function overflowing(page) {
  return page.evaluate(() => {
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const wide = [...document.querySelectorAll('body *')].filter(
      (element) =>
        element.getBoundingClientRect().right > root.clientWidth + 1 &&
        !element.parentElement?.closest('.scrolling, .chart'),
    );
    return [
      `${root.scrollWidth} px in ${root.clientWidth} px`,
      ...wide.map((element) => `${element.tagName}.${element.className}`),
    ];
  });
}

/** Text that is cut off at the edge of a drawing. */
function cutText(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('.chart svg')].flatMap((svg) => {
      const frame = svg.getBoundingClientRect();
      return [...svg.querySelectorAll('text')]
        .filter((text) => {
          const box = text.getBoundingClientRect();
          return (
            box.width > 0 && (box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2)
          );
        })
        .map((text) => `${svg.closest('figure')?.querySelector('h3')?.textContent}: "${text.textContent}"`);
    }),
  );
}

/** Every select, choice, legend button and detail is used once. */
async function useControls(page) {
  await page.evaluate(async () => {
    const pause = () => new Promise((done) => requestAnimationFrame(done));
    for (const select of document.querySelectorAll('select')) {
      for (let index = select.options.length - 1; index >= 0; index -= 1) {
        select.selectedIndex = index;
        select.dispatchEvent(new Event('change', { bubbles: true }));
        await pause();
      }
    }
    for (const input of [...document.querySelectorAll('input[type=radio]')].reverse()) input.click();
    for (const button of document.querySelectorAll('.legend-entry')) button.click();
    await pause();
    for (const button of document.querySelectorAll('.legend-entry')) button.click();
    for (const button of document.querySelectorAll('button.open')) button.click();
    for (const details of document.querySelectorAll('details')) details.open = true;
    await pause();
  });
}

async function checkSaving(page) {
  const button = page.locator('button.save:enabled').first();
  if ((await button.count()) === 0) return ['no chart can be saved'];
  const [download] = await Promise.all([page.waitForEvent('download', { timeout: 10_000 }), button.click()]);
  const text = readFileSync(await download.path(), 'utf8');
  const problems = await page.evaluate((source) => {
    const root = new DOMParser().parseFromString(source, 'image/svg+xml');
    if (root.querySelector('parsererror')) return ['not well-formed'];
    return root.documentElement.textContent?.replace(/\s/g, '').includes('notreplicated')
      ? []
      : ['without its caption'];
  }, text);
  if (!download.suggestedFilename().endsWith('.svg')) problems.push(`is called ${download.suggestedFilename()}`);
  return problems;
}

async function checkView(browser, file, size, scheme, expected, screenshots) {
  const name = `${size.name}, ${scheme}`;
  const { page, notes } = await open(browser, file, size, scheme, '?all');
  const frames = await page.locator('.chart').count();
  check(`${name}: charts`, frames < expected ? [`${frames} of ${expected}`] : []);
  check(`${name}: drawn`, await undrawn(page));
  check(`${name}: width`, await overflowing(page));
  check(`${name}: text within the drawings`, await cutText(page));
  if (screenshots) await page.screenshot({ path: join(screenshots, `${size.name}-${scheme}.png`), fullPage: true });
  if (expected > 0) check(`${name}: saving`, await checkSaving(page));
  await useControls(page);
  check(`${name}: drawn after use`, await undrawn(page));
  check(`${name}: width after use`, await overflowing(page));
  if (screenshots)
    await page.screenshot({ path: join(screenshots, `${size.name}-${scheme}-used.png`), fullPage: true });
  await page.setViewportSize({ width: size.width === 390 ? 700 : 820, height: size.height });
  await page.waitForTimeout(300);
  check(`${name}: drawn after a change of width`, [...(await undrawn(page)), ...(await overflowing(page))]);
  check(`${name}: console`, notes.console);
  check(`${name}: requests`, notes.requests);
  await page.close();
}

/** Without `?all`: few charts at first, all once the reader has scrolled through. */
async function checkLaziness(browser, file, expected) {
  const { page, notes } = await open(browser, file, SIZES[0], 'light');
  await page.waitForTimeout(300);
  const first = await page.locator('.chart svg').count();
  if (expected > 12) check('lazy: opens with few charts', first >= expected ? [`${first} of ${expected} at once`] : []);
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  for (let at = 0; at < height; at += 700) {
    await page.evaluate((top) => window.scrollTo(0, top), at);
    await page.waitForTimeout(40);
  }
  check('lazy: drawn after scrolling', await undrawn(page));
  check('lazy: console', notes.console);
  await page.close();
}

const [, , fileArgument, screenshots] = process.argv;
if (fileArgument === undefined || !existsSync(fileArgument)) {
  console.error('usage: node check.mjs REPORT.html [SCREENSHOT_DIR]');
  process.exit(2);
}
const file = resolve(fileArgument);
if (screenshots) mkdirSync(screenshots, { recursive: true });
const report = dataOf(file);
const expected = expectedCharts(report);
const pageSize = statSync(file).size - JSON.stringify(report).length;
check('size of the page without data', pageSize > 900_000 ? [`${pageSize} bytes`] : []);
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
try {
  for (const size of SIZES) {
    for (const scheme of SCHEMES) await checkView(browser, file, size, scheme, expected, screenshots);
  }
  await checkLaziness(browser, file, expected);
} catch (error) {
  check('the check itself', [String(error)]);
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
