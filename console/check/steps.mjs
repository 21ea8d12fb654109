// What users do, in order: each step leaves something that later ones find.

import { addresses, conditions, longTables } from './address.mjs';
import { filters, picture, publishMessage, publishRecord, vhosts } from './exchanges.mjs';
import { access, quotas } from './limits.mjs';
import { harmfulNames, harmfulRecords } from './names.mjs';
import { keptMessages, notThere, offered, unknownLag } from './numbers.mjs';
import { anotherUser, awayAndBack, keyboard, loginEnds, refusedDelete, twoWindows } from './trouble.mjs';

const RECORDS = 600;

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);

/** Numbers of a text. */
const number = (text) => Number(text.replace(/[^0-9.]/g, ''));

async function emptyNode({ visitor, page, shown }) {
  await visitor.open('');
  await page.locator('.notice', { hasText: 'Nobody has to log in' }).waitFor();
  await page.getByText('This node').waitFor();
  await shown('overview-empty');
  const notices = await page.locator('.notice.warn, .notice.bad').allTextContents();
  await visitor.open('topics');
  await page.getByText('There is no topic yet.').waitFor();
  await shown('topics-empty');
  // One thing is wrong, and it is said once, with what to do about it.
  return notices.length === 1 && notices[0].includes('Define an administrator') ? [] : notices.map((text) => `notice: ${text}`);
}

async function createTopic({ visitor, page, broker }) {
  await visitor.open('topics');
  await visitor.button('New topic', page.locator('header.title'));
  await page.getByLabel('Name').fill('bad name!');
  visitor.await(400, '/v1/topics');
  await visitor.button('Create topic');
  const wrong = page.locator('.field', { hasText: 'Name' }).locator('.wrong');
  await wrong.waitFor();
  await page.getByLabel('Name').fill('orders');
  await page.getByLabel('Partitions').fill('3');
  await visitor.button('Create topic');
  await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
  const topic = await broker.ask('GET', '/topics/orders');
  return equal('partitions', topic.partitions, 3);
}

async function publish({ visitor, page, broker, shown }) {
  await visitor.open('topics/orders?tab=records');
  await page.getByRole('button', { name: 'Publish a record' }).first().click();
  await page.getByRole('dialog').getByLabel('Key', { exact: true }).fill('anna');
  await page.getByRole('dialog').getByLabel('Value', { exact: true }).fill('{"order": {"id": 4711, "total": 99.5}, "note": "by hand"}');
  await visitor.button('Header', page.getByRole('dialog'));
  await page.getByRole('dialog').getByLabel('Name').fill('trace');
  await page.getByRole('dialog').getByLabel('Value', { exact: true }).last().fill('t-1');
  await shown('publish');
  await visitor.button('Publish', page.getByRole('dialog'));
  await page.getByText(/Published to partition \d at offset 0/).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.record', { hasText: 'anna' }).waitFor();
  const found = await broker.ask('GET', '/topics/orders/records?key=anna');
  return [...equal('records with the key', found.records.length, 1), ...equal('its header', found.records[0]?.headers[0]?.value.text, 't-1')];
}

async function browse({ visitor, page, broker, shown }) {
  const lines = Array.from({ length: RECORDS }, (_, at) => `customer-${at % 7}:${JSON.stringify({ order: { id: at, total: at * 2, lines: [{ sku: `A-${at}` }] } })}`);
  await broker.kcat(['-P', '-t', 'orders', '-K:', '-z', 'lz4'], lines);
  await visitor.open('topics/orders?tab=records');
  await page.locator('.record').first().waitFor();
  const first = await page.locator('.record').count();
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.waitForFunction((count) => document.querySelectorAll('.record').length > count, first);
  await page.locator('.record summary').first().click();
  await page.locator('.record[open] pre').first().waitFor();
  await shown('records');
  return equal('records of the first page', first, 50);
}

