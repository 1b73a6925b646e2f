// Several chats in headless Chromium, with the answers of two models that a real agent serves.
//
//   node dashboard/test/browser_chats.mjs URL MODEL OTHER_MODEL SCREENSHOT_FOLDER
//
// Two models asked at once, answers that go on in chats that are not looked at, stopping one of them, names, what a
// reload and another tab have, what is dropped, files, deleting; the chart of latency that comes of it all.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {WAIT, closeChecked, launch, look, openPage, sendAndWait} from './driven_page.mjs';

const [url, model, other, shots] = process.argv.slice(2);
const DESK = {viewport: {width: 1440, height: 900}, colorScheme: 'light'};
const served = `[data-model="${other}"]`;
const entries = (page) => page.locator('.chat-entry');
const answers = (page) => page.locator('.bubble.assistant');
const kept = (page) => page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('macrame-chat-')).length);

// The bundled model answers in a moment. Here each event of an answer takes as long as globalThis.pieceMs says. (It
// writes ASCII: no character is cut in two.)
function slowly() {
  const real = globalThis.fetch;
  globalThis.pieceMs = 0;
  globalThis.fetch = async (path, init) => {
    const response = await real(path, init);
    if (globalThis.pieceMs === 0 || !String(path).startsWith('/v1/')) return response;
    const slow = new TransformStream({
      // The agent may have sent all of it long ago.
      start: (controller) => init.signal.addEventListener('abort', () => controller.error(init.signal.reason)),
      async transform(bytes, controller) {
        for (const event of new TextDecoder().decode(bytes).split(/(?<=\n\n)/)) {
          await new Promise((done) => setTimeout(done, globalThis.pieceMs));
          controller.enqueue(new TextEncoder().encode(event));
        }
      },
    });
    return new Response(response.body.pipeThrough(slow), {status: response.status, headers: response.headers});
  };
}

async function open(browser, options = DESK) {
  const opened = await openPage(browser, url, served, options, slowly);
  return opened;
}

async function ask(page, text) {
  await page.fill('#chat-text', text);
  await page.keyboard.press('Enter');
}

async function startNew(page) {
  await page.click('[aria-label="New chat"]');
  await page.locator('.log .empty').waitFor(WAIT);
}

async function openList(page) {
  const button = page.locator('.list-button');
  if (await button.isVisible() && await button.getAttribute('aria-expanded') === 'false') await button.click();
  await page.locator('.chat-list').waitFor(WAIT);
}

async function openEntry(page, title) {
  await openList(page);
  await entries(page).filter({hasText: title}).click();
  await page.locator('.chat-bar .chat-title', {hasText: title}).waitFor(WAIT);
}

// One question to both: two answers beside each other (on a phone one below the other), each with its speed.
async function checkComparison({page}, isPhone = false) {
  await page.selectOption('#chat-model', model);
  await page.selectOption('#chat-also', other);
  await sendAndWait(page, 'What is RDMA?');
  assert.equal(await answers(page).count(), 2);
  for (const name of [model, other]) {
    await page.locator(`[data-answer="${name}"] .bubble-note`, {hasText: /\d+ tokens, .* tokens\/s, first after/}).waitFor(WAIT);
    assert.match(await page.locator(`[data-answer="${name}"] .answer-model`).innerText(), new RegExp(name));
  }
  const [left, right] = [await answers(page).nth(0).boundingBox(), await answers(page).nth(1).boundingBox()];
  if (isPhone) assert.ok(right.y >= left.y + left.height && right.x === left.x, 'the answers are not one below the other');
  else assert.ok(right.x >= left.x + left.width && Math.abs(right.y - left.y) < 2, 'the answers are not beside each other');
  // A question that one alone was asked goes to the other, too.
  await page.selectOption('#chat-also', '');
  await sendAndWait(page, 'What is a link?');
  assert.equal(await answers(page).count(), 3);
  await page.selectOption('#chat-also', other);
  await page.locator('button', {hasText: `Ask ${other} this too`}).click();
  await answers(page).nth(3).locator('.bubble-note', {hasText: /\d+ tokens/}).waitFor(WAIT);
}

