// Virtual hosts, the picture of what is bound in one, and messages to its exchanges.

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);
const VHOST = 'shop <eu>/1';
const BINDINGS = 200;

/** Boxes and labels of the picture that lie on each other, or whose text sticks out. */
function faults(page) {
  return page.evaluate(() => {
    const all = [...document.querySelectorAll('.picture foreignObject')].map((one) => one.firstElementChild);
    const found = [];
    const boxes = all.map((one) => one.getBoundingClientRect());
    all.forEach((one, at) => {
      for (const inner of one.querySelectorAll('span:not(.hidden)')) {
        const [text, box] = [inner.getBoundingClientRect(), boxes[at]];
        if (text.left < box.left - 0.5 || text.right > box.right + 0.5 || text.bottom > box.bottom + 0.5) found.push(`${one.className}: its text sticks out`);
      }
      for (let other = at + 1; other < all.length; other += 1) {
        const [a, b] = [boxes[at], boxes[other]];
        if (a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5) found.push(`${one.textContent} lies on ${all[other].textContent}`);
      }
    });
    return found.slice(0, 5);
  });
}

/** In a virtual host with so many bindings that a picture cannot show them all. */
export async function picture({ visitor, page, broker, shown }) {
  const vhost = encodeURIComponent(VHOST);
  await broker.ask('PUT', `/vhosts/${vhost}`, {});
  await broker.ask('PUT', `/users/anna/permissions/${vhost}`, { configure: '.*', write: '.*', read: '.*' });
  const name = (kind, at) => (at % 3 === 0 ? `${kind}.WWWWWWWWWWWWWWWWWWWW.of.customers.in.europe.${at}` : `${kind}-${at}`);
  for (let at = 0; at < 20; at += 1) await broker.ask('PUT', `/exchanges/${vhost}/${encodeURIComponent(name('events', at))}`, { type: 'topic', durable: true });
  for (let at = 0; at < 25; at += 1) await broker.ask('PUT', `/queues/${vhost}/${encodeURIComponent(name('work', at))}`, { durable: true });
  for (let at = 0; at < BINDINGS; at += 1) {
    const [source, destination] = [name('events', at % 20), name('work', (at * 7 + Math.floor(at / 25)) % 25)];
    await broker.ask('POST', `/bindings/${vhost}`, { source, destination, routing_key: `europe.orders.paid.by.invoice.${at}.#`, arguments: {} });
  }
  await visitor.open(`exchanges?vhost=${vhost}`);
  await page.getByText(/The picture shows \d+ of 200 bindings/).waitFor();
  const problems = await faults(page);
  await shown('exchanges-many');
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(100);
  problems.push(...(await faults(page)));
  const lists = page.getByRole('navigation', { name: 'Pages of the list' });
  await page.setViewportSize({ width: 1440, height: 900 });
  await visitor.button('Next', lists.first());
  await lists.first().getByText('page 2 of 4').waitFor();
  // By the keyboard: what is cut off is said as a whole.
  await page.locator('.node.queue').first().focus();
  await page.locator('.caption strong', { hasText: 'work' }).waitFor();
  const key = await page.locator('.caption code').first().textContent();
  await page.getByPlaceholder('Exchange, queue or routing key').fill('events.WWWWWWWWWWWWWWWWWWWW.of.customers.in.europe.3');
  await page.waitForFunction(() => document.querySelectorAll('.node.exchange').length === 1);
  await shown('exchanges-searched');
  const title = await page.locator('.node.exchange').getAttribute('title');
  return [...problems, ...equal('a key', key.startsWith('europe.orders.paid.by.invoice.'), true), ...equal('a whole name', title, `Exchange ${name('events', 3)}, topic`)];
}

