/* usage: node viewer.js PLAYWRIGHT CHROMIUM FOLDER TRACE...
   Opens bench/viewer.html, the pages FOLDER/TRACE.html and the snapshots FOLDER/snapshot.*.json in
   a browser, uses them as a reader does, and compares what they show with FOLDER/TRACE.json and the
   snapshots. Leaves pictures in FOLDER. The last line is `N passed, N failed`; a message in the
   browser's console is a failure. */
'use strict';
const fs = require('fs');
const path = require('path');
const [, , playwright, chromium, folder, ...traces] = process.argv;
const { chromium: browserType } = require(playwright);

let passed = 0, failed = 0, page, where = '';
function ok(name, condition, told) {
  if (condition) { passed++; return; }
  failed++;
  console.log('FAILED: ' + where + ': ' + name + (told === undefined ? '' : ': ' + JSON.stringify(told)));
}
const same = (name, shown, wanted) => ok(name, shown === wanted, [shown, wanted]);
const sum = (list) => list.reduce((x, y) => x + y, 0);
const text = (selector) => page.locator(selector).innerText();
const data = (selector, name) => page.locator(selector).getAttribute('data-' + name).then(Number);
const picture = (name) => page.screenshot({ path: path.join(folder, name + '.png'), fullPage: true });
const pixels = (id) => page.evaluate((i) => document.getElementById(i).toDataURL(), id);

async function open(browser, url, scheme) {
  if (page) await page.close();
  page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, colorScheme: scheme });
  page.on('console', (m) => ok('the console is silent', false, m.text()));
  page.on('pageerror', (e) => ok('no error', false, e.message));
  await page.goto('file://' + path.resolve(url));
}

async function checkReplay(browser, trace) {
  const told = JSON.parse(fs.readFileSync(path.join(folder, trace + '.json'), 'utf8'));
  where = trace;
  ok('the page is below 3 MB', fs.statSync(path.join(folder, trace + '.html')).size < 3e6);
  await open(browser, path.join(folder, trace + '.html'), 'light');
  await page.waitForSelector('html[data-ready]');
  same('name', await text('h1'), trace);
  same('held', await data('#figures', 'held'), told.peak_reserved_bytes);
  same('events', await page.evaluate('view.doc.ops'), told.events);
  same('the most that is live', await page.evaluate('view.doc.live.reduce((x, y) => Math.max(x, y))'),
    told.peak_active_bytes);
  const causes = await page.locator('#legend tr').evaluateAll((rows) => rows.map((r) => +r.dataset.bytes));
  same('the causes add up', sum(causes), told.peak_reserved_bytes);
  const before = await text('#moment'), drawn = await pixels('stack');
  await page.click('#stack', { position: { x: 500, y: 100 } });
  ok('a click is a moment', await text('#moment') !== before);
  const there = await page.evaluate('view.op');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((op) => view.op === op + 1, there);
  passed++;
  await page.mouse.wheel(0, -300);
  ok('the wheel zooms', await pixels('stack') !== drawn);
  await page.click('#shapes [data-value=placed]');
  await page.click('#axes [data-value=time]');
  await picture(trace);
}

const fields = (d, list) => d[list].map((row) => Object.fromEntries(d.fields[list].map((n, i) => [n, row[i]])));

/* The longest run of free memory in a snapshot, found another way than the page does. */
function largestHole(d) {
  const at = new Map(fields(d, 'holes').filter((h) => h.state !== 'quarantined').map((h) => [h.address, h]));
  const ends = new Set([...at.values()].map((h) => h.address + h.bytes));
  let best = 0;
  for (const h of at.values()) {
    if (ends.has(h.address)) continue;
    let end = h.address;
    while (at.has(end)) end += at.get(end).bytes;
    best = Math.max(best, end - h.address);
  }
  return best;
}

