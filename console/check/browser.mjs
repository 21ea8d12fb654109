// A headless browser that notes all that pages complain of and ask for, and what readers would trip over.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const ARGUMENTS = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const AXE = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
export const WIDE = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };

export async function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
}

export class Visitor {
  static async of(browser, origin, scheme = 'light') {
    const context = await browser.newContext({ viewport: WIDE, colorScheme: scheme, timezoneId: 'Europe/Berlin', reducedMotion: 'reduce' });
    const visitor = new Visitor();
    Object.assign(visitor, { context, origin, page: await context.newPage(), complaints: [], foreign: [], refusals: [], awaited: [] });
    const { page } = visitor;
    page.setDefaultTimeout(8000);
    // Files that were just built in place of those that the broker carries: no release build for each change of a page.
    if (process.env.CONSOLE_FILES) await page.route(/\/console\.(js|css)$/, (route) => route.fulfill({ path: join(process.env.CONSOLE_FILES, new URL(route.request().url()).pathname) }));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) visitor.complain(message);
    });
    page.on('pageerror', (error) => visitor.complaints.push(`page error: ${error.message}`));
    page.on('request', (request) => {
      if (!request.url().startsWith(`${origin}/`)) visitor.foreign.push(request.url());
    });
    return visitor;
  }

  /** From now on the server may refuse this once: the browser says so in its console. */
  await(status, path) {
    this.awaited.push({ status, path });
  }

  complain(message) {
    const { url } = message.location();
    // That nobody answers is said by the browser, too.
    if (this.away && /ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|SOCKET)|status of (401|503)/.test(message.text())) return;
    const at = this.awaited.findIndex(({ status, path }) => message.text().includes(`status of ${status}`) && new URL(url).pathname.startsWith(path));
    if (at >= 0) this.awaited.splice(at, 1);
    else this.complaints.push(`${message.type()}: ${message.text()} (${url})`);
  }

  async open(hash) {
    const address = `${this.origin}/#/${hash}`;
    if (this.page.url() === address) await this.page.reload();
    else await this.page.goto(address);
    await this.settled();
  }

  /** What the page has asked for is there. */
  async settled() {
    await this.page.waitForFunction(() => document.querySelector('h1') && !document.querySelector('.loading'));
  }

  async button(name, within = this.page) {
    await within.getByRole('button', { name, exact: true }).click();
  }

  async shoot(folder, name) {
    await this.page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
  }

  /** Violations that axe calls serious or critical. */
  async violations() {
    await this.page.evaluate(AXE);
    return this.page.evaluate(async () => {
      const found = await globalThis.axe.run(document, { resultTypes: ['violations'] });
      return found.violations
        .filter((one) => ['serious', 'critical'].includes(one.impact))
        .map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`).slice(0, 3).join(' | ')}`);
    });
  }

  /** What sticks out to the right of the page. */
  overflowing() {
    return this.page.evaluate(() => {
      const root = document.documentElement;
      if (root.scrollWidth <= root.clientWidth) return [];
      const wide = [...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > root.clientWidth + 1 && !element.parentElement?.closest('.scrolling, pre, .tabs'));
      return [`${root.scrollWidth} px in ${root.clientWidth} px`, ...wide.slice(0, 5).map((element) => `${element.tagName}.${element.className}`)];
    });
  }
}
