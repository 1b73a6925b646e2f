// Drives the page in headless Chromium against a real agent, as tests/integration/dashboard starts it.
//
//   node dashboard/test/browser.mjs URL MODEL NODE,NODE,… SCREENSHOT_FOLDER
//
// Exit 0: all that is asserted holds. Chromium is CHROMIUM, else the one on the path.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

const [url, model, nodeList, shots] = process.argv.slice(2);
const nodes = nodeList.split(',');
const WAIT = {timeout: 15_000};
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

function browserPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  return execFileSync('sh', ['-c', 'command -v chromium || command -v chromium-browser || command -v google-chrome'],
                      {encoding: 'utf8'}).trim();
}

// What the page prints as an error, and every address beyond the agent that it asks for, is a fault.
async function openPage(browser, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => { if (message.type() === 'error') faults.push(message.text()); });
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('request', (request) => { if (!request.url().startsWith(url)) faults.push(`asks for ${request.url()}`); });
  const answer = await page.goto(url, WAIT);
  await page.waitForSelector(`[data-model="${model}"]`, WAIT);
  return {context, page, faults, headers: answer.headers()};
}

// Serious and critical findings; axe is put in through the debugger, which the page's policy allows.
async function accessibilityFaults(page) {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() => globalThis.axe.run(document, {resultTypes: ['violations']}));
  return result.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 4).join(', ')}`);
}

async function checkOverview({page, headers}) {
  assert.match(headers['content-security-policy'] ?? '', /^default-src 'self';/);
  for (const node of nodes) {
    await page.waitForSelector(`[data-node="${node}"]`, WAIT);
    assert.equal(await page.locator('.topology .node', {hasText: node}).count(), 1, `${node} is not in the topology`);
  }
  assert.equal(await page.locator('.topology .crown').count(), 1, 'not one coordinator');
  assert.match(await page.locator(`[data-model="${model}"]`).innerText(), /ready/);
  await page.locator('.topology .node').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('.row.lit', WAIT);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.row.lit', {...WAIT, state: 'detached'});
}

async function checkChat({page}) {
  await page.fill('#chat-text', 'What is RDMA?');
  await page.keyboard.press('Enter');
  const answer = page.locator('.bubble.assistant').last();
  await answer.locator('.bubble-note', {hasText: /\d+ tokens, .* tokens\/s/}).waitFor(WAIT);
  assert.ok((await answer.locator('.said').innerText()).length > 10, 'the model said nothing');
  // A second turn, stopped: Stop is there while an answer comes, and the page can be asked again after it.
  await page.fill('#chat-text', 'Tell me about clusters.');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await page.locator('.bubble.assistant').nth(1).locator('.bubble-note').waitFor(WAIT);
  await page.fill('#chat-text', 'again');
  assert.equal(await page.locator('button.primary', {hasText: 'Send'}).isEnabled(), true);
  await page.fill('#chat-text', '');
}

async function checkTheme({page}) {
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const before = await background();
  await page.click('.theme');
  assert.notEqual(await background(), before, 'the switch changes no colours');
  await page.click('.theme');
}

async function checkWidth({page}, name) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${name}: the page is ${wide} pixels wide in a window of ${window}`);
}

// Each view: what is checked, whether axe finds something, a picture to look at.
async function check(browser, name, options, checks) {
  const opened = await openPage(browser, options);
  for (const one of checks) await one(opened);
  await checkWidth(opened, name);
  assert.deepEqual(await accessibilityFaults(opened.page), [], `${name}: accessibility`);
  await opened.page.screenshot({path: join(shots, `${name}.png`), fullPage: true});
  assert.deepEqual(opened.faults, [], `${name}: errors in the console`);
  await opened.context.close();
  console.log(`${name}: good`);
}

// A gateway that asks for a key is played by the test: 401 until the right one comes.
async function checkKey(browser) {
  const context = await browser.newContext({viewport: {width: 1000, height: 700}});
  const page = await context.newPage();
  await page.route('**/dashboard/api/**', (route) => {
    if (route.request().headers().authorization === 'Bearer right') return route.continue();
    return route.fulfill({status: 401, json: {error: {message: 'A key is needed.'}}});
  });
  await page.goto(url, WAIT);
  for (const key of ['wrong', 'right']) {
    await page.fill('#api-key', key, WAIT);
    await page.click('.key-form button');
    if (key === 'wrong') await page.getByText('That key was refused').waitFor(WAIT);
  }
  await page.waitForSelector(`[data-model="${model}"]`, WAIT);
  await page.reload(WAIT);
  await page.waitForSelector(`[data-model="${model}"]`, WAIT);
  assert.equal(await page.locator('.key-form').count(), 0, 'a tab that has the key asks for it again');
  await context.close();
  console.log('key: good');
}

const browser = await chromium.launch({executablePath: browserPath(), args: ['--no-sandbox']});
try {
  await check(browser, 'light', {viewport: {width: 1440, height: 900}, colorScheme: 'light'},
              [checkOverview, checkChat, checkTheme]);
  await checkKey(browser);
  await check(browser, 'dark', {viewport: {width: 1440, height: 900}, colorScheme: 'dark'}, [checkOverview]);
  await check(browser, 'phone', {viewport: {width: 390, height: 844}, isMobile: true, hasTouch: true}, [checkChat]);
} finally {
  await browser.close();
}