async function checkSnapshots(browser) {
  const files = ['full', 'end'].map((n) => path.join(folder, 'snapshot.' + n + '.json'));
  const [full, end] = files.map((f) => JSON.parse(fs.readFileSync(f, 'utf8')));
  where = 'snapshots';
  await open(browser, 'bench/viewer.html', 'dark');
  await page.waitForSelector('#empty:not([hidden])');
  await page.setInputFiles('#file', files);
  await page.waitForSelector('#main:not([hidden])');
  same('dark', await page.evaluate('document.documentElement.dataset.theme'), 'dark');
  same('name', await text('h1'), end.name);
  same('held', await data('#figures', 'held'), end.stats.reserved_bytes);
  same('live', await data('#figures', 'live'), end.stats.active_bytes);
  const causes = await page.locator('#legend tr').evaluateAll((rows) => rows.map((r) => [r.dataset.cause, +r.dataset.bytes]));
  same('the causes add up', sum(causes.map((c) => c[1])), end.stats.reserved_bytes);
  same('pending', new Map(causes).get('pending'), end.stats.pending_bytes);
  same('the largest hole', await data('#holes', 'bytes'), largestHole(end));
  ok('whose it is', (await text('#holes')).includes('alone may take it'));
  await checkShort(end);
  await checkLabels(full, end);
  await checkSearch(end);
  await checkMap(end);
  same('a request of 1 GiB', await page.locator('#why .verdict').getAttribute('data-served'), 'no');
  await page.fill('#asked', '10 MiB');
  same('a request of 10 MiB', await page.locator('#why .verdict').getAttribute('data-served'), 'hole');
  await picture('snapshot-dark');
  await page.keyboard.press('Escape');
  await page.keyboard.press('[');
  same('the one before', await text('h1'), full.name);
  ok('its error', (await text('#details')).includes('GMLAKE_ERROR_LIMIT_REACHED'));
  same('it is compared with nothing', await page.locator('#grew').count(), 0);
  await page.keyboard.press('t');
  same('light', await page.evaluate('document.documentElement.dataset.theme'), 'light');
  await page.fill('#asked', '1 MiB');
  await page.click('#details a:has-text("be served now")');
  same('what was asked for', await page.inputValue('#asked'), '1 GiB');
  await picture('snapshot-light');
  await checkGrowth();
}

const MIB = 1 << 20;
const inMib = (told) => +told.replace(/ GiB/, '') * (/GiB/.test(told) ? 1024 : 1) || parseFloat(told);

/* The card on top answers three questions. What it says of a hole is found in the snapshot. */
async function checkShort(end) {
  const largest = largestHole(end) / MIB;
  ok('in short: the hole', (await text('#short-hole')).startsWith('The largest hole has ' + largest + ' MiB. It lies between “'));
  ok('in short: what grew', (await text('#short-grew')).startsWith('Most grew since snapshot 1: '), await text('#short-grew'));
  ok('in short: a request', /^A request of 1 GiB would fail: \d+ MiB are missing/.test(await text('#short-why')));
  await page.click('#short-why a');
  const rows = new Map((await page.locator('#why tr').evaluateAll((all) => all.map((r) => [...r.cells].map((c) => c.innerText)))));
  const sums = [...rows].filter(([name]) => name.startsWith('+') || name.startsWith('free pieces')).map((r) => inMib(r[1]));
  ok('what can be had adds up', Math.abs(sum(sums) - inMib(rows.get('= the largest block that can be had'))) < 2, [...rows]);
  ok('what is missing, too', Math.abs(1024 - inMib(rows.get('= the largest block that can be had')) - inMib(rows.get('missing'))) < 2, [...rows]);
  const sides = await page.locator('#holes li').evaluateAll((all) => all.map((x) => /would have ([\d.]+) MiB/.exec(x.innerText)[1]));
  const items = [...fields(end, 'blocks').filter((b) => !fields(end, 'pieces').some((p) => p.owner === b.address)), ...fields(end, 'pieces')];
  const gap = await page.evaluate('(({ a, n }) => ({ a, n }))(largestGap(view.moment))');
  const before = items.find((b) => b.address + b.bytes === gap.a), behind = items.find((b) => b.address === gap.a + gap.n);
  ok('without its sides it would be larger', +sides[0] >= (gap.n + before.bytes) / MIB && +sides[1] >= (gap.n + behind.bytes) / MIB, sides);
}

