// What administrators do to keep others in bounds: access control entries and quotas.

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);
const RATE = 512 * 1024;

export async function access({ visitor, page, broker, shown }) {
  await visitor.open('access');
  await page.getByText('There is no entry yet.').waitFor();
  await page.locator('.notice', { hasText: 'do not count' }).waitFor();
  await shown('access-empty');
  await visitor.button('New entry', page.locator('header.title'));
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Who', { exact: true }).fill('carol');
  await dialog.getByLabel('Name', { exact: true }).fill('ord');
  visitor.await(400, '/v1/acls');
  await visitor.button('Preview', dialog);
  await dialog.locator('.field', { hasText: 'Who' }).locator('.wrong', { hasText: 'no principal' }).waitFor();
  await dialog.getByLabel('Who', { exact: true }).fill('User:bert');
  await dialog.getByLabel('Names', { exact: true }).selectOption('Prefixed');
  await visitor.button('Preview', dialog);
  await dialog.getByText('Of what there is now it goes for 1 topic or queue: orders.').waitFor();
  const before = await broker.ask('GET', '/acls');
  await shown('access-preview');
  await visitor.button('Add entry', dialog);
  await dialog.waitFor({ state: 'detached' });
  await visitor.button('New entry', page.locator('header.title'));
  await dialog.getByLabel('Who', { exact: true }).fill('User:*');
  await dialog.getByLabel('May', { exact: true }).selectOption('Deny');
  await dialog.getByLabel('With', { exact: true }).selectOption('Cluster');
  await dialog.getByLabel('Operation', { exact: true }).selectOption('Alter');
  await dialog.getByLabel('From address', { exact: true }).fill('192.0.2.7');
  await visitor.button('Preview', dialog);
  await dialog.locator('.preview').waitFor();
  await visitor.button('Add entry', dialog);
  await page.locator('tr', { hasText: 'Everybody' }).waitFor();
  await page.locator('tr', { hasText: 'bert' }).waitFor();
  await shown('access');
  const { items } = await broker.ask('GET', '/acls');
  const [denied, allowed] = [items.find((one) => one.permission === 'Deny'), items.find((one) => one.permission === 'Allow')];
  await page.locator('tr', { hasText: 'Everybody' }).getByRole('button').click();
  await visitor.button('Delete entry', dialog);
  await page.locator('tr', { hasText: 'Everybody' }).waitFor({ state: 'detached' });
  const left = await broker.ask('GET', '/acls');
  return [
    ...equal('entries after the preview', before.total, 0),
    ...equal('the denied', JSON.stringify([denied?.resource, denied?.name, denied?.operation, denied?.host]), JSON.stringify(['Cluster', 'kafka-cluster', 'Alter', '192.0.2.7'])),
    ...equal('the allowed', JSON.stringify([allowed?.principal, allowed?.pattern, allowed?.name]), JSON.stringify(['User:bert', 'Prefixed', 'ord'])),
    ...equal('entries left', left.items.map((one) => one.permission).join(), 'Allow'),
  ];
}

async function fill(visitor, page, kind, fields) {
  await visitor.button('New quota', page.locator('header.title'));
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('For', { exact: true }).selectOption(kind);
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label, { exact: true }).fill(value);
  await visitor.button('Save', dialog);
}

/** What a refusal says beside its field; then the window is closed. */
async function refused(page, label, text) {
  const dialog = page.getByRole('dialog');
  await dialog.locator('.field', { hasText: label }).locator('.wrong', { hasText: text }).waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
}

export async function quotas({ visitor, page, broker, shown }) {
  await visitor.open('quotas');
  await page.getByText('There is no quota').waitFor();
  await shown('quotas-empty');
  visitor.await(400, '/v1/quotas');
  await fill(visitor, page, 'user', { User: 'bert', 'Produce, bytes a second': 'much' });
  await refused(page, 'Produce', 'it is a number');
  visitor.await(400, '/v1/quotas');
  await fill(visitor, page, 'ip', { Address: 'there', 'New connections, a second': '5' });
  await refused(page, 'Address', 'not a valid IP address');
  visitor.await(404, '/v1/topics');
  await fill(visitor, page, 'topic', { Topic: 'nowhere', 'Produce, all clients together, bytes a second': '1 MiB' });
  await refused(page, 'Topic', 'nowhere');
  visitor.await(400, '/v1/groups');
  await fill(visitor, page, 'group', { Group: 'readers', Rules: 'lag>1GiB soon' });
  await refused(page, 'Rules', '60MiB/min');

  const detached = () => page.getByRole('dialog').waitFor({ state: 'detached' });
  await fill(visitor, page, 'group', { Group: 'readers', Rules: 'lag>1GiB 600MiB/min' });
  await detached();
  await fill(visitor, page, 'topic', { Topic: 'orders', 'Fetch, all clients together, bytes a second': '2 GiB' });
  await detached();
  await fill(visitor, page, 'client-id', { 'Client id': 'loader', 'Produce, bytes a second': '512 KiB' });
  await detached();
  // A new one for somebody who has one takes nothing away before that was seen.
  await fill(visitor, page, 'client-id', { 'Client id': 'loader', 'Consume, bytes a second': '1 MiB' });
  await page.locator('dialog', { hasText: 'Meanwhile client id loader has Produce: 512 KiB/s' }).waitFor();
  await page.keyboard.press('Escape');
  await detached();
  const seen = [];
  const stop = broker.load('orders', 4000);
  try {
    // The loader wants three times as much: it is held up, and gets what it may.
    const row = page.getByRole('region', { name: 'In use now' }).locator('tr', { hasText: 'client id loader' });
    await row.getByText(/next waits/).waitFor({ timeout: 20_000 });
    await page.waitForFunction(() => [...document.querySelectorAll('td[data-head="Now"] .value')].some((one) => /\d KiB\/s/.test(one.textContent ?? '')), null, { timeout: 20_000 });
    await page.getByRole('region', { name: 'What is set' }).locator('tr', { hasText: 'readers' }).waitFor();
    await shown('quotas');
    await visitor.button('Change the quota of client id loader');
    await shown('quota-change');
    await page.getByLabel('Produce, bytes a second').fill('1 GiB');
    await broker.ask('PUT', '/quotas', { entity: { 'client-id': 'loader' }, values: { consumer_byte_rate: 9 << 20 } });
    await visitor.button('Save', page.getByRole('dialog'));
    const meanwhile = page.locator('dialog', { hasText: 'Meanwhile client id loader has' });
    await meanwhile.getByText('Consume: 9 MiB/s').waitFor();
    const [kept] = (await broker.ask('GET', '/quotas')).items;
    seen.push(...equal('the quota before it was seen', kept?.values.producer_byte_rate, RATE));
    await visitor.button('Save', page.getByRole('dialog'));
    await detached();
    await page.waitForFunction(() => ![...document.querySelectorAll('tr')].some((one) => one.textContent?.includes('loader') && one.textContent.includes('next waits')), null, { timeout: 20_000 });
  } finally {
    stop();
  }
  const changed = await broker.ask('GET', '/quotas');
  for (const whose of ['client id loader', 'topic orders', 'group readers']) {
    await visitor.button(`Take away the quota of ${whose}`);
    await visitor.button('Take away', page.getByRole('dialog'));
    await detached();
  }
  await page.getByText('There is no quota').waitFor();
  const after = await broker.ask('GET', '/quotas/use');
  return [...seen, ...equal('the quota', changed.items[0]?.values.producer_byte_rate, 2048 * RATE), ...equal('quotas left', after.total, 0)];
}
