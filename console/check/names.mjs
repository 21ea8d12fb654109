// Names, keys and values that mean harm: everything is shown as it is, nothing of it is carried out, and links lead to what they name.

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);

const HARM = [
  '<img src=x onerror=alert(1)>',
  '"quoted" & \'so\'',
  'a/b',
  'a%2Fb%00',
  '..',
  '\\..',
  'a#b?c=d&e=f',
  'gpj.\u202eexe',
  '👩‍👩‍👧 🐇 日本',
  'constructor',
  'n'.repeat(249),
];
/** As the console shows it. */
const shownAs = (name) => name.replace('\u202e', '⟨U+202E⟩');
/** As the API has it in a path. */
const segment = (name) => (/^\\*\.\.?$/.test(name) ? '%5C' : '') + encodeURIComponent(name);

async function follow(visitor, page, list, name) {
  const shown = shownAs(name);
  await visitor.open(list);
  await page.getByRole('link', { name: shown, exact: true }).first().click();
  await page.waitForFunction((wanted) => document.querySelector('h1')?.textContent === wanted, shown);
  await visitor.settled();
  const refused = await page.locator('.notice.bad').allTextContents();
  return [...refused.map((text) => `${list} ${name}: ${text}`), ...(await visitor.overflowing())];
}

/** Of all kinds of things with names one of each. */
export async function harmfulNames({ visitor, page, broker, shown }) {
  const problems = [];
  page.on('dialog', (dialog) => (problems.push(`a window says ${dialog.message()}`), void dialog.dismiss()));
  for (const name of HARM) {
    const [vhost, thing] = [segment(name), segment(name)];
    await broker.ask('PUT', `/vhosts/${vhost}`, {});
    await broker.ask('PUT', `/users/${thing}`, { password: 'a long secret', tags: ['monitoring'] });
    for (const where of [...new Set(['anna', thing])]) await broker.ask('PUT', `/users/${where}/permissions/${vhost}`, { configure: '.*', write: '.*', read: '.*' });
    await broker.ask('PUT', `/queues/${vhost}/${thing}`, { durable: true });
    await broker.ask('PUT', `/exchanges/${vhost}/${thing}`, { type: 'topic', durable: true });
    await broker.ask('POST', `/bindings/${vhost}`, { source: name, destination: name, destination_kind: 'queue', routing_key: name, arguments: { 'x-<b>': name } });
    await broker.ask('POST', `/exchanges/${vhost}/${thing}/publish`, { routing_key: name, body: name, headers: { [name]: name } });
    await broker.ask('PUT', `/filters/${thing}`, { expression: `key = '${name.replaceAll("'", "''")}'` });
  }
  for (const name of HARM) {
    problems.push(...(await follow(visitor, page, `queues?vhost=${encodeURIComponent(name)}`, name)));
    const about = await page.locator('header.title .about').textContent();
    if (!about.includes(`virtual host ${shownAs(name)}`)) problems.push(`the page of queue ${name} says ${about}`);
    // A name that is too long for a topic's has none.
    if (name.length < 249) await ofQueue(page, shownAs(name));
    problems.push(...(await follow(visitor, page, 'users', name)));
    await visitor.open(`exchanges?vhost=${encodeURIComponent(name)}`);
    await page.locator('.node.queue', { hasText: shownAs(name) }).click();
    await page.waitForFunction((wanted) => document.querySelector('h1')?.textContent === wanted, shownAs(name));
  }
  await visitor.open(`exchanges?vhost=${encodeURIComponent(HARM[7])}`);
  await page.locator('.node.queue').waitFor();
  await shown('exchanges-harmful');
  await visitor.open(`exchanges?vhost=${'n'.repeat(249)}`);
  await page.locator('.node.queue').waitFor();
  await shown('exchanges-long');
  await visitor.open('queues');
  await page.getByRole('link', { name: 'constructor' }).waitFor();
  await shown('queues-harmful');
  await visitor.open('groups?tab=filters');
  await page.getByRole('link', { name: 'constructor' }).waitFor();
  await shown('filters-harmful');
  return [...problems, ...(await takeAway({ visitor, page, broker }))];
}