/* What grows a little from each snapshot to the next is told, whatever else comes and goes. */
async function checkGrowth() {
  where = 'three snapshots in a row';
  const files = [1, 2, 3].map((k) => {
    const d = JSON.parse(fs.readFileSync(path.join(folder, 'snapshot.end.json'), 'utf8')), at = d.fields.blocks.indexOf('label');
    d.blocks.filter((r) => r[at] === 'tokens').slice(0, 20 * k).forEach((r) => { r[at] = 'sessions'; });
    if (k === 2) d.blocks.filter((r) => r[at] === 'weights').forEach((r) => { r[at] = 'prompts'; });
    fs.writeFileSync(path.join(folder, 'hour' + k + '.json'), JSON.stringify(d));
    return path.join(folder, 'hour' + k + '.json');
  });
  await page.setInputFiles('#file', files);
  await page.waitForFunction('view.docs.length === 5');
  await page.evaluate('view.docs.splice(0, 2), setDoc(2)');
  ok('what grew each time', (await text('#ever')).startsWith('Grew from each snapshot to the next: sessions, by '), await text('#ever'));
  ok('nothing else', !(await text('#ever')).includes(';'), await text('#ever'));
  await page.selectOption('#colour', 'state');
  const drawn = await pixels('stack');
  await page.selectOption('#colour', 'label');
  ok('the columns show labels', await pixels('stack') !== drawn);
  same('a colour for each', await page.locator('#labels .swatch').count(), await page.locator('#labels tr[data-label]').count());
  await page.evaluate('setDoc(1)');
  same('two are not enough', await page.locator('#ever').count(), 0);
}

async function checkLabels(full, end) {
  const sums = (d) => {
    const out = new Map();
    for (const b of fields(d, 'blocks')) if (b.state === 'live') out.set(b.label, (out.get(b.label) || 0) + b.bytes);
    return out;
  };
  const now = sums(end), then = sums(full);
  const shown = new Map(await page.locator('#labels tr[data-label]').evaluateAll(
    (rows) => rows.map((r) => [r.dataset.label, +r.dataset.bytes])));
  for (const [label, bytes] of now) same('live with label ' + label, shown.get(label), bytes);
  const grew = [...now].map(([l, n]) => [l, n - (then.get(l) || 0)]).sort((x, y) => y[1] - x[1])[0];
  ok('what grew', (await text('#grew')).includes('Most grew: ' + grew[0]), grew);
}

async function checkSearch(end) {
  const caches = fields(end, 'buffers').filter((b) => b.label === 'kv cache');
  await page.click('#labels tr[data-label="kv cache"]');
  ok('a row finds growing buffers', (await text('#found')).startsWith('1 of ' + caches.length + ' '), await text('#found'));
  ok('and shows one', (await text('#details')).includes('Growing buffer “kv cache”'), await text('#details'));
  await page.click('#labels tr[data-label="prompts"]');
  ok('a row finds its label alone', (await text('#found')).startsWith('1 of 2 '), await text('#found'));
  await page.keyboard.press('Escape');
  const optimizer = fields(end, 'blocks').filter((b) => b.label === 'optimizer');
  await page.keyboard.press('/');
  await page.keyboard.type('optimizer');
  await page.keyboard.press('Enter');
  ok('how many are found', (await text('#found')).startsWith('1 of ' + optimizer.length + ' '));
  await page.keyboard.press('Enter');
  ok('the next one', (await text('#found')).startsWith('2 of '));
  const b = optimizer[7];
  await page.fill('#search', '0x' + (b.address + 9).toString(16));
  await page.keyboard.press('Enter');
  const details = await text('#details');
  ok('an address inside a block', details.includes('0x' + b.address.toString(16)) && details.includes('optimizer'), details);
  await page.fill('#search', 'there is no such label');
  await page.keyboard.press('Enter');
  same('nothing found', await text('#found'), 'not found');
}

