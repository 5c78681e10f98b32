// Tests errors in a browser: damaged bundles, servers, devices and arguments; the cache between visits; and golden bundles of
// earlier versions of the format.
// `node faults.mjs FOLDER`: a folder from `tests/web.rs` with two versions of a model.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from './chromium.mjs';
import { serve } from './server.mjs';

const folder = resolve(process.argv[2]);
const here = dirname(fileURLToPath(import.meta.url));
const golden = resolve(here, '../../../tests/golden_bundles');
const server = await serve({ '.': resolve(here, '..'), bundles: folder, golden });
const browser = await launch();
let passed = 0;
const test = async (name, body) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${server.url}/test/blank.html`);
    await page.addScriptTag({ type: 'module', content: "window.drift = await import('/dist/index.js'); window.ready = true;" });
    await page.waitForFunction(() => window.ready);
    server.ranges = true;
    try {
        await body(page);
        passed++;
    } catch (error) {
        console.log(`FAILED ${name}: ${error.stack ?? error}`);
        process.exitCode = 1;
    }
    await context.close();
};
/** Runs code in the page and returns its error. */
const failure = (page, body, given) =>
    page.evaluate(
        async ([body, given]) => {
            try {
                await new Function('drift', 'given', `return (async () => { ${body} })()`)(window.drift, given);
                return { kind: 'none' };
            } catch (error) {
                return { kind: error.kind, message: error.message };
            }
        },
        [body, given],
    );
const bytes = readFileSync(`${folder}/first.drift`);
const zeros = "Object.fromEntries(session.inputs('main').map((port) => [port.name, { shape: port.shape.split(', ').map(Number), data: new Float32Array(port.shape.split(', ').map(Number).reduce((a, b) => a * b, 1)) }]))";

await test('every truncation is one error', async (page) => {
    for (const size of [0, 4, 60, 127, 128, 500, bytes.length - 1]) {
        const { kind } = await failure(page, 'await drift.Session.load(new Uint8Array(given))', [...bytes.subarray(0, size)]);
        assert.equal(kind, size < 8 ? 'NotABundle' : 'Corrupt', `${size} bytes`);
    }
});

await test('every flipped byte is one error', async (page) => {
    const wrong = await page.evaluate(async (name) => {
        const bytes = new Uint8Array(await (await fetch(name)).arrayBuffer());
        const wrong = [];
        const size = bytes.length;
        const places = [...Array(128).keys(), ...Array.from({ length: 400 }, (_, i) => Math.floor((i * 7919 * size) / 400 / 7919))];
        for (const at of [...places, size - 1]) {
            bytes[at] ^= 1 << at % 8;
            try {
                const bundle = await window.drift.Bundle.open(bytes.slice());
                await bundle.verify();
                wrong.push(`${at}: no error`);
            } catch (error) {
                if (!['NotABundle', 'Corrupt', 'Version'].includes(error.kind)) wrong.push(`${at}: ${error}`);
            }
            bytes[at] ^= 1 << at % 8;
        }
        await (await window.drift.Bundle.open(bytes)).verify();
        return wrong;
    }, '/bundles/first.drift');
    assert.deepEqual(wrong, []);
});

await test('a later minor version matters only if its additions are used', async (page) => {
    const claimed = (edit) => failure(page, `
        const bytes = new Uint8Array(await (await fetch('/bundles/first.drift')).arrayBuffer());
        const hash = (from, to, at) => bytes.set(drift.blake3(bytes.slice(from, to)), at);
        const manifest = Number(new DataView(bytes.buffer).getBigUint64(24, true));
        bytes[10] = given;
        ${edit}
        hash(manifest, bytes.length, 40);
        hash(0, 96, 96);
        await drift.Bundle.open(bytes);`, 7);
    assert.equal((await claimed('')).kind, 'none');
    // No number of format 1.6 begins with this byte.
    const newer = await claimed('bytes[manifest] = 254;');
    assert.equal(newer.kind, 'Version');
    assert.match(newer.message, /needs format version 1\.7, but this runtime knows version 1\.6/);
});

await test('metadata, and the progress of loading', async (page) => {
    const { metadata, events, pipelines, total } = await page.evaluate(async () => {
        const events = [];
        const session = await drift.Session.load('/bundles/first.drift', { cache: false, progress: (event) => events.push(event) });
        const { manifest, metadata } = session.bundle;
        const [{ pipelines }] = manifest.variants;
        return { metadata, events, pipelines: pipelines.length, total: session.stats.fetched - session.bundle.opened };
    });
    assert.deepEqual(metadata, { labels: 'cat\ndog' });
    assert.deepEqual(events.at(-1), { done: total, total, created: pipelines, pipelines });
    const created = events.map((event) => event.created);
    assert.deepEqual(created, created.toSorted((a, b) => a - b));
    assert.ok(pipelines > 1 && new Set(created).size === pipelines + 1, created.join());
});

await test('a server without ranges, and one without the file', async (page) => {
    server.ranges = false;
    const ranges = await failure(page, "await drift.Session.load('/bundles/first.drift')");
    assert.equal(ranges.kind, 'NoRange');
    assert.match(ranges.message, /Range requests/);
    assert.equal((await failure(page, "await drift.Session.load('/test/blank.html')")).kind, 'NotABundle');
    const missing = await failure(page, "await drift.Session.load('/bundles/none.drift')");
    assert.equal(missing.kind, 'Io');
    assert.match(missing.message, /404/);
});

await test('a damaged chunk is an error and is not cached', async (page) => {
    const { kind, message } = await failure(page, "await drift.Session.load('/bundles/damaged.drift')");
    assert.equal(kind, 'Corrupt');
    assert.match(message, /its hash does not match; fetch or compile the bundle again/);
    const kept = await page.evaluate(async () => {
        const store = await caches.open('driftc');
        const wrong = [];
        for (const request of await store.keys()) {
            const bytes = new Uint8Array(await (await store.match(request)).arrayBuffer());
            const hash = [...window.drift.blake3(bytes)].map((b) => b.toString(16).padStart(2, '0')).join('');
            if (!request.url.endsWith(hash)) wrong.push(request.url);
        }
        return wrong;
    });
    assert.deepEqual(kept, []);
});

await test('only bundles of trusted keys are loaded', async (page) => {
    const file = readFileSync(`${folder}/key.pub`, 'utf8');
    const line = file.split('\n')[1];
    const other = 'RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3';
    const load = (bundle, keys) =>
        failure(page, `(await drift.Session.load(${bundle}, { trustedKeys: given })).destroy()`, keys);
    const signed = "'/bundles/signed.drift'";
    for (const keys of [[file], [other, line]]) assert.deepEqual(await load(signed, keys), { kind: 'none' });
    const changed = (edit) => `await (async () => {
        const bytes = new Uint8Array(await (await fetch(${signed})).arrayBuffer());
        return ((bytes) => { ${edit} })(bytes);
    })()`;
    assert.deepEqual(await load(changed('return bytes'), [line]), { kind: 'none' });
    assert.deepEqual(await load(changed('return new Blob([bytes])'), [line]), { kind: 'none' });
    for (const [bundle, keys, kind, part] of [
        ["'/bundles/first.drift'", [line], 'Untrusted', /it is not signed/],
        [signed, [other], 'Untrusted', /key [0-9A-F]{16} signed it/],
        [signed, [], 'Untrusted', /trusted keys are: none/],
        [signed, [line, 'abc'], 'Untrusted', /trusted key 2/],
        [signed, ['A'.repeat(212)], 'Untrusted', /secret key/],
        [changed('bytes[bytes.length - 20] ^= 1; return bytes'), [line], 'Untrusted', /does not match|no minisign/],
        [changed('return bytes.slice(0, -1)'), [line], 'Untrusted', /no minisign signature/],
        [changed('return new Uint8Array([...bytes, ...bytes.slice(-300)])'), [line], 'Untrusted', /no minisign signature/],
    ]) {
        const error = await load(bundle, keys);
        assert.equal(error.kind, kind, error.message);
        assert.match(error.message, part);
    }
});

await test('the self-test runs on the device', async (page) => {
    const run = (bundle) => failure(page, `
        const session = await drift.Session.load('/bundles/${bundle}.drift', { cache: false });
        const vectors = [await session.selfTest(), await session.selfTest()];
        session.destroy();
        throw { kind: 'passed', message: String(vectors) };`);
    assert.deepEqual(await run('tested'), { kind: 'passed', message: '2,2' });
    assert.deepEqual(await run('first'), { kind: 'passed', message: '0,0' });
    for (const [name, kind, part] of [
        ['weight', 'SelfTest', /self-test 1: output `product` of function `main` differs from the CPU reference: .* instead of/],
        ['function', 'NoSuchFunction', /no function `other`/],
        ['shape', 'Invalid', /self-test 1, input `x`: the shape is too large/],
        ['elements', 'SelfTest', /elements instead of/],
        ['samples', 'SelfTest', /NaN/],
    ]) {
        const error = await run(`tested-${name}`);
        assert.equal(error.kind, kind, error.message);
        assert.match(error.message, part);
    }
});

await test('golden bundles of every version of the format run', async (page) => {
    const bundles = readdirSync(golden, { recursive: true }).filter((path) => path.endsWith('.drift')).sort();
    let compared = 0;
    for (const path of bundles) {
        const { runs } = JSON.parse(readFileSync(`${golden}/${path.replace('.drift', '.json')}`));
        const wrong = await page.evaluate(async ([path, runs]) => {
            const bundle = await window.drift.Bundle.open(`/golden/${path}`);
            if (!bundle.manifest.variants.some(({ target }) => target.startsWith('webgpu'))) return undefined;
            const session = await window.drift.Session.load(bundle, { cache: false });
            await session.selfTest();
            const classes = { f32: Float32Array, i8: Int8Array, u8: Uint8Array };
            for (const { inputs, outputs, function: name } of runs) {
                const arrays = Object.entries(inputs).map(([input, { dtype, shape, values }]) => [input, { shape, data: classes[dtype].from(values) }]);
                const got = await session.run(name, Object.fromEntries(arrays));
                for (const [output, { values }] of Object.entries(outputs)) {
                    const far = values.find((value, index) => !(Math.abs(got[output].data[index] - value) < 1e-4));
                    if (far !== undefined) return `${output} lacks ${far}`;
                }
            }
            session.destroy();
            return 'equal';
        }, [path, runs]);
        assert.ok(wrong === undefined || wrong === 'equal', `${path}: ${wrong}`);
        compared += Number(wrong === 'equal');
    }
    assert.ok(compared > 0);
});

await test('no WebGPU, no adapter, another target, a lost device', async (page) => {
    const load = (options) => failure(page, `await drift.Session.load('/bundles/first.drift', ${options})`);
    const adapter = await load('{ gpu: { requestAdapter: async () => null } }');
    assert.equal(adapter.kind, 'NoAdapter');
    assert.match(adapter.message, /update the driver/);
    const target = await load("{ target: 'toaster' }");
    assert.equal(target.kind, 'NoSuchTarget');
    assert.match(target.message, /there are: `webgpu-baseline`/);
    const native = await failure(page, "await drift.Session.load('/bundles/native.drift')");
    assert.equal(native.kind, 'Unmet');
    assert.match(native.message, /shaders are spirv/);
    const lost = await failure(
        page,
        `const session = await drift.Session.load('/bundles/first.drift'); session.device.destroy(); await session.run('main', ${zeros})`,
    );
    assert.equal(lost.kind, 'DeviceLost');
    assert.match(lost.message, /load the bundle again/);
});

await test('wrong arguments', async (page) => {
    const run = (body) => failure(page, `const session = await drift.Session.load('/bundles/first.drift'); const inputs = ${zeros}; const [name] = Object.keys(inputs); ${body}`);
    for (const [body, kind] of [
        ["await session.run('other', inputs)", 'NoSuchFunction'],
        ["await session.run('main', {})", 'Missing'],
        ["await session.run('main', { ...inputs, more: inputs[name] })", 'NoSuchName'],
        ["await session.run('main', { [name]: { shape: [1], data: new Float32Array(1) } })", 'WrongShape'],
        ["await session.run('main', { [name]: { ...inputs[name], data: new Float64Array(2) } })", 'WrongType'],
        ["await session.run('main', { [name]: { ...inputs[name], data: new Float32Array(2) } })", 'WrongLength'],
        ["await session.run('main', inputs, { outputs: ['none'] })", 'NoSuchName'],
        ["await session.readState('none')", 'NoSuchState'],
    ]) {
        assert.equal((await run(body)).kind, kind, body);
    }
});

await test('buffers go in and out on the device, in a worker too', async (page) => {
    const same = await page.evaluate(async (zeros) => {
        const session = await window.drift.Session.load('/bundles/first.drift');
        const inputs = new Function('session', `return ${zeros}`)(session);
        for (const { data } of Object.values(inputs)) data.forEach((_, index) => (data[index] = Math.sin(index)));
        const [name] = Object.keys(inputs);
        const [output] = session.outputs('main');
        const plain = await session.run('main', inputs);
        const { device } = session;
        const { shape, data } = inputs[name];
        const given = device.createBuffer({ size: data.byteLength, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
        device.queue.writeBuffer(given, 0, data);
        const into = device.createBuffer({ size: output.buffer.size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
        const nothing = await session.run('main', { [name]: { buffer: given, shape } }, { into: { [output.name]: { buffer: into } } });
        await into.mapAsync(GPUMapMode.READ);
        const got = new Float32Array(into.getMappedRange());
        const code = `
            import { Session } from '${location.origin}/dist/index.js';
            onmessage = async ({ data }) => {
                const session = await Session.load('${location.origin}/bundles/first.drift');
                const out = await session.run('main', { ['${name}']: data });
                postMessage(out['${output.name}'].data);
            };`;
        const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
        const fromWorker = await new Promise((done, failed) => {
            worker.onmessage = ({ data }) => done(data);
            worker.onerror = (event) => failed(new Error(event.message));
            worker.postMessage({ shape, data });
        });
        const want = plain[output.name].data;
        const equal = (other) => want.every((value, index) => value === other[index]);
        return [want.length > 0, want.some((value) => value !== 0), Object.keys(nothing).length === 0, equal(got), equal(fromWorker)];
    }, zeros);
    assert.deepEqual(same, [true, true, true, true, true]);
});

await test('a second visit fetches no weights, and a new version only changed sections', async (page) => {
    const visit = async (name) => {
        server.sent.clear();
        const stats = await page.evaluate(async (name) => {
            const session = await window.drift.Session.load(name);
            const { opened } = session.bundle;
            session.destroy();
            return { ...session.stats, opened };
        }, `/bundles/${name}`);
        // A request for several sections includes the gaps between them.
        const gaps = server.sent.get(`bundles/${name}`) - stats.fetched;
        assert.ok(gaps >= 0 && gaps < 4096, `${gaps} bytes were sent and not counted`);
        return stats;
    };
    const first = await visit('first.drift');
    assert.equal(first.cached, 0);
    const again = await visit('first.drift');
    assert.equal(again.fetched, again.opened);
    assert.equal(again.cached, first.fetched - first.opened);
    const next = await visit('second.drift');
    const changed = next.fetched - next.opened;
    const { chunks } = JSON.parse(readFileSync(`${folder}/changed.json`));
    assert.equal(changed, chunks, 'only changed sections are fetched');
    assert.ok(next.cached > changed, 'most sections come from the cache');
});

console.log(`web: ${passed} passed, ${process.exitCode ? 'some' : 0} failed, errors and cache`);
await browser.close();
server.close();
