// What pages say of numbers, of what is not there, and of what can be done.

import { spawn } from 'node:child_process';
import { Amqp } from './amqp.mjs';

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);

/** Nothing can be done with what is not there, and nothing is shown of it. */
export async function notThere({ visitor, page }) {
  const found = [];
  for (const hash of ['topics/nowhere', 'groups/nowhere', 'queues/%2F/nowhere', 'users/nowhere', 'connections/999999999']) {
    for (let turn = 0; turn < 4; turn += 1) visitor.await(404, '/v1/');
    await visitor.open(hash);
    await page.locator('.notice', { hasText: /no such|there is no|has ended/i }).first().waitFor();
    found.push(...equal(`buttons of ${hash}`, await page.locator('header.title button').count(), 0));
    found.push(...equal(`tabs of ${hash}`, await page.getByRole('tab').count(), 0));
    found.push(...equal(`values of ${hash}`, await page.locator('.stat').count(), 0));
  }
  await visitor.open('topics');
  visitor.awaited = [];
  return found;
}

/** A button is there where what it does may succeed. */
export async function offered({ visitor, page, broker }) {
  await broker.ask('PUT', '/queues/%2F/plain', { durable: true });
  await broker.ask('PUT', '/queues/%2F/river', { durable: true, type: 'stream' });
  await broker.ask('POST', '/topics', { name: 'newest', partitions: 1, config: { 'cleanup.policy': 'compact' } });
  const buttons = async (hash) => {
    await visitor.open(hash);
    await page.locator('.stat').first().waitFor();
    return (await page.locator('header.title button').allTextContents()).map((text) => text.trim()).join();
  };
  const found = [
    ...equal('buttons of a topic', await buttons('topics/orders'), 'Add partitions,Empty,Delete'),
    ...equal("buttons of a queue's topic", await buttons('topics/plain'), 'Delete'),
    ...equal("buttons of a stream's topic", await buttons('topics/river'), 'Empty,Delete'),
    ...equal('buttons of a compacted topic', await buttons('topics/newest'), 'Add partitions,Delete'),
    ...equal('buttons of a queue', await buttons('queues/%2F/plain'), 'Publish,Purge,Delete'),
    ...equal('buttons of a stream', await buttons('queues/%2F/river'), 'Publish,Delete'),
  ];
  // A dialog without a field does not have the keyboard on its cross, nor on what cannot be taken back.
  await visitor.open('queues/%2F/plain');
  await visitor.button('Purge', page.locator('header.title'));
  await page.getByRole('dialog').locator('button.cancel:focus').waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await visitor.open('topics');
  for (const name of ['plain', 'river']) await broker.ask('DELETE', `/queues/%2F/${name}`);
  await broker.ask('DELETE', '/topics/newest');
  return found;
}

/** A connection is found by who it is, and its page names what keeps messages from it. */
export async function keptMessages({ visitor, page, broker, shown }) {
  await broker.ask('PUT', '/queues/%2F/kept', { durable: true });
  const amqp = await Amqp.of(broker.amqp, 'anna', 'a secret of anna', 'hoarder');
  try {
    await amqp.publish('kept', 20, 'x'.repeat(1000));
    await amqp.keep('kept', 5);
    await visitor.open('connections');
    await page.getByPlaceholder('Search by address, user or client').fill('hoard');
    await page.waitForFunction(() => location.hash.includes('search=hoard') && document.querySelectorAll('tbody tr').length === 1);
    await page.getByPlaceholder('Search by address, user or client').fill('nobody of this name');
    await page.getByText('Nothing is found for').waitFor();
    await page.getByPlaceholder('Search by address, user or client').fill('hoard');
    await page.getByRole('link', { name: 'hoarder' }).click();
    await page.locator('.chain strong', { hasText: 'Unacknowledged messages' }).waitFor();
    const calm = await page.getByText('The broker holds nothing up here').count();
    await shown('connection-hoarder');
    await visitor.open('queues/%2F/kept');
    const stat = (name) => page.locator('.stat', { hasText: name }).locator('dd').first();
    await stat('Unacknowledged').filter({ hasText: /^5$/ }).waitFor();
    const ready = await stat('Ready').textContent();
    const size = await stat('Size').textContent();
    const queue = await broker.ask('GET', '/queues/%2F/kept');
    return [
      ...equal('said to hold nothing up', calm, 0),
      ...equal('ready', ready, '15'),
      // 20 messages of 1,000 bytes, with what each has beside its body.
      ...(queue.bytes >= 20_000 && queue.bytes < 30_000 ? [] : [`the size of 20 messages of 1,000 bytes is ${queue.bytes}, shown as ${size}`]),
    ];
  } finally {
    amqp.end();
    await visitor.open('queues');
    await broker.ask('DELETE', '/queues/%2F/kept');
  }
}

/** A group that reads from the first record and has committed nothing is not shown as one that is done. */
export async function unknownLag({ visitor, page, broker, shown }) {
  await broker.ask('POST', '/topics', { name: 'unread', partitions: 2, config: {} });
  await broker.kcat(['-P', '-t', 'unread', '-p', '0'], Array.from({ length: 30 }, (_, at) => `record ${at}`));
  const flags = ['-b', broker.kafka, '-q', '-G', 'fresh', '-X', 'auto.offset.reset=earliest', 'unread'];
  const child = spawn('kcat', flags, { stdio: 'ignore' });
  try {
    const reads = async () => (await broker.ask('GET', '/groups?search=fresh')).items[0]?.without_offset.partitions === 2;
    for (let turn = 0; turn < 60 && !(await reads()); turn += 1) await page.waitForTimeout(200);
    // It commits after five seconds whatever it is told, unless it does nothing any more.
    child.kill('SIGSTOP');
    await visitor.open('groups/fresh');
    await page.locator('.stat', { hasText: 'Lag' }).getByText('up to 30 in 2 partitions without an offset').waitFor();
    await page.waitForFunction(() => /where it has no offset 30/.test(document.querySelector('.plot')?.getAttribute('aria-label') ?? ''));
    await shown('group-unread');
    await visitor.open('groups?search=fresh');
    await page.locator('td', { hasText: '0 and up to 30' }).waitFor();
    await visitor.open('groups/fresh?tab=why');
    await page.locator('.chain', { hasText: 'has yet to read up to 30 records of 2 partitions without an offset' }).waitFor();
    visitor.awaited = [];
  } finally {
    child.kill('SIGKILL');
    await visitor.open('topics');
    await broker.ask('DELETE', '/topics/unread');
  }
  await visitor.open('');
  // The overview counts what lists show.
  await page.locator('.counts').waitFor();
  const counted = await page.locator('.counts li', { hasText: 'Topics' }).locator('strong').textContent();
  const { total } = await broker.ask('GET', '/topics');
  return equal('topics of the overview', Number(counted), total);
}