async function checkMap(end) {
  const window = fields(end, 'blocks').find((b) => fields(end, 'pieces').some((p) => p.owner === b.address));
  const pieces = fields(end, 'pieces').filter((p) => p.owner === window.address);
  const before = await pixels('sheet');
  await page.click('#sheet', { position: { x: 100, y: 30 } });
  const at = await page.evaluate('view.chosen.a');
  ok('a click chooses a block', fields(end, 'blocks').some((b) => b.address === at && b.label === 'weights'));
  await page.keyboard.press('ArrowRight');
  ok('the arrow keys choose the next', await page.evaluate('view.chosen.a') > at);
  await page.fill('#search', '0x' + window.address.toString(16));
  await page.keyboard.press('Enter');
  ok('what a window joins', (await text('#details')).includes(pieces.length + ' pieces'), await text('#details'));
  await page.click('#plus');
  await page.click('#plus');
  const scale = await text('#scale');
  await page.selectOption('#colour', 'label');
  await page.check('#links');
  ok('the map changes', await pixels('sheet') !== before);
  await page.click('#fit');
  ok('the scale changes', await text('#scale') !== scale);
}

/* What sleeps is not held. Who saved it gave it no name: the file's is shown. What buffers have is
   theirs on the map, by name, and the axis has room for its sizes. */
async function checkAsleep(browser) {
  where = 'a pool that sleeps';
  const files = ['full', 'asleep'].map((n) => path.join(folder, 'snapshot.' + n + '.json'));
  const d = JSON.parse(fs.readFileSync(files[1], 'utf8')), pool = fields(d, 'arenas').find((a) => a.label === 'tenant b').arena;
  ok('something sleeps', d.stats.sleeping_bytes > 0);
  await open(browser, 'bench/viewer.html', 'light');
  await page.setInputFiles('#file', files);
  await page.waitForSelector('#main:not([hidden])');
  same('name', await text('h1'), 'snapshot.asleep');
  ok('in its tab, too', (await text('#docs')).includes('2: snapshot.asleep'), await text('#docs'));
  same('held', await data('#figures', 'held'), d.stats.reserved_bytes);
  same('live', await data('#figures', 'live'), d.stats.active_bytes -
    sum(fields(d, 'blocks').filter((b) => b.arena === pool && b.state === 'live').map((b) => b.bytes)));
  ok('what sleeps is told', / MiB asleep, which is not held/.test(await text('#figures')), await text('#figures'));
  const buffers = fields(d, 'buffers').map((b) => b.address);
  const drawn = await page.evaluate(`view.moment.arenas.flatMap((a) => [...a.items, ...a.bare]).filter((i) => i.buffer)
    .map((i) => [i.buffer.label, i.n])`);
  same('memory of buffers', sum(drawn.map((i) => i[1])), sum(fields(d, 'pieces').filter((p) => buffers.includes(p.owner)).map((p) => p.bytes)));
  ok('is named', drawn.length && drawn.every((i) => i[0] === 'kv cache'), drawn);
  ok('the axis has room', await page.evaluate(`['1.50 GiB', '1023 MiB', '99.9 MiB'].every((t) =>
    $('stack').getContext('2d').measureText(t).width <= LEFT - 4)`));
  await picture('snapshot-asleep');
}

/* A label is text, whatever it has in it. */
async function checkHostile(browser) {
  where = 'a hostile snapshot';
  const d = JSON.parse(fs.readFileSync(path.join(folder, 'snapshot.end.json'), 'utf8'));
  const evil = '<img src=x onerror="document.title=1">', at = d.fields.blocks.indexOf('label');
  d.name = evil;
  for (const row of d.blocks) row[at] = evil;
  fs.writeFileSync(path.join(folder, 'hostile.json'), JSON.stringify(d));
  await open(browser, 'bench/viewer.html', 'light');
  await page.setInputFiles('#file', path.join(folder, 'hostile.json'));
  await page.waitForSelector('#main:not([hidden])');
  same('its name is text', await text('h1'), evil);
  same('no element of it', await page.locator('img').count(), 0);
}

