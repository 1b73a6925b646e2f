// What the checks in headless Chromium share: a page whose faults are noted, and what every view is held to.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

export const WAIT = {timeout: 15_000};
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

function browserPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  return execFileSync('sh', ['-c', 'command -v chromium || command -v chromium-browser || command -v google-chrome'],
                      {encoding: 'utf8'}).trim();
}

export const launch = () => chromium.launch({executablePath: browserPath(), args: ['--no-sandbox']});

// What the page prints as an error, and every address beyond the agent that it asks for, is a fault. `before` runs
// before the page's own script does.
export async function openPage(browser, url, selector, options, before) {
  const context = await browser.newContext(options);
  if (before !== undefined) await context.addInitScript(before);
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => { if (message.type() === 'error') faults.push(message.text()); });
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('request', (request) => { if (!request.url().startsWith(url)) faults.push(`asks for ${request.url()}`); });
  const answer = await page.goto(url, WAIT);
  await page.waitForSelector(selector, WAIT);
  return {context, page, faults, headers: answer.headers()};
}

// Serious and critical findings; axe is put in through the debugger, which the page's policy allows.
async function accessibilityFaults(page) {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() => globalThis.axe.run(document, {resultTypes: ['violations']}));
  return result.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 4).join(', ')}`);
}

// No wider than the window, nothing serious found by axe; leaves a picture to look at.
export async function look({page}, name, shots) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${name}: the page is ${wide} pixels wide in a window of ${window}`);
  assert.deepEqual(await accessibilityFaults(page), [], `${name}: accessibility`);
  await page.screenshot({path: join(shots, `${name}.png`), fullPage: true});
}

export async function closeChecked(opened, name, shots) {
  await look(opened, name, shots);
  assert.deepEqual(opened.faults, [], `${name}: errors in the console`);
  await opened.context.close();
  console.log(`${name}: good`);
}

// A question in the chat, and the whole answer to it.
export async function sendAndWait(page, text) {
  await page.fill('#chat-text', text);
  await page.keyboard.press('Enter');
  const answer = page.locator('.bubble.assistant').last();
  await answer.locator('.bubble-note', {hasText: /\d+ tokens, .* tokens\/s/}).waitFor(WAIT);
  assert.ok((await answer.locator('.said').innerText()).length > 10, 'the model said nothing');
}
