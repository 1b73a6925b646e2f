// How many frames a second the page draws while a large cluster changes each second, in headless Chromium.
//
//   node dashboard/test/frames.mjs SNAPSHOT.json COUNT SECONDS
//
// The snapshot is a real agent's (/dashboard/api/snapshot). A server of this program's own, on the loopback
// interface, shows it grown to COUNT nodes: each node is there many times over under names of its own, each has
// measured paths to all others, and a model is served over every eight. Each second every node's load changes.
// Printed, as JSON: frames a second at the median and in the slowest second, the longest time between two frames,
// and how long the page's thread took for one change.
import {createServer} from 'node:http';
import {readFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {launch, openPage} from './driven_page.mjs';

const [snapshotFile, countText, secondsText] = process.argv.slice(2);
const count = Number(countText);
const seconds = Number(secondsText);
const dist = join(dirname(fileURLToPath(import.meta.url)), '..', 'dist');
const real = JSON.parse(readFileSync(snapshotFile, 'utf8'));

const idOf = (i) => (i + 1).toString(16).padStart(32, '0');

function grownNodes() {
  return Array.from({length: count}, (_, i) => {
    const node = structuredClone(real.nodes[i % real.nodes.length]);
    Object.assign(node.identity, {node_id: idOf(i), hostname: `studio-${i + 1}`});
    return Object.assign(node, {is_coordinator: i === 0, is_self: i === 0});
  });
}

function grownLinks() {
  const kinds = ['thunderbolt', 'ethernet', 'verbs'];
  const paths = [];
  for (let a = 0; a < count; a += 1) {
    for (let b = 0; b < count; b += 1) {
      if (a === b) continue;
      paths.push({from_node_id: idOf(a), to_node_id: idOf(b), kind: kinds[(a + b) % kinds.length],
                  round_trip_us: 80 + ((a * b) % 400), bandwidth_bytes_per_second: 1.25e9});
    }
  }
  return {...real.links, links: [], paths};
}

function grownDeployments() {
  return Array.from({length: Math.floor(count / 8)}, (_, k) => {
    const one = structuredClone(real.deployments[0]);
    one.deployment.name = `${one.deployment.name}-${k + 1}`;
    one.entry_node_id = idOf(k * 8);
    one.plan.world_size = 8;
    one.plan.assignments = Array.from({length: 8}, (__, rank) => (
      {...one.plan.assignments[0], rank, node_id: idOf(k * 8 + rank), hostname: `studio-${k * 8 + rank + 1}`}));
    one.ranks = Array.from({length: 8}, (__, rank) => ({...one.ranks[0], rank, node_id: idOf(k * 8 + rank)}));
    return one;
  });
}

// Of each model, over ten minutes.
function grownLatencies() {
  const points = (ms) => Array.from({length: 60}, (_, i) => [(59 - i) * 10 + 3, 20, ms + (i * 7) % 11, 2 * ms + (i * 5) % 13]);
  return {slot_seconds: 10, window_seconds: 30, span_seconds: 600, models: grownDeployments().map((one, k) => (
    {model: one.deployment.name, first_token: points(100 + 40 * k), inter_token: points(10 + 4 * k)}))};
}

const grown = {...real, nodes: grownNodes(), links: grownLinks(), deployments: grownDeployments(),
               aggregate_load: {...real.aggregate_load, nodes_alive: count, nodes_total: count}};

// What changes from one second to the next.
function change(second) {
  grown.nodes.forEach((node, i) => {
    const busy = 0.5 + 0.5 * Math.sin(second + i);
    Object.assign(node.load, {cpu_busy_ratio: busy, tokens_per_second: 40 * busy, requests_running: i % 3});
  });
  grown.deployments.forEach((one, k) => { one.tokens_per_second = 100 + 50 * Math.sin(second + k); });
  Object.assign(grown.aggregate_load, {tokens_per_second: 900 + second, requests_running: second % 9});
  return JSON.stringify(grown);
}

const TYPES = {'.css': 'text/css', '.js': 'text/javascript', '.svg': 'image/svg+xml', '.html': 'text/html'};
const server = createServer((request, response) => {
  const path = new URL(request.url, 'http://localhost').pathname;
  if (path === '/dashboard/api/events') {
    response.writeHead(200, {'content-type': 'text/event-stream'});
    let second = 0;
    const tell = () => response.write(`data: ${change(second++)}\n\n`);
    tell();
    const timer = setInterval(tell, 1000);
    request.on('close', () => clearInterval(timer));
  } else if (path === '/dashboard/api/latency') {
    response.writeHead(200, {'content-type': 'application/json'}).end(JSON.stringify(grownLatencies()));
  } else if (path === '/dashboard/api/access') {
    response.writeHead(200, {'content-type': 'application/json'}).end('{"scopes":["infer","read","operate"]}');
  } else {
    const name = path === '/' ? 'index.html' : path.replace('/dashboard/', '');
    const type = TYPES[name.slice(name.lastIndexOf('.'))];
    if (type === undefined || name.includes('/')) return response.writeHead(404).end();
    response.writeHead(200, {'content-type': type}).end(readFileSync(join(dist, name)));
  }
  return undefined;
});
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const url = `http://127.0.0.1:${server.address().port}/`;

const browser = await launch();
let faults = [];
try {
  const opened = await openPage(browser, url, `[data-node="studio-${count}"]`, {viewport: {width: 1440, height: 900}});
  const {page} = opened;
  const shown = await page.locator('.topology .node').count();
  if (shown !== count) throw new Error(`the page shows ${shown} nodes of ${count}`);
  await page.waitForTimeout(2000);
  // Somebody looks about: the pointer moves over the nodes and the page scrolls, all the while.
  const measured = page.evaluate((ms) => new Promise((done) => {
    const frames = [];
    const tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)))
      .observe({entryTypes: ['longtask']});
    const begun = performance.now();
    const frame = (now) => {
      frames.push(now);
      if (now - begun < ms) requestAnimationFrame(frame);
      else done({frames, tasks});
    };
    requestAnimationFrame(frame);
  }), seconds * 1000);
  for (let i = 0; i < seconds * 4; i += 1) {
    await page.mouse.move(300 + (i * 37) % 500, 250 + (i * 53) % 300);
    await page.mouse.wheel(0, i % 8 < 4 ? 120 : -120);
    await page.waitForTimeout(200);
  }
  const {frames, tasks} = await measured;
  const gaps = frames.slice(1).map((at, i) => at - frames[i]).sort((a, b) => a - b);
  const perSecond = [];
  for (let s = 0; s < seconds; s += 1) {
    perSecond.push(frames.filter((at) => at - frames[0] >= s * 1000 && at - frames[0] < (s + 1) * 1000).length);
  }
  perSecond.sort((a, b) => a - b);
  faults = opened.faults;
  console.log(JSON.stringify({
    nodes: count, seconds,
    frames_per_second_median: perSecond[Math.floor(perSecond.length / 2)], frames_per_second_least: perSecond[0],
    longest_gap_ms: Number(gaps[gaps.length - 1].toFixed(1)),
    tasks_above_50_ms: tasks.length, longest_task_ms: Math.max(0, ...tasks),
    snapshot_bytes: change(0).length, faults,
  }));
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
process.exitCode = faults.length > 0 ? 1 : 0;