/* What is no snapshot is named, and the others are shown. */
async function checkStrange(browser) {
  where = 'strange files';
  const end = path.join(folder, 'snapshot.end.json'), cut = path.join(folder, 'cut.json');
  const strange = path.join(folder, 'strange.json');
  fs.writeFileSync(cut, fs.readFileSync(end, 'utf8').slice(0, 5000));
  fs.writeFileSync(strange, '[null, {}]');
  await open(browser, 'bench/viewer.html', 'light');
  let told = '';
  page.on('dialog', async (d) => { told = d.message(); await d.dismiss(); });
  await page.setInputFiles('#file', [cut, end, strange]);
  await page.waitForSelector('#main:not([hidden])');
  for (let i = 0; i < 100 && !told; i++) await page.waitForTimeout(50);
  const lines = told.split('\n').map((line) => line.split(':')[0]);
  same('they are named', lines.join(), 'cut.json cannot be read,strange.json cannot be read');
  same('the good one is shown', await page.evaluate('view.docs.length'), 1);
}

/* A trace without a replay has live memory alone. */
async function checkTrace(browser, trace) {
  where = trace + ', the trace';
  const told = JSON.parse(fs.readFileSync(path.join(folder, trace + '.json'), 'utf8'));
  await open(browser, 'bench/viewer.html', 'light');
  await page.setInputFiles('#file', path.join('bench/traces', trace + '.gmtrace.gz'));
  await page.waitForSelector('#main:not([hidden])');
  same('events', await page.evaluate('view.doc.ops'), told.events);
  same('the most that is live', await page.evaluate('view.doc.live[view.doc.peak]'), told.peak_active_bytes);
  same('there is no map', await page.locator('#place').isVisible(), false);
}

/* Labels of a recording: of a replay, and of the trace alone. Another policy's page says so. */
async function checkRecording(browser) {
  where = 'paper.html';
  await open(browser, path.join(folder, 'paper.html'), 'light');
  await page.waitForSelector('html[data-ready]');
  same('the policy', await text('h1'), 'labels, policy paper');
  for (const file of ['labels.html', 'labels.gmtrace']) {
    where = file;
    const isPage = file.endsWith('html');
    await open(browser, isPage ? path.join(folder, file) : 'bench/viewer.html', 'light');
    if (!isPage) await page.setInputFiles('#file', path.join(folder, file));
    await page.waitForSelector('#main:not([hidden])');
    await page.selectOption('#since', 'mark');
    const shown = await page.locator('#labels tr[data-label]').evaluateAll(
      (rows) => rows.map((r) => [r.dataset.label.replace(/[<"]/g, '_'), +r.dataset.bytes]));
    same('labels', JSON.stringify(shown.slice(0, 2)), '[["_b>_activations",60000256],["weights",20000256]]');
    ok('what grew', (await text('#grew')).includes('activations, by 28.6 MiB'), await text('#grew'));
  }
}

async function checkLarge(browser) {
  where = '100,000 blocks';
  await open(browser, path.join(folder, 'large.html'), 'light');
  await page.waitForSelector('html[data-ready]');
  const d = JSON.parse(fs.readFileSync(path.join(folder, 'large.end.json'), 'utf8'));
  ok('there are so many', d.blocks.length >= 100000);
  same('held', await data('#figures', 'held'), d.stats.reserved_bytes);
  same('live', await data('#figures', 'live'), d.stats.active_bytes);
  const ready = await page.evaluate('+document.documentElement.dataset.ready');
  const draw = await page.evaluate('(() => { const t = performance.now(); drawMap(); return performance.now() - t; })()');
  console.log('100,000 blocks: interactive after ' + ready + ' ms, a frame takes ' + draw.toFixed(1) + ' ms');
  await picture('large');
}

(async () => {
  const browser = await browserType.launch({ executablePath: chromium, args: ['--no-sandbox'] });
  try {
    await checkSnapshots(browser);
    await checkAsleep(browser);
    await checkHostile(browser);
    await checkStrange(browser);
    for (const trace of traces) await checkReplay(browser, trace);
    await checkTrace(browser, traces[0]);
    await checkRecording(browser);
    await checkLarge(browser);
  } catch (e) {
    ok('it goes on', false, e.stack);
  }
  await browser.close();
  console.log(passed + ' passed, ' + failed + ' failed');
})();
