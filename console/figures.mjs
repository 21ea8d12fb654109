// What pages of the console say: `node figures.mjs ORIGIN` reads an address behind `#/` and the name of a value, a line each, with a tabulator between, and answers with
// the text of the value, once the page has it.

import { createInterface } from 'node:readline';
import { Visitor, launch } from './check/browser.mjs';

const origin = process.argv[2];
const browser = await launch();
const visitor = await Visitor.of(browser, origin);
const { page } = visitor;

for await (const line of createInterface({ input: process.stdin })) {
  const [hash, name] = line.split('\t');
  // A page that is shown already would be asked for no more.
  await page.goto('about:blank');
  await visitor.open(hash);
  const value = page.locator('.stat', { has: page.locator(`dt:text-is("${name}")`) });
  await value.waitFor();
  console.log((await value.locator('dd').allTextContents()).join('; '));
}
await browser.close();