async function filter({ visitor, page, shown }) {
  const json = page.getByLabel('JSON in the value');
  await json.fill('order.total >');
  visitor.await(400, '/v1/topics/orders/records');
  await visitor.button('Search');
  await page.locator('.wrong', { hasText: 'numbers' }).waitFor();
  await json.fill('order.total >= 1180');
  await visitor.button('Search');
  await page.getByText(/^10 records found among/).waitFor();
  await shown('records-filtered');
  await json.fill('');
  await page.getByLabel('Header').fill('trace=t-1');
  await visitor.button('Search');
  await page.getByText(/^1 record found among/).waitFor();
  await page.getByLabel('Header').fill('');
  await page.getByLabel('Partition').selectOption('0');
  await page.getByLabel('Order').selectOption('oldest');
  await page.getByLabel('Beginning at').selectOption('offset');
  await page.getByLabel('Offset', { exact: true }).fill('5');
  await visitor.button('Search');
  await page.waitForFunction(() => document.querySelector('.record .offset')?.textContent?.trim() === '5');
  await page.getByLabel('Beginning at').selectOption('time');
  await page.getByLabel('Local time').fill('2001-01-01T00:00:00');
  await visitor.button('Search');
  await page.waitForFunction(() => document.querySelector('.record .offset')?.textContent?.trim() === '0');
}

async function topicSettings({ visitor, page, broker, shown }) {
  await visitor.open('topics/orders');
  await shown('topic');
  await page.getByRole('tab', { name: 'Configuration' }).click();
  await page.getByPlaceholder('Search by name or meaning').fill('retention.ms');
  await visitor.button('Change retention.ms');
  await page.getByLabel('retention.ms', { exact: true }).fill('soon');
  visitor.await(400, '/v1/topics/orders/config');
  await visitor.button('Save');
  await page.locator('dialog .wrong').waitFor();
  await page.getByLabel('retention.ms', { exact: true }).fill('3600000');
  await visitor.button('Save');
  await page.locator('tr', { hasText: 'set for the topic' }).waitFor();
  await shown('topic-settings');
  const topic = await broker.ask('GET', '/topics/orders');
  return equal('retention', topic.retention_ms, 3_600_000);
}

async function groups({ visitor, page, broker, shown }) {
  await broker.kcat(['-G', 'readers', '-X', 'auto.offset.reset=earliest', '-c', '400', '-e', 'orders']);
  await visitor.open('groups');
  await page.getByRole('link', { name: 'readers' }).waitFor();
  await shown('groups');
  await visitor.open('groups/readers');
  await page.locator('.chart canvas').waitFor();
  await page.waitForFunction(() => /Lag \d/.test(document.querySelector('.plot')?.getAttribute('aria-label') ?? ''));
  await shown('group');
}

async function resetGroup({ visitor, page, broker, shown }) {
  await visitor.open('groups/readers');
  await visitor.button('Reset offsets', page.locator('header.title'));
  await page.getByLabel('To', { exact: true }).selectOption('offset');
  await page.getByLabel('Offset', { exact: true }).fill('7');
  await visitor.button('Preview');
  await page.getByText('What would change').waitFor();
  const before = await broker.ask('GET', '/groups/readers');
  await shown('group-reset');
  await visitor.button('Reset offsets', page.getByRole('dialog'));
  await page.getByText('The offsets are set.').waitFor();
  const after = await broker.ask('GET', '/groups/readers');
  const committed = (group) => group.offsets.map((one) => one.committed);
  const same = committed(before).every((offset) => offset === 7);
  return [...(same ? ['the preview changed something'] : []), ...committed(after).flatMap((offset) => equal('committed', offset, 7))];
}

async function queues({ visitor, page, broker, shown }) {
  await visitor.open('queues');
  await page.getByText('There is no queue yet.').waitFor();
  await visitor.button('New queue', page.locator('header.title'));
  await page.getByLabel('Name').fill('work');
  await page.getByLabel('Messages expire after').fill('60000');
  await visitor.button('Create queue');
  await page.getByRole('heading', { level: 1, name: 'work' }).waitFor();
  const queue = await broker.ask('GET', '/queues/%2F/work');
  await shown('queue');
  await visitor.open('queues');
  await page.getByRole('link', { name: 'work' }).waitFor();
  await shown('queues');
  return equal('time to live', queue.arguments['x-message-ttl'], 60000);
}

