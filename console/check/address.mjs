// Lists, searches, filters, tabs and pages have addresses: reload, the way back and a link to somebody else keep them.

import { Visitor } from './browser.mjs';

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);
const TOPICS = 120;

const names = (page) => page.locator('td.main a').allTextContents();
const hash = (page) => new URL(page.url()).hash;

/** A link that was sent to a colleague. */
async function asColleague({ visitor, browser, broker }, address, read) {
  const other = await Visitor.of(browser, broker.origin);
  await other.context.addCookies(await visitor.context.cookies());
  await other.page.goto(address);
  await other.settled();
  const found = await read(other.page);
  await other.context.close();
  return [found, other.complaints];
}

export async function addresses(all) {
  const { visitor, page, broker } = all;
  for (let at = 0; at < TOPICS; at += 1) await broker.ask('POST', '/topics', { name: `list-${String(at).padStart(3, '0')}`, partitions: 1 + (at % 3), config: {} });
  await visitor.open('topics');
  await page.getByPlaceholder('Search by name').fill('list-');
  await page.getByText(`${TOPICS} in all`).waitFor();
  await page.getByRole('button', { name: 'Partitions' }).click();
  const pages = page.getByRole('navigation', { name: 'Pages of the list' });
  await visitor.button('Next', pages);
  await pages.getByText('page 2 of 3').waitFor();
  await page.getByText('51 to 100').waitFor();
  await page.waitForFunction(() => document.querySelector('td.main a')?.textContent !== 'list-002');
  const second = await names(page);
  const address = hash(page);
  await page.reload();
  await visitor.settled();
  const reloaded = await names(page);
  const typed = await page.getByPlaceholder('Search by name').inputValue();
  const [colleague, complaints] = await asColleague(all, page.url(), names);
  await page.getByRole('link', { name: second[0] }).click();
  await page.getByRole('heading', { level: 1, name: second[0] }).waitFor();
  await page.getByRole('tab', { name: 'Groups' }).click();
  await page.goBack();
  await page.getByRole('tab', { name: 'Partitions', selected: true }).waitFor();
  await page.goForward();
  await page.getByRole('tab', { name: 'Groups', selected: true }).waitFor();
  await page.goBack();
  await page.goBack();
  await pages.getByText('page 2 of 3').waitFor();
  const back = hash(page);
  await page.goBack();
  await pages.getByText('page 1 of 3').waitFor();
  await page.getByLabel('Internal and queues').check();
  await page.waitForFunction(() => location.hash.includes('internal=true'));
  await page.goto(`${broker.origin}/#/topics?search=list-&page=9`);
  await page.getByText('no such page any more').waitFor();
  await visitor.button('Previous', pages);
  await pages.getByText('page 3 of 3').waitFor();
  return [
    ...(['search=list-', 'sort=-partitions', 'page=2'].flatMap((part) => (address.includes(part) ? [] : [`${part} is not in ${address}`]))),
    ...equal('after a reload', reloaded.join(), second.join()),
    ...equal('the field of the search', typed, 'list-'),
    ...equal('what a colleague sees', colleague.join(), second.join()),
    ...complaints,
    ...equal('on the way back', back, address),
  ];
}

/** Long tables of a page: partitions as the server names them, offsets of a group. */
export async function longTables({ visitor, page, broker }) {
  await broker.ask('POST', '/topics', { name: 'wide', partitions: 1200, config: {} });
  await visitor.open('topics/wide?page=2');
  const pages = page.getByRole('navigation', { name: 'Pages of the list' });
  await pages.getByText('1,001 to 1,200 of 1,200, page 2 of 2').waitFor();
  const first = await page.locator('tbody td').first().textContent();
  await broker.ask('POST', '/groups/readers/reset', { to: 'earliest', topics: ['wide'], partitions: null });
  await visitor.open('groups/readers');
  await visitor.button('Next', pages);
  await pages.getByText('51 to 100 of').waitFor();
  await page.reload();
  await pages.getByText('51 to 100 of').waitFor();
  const rows = await page.locator('tbody tr').count();
  await visitor.open('topics');
  await broker.ask('DELETE', '/topics/wide');
  return [...equal('the first partition of the second page', first, '1000'), ...equal('rows of a page', rows, 50)];
}

/** Conditions of a search for records, of settings, of groups and charts. */
export async function conditions(all) {
  const { visitor, page } = all;
  await visitor.open('topics/orders?tab=records');
  await page.getByLabel('JSON in the value').fill('order.total >= 1180');
  await page.getByLabel('Order').selectOption('oldest');
  await visitor.button('Search');
  await page.getByText(/^10 records found among/).waitFor();
  await page.getByLabel('JSON in the value').fill('order.total >= 1190');
  await visitor.button('Search');
  await page.getByText(/^5 records found among/).waitFor();
  await page.goBack();
  await page.getByText(/^10 records found among/).waitFor();
  const json = await page.getByLabel('JSON in the value').inputValue();
  await page.reload();
  await page.getByText(/^10 records found among/).waitFor();
  const count = (other) => other.getByText(/^10 records found among/).waitFor().then(() => other.locator('.record').count());
  const [colleague, complaints] = await asColleague(all, page.url(), count);
  await page.locator('.record summary').first().click();
  const offset = await page.locator('.record .offset').first().textContent();
  await page.getByRole('link', { name: 'Address of this record' }).first().click();
  await page.waitForFunction((wanted) => location.hash.includes('at_offset=') && document.querySelector('.record .offset')?.textContent === wanted, offset);
  await visitor.open('topics/orders?tab=records&at_time=978303600000&order=oldest');
  const moment = await page.getByLabel('Local time').inputValue();
  visitor.await(400, '/v1/topics/orders/records');
  await visitor.open('topics/orders?tab=records&at_offset=first');
  await page.locator('.field', { hasText: 'Offset' }).locator('.wrong').waitFor();

  await visitor.open('config?search=log.retention&changed=true');
  await page.locator('td code', { hasText: 'log.retention.ms' }).first().waitFor();
  const rows = await page.locator('tbody tr').count();
  await page.getByLabel('Only what was set').uncheck();
  await page.waitForFunction((before) => document.querySelectorAll('tbody tr').length > before, rows);
  await page.goBack();
  await page.waitForFunction((before) => document.querySelectorAll('tbody tr').length === before, rows);
  await visitor.open('groups?kind=share');
  const kind = await page.getByLabel('Kind').inputValue();
  await visitor.open('?latency=commit');
  const pressed = await page.getByRole('button', { name: 'Commit' }).getAttribute('aria-pressed');
  return [
    ...equal('the condition after going back', json, 'order.total >= 1180'),
    ...equal('records for a colleague', colleague, 10),
    ...complaints,
    ...equal('a moment of the address, here', moment.slice(0, 16), '2001-01-01T00:00'),
    ...equal('the kind of groups', kind, 'share'),
    ...equal('the latency of commits', pressed, 'true'),
  ];
}
