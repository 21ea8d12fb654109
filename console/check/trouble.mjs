// What goes wrong while somebody looks: a refusal, another window, the end of a login, a broker that goes away and comes back.

import { Visitor } from './browser.mjs';

const equal = (what, found, wanted) => (found === wanted ? [] : [`${what} is ${found}, not ${wanted}`]);

/** Another window of the same browser. */
async function another({ visitor, browser, broker }) {
  const other = await Visitor.of(browser, broker.origin);
  await other.context.addCookies(await visitor.context.cookies());
  return other;
}

export async function refusedDelete({ visitor, page, broker }) {
  await visitor.open('users/anna');
  await visitor.button('Delete', page.locator('header.title'));
  // Not on the cross of the dialog, which comes first.
  await page.locator('input[name=typed]:focus').waitFor();
  await page.getByLabel(/to confirm/).fill('anna');
  visitor.await(409, '/v1/users/anna');
  await visitor.button('Delete user', page.getByRole('dialog'));
  await page.getByRole('dialog').locator('.notice.bad', { hasText: 'administrator' }).waitFor();
  await page.keyboard.press('Escape');
  // Somebody else has deleted what is looked at.
  await broker.ask('POST', '/topics', { name: 'brief', partitions: 1, config: {} });
  await visitor.open('topics/brief');
  await page.locator('.stat').first().waitFor();
  for (let turn = 0; turn < 2; turn += 1) visitor.await(404, '/v1/');
  await broker.ask('DELETE', '/topics/brief');
  await page.locator('.notice.bad', { hasText: 'There is no such thing' }).waitFor();
  const left = await page.locator('.stat').count();
  const buttons = await page.locator('header.title button').count();
  await visitor.open('topics');
  visitor.awaited = [];
  return [...equal('values of what is gone', left, 0), ...equal('buttons of what is gone', buttons, 0)];
}

export async function twoWindows(all) {
  const { visitor, page, broker } = all;
  const other = await another(all);
  const edit = async (who, value) => {
    await who.open('topics/orders?tab=settings&search=retention.ms');
    await who.button('Change retention.ms');
    await who.page.getByLabel('retention.ms', { exact: true }).fill(value);
  };
  await edit(visitor, '7200000');
  await edit(other, '10800000');
  await other.button('Save', other.page.getByRole('dialog'));
  await other.page.getByRole('dialog').waitFor({ state: 'detached' });
  await visitor.button('Save', page.getByRole('dialog'));
  await page.locator('dialog .wrong', { hasText: 'Meanwhile it has been set to 10800000' }).waitFor();
  const kept = await broker.ask('GET', '/topics/orders');
  await visitor.button('Save', page.getByRole('dialog'));
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const replaced = await broker.ask('GET', '/topics/orders');
  // Two change one user: the one his tags, the other a limit.
  await visitor.open('users/bert');
  await visitor.button('Change', page.locator('header.title'));
  await broker.ask('PUT', '/users/bert', { tags: ['management'] });
  await page.getByLabel('Connections at most').fill('7');
  await visitor.button('Save', page.getByRole('dialog'));
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const bert = await broker.ask('GET', '/users/bert');
  await visitor.button('Change permissions in /');
  await broker.ask('PUT', '/users/bert/permissions/%2F', { configure: '', write: '^orders', read: '^elsewhere' });
  await page.getByLabel('Configure: make and delete').fill('^mine');
  await visitor.button('Save', page.getByRole('dialog'));
  await page.getByRole('dialog').getByText('read “^elsewhere”').waitFor();
  await page.keyboard.press('Escape');
  await other.context.close();
  return [
    ...other.complaints,
    ...equal('set elsewhere', kept.retention_ms, 10_800_000),
    ...equal('set after it was seen', replaced.retention_ms, 7_200_000),
    ...equal('tags and limit', `${bert.tags} ${bert.limits.max_connections}`, 'management 7'),
  ];
}