/** Pages of another virtual host than `/`, and which one it is. */
export async function vhosts({ visitor, page, broker }) {
  await visitor.open('queues');
  await page.getByLabel('Virtual host').selectOption(VHOST);
  await page.getByText(`AMQP queues of virtual host ${VHOST}.`).waitFor();
  await page.getByText('25 in all').waitFor();
  await visitor.button('New queue', page.locator('header.title'));
  const chosen = await page.getByRole('dialog').getByLabel('Virtual host').inputValue();
  await page.getByRole('dialog').getByLabel('Name').fill('letters');
  await visitor.button('Create queue', page.getByRole('dialog'));
  await page.getByText(`classic queue in virtual host ${VHOST}`).waitFor();
  await page.getByRole('link', { name: 'As a picture' }).click();
  await page.getByText('Nothing is bound that has “letters” in its name.').waitFor();
  await visitor.button('Bind', page.locator('header.title'));
  await page.getByRole('heading', { name: `Bind in ${VHOST}` }).waitFor();
  await page.getByRole('dialog').getByLabel('From exchange').selectOption('events-1');
  await page.getByRole('dialog').getByLabel('Routing key').fill('letter.*');
  await page.getByLabel('Queue', { exact: true }).fill('letters');
  await visitor.button('Bind', page.getByRole('dialog'));
  await page.getByRole('link', { name: 'Queue letters' }).click();
  await page.getByRole('heading', { level: 1, name: 'letters' }).waitFor();
  await page.getByRole('link', { name: `Queues in ${VHOST}` }).click();
  await page.getByText('26 in all').waitFor();
  visitor.await(404, '/v1/queues');
  await page.goto(`${broker.origin}/#/queues?vhost=nowhere`);
  await page.getByText('there is no virtual host "nowhere"').waitFor();
  return equal('the virtual host of a new queue', chosen, VHOST);
}

/** A record to a topic: what is wrong beside its field, and bytes that are no text. */
export async function publishRecord({ visitor, page, broker }) {
  await broker.ask('POST', '/topics', { name: 'keyed', partitions: 1, config: { 'cleanup.policy': 'compact' } });
  await visitor.open('topics/keyed?tab=records');
  await page.getByRole('button', { name: 'Publish a record' }).first().click();
  const dialog = page.getByRole('dialog');
  const refused = async (field, text) => {
    visitor.await(400, '/v1/topics/keyed/records');
    await visitor.button('Publish', dialog);
    await field.locator('.wrong', { hasText: text }).waitFor();
  };
  await refused(dialog.locator('.field', { hasText: 'Key' }).first(), 'key');
  await dialog.getByLabel('Key', { exact: true }).fill('AP/+');
  await dialog.getByLabel('Key and value are').selectOption('base64');
  await dialog.getByLabel('Value', { exact: true }).fill('no base64!');
  await refused(dialog.locator('.field', { has: page.locator('textarea') }), 'base64');
  await dialog.getByLabel('Value', { exact: true }).fill('/w==');
  for (let turn = 0; turn < 2; turn += 1) await visitor.button('Header', dialog);
  // The first is empty, and not sent.
  await dialog.locator('.pair').nth(1).getByLabel('Value').fill('without a name');
  await refused(dialog.locator('.pair').first().locator('.field').first(), 'needs a name');
  await dialog.locator('.pair').first().getByLabel('Name').fill('trace');
  await visitor.button('Publish', dialog);
  await dialog.getByText('Published to partition 0 at offset 0.').waitFor();
  await page.keyboard.press('Escape');
  const { records } = await broker.ask('GET', '/topics/keyed/records');
  await visitor.open('topics');
  await broker.ask('DELETE', '/topics/keyed');
  return [...equal('the key', records[0]?.key?.base64, 'AP/+'), ...equal('the value', records[0]?.value?.base64, '/w=='), ...equal('headers', records[0]?.headers.length, 1)];
}