// Answers go on in chats that are not looked at, and Stop ends those of one chat alone.
async function checkSeveral({page}) {
  await page.evaluate(() => { globalThis.pieceMs = 400; });
  await startNew(page);
  await ask(page, 'Alpha: tell me of nodes and of links between them.');
  await page.locator('.bubble.assistant .said').waitFor(WAIT);
  await startNew(page);
  assert.equal(await page.locator('button.stop').count(), 0, 'a new chat can be stopped before it was asked');
  await ask(page, 'Beta: tell me of cables.');
  await page.locator('.bubble.assistant .said').waitFor(WAIT);
  await openList(page);
  const alpha = entries(page).filter({hasText: 'Alpha'});
  await alpha.locator('.sign.live').waitFor(WAIT);
  await openEntry(page, 'Beta');
  await page.click('button.stop');
  await page.locator('.bubble-note', {hasText: 'stopped'}).waitFor(WAIT);
  await openList(page);
  assert.equal(await alpha.locator('.sign.live').count(), 1, 'stopping one chat stopped another');
  assert.equal(await entries(page).filter({hasText: 'Beta'}).locator('.sign.live').count(), 0);
  await page.evaluate(() => { globalThis.pieceMs = 0; });
  await alpha.locator('.sign:not(.live)').waitFor(WAIT);
  await openEntry(page, 'Alpha');
  await page.locator('.bubble-note', {hasText: /^\d+ tokens/}).waitFor(WAIT);
  await openList(page);
  assert.equal(await alpha.locator('.sign').count(), 0, 'what was looked at is told as new');
}

async function checkKeyboard({page}) {
  await openList(page);
  await entries(page).first().focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('End');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowDown');
  const title = await page.evaluate(() => document.activeElement.querySelector('.chat-title')?.textContent);
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('.chat-bar .chat-title').innerText(), title);
  await page.locator('.list-button').focus();
  await page.keyboard.press('Enter');
  await page.locator('.chat-list.open').waitFor(WAIT);
  await entries(page).first().focus();
  await page.keyboard.press('Escape');
  await page.locator('.chat-list.open').waitFor({...WAIT, state: 'detached'});
}

async function save(page, label) {
  const [download] = await Promise.all([page.waitForEvent('download', WAIT), page.locator('#chat-settings button', {hasText: label}).click()]);
  return [download.suggestedFilename(), readFileSync(await download.path(), 'utf8')];
}

// Each piece of an answer draws the chat anew: what is being typed into a field beside it stays. (A short answer
// draws it fewer times.)
async function checkTyping({page}) {
  await openEntry(page, 'Alpha');
  await page.evaluate(() => { globalThis.pieceMs = 100; });
  await ask(page, 'And of rings?');
  await page.locator('button.stop').waitFor(WAIT);
  await page.click('[aria-label="Settings of this chat"]');
  const typed = {'#chat-name': 'Alpha and rings', '#chat-system': 'Answer in rhymes.', '#chat-temperature': '0.5', '#chat-tokens': '77'};
  for (const [field, text] of Object.entries(typed)) {
    const said = await answers(page).last().innerText();
    await page.fill(field, text);
    await page.waitForFunction((before) => [...document.querySelectorAll('.bubble.assistant')].at(-1).innerText !== before
      || document.querySelector('button.stop') === null, said, WAIT);
    assert.equal(await page.inputValue(field), text, `what was typed into ${field} is gone`);
  }
  await page.keyboard.press('Tab');
  await page.locator('.chat-bar .chat-title', {hasText: 'Alpha and rings'}).waitFor(WAIT);
  for (const [field, text] of Object.entries(typed)) assert.equal(await page.inputValue(field), text, `${field} is not kept`);
  await page.fill('#chat-name', 'Alpha');
  await page.locator('#chat-settings button', {hasText: 'Done'}).click();
  await page.evaluate(() => {
    document.querySelector('button.stop')?.click();
    globalThis.pieceMs = 0;
  });
  await page.locator('button.stop').waitFor({...WAIT, state: 'detached'});
}