async function exchanges({ visitor, page, broker, shown }) {
  await visitor.open('exchanges');
  await page.getByText('Nothing is bound yet.').waitFor();
  await page.getByRole('button', { name: 'New exchange' }).click();
  await page.getByLabel('Name').fill('events');
  await visitor.button('Create exchange');
  await page.getByRole('link', { name: 'events', exact: true }).waitFor();
  for (const [name, kind] of [['invoices', 'fanout'], ['letters', 'direct']]) await broker.ask('PUT', `/exchanges/%2F/${name}`, { type: kind, durable: true });
  await broker.ask('PUT', '/queues/%2F/mail', { durable: true });
  const bind = (source, destination, destination_kind, routing_key) => broker.ask('POST', '/bindings/%2F', { source, destination, destination_kind, routing_key, arguments: {} });
  await bind('events', 'invoices', 'exchange', 'order.paid');
  await bind('invoices', 'mail', 'queue', '');
  await bind('letters', 'mail', 'queue', 'welcome');
  await visitor.button('Bind', page.locator('header.title'));
  await page.getByRole('dialog').getByLabel('From exchange').selectOption('events');
  await page.getByRole('dialog').getByLabel('Routing key').fill('order.#');
  await page.getByLabel('Queue', { exact: true }).fill('work');
  await visitor.button('Bind', page.getByRole('dialog'));
  await page.getByRole('link', { name: 'Queue work' }).waitFor();
  await page.getByRole('link', { name: 'Queue mail' }).waitFor();
  await shown('exchanges');
  return equal('lines', await page.locator('.picture .edge').count(), 4);
}

async function users({ visitor, page, shown }) {
  await visitor.open('users');
  await visitor.button('New user', page.locator('header.title'));
  await page.getByLabel('Name').fill('anna');
  await page.getByLabel('Password').fill('a secret of anna');
  await shown('user-new');
  // The page asks on for a moment after the time without logins has ended.
  for (const path of ['/v1/users/anna/permissions', '/v1/session', '/v1/session', '/v1/live']) visitor.await(401, path);
  await visitor.button('Create user');
  await page.getByRole('button', { name: 'Log in' }).waitFor();
  await shown('login');
}

async function login({ visitor, page, broker }) {
  await page.getByLabel('User').fill('anna');
  await page.getByLabel('Password').fill('wrong');
  visitor.await(401, '/v1/session');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Password').fill('a secret of anna');
  await page.keyboard.press('Enter');
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
  broker.as('anna', 'a secret of anna');
  await broker.ask('PUT', '/users/anna/permissions/%2F', { configure: '.*', write: '.*', read: '.*' });
  visitor.awaited = visitor.awaited.filter(({ path }) => path === '/v1/none');
}

async function createUser({ visitor, page, broker, shown }) {
  await visitor.open('users');
  await visitor.button('New user', page.locator('header.title'));
  await page.getByLabel('Name').fill('bert');
  await page.getByLabel('Password').fill('a secret of bert');
  await page.getByRole('checkbox', { name: /monitoring/ }).check();
  await visitor.button('Create user');
  await page.getByRole('heading', { level: 1, name: 'bert' }).waitFor();
  await page.getByText('everything').first().waitFor();
  await shown('user');
  await visitor.button('Change permissions in /');
  await page.getByLabel('Write: publish').fill('(');
  visitor.await(400, '/v1/users/bert/permissions');
  await visitor.button('Save');
  await page.locator('dialog .wrong').waitFor();
  await page.getByLabel('Write: publish').fill('^orders');
  await visitor.button('Save');
  await page.locator('td', { hasText: '^orders' }).waitFor();
  await visitor.open('users');
  await page.getByRole('link', { name: 'bert' }).waitFor();
  await shown('users');
  const { permissions } = await broker.ask('GET', '/users/bert');
  return equal('permission', permissions[0]?.write, '^orders');
}

async function liveCharts({ visitor, page, broker, shown }) {
  await visitor.open('');
  const value = () => page.locator('.chart', { hasText: 'Throughput' }).locator('dd').first().textContent();
  await page.waitForFunction(() => document.querySelectorAll('.chart canvas').length >= 4);
  // The load of the step before has to be over.
  await page.waitForFunction(() => /^[0-9.,]+ B\/s$/.test(document.querySelector('.chart dd')?.textContent ?? ''), null, { timeout: 20_000 });
  const before = await value();
  const stop = broker.load('orders', 4000);
  try {
    const moved = (text) => /(KiB|MiB)\/s/.test(document.querySelector('.chart dd')?.textContent ?? '') && document.querySelector('.chart dd')?.textContent !== text;
    await page.waitForFunction(moved, before);
    const first = await value();
    await page.waitForFunction((text) => document.querySelector('.chart dd')?.textContent !== text, first);
    await page.waitForFunction(() => [...document.querySelectorAll('.chart')].find((one) => one.textContent?.includes('Latency'))?.querySelector('dd')?.textContent?.includes('ms'));
    await page.waitForTimeout(2500);
    await shown('overview');
    await connections({ visitor, page, shown });
  } finally {
    stop();
  }
  return number(before ?? '') < 50 ? [] : [`throughput before the load: ${before}`];
}

