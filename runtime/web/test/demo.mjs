// Tests the demo page in a browser: what it shows, and what the second visit fetches. `node demo.mjs FOLDER`: a folder from
// `demo/build.sh`. Writes a screenshot to it.

import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { launch } from './chromium.mjs';
import { serve } from './server.mjs';

const folder = resolve(process.argv[2]);
const server = await serve({ '.': folder });
const browser = await launch();
const context = await browser.newContext({ viewport: { width: 800, height: 1000 } });
const page = await context.newPage();
const missing = [];
page.on('response', (response) => response.status() >= 400 && missing.push(response.url()));
const visit = async () => {
    server.sent.clear();
    await page.goto(server.url);
    await page.waitForFunction(() => document.body.dataset.state, undefined, { timeout: 240_000 });
    assert.equal(await page.textContent('#problem'), '');
    return page.evaluate(() => window.facts);
};

const first = await visit();
assert.equal(first.minilm.scores[0].text, 'A kitten is napping in the sun.');
assert.ok(first.minilm.scores[0].score > 0.4 && first.minilm.scores[1].score < 0.3, JSON.stringify(first.minilm.scores));
// The picture has two lines of words, at the upper left and at the lower right.
const [upper, lower] = first.text.boxes;
assert.equal(first.text.boxes.length, 2, JSON.stringify(first.text.boxes));
assert.ok(upper.left > 20 && upper.right < 280 && upper.bottom < 110 && lower.left > 200 && lower.top > 150, JSON.stringify(first.text.boxes));
// Each box contains its line from the first letter to the last.
for (const [index, { left, right, top, bottom }] of first.text.painted.entries()) {
    const box = first.text.boxes[index];
    const inside = box.left <= left && box.right >= right && box.top <= top && box.bottom >= bottom;
    assert.ok(inside, `${JSON.stringify(box)} cuts the text at ${JSON.stringify(first.text.painted[index])}`);
}
// The percentage never decreases, and is 100 only at the end, when the model is ready.
for (const model of ['minilm', 'text']) {
    const { progress } = first[model];
    const percents = progress.map(({ percent }) => percent);
    assert.deepEqual(percents, percents.toSorted((a, b) => a - b), model);
    assert.ok(percents.at(-1) === 100 && percents.indexOf(100) === percents.length - 1, `${model}: ${percents.slice(-3)}`);
    assert.deepEqual([...new Set(progress.map(({ phase }) => phase))], ['fetching', 'compiling shaders'], model);
}
assert.match(await page.getAttribute('link[rel=icon]', 'href'), /^data:image/);
assert.deepEqual(missing, []);
assert.match(await page.textContent('#found'), /^2 lines/);
const weights = statSync(`${folder}/minilm.drift`).size;
assert.ok(first.minilm.fetched > 0.95 * weights && first.minilm.cached === 0);
// The page fetches header and manifest first, then sections from the end of the file, where the shaders are, so that they
// compile while weights are fetched. The tokenizer is last.
const starts = server.starts.filter(([path]) => path === 'minilm.drift').map(([, start]) => start);
const loaded = starts.slice(2, -1);
assert.ok(loaded.length > 10 && loaded[0] === Math.max(...loaded), starts.join(' '));
await page.screenshot({ path: `${folder}/screenshot.png` });

await page.fill('#sentence', 'Our rocket reached orbit.');
await page.waitForFunction(() => window.facts.minilm.scores[0].text.startsWith('The satellite'));
assert.match(await page.textContent('#scores li'), /The satellite was carried into space/);

const second = await visit();
for (const model of ['minilm', 'text']) {
    assert.ok(second[model].fetched < 200_000 && second[model].cached > 1e6, JSON.stringify(second[model]));
    const sent = server.sent.get(`${model}.drift`);
    assert.ok(sent < 1e6, `the server sent ${sent} bytes of ${model} again`);
}
for (const [visit, facts] of Object.entries({ first, second })) {
    for (const model of ['minilm', 'text']) {
        const { loadMs, runMs, fetched, cached } = facts[model];
        console.log(`${visit} visit, ${model}: loaded in ${loadMs.toFixed(0)} ms, ran in ${runMs.toFixed(0)} ms, fetched ${fetched} bytes, ${cached} from cache`);
    }
}
console.log('web: 1 passed, 0 failed, the demo page');
await browser.close();
server.close();