async function checkSettings(opened) {
  const {page} = opened;
  await openEntry(page, 'Alpha');
  await page.click('[aria-label="Settings of this chat"]');
  await page.fill('#chat-name', 'Nodes & links');
  await page.fill('#chat-system', 'Answer in a few words.');
  await page.fill('#chat-temperature', '0');
  await page.fill('#chat-tokens', '9');
  await page.keyboard.press('Tab');
  await look(opened, 'chat-settings', shots);
  const [name, text] = await save(page, 'Export Markdown');
  assert.equal(name, 'Nodes-links.md');
  assert.match(text, /^# Nodes & links\n[^]*## You\n\nAlpha: tell me/);
  const [jsonName, json] = await save(page, 'Export JSON');
  assert.equal(jsonName, 'Nodes-links.json');
  assert.deepEqual(JSON.parse(json).options, {system: 'Answer in a few words.', temperature: 0, answerTokens: 9, thinking: ''});
  await page.locator('#chat-settings button', {hasText: 'Done'}).click();
  const asked = page.waitForRequest('**/v1/chat/completions');
  await ask(page, 'And again?');
  const body = (await asked).postDataJSON();
  assert.deepEqual([body.temperature, body.max_tokens, body.messages[0]], [0, 9, {role: 'system', content: 'Answer in a few words.'}]);
  await answers(page).last().locator('.bubble-note', {hasText: /^[1-9] tokens?/}).waitFor(WAIT);
}

// What a reload has, what another tab has, and what of it is left when chats are not to be kept.
async function checkKept({page, context}) {
  const texts = await page.locator('.log').innerText();
  const count = await kept(page);
  assert.equal(count, 3);
  await page.reload(WAIT);
  await page.locator('.chat-bar .chat-title', {hasText: 'Nodes & links'}).waitFor(WAIT);
  assert.equal(await page.locator('.log').innerText(), texts, 'a reload changes a chat');
  const second = await context.newPage();
  await second.goto(url, WAIT);
  await second.waitForSelector(served, WAIT);
  await openList(second);
  await entries(second).filter({hasText: 'Nodes & links'}).waitFor(WAIT);
  await openList(page);
  await page.uncheck('#keep-chats');
  assert.equal(await kept(page), 0, 'what is not to be kept is still there');
  await entries(second).filter({hasText: 'Nodes & links'}).waitFor({...WAIT, state: 'detached'});
  await second.close();
  await page.reload(WAIT);
  await page.locator('.chat-bar .chat-title', {hasText: 'Nodes & links'}).waitFor(WAIT);
  await openList(page);
  await page.check('#keep-chats');
  assert.equal(await kept(page), count);
}

async function checkDelete({page}) {
  await openEntry(page, 'Beta');
  await page.click('[aria-label="Settings of this chat"]');
  await page.locator('#chat-settings button', {hasText: 'Delete chat'}).click();
  await page.locator('#chat-settings button', {hasText: 'Delete it'}).click();
  await openList(page);
  await entries(page).filter({hasText: 'Beta'}).waitFor({...WAIT, state: 'detached'});
  await page.locator('.chat-keep button', {hasText: 'Delete all'}).click();
  await page.locator('.chat-keep button', {hasText: 'Delete them'}).click();
  await entries(page).filter({hasText: 'New chat'}).waitFor(WAIT);
  assert.equal(await entries(page).count(), 1);
  assert.equal(await kept(page), 0);
}

// More than are kept: the oldest goes, and the page says so.
async function checkBound(browser) {
  const opened = await open(browser);
  const {page} = opened;
  await page.evaluate(() => {
    for (let i = 0; i < 50; i += 1) {
      const chat = {id: `old${i}`, title: `Old ${i}`, turns: [{question: 'q', answers: []}], changedMs: 1000 + i};
      localStorage.setItem(`macrame-chat-${chat.id}`, JSON.stringify(chat));
    }
  });
  await page.reload(WAIT);
  await page.waitForSelector(served, WAIT);
  await startNew(page);
  await sendAndWait(page, 'One more?');
  await page.locator('.notice', {hasText: 'The oldest chat, “Old 0”, was dropped'}).waitFor(WAIT);
  assert.equal(await kept(page), 50);
  await look(opened, 'chat-dropped', shots);
  await closeChecked(opened, 'chat-bound', shots);
}

async function checkLatency({page}) {
  const row = page.locator('#latency tbody tr', {hasText: model});
  await row.waitFor(WAIT);
  assert.match(await row.innerText(), /([\d.]+ (ms|s)\s*){4}$/);
  assert.equal(await page.locator('#latency canvas').count(), 2);
}

const browser = await launch();
try {
  const opened = await open(browser);
  await checkComparison(opened);
  await look(opened, 'chat-beside', shots);
  await checkSeveral(opened);
  await checkKeyboard(opened);
  await checkTyping(opened);
  await checkSettings(opened);
  await checkKept(opened);
  await openList(opened.page);
  await look(opened, 'chat-list', shots);
  await checkLatency(opened);
  await checkDelete(opened);
  await closeChecked(opened, 'chats', shots);

  const dark = await open(browser, {...DESK, colorScheme: 'dark'});
  await dark.page.click('.widen');
  await checkComparison(dark);
  await closeChecked(dark, 'chat-wide', shots);

  const phone = await open(browser, {viewport: {width: 390, height: 844}, isMobile: true, hasTouch: true});
  await phone.page.click('.jump');
  await checkComparison(phone, true);
  await look(phone, 'chat-phone', shots);
  await openList(phone.page);
  await closeChecked(phone, 'chat-phone-list', shots);
  await checkBound(browser);
} finally {
  await browser.close();
}