async function connections({ visitor, page, shown }) {
  await visitor.open('connections');
  await page.getByRole('link', { name: 'loader' }).first().waitFor();
  await shown('connections');
  await page.getByRole('link', { name: 'loader' }).first().click();
  await page.getByText('What is known of it').waitFor();
  await page.waitForTimeout(2300);
  await shown('connection');
}

async function journal({ visitor, page, shown }) {
  await visitor.open('journal');
  await page.getByRole('heading', { name: 'Segments' }).waitFor();
  await shown('journal');
  return (await page.locator('tbody tr').count()) > 0 ? [] : ['no segment is shown'];
}

async function configuration({ visitor, page, broker, shown }) {
  await visitor.open('config');
  await page.locator('tbody tr').first().waitFor();
  await page.getByPlaceholder('Search by name or meaning').fill('log.retention.ms');
  await visitor.button('Change log.retention.ms');
  await page.getByLabel('log.retention.ms', { exact: true }).fill('a week');
  visitor.await(400, '/v1/config');
  await visitor.button('Save');
  await page.locator('dialog .wrong').waitFor();
  await page.getByLabel('log.retention.ms', { exact: true }).fill('360000000');
  await visitor.button('Save');
  await page.locator('dialog').waitFor({ state: 'detached' });
  await page.locator('td', { hasText: '360000000' }).first().waitFor();
  await page.getByPlaceholder('Search by name or meaning').fill('log.');
  await shown('config');
  const { items } = await broker.ask('GET', '/config?search=log.retention.ms');
  return equal('retention', items[0]?.value, '360000000');
}

async function deleteTopic({ visitor, page, broker }) {
  await broker.ask('POST', '/topics', { name: 'gone', partitions: 1, config: {} });
  await visitor.open('topics/gone');
  await visitor.button('Delete', page.locator('header.title'));
  const confirm = page.getByRole('dialog').getByRole('button', { name: 'Delete topic' });
  const early = await confirm.isEnabled();
  await page.getByLabel(/to confirm/).fill('gone');
  await confirm.click();
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  const { total } = await broker.ask('GET', '/topics?search=gone');
  return [...(early ? ['it can be deleted without its name'] : []), ...equal('topics left', total, 0)];
}

export const STEPS = [
  ['a node without anything', emptyNode],
  ['create a topic', createTopic],
  ['publish', publish],
  ['browse', browse],
  ['filter', filter],
  ['settings of a topic', topicSettings],
  ['groups', groups],
  ['reset a group', resetGroup],
  ['queues', queues],
  ['exchanges', exchanges],
  ['the first user', users],
  ['log in', login],
  ['create a user', createUser],
  ['access control', access],
  ['quotas', quotas],
  ['live charts and connections under load', liveCharts],
  ['journal', journal],
  ['configuration', configuration],
  ['keyboard', keyboard],
  ['delete a topic', deleteTopic],
  ['pages of what is not there', notThere],
  ['buttons that may succeed', offered],
  ['a consumer that keeps messages', keptMessages],
  ['lag that is not known', unknownLag],
  ['addresses of lists', addresses],
  ['addresses of conditions', conditions],
  ['long tables', longTables],
  ['filters of groups', filters],
  ['the picture', picture],
  ['virtual hosts', vhosts],
  ['a message to an exchange', publishMessage],
  ['a record to a topic', publishRecord],
  ['names that mean harm', harmfulNames],
  ['records that mean harm', harmfulRecords],
  ['refused', refusedDelete],
  ['two windows', twoWindows],
  ['another user in another window', anotherUser],
  ['the login ends', loginEnds],
  ['the broker goes and comes back', awayAndBack],
];

/** Only some of them, after those that later ones build on: `CHECK_STEPS=picture,filters`. */
export function chosenSteps(names) {
  const needed = ['create a topic', 'browse', 'groups', 'queues', 'the first user', 'log in', 'create a user', 'configuration'];
  return names ? STEPS.filter(([name]) => [...needed, ...names.split(',')].includes(name)) : STEPS;
}
