// Runs the cases of a folder from `web-cases` in Chromium: `node run-chromium.mjs FOLDER [--checked] [--only TEXT]`.

import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from './chromium.mjs';
import { serve } from './server.mjs';

const [folder, ...flags] = process.argv.slice(2);
const only = flags.includes('--only') ? flags[flags.indexOf('--only') + 1] : '';
const here = dirname(fileURLToPath(import.meta.url));
const tests = JSON.parse(readFileSync(`${folder}/index.json`)).filter(({ name }) => name.includes(only));
const server = await serve({ '.': resolve(here, '..'), cases: resolve(folder), file: '/' });
const browser = await launch({ fast: !flags.includes('--checked') });
const page = await browser.newPage();
let [passed, failed] = [0, 0];
await page.exposeFunction('report', (name, wrong) => {
    if (wrong) console.log(`FAILED ${name}: ${wrong}`);
    if (wrong) failed++;
    else passed++;
});
page.on('pageerror', (error) => console.log(`page: ${error}`));
await page.goto(`${server.url}/test/blank.html`);
const start = Date.now();
await page.evaluate(async (tests) => {
    const drift = await import('/dist/index.js');
    const { runAll } = await import('/test/cases.mjs');
    const adapter = await navigator.gpu.requestAdapter();
    const limits = ['maxStorageBufferBindingSize', 'maxBufferSize', 'maxComputeWorkgroupStorageSize'];
    const device = await adapter.requestDevice({
        requiredLimits: Object.fromEntries(limits.map((name) => [name, adapter.limits[name]])),
        requiredFeatures: adapter.features.has('shader-f16') ? ['shader-f16'] : [],
    });
    const read = async (path) => (await fetch(path.startsWith('/') ? `/file${path}` : `/cases/${path}`)).arrayBuffer();
    await runAll(drift, tests, { read, open: (name) => `/cases/${name}`, device }, window.report);
}, tests);
console.log(`web: ${passed} passed, ${failed} failed, in Chromium in ${((Date.now() - start) / 1000).toFixed(1)} s`);
await browser.close();
server.close();
process.exit(failed || !passed ? 1 : 0);
