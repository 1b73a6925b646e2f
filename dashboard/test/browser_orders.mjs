// Gives the page's orders in headless Chromium: real agents carry them out.
//
//   node dashboard/test/browser_orders.mjs WHAT URL MODEL NODE,NODE,… SCREENSHOT_FOLDER
//
// WHAT: "load" (a model by clicks, which then answers), "loss" (the agent with the process id LOST_PID, of the last
// node, is killed; the page shows it, and the model is unloaded by clicks), "keys" (with the admin's key in
// DASHBOARD_KEY: nodes are cordoned, a key made and revoked, and both found in the audit log).
import assert from 'node:assert/strict';
import {WAIT, closeChecked, launch, look, openPage, sendAndWait} from './driven_page.mjs';

const [what, url, model, nodeList, shots] = process.argv.slice(2);
const nodes = nodeList.split(',');
const SLOW = {timeout: 60_000};
const DESK = {viewport: {width: 1440, height: 900}, colorScheme: 'light'};
const served = `[data-model="${model}"]`;
const onDisk = `[data-disk="${model}"]`;

async function checkLoad(browser) {
  const opened = await openPage(browser, url, `${onDisk} button`, DESK);
  const {page} = opened;
  // With the keyboard alone.
  await page.locator(`${onDisk} button`).focus();
  await page.keyboard.press('Enter');
  const form = page.locator(`${onDisk} form`);
  await form.locator('tbody tr').first().waitFor(WAIT);
  await form.locator('select').first().selectOption(String(nodes.length));
  await form.locator('tbody tr').nth(nodes.length - 1).waitFor(WAIT);
  for (const node of nodes) assert.match(await form.innerText(), new RegExp(node), 'a node is not in the plan');
  assert.match(await form.innerText(), /predicted\s+[\d.]+ tok\/s/);
  assert.equal(await page.locator(served).count(), 0, 'it was loaded before anybody said so');
  await look(opened, 'plan', shots);
  await page.keyboard.press('Escape');
  await form.waitFor({...WAIT, state: 'detached'});
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), `Load ${model}`);

  await page.click(`${onDisk} button`);
  await form.locator('select').first().selectOption(String(nodes.length));
  await form.locator('tbody tr').nth(nodes.length - 1).waitFor(WAIT);
  await form.locator('button', {hasText: 'Load it'}).click();
  await page.waitForSelector(served, WAIT);
  await page.locator(`${served} .badge`, {hasText: 'ready'}).waitFor(SLOW);
  assert.equal(await page.locator(`${served} tbody tr`).count(), nodes.length, 'not one rank on each node');
  assert.equal(await page.locator(onDisk).count(), 0);
  await sendAndWait(page, 'What is a cluster?');
  await closeChecked(opened, 'loaded', shots);
}

// More ranks than there are nodes: the page says why not, and offers nothing.
async function checkRefusal(browser) {
  const opened = await openPage(browser, url, `${onDisk} button`, {...DESK, viewport: {width: 390, height: 844}});
  const {page} = opened;
  await page.route('**/dashboard/api/plan', (route) => {
    const body = {...JSON.parse(route.request().postData()), ranks: 64};
    return route.continue({postData: JSON.stringify(body)});
  });
  await page.click(`${onDisk} button`);
  const form = page.locator(`${onDisk} form`);
  await form.locator('.reason code').waitFor(WAIT);
  assert.match(await form.locator('.reason').innerText(), /^[A-Z_]+ \S.*\n+\S/, 'not a code, a message and a remedy');
  assert.equal(await form.locator('button', {hasText: 'Load it'}).isEnabled(), false);
  await closeChecked(opened, 'refused', shots);
}