/** A message to an exchange: what is wrong beside its field, where it went, and where it lies. */
export async function publishMessage({ visitor, page, broker, shown }) {
  const vhost = encodeURIComponent(VHOST);
  await visitor.open(`exchanges?vhost=${vhost}&search=events-1`);
  await visitor.button('Publish to events-1');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Routing key').fill('parcel');
  await visitor.button('Publish', dialog);
  await dialog.getByText('No queue is bound for this message').waitFor();
  await dialog.getByLabel('Routing key').fill('letter.one');
  await dialog.getByLabel('Body', { exact: true }).fill('{"a": 1}');
  await dialog.getByLabel('Expires after').fill('soon');
  for (const [at, [name, value]] of [['trace', 't-7'], ['trace', 't-8']].entries()) {
    await visitor.button('Header', dialog);
    await dialog.getByLabel('Name').nth(at).fill(name);
    await dialog.getByLabel('Value').nth(at).fill(value);
  }
  await visitor.button('Publish', dialog);
  await dialog.locator('.wrong', { hasText: 'once' }).waitFor();
  await dialog.getByLabel('Name').nth(1).fill('h'.repeat(256));
  visitor.await(400, `/v1/exchanges/${vhost}/events-1/publish`);
  await visitor.button('Publish', dialog);
  await dialog.locator('.wrong', { hasText: 'milliseconds' }).waitFor();
  await dialog.getByLabel('Expires after').fill('3600000');
  visitor.await(400, `/v1/exchanges/${vhost}/events-1/publish`);
  await visitor.button('Publish', dialog);
  await dialog.locator('.pair .field', { hasText: 'Name' }).locator('.wrong', { hasText: 'at most 255 bytes' }).waitFor();
  await shown('message');
  await dialog.getByLabel('Name').nth(1).fill('source');
  await visitor.button('Publish', dialog);
  await dialog.getByText('Published: at least one queue has it.').waitFor();
  await page.keyboard.press('Escape');
  const queue = await broker.ask('GET', `/queues/${vhost}/letters`);
  const { records } = await broker.ask('GET', `/topics/${encodeURIComponent(queue.topic)}/records`);
  await visitor.open(`queues/${vhost}/letters`);
  await visitor.button('Publish', page.locator('header.title'));
  await dialog.getByLabel('Body', { exact: true }).fill('by the default exchange');
  await visitor.button('Publish', dialog);
  await dialog.getByText('Published: at least one queue has it.').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.stat', { hasText: 'Ready' }).locator('dd', { hasText: '2' }).waitFor();
  await visitor.open('queues');
  await broker.ask('DELETE', `/vhosts/${vhost}`);
  return [
    ...equal('its key', records[0]?.amqp?.routing_key, 'letter.one'),
    ...equal('its body', records[0]?.value?.text, '{"a": 1}'),
    ...equal('a header', records[0]?.headers.find((header) => header.name.endsWith('trace'))?.value?.text, 't-7'),
  ];
}

/** A filter of a group: seen, refused with its place, set, changed, taken away. */
export async function filters({ visitor, page, broker, shown }) {
  await visitor.open('groups?tab=filters');
  await page.getByText('No group has a filter.').waitFor();
  await visitor.open('groups/readers');
  await visitor.button('Set a filter');
  const dialog = page.getByRole('dialog');
  const field = dialog.getByLabel('Only records for which this is true');
  await field.fill("key = '👩‍👩‍👧' AND key ~ 'b'");
  visitor.await(400, '/v1/filters/readers');
  await visitor.button('Save', dialog);
  await dialog.locator('.field', { hasText: 'Only records' }).locator('.wrong', { hasText: 'at character' }).waitFor();
  await page.waitForFunction(() => document.activeElement?.tagName === 'TEXTAREA');
  const marked = await page.evaluate(() => document.activeElement.value?.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd));
  await shown('filter-refused');
  await field.fill("key = 'customer-1'");
  await visitor.button('Save', dialog);
  await dialog.waitFor({ state: 'detached' });
  await page.locator('.notice', { hasText: "key = 'customer-1'" }).waitFor();
  await shown('group-filter');
  // In another window somebody changes it while this one is open.
  await visitor.button('Change filter');
  await broker.ask('PUT', '/filters/readers', { expression: "key = 'other'", client_ids: ['a'] });
  await field.fill("key = 'mine'");
  await visitor.button('Save', dialog);
  await dialog.getByText("Meanwhile the group has the filter key = 'other'").waitFor();
  const before = await broker.ask('GET', '/filters?search=readers');
  await visitor.button('Save', dialog);
  await dialog.waitFor({ state: 'detached' });
  await visitor.open('groups?tab=filters&search=read');
  await page.locator('td code', { hasText: "key = 'mine'" }).waitFor();
  await visitor.button('Remove the filter of readers');
  await visitor.button('Remove filter', dialog);
  await dialog.waitFor({ state: 'detached' });
  const after = await broker.ask('GET', '/filters');
  return [...equal('what is marked', marked, '~'), ...equal('not overwritten unseen', before.items[0]?.expression, "key = 'other'"), ...equal('filters left', after.total, 0)];
}
