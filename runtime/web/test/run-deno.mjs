// Runs the cases of a folder from `web-cases` in Deno: `deno run -A run-deno.mjs FOLDER [--only TEXT]`. Also runs in other
// hosts that have `navigator.gpu` and `node:fs`.

import { readFileSync } from 'node:fs';
import process from 'node:process';
import * as drift from '../dist/index.js';
import { runAll } from './cases.mjs';

const [folder, ...flags] = process.argv.slice(2);
const only = flags.includes('--only') ? flags[flags.indexOf('--only') + 1] : '';
const tests = JSON.parse(readFileSync(`${folder}/index.json`)).filter(({ name }) => name.includes(only));
const adapter = await navigator.gpu.requestAdapter();
const requiredFeatures = adapter.features.has('shader-f16') ? ['shader-f16'] : [];
const device = await adapter.requestDevice({ requiredFeatures });
const bytes = (path) => Uint8Array.from(readFileSync(path.startsWith('/') ? path : `${folder}/${path}`));
let [passed, failed] = [0, 0];
const report = (name, wrong) => {
    if (wrong) console.log(`FAILED ${name}: ${wrong}`);
    if (wrong) failed++;
    else passed++;
};
const host = { read: async (path) => bytes(path).buffer, open: async (name) => bytes(name), device };
await runAll(drift, tests, host, report, 1);
console.log(`web: ${passed} passed, ${failed} failed, on ${adapter.info?.description ?? adapter.info?.device}`);
process.exit(failed || !passed ? 1 : 0);