/** The browser has one cookie: who logs in in one window is who asks in the other. */
export async function anotherUser(all) {
  const { visitor, page, broker } = all;
  await visitor.open('topics/orders');
  const logIn = (user, password) =>
    page.evaluate(([name, secret]) => fetch('/v1/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ user: name, password: secret }) }).then((answer) => answer.status), [user, password]);
  const empty = async () => {
    await visitor.button('Empty', page.locator('header.title'));
    await page.getByLabel(/to confirm/).fill('orders');
    await visitor.button('Delete all records', page.getByRole('dialog'));
  };
  const before = await broker.ask('GET', '/topics/orders');
  await logIn('bert', 'a secret of bert');
  visitor.await(403, '/v1/topics/orders/truncate');
  await empty();
  await page.locator('.who', { hasText: 'bert' }).waitFor();
  const after = await broker.ask('GET', '/topics/orders');
  await logIn('anna', 'a secret of anna');
  // The same user anew: what he asks is done.
  await page.reload();
  await visitor.settled();
  await logIn('anna', 'a secret of anna');
  await broker.ask('POST', '/topics', { name: 'other', partitions: 1, config: {} });
  await visitor.open('topics/other');
  await logIn('anna', 'a secret of anna');
  visitor.await(403, '/v1/topics/other');
  await visitor.button('Delete', page.locator('header.title'));
  await page.getByLabel(/to confirm/).fill('other');
  await visitor.button('Delete topic', page.getByRole('dialog'));
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  visitor.awaited = visitor.awaited.filter(({ path }) => path !== '/v1/topics/other');
  return equal('records, which somebody else would have deleted', after.records, before.records);
}

/** The broker goes, comes back, and has forgotten who was logged in. */
export async function awayAndBack({ visitor, page, broker, shown }) {
  await visitor.open('config?search=log.retention');
  await page.locator('.foot .live.live').waitFor();
  const rows = await page.locator('tbody tr').count();
  visitor.away = true;
  await broker.stop();
  await page.getByText('The broker has not answered since').waitFor();
  await page.locator('.foot .live', { hasText: 'Not live' }).waitFor();
  await page.waitForTimeout(6000);
  const kept = await page.locator('tbody tr').count();
  const said = await page.getByText('does not answer').count();
  await visitor.button('Change log.retention.ms');
  await visitor.button('Save', page.getByRole('dialog'));
  await page.getByRole('dialog').getByText('The broker does not answer.').waitFor();
  await page.keyboard.press('Escape');
  await shown('away');
  await broker.begin();
  await page.getByText('Your login has ended.').waitFor({ timeout: 20_000 });
  await shown('login-ended');
  visitor.away = false;
  await page.getByLabel('User').fill('anna');
  await page.getByLabel('Password').fill('a secret of anna');
  await page.keyboard.press('Enter');
  await page.getByPlaceholder('Search by name or meaning').waitFor();
  const search = await page.getByPlaceholder('Search by name or meaning').inputValue();
  await page.locator('.foot .live.live').waitFor();
  const silence = await page.getByText('has not answered').count();
  return [...equal('rows while it is away', kept, rows), ...equal('other words for it', said, 0), ...equal('where one was', search, 'log.retention'), ...equal('notices afterwards', silence, 0)];
}

/** The login ends, by another window or by time: the page says so at once, also one that asks for nothing. */
export async function loginEnds({ visitor, page }) {
  await visitor.open('topics?search=ord');
  for (let turn = 0; turn < 4; turn += 1) visitor.await(401, '/v1/');
  const session = await page.evaluate(() => fetch('/v1/session').then((answer) => answer.json()));
  await page.evaluate((csrf) => fetch('/v1/session', { method: 'DELETE', headers: { 'X-Mainstem-CSRF': csrf } }), session.csrf);
  await page.getByText('Your login has ended.').waitFor({ timeout: 10_000 });
  await page.getByLabel('User').fill('anna');
  await page.getByLabel('Password').fill('a secret of anna');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'orders' }).waitFor();
  visitor.awaited = [];
  return [];
}

/** Without a mouse: to a page by the navigation, into a window, around in it, and out of it to where one was. */
export async function keyboard({ visitor, page }) {
  await visitor.open('');
  const link = page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Topics' });
  await link.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  const button = page.locator('header.title').getByRole('button', { name: 'New topic' });
  await button.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  const outside = [];
  for (let turn = 0; turn < 14; turn += 1) {
    // At its ends the browser itself has the keyboard for a step.
    const at = await page.evaluate(() => (document.activeElement === document.body || document.querySelector('dialog')?.contains(document.activeElement) ? null : document.activeElement?.outerHTML.slice(0, 80)));
    if (at !== null) outside.push(`the keyboard is at ${at}`);
    await page.keyboard.press(turn < 10 ? 'Tab' : 'Shift+Tab');
  }
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const focused = (text) => page.waitForFunction((wanted) => document.activeElement?.textContent?.includes(wanted), text);
  await focused('New topic');
  // Seen: what has the keyboard has a line around it.
  await page.keyboard.press('Tab');
  const bare = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle === 'none');
  // The way back leads out of a window.
  await button.click();
  await page.getByRole('dialog').waitFor();
  await page.goBack();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  // Also one that is ended by a button of its own gives the keyboard back.
  await visitor.open('groups/readers');
  await page.locator('header.title').getByRole('button', { name: 'Reset offsets' }).press('Enter');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).press('Enter');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement?.matches('header.title button'));
  // Tabs go by arrows.
  await visitor.open('topics/orders');
  await page.getByRole('tab', { name: 'Partitions' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('tab', { name: 'Records', selected: true }).waitFor();
  await focused('Records');
  return [...outside, ...(bare ? ['the keyboard is not seen'] : [])];
}
