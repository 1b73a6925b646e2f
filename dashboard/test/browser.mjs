// Drives the page in headless Chromium against a real agent, as tests/integration/dashboard starts it.
//
//   node dashboard/test/browser.mjs URL MODEL NODE,NODE,… SCREENSHOT_FOLDER
//
// Exit 0: all that is asserted holds. Chromium is CHROMIUM, else the one on the path.
import assert from 'node:assert/strict';
import {WAIT, closeChecked, launch, openPage, sendAndWait} from './driven_page.mjs';

const [url, model, nodeList, shots] = process.argv.slice(2);
const nodes = nodeList.split(',');

async function checkOverview({page, headers}) {
  assert.match(headers['content-security-policy'] ?? '', /^default-src 'self';/);
  for (const node of nodes) {
    await page.waitForSelector(`[data-node="${node}"]`, WAIT);
    assert.equal(await page.locator('.topology .node', {hasText: node}).count(), 1, `${node} is not in the topology`);
  }
  assert.equal(await page.locator('.topology .crown').count(), 1, 'not one coordinator');
  assert.match(await page.locator(`[data-model="${model}"]`).innerText(), /ready/);
  assert.equal(await page.locator('#keys, #audit').count(), 0, 'what an admin alone may see is there without a key');
  await page.locator('.topology .node').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('.row.lit', WAIT);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.row.lit', {...WAIT, state: 'detached'});
}

async function checkChat({page}) {
  await sendAndWait(page, 'What is RDMA?');
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

// Each view: what is checked, whether axe finds something, a picture to look at.
async function check(browser, name, options, checks) {
  const opened = await openPage(browser, url, `[data-model="${model}"]`, options);
  for (const one of checks) await one(opened);
  await closeChecked(opened, name, shots);
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
  // The key goes with the tab, and so do chats, unless somebody wants them kept.
  assert.equal(await page.isChecked('#keep-chats'), false);
  await page.reload(WAIT);
  await page.waitForSelector(`[data-model="${model}"]`, WAIT);
  assert.equal(await page.locator('.key-form').count(), 0, 'a tab that has the key asks for it again');
  await context.close();
  console.log('key: good');
}

const browser = await launch();
try {
  await check(browser, 'light', {viewport: {width: 1440, height: 900}, colorScheme: 'light'},
              [checkOverview, checkChat, checkTheme]);
  await checkKey(browser);
  await check(browser, 'dark', {viewport: {width: 1440, height: 900}, colorScheme: 'dark'}, [checkOverview]);
  await check(browser, 'phone', {viewport: {width: 390, height: 844}, isMobile: true, hasTouch: true}, [checkChat]);
} finally {
  await browser.close();
}