async function checkLoss(browser) {
  const opened = await openPage(browser, url, served, DESK);
  const {page} = opened;
  const lost = nodes[nodes.length - 1];
  process.kill(Number(process.env.LOST_PID), 'SIGKILL');
  await page.locator(`[data-node="${lost}"] .badge`, {hasText: /suspect|dead/}).waitFor(SLOW);
  await page.locator(`[data-node="${lost}"] .badge`, {hasText: 'dead'}).waitFor(SLOW);
  await page.locator('.topology .node.tone-bad', {hasText: lost}).waitFor(WAIT);
  await page.locator('.findings').waitFor(WAIT);
  // It goes on with those that are left.
  await page.locator(`${served} .badge`, {hasText: 'ready'}).waitFor(SLOW);
  await sendAndWait(page, 'What happened?');
  await look(opened, 'lost', shots);

  await page.click(`${served} button:has-text("Unload")`);
  await page.locator(`${served} .box button`, {hasText: 'Cancel'}).click();
  assert.equal(await page.locator(`${served} .box`).count(), 0);
  await page.click(`${served} button:has-text("Unload")`);
  await look(opened, 'unload', shots);
  await page.locator(`${served} .box button`, {hasText: 'Unload it'}).click();
  await page.waitForSelector(served, {...SLOW, state: 'detached'});
  await page.waitForSelector(onDisk, WAIT);
  await closeChecked(opened, 'unloaded', shots);
}

// A gateway learns of a key in a moment: until it answers so, at most five seconds.
async function modelsAnswer(key, status) {
  const until = performance.now() + 5000;
  for (;;) {
    const answer = await fetch(new URL('/v1/models', url), {headers: {authorization: `Bearer ${key}`}});
    if (answer.status === status) return true;
    if (performance.now() > until) return false;
    await new Promise((done) => setTimeout(done, 50));
  }
}

async function checkKeys(browser) {
  const opened = await openPage(browser, url, '#api-key', DESK);
  const {page} = opened;
  await page.fill('#api-key', process.env.DASHBOARD_KEY);
  await page.click('.key-form button');
  await page.waitForSelector('#keys [data-key]', WAIT);
  // The browser itself writes down each 401 that came before.
  opened.faults.length = 0;

  const node = page.locator(`[data-node="${nodes[0]}"]`);
  await node.locator('button', {hasText: 'Cordon'}).click();
  await node.locator('.badge', {hasText: 'cordoned'}).waitFor(WAIT);
  await node.locator('button', {hasText: 'Uncordon'}).click();
  await node.locator('.badge', {hasText: 'alive'}).waitFor(WAIT);

  await page.click('#keys summary');
  await page.fill('#key-name', 'laptop');
  await page.locator('#keys button', {hasText: 'Make a key'}).click();
  const secret = await page.locator('#new-key').inputValue(WAIT);
  assert.match(secret, /^mk-[0-9a-f]{12}-[0-9a-f]{64}$/);
  const row = page.locator('#keys [data-key]', {hasText: 'laptop'});
  await row.waitFor(WAIT);
  assert.ok(await modelsAnswer(secret, 200), 'the new key is refused');
  await look(opened, 'keys', shots);
  await row.locator('button', {hasText: 'Revoke'}).first().click();
  await row.locator('.box button', {hasText: 'Revoke it'}).click();
  await row.waitFor({...WAIT, state: 'detached'});
  assert.ok(await modelsAnswer(secret, 401), 'a revoked key is taken');

  await page.locator('#audit button', {hasText: 'Refresh'}).click();
  const entries = page.locator('#audit .row');
  await entries.filter({hasText: 'RevokeKey'}).first().waitFor(WAIT);
  // By the page; what its order became on the agent's socket is another entry.
  await page.fill('#audit-filter', 'revokekey 127.0.0.1');
  await entries.nth(1).waitFor({...WAIT, state: 'detached'});
  const who = process.env.DASHBOARD_KEY.split('-')[1];
  assert.match(await entries.innerText(), new RegExp(`ok[^]*key ${who}[^]*\\d{4}-\\d\\d-\\d\\d \\d\\d:`));
  assert.ok(!(await page.locator('#audit').innerText()).includes(secret), 'a key stands in the audit log');
  await look(opened, 'audit', shots);
  await page.fill('#audit-filter', 'no entry has this');
  await page.getByText('No entry has that text.').waitFor(WAIT);
  await page.fill('#audit-filter', '');
  await closeChecked(opened, 'revoked', shots);
}

const CHECKS = {load: [checkRefusal, checkLoad], loss: [checkLoss], keys: [checkKeys]};
const browser = await launch();
try {
  for (const check of CHECKS[what]) await check(browser);
} finally {
  await browser.close();
}