/** From a queue to what lies in it, and back. */
async function ofQueue(page, shown) {
  await page.getByRole('link', { name: 'Records' }).click();
  await page.locator('.record').first().click();
  await page.locator('.record[open] .headers dd', { hasText: shown }).waitFor();
  await page.getByRole('link', { name: shown, exact: true }).click();
  await page.waitForFunction((wanted) => document.querySelector('h1')?.textContent === wanted, shown);
}

/** What is taken away is what was meant, and nothing that a path leads to instead. */
async function takeAway({ visitor, page, broker }) {
  // A browser takes `..` for a step in the path, and what is left of this one names the user alone.
  await broker.ask('PUT', '/users/bert/permissions/%5C..', { configure: '', write: '', read: '' });
  await visitor.open('users/bert');
  await visitor.button('Take away permissions in ..');
  await visitor.button('Take away', page.getByRole('dialog'));
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.locator('tr', { hasText: '..' }).waitFor({ state: 'detached' });
  const { permissions } = await broker.ask('GET', '/users/bert');
  // A name with an unseen letter is confirmed as it is shown.
  await visitor.open(`queues/${encodeURIComponent(HARM[7])}/${encodeURIComponent(HARM[7])}`);
  await visitor.button('Delete', page.locator('header.title'));
  await page.getByLabel(/to confirm/).fill(shownAs(HARM[7]));
  await visitor.button('Delete queue', page.getByRole('dialog'));
  await page.getByRole('heading', { level: 1, name: 'Queues' }).waitFor();
  const left = await broker.ask('GET', `/queues/${encodeURIComponent(HARM[7])}`);
  for (const name of HARM) {
    await broker.ask('DELETE', `/vhosts/${segment(name)}`);
    await broker.ask('DELETE', `/filters/${segment(name)}`);
    await broker.ask('DELETE', `/users/${segment(name)}`);
  }
  return [...equal('permissions left', permissions.map((one) => one.vhost).join(), '/'), ...equal('queues left', left.total, 0)];
}

/** Records whose key, value and headers are anything, and groups of such names. */
export async function harmfulRecords({ visitor, page, broker, shown }) {
  const topic = 't'.repeat(249);
  await broker.ask('POST', '/topics', { name: topic, partitions: 1, config: {} });
  const value = JSON.stringify({ html: '<script>alert(1)</script>', turned: '\u202eabc', large: 1 }).replace('1}', '12345678901234567890}');
  await broker.ask('POST', `/topics/${topic}/records`, { key: Buffer.from([0, 255, 254, 60, 98]).toString('base64'), key_encoding: 'base64', value, headers: [{ name: '<b>"', value: '\u202e../..' }] });
  await broker.ask('POST', `/topics/${topic}/records`, { key: '<b>&amp;</b>\n\u200b', value: null, headers: [] });
  const groups = ['<i>g</i>', '..', 'g/%2F#?', '__proto__', 'g\u202e'];
  await Promise.all(groups.map((group) => broker.kcat(['-G', group, '-X', 'auto.offset.reset=earliest', '-c', '2', '-e', topic])));
  const problems = [];
  await visitor.open(`topics/${topic}?tab=records`);
  for (const record of await page.locator('.record summary').all()) await record.click();
  const text = await page.locator('.records').textContent();
  for (const part of ['5 B that are no text', 'AP/+PGI=', '<b>&amp;</b>', '⟨U+200B⟩', '<script>alert(1)</script>', '⟨U+202E⟩abc', '12345678901234567890', '⟨U+202E⟩../..', 'tombstone']) {
    if (!text.includes(part)) problems.push(`${part} is not shown`);
  }
  await shown('records-harmful');
  await visitor.open(`topics/${topic}?tab=groups`);
  await page.getByRole('link', { name: '__proto__' }).waitFor();
  for (const group of groups) {
    problems.push(...(await follow(visitor, page, `topics/${topic}?tab=groups`, group)));
    await page.waitForFunction(() => /Lag 0/.test(document.querySelector('.plot')?.getAttribute('aria-label') ?? ''));
  }
  await shown('group-long');
  await broker.ask('DELETE', `/topics/${topic}`);
  return problems;
}
