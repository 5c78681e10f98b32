// Runs two pretrained models in the page: one compares sentences, the other finds text in a picture.

import { Session } from './driftc-runtime.js';
import { wordpiece } from './wordpiece.js';

const LONGEST = 64;
const [WIDTH, HEIGHT] = [512, 256];
/** Ratio by which boxes of text are expanded, as in the detector's own post-processing. */
const UNCLIP = 1.5;
const SENTENCES = [
    'A kitten is napping in the sun.',
    'The satellite was carried into space this morning.',
    'Leave the dough in the oven until its crust is golden brown.',
    'Stock markets fell sharply today.',
    'He has been learning the cello since he was six.',
    'A shader is a program that runs on a GPU.',
];
const $ = (id) => document.getElementById(id);
const kib = (bytes) => (bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);
/** Measured numbers of each model, which tests read. */
const facts = (window.facts = {});

function show(model, values) {
    const shown = (facts[model] = { ...facts[model], ...values });
    const row = $(`${model}-row`);
    const cells = [shown.loadMs?.toFixed(0), shown.runMs?.toFixed(1), shown.fetched !== undefined && kib(shown.fetched), shown.cached !== undefined && kib(shown.cached)];
    cells.forEach((cell, index) => (row.cells[index + 1].textContent = cell ?? ''));
}

async function load(model) {
    const cell = $(`${model}-row`).cells[5];
    const shown = [];
    // Fetching and compiling overlap, so the percentage counts both. 100 % means that the model is ready.
    const progress = ({ done, total, created, pipelines }) => {
        const percent = Math.floor(50 * (done / (total || 1) + created / (pipelines || 1)));
        shown.push({ phase: done < total ? 'fetching' : 'compiling shaders', percent });
        cell.textContent = `${shown.at(-1).phase} ${percent} %`;
    };
    const session = await Session.load(`./${model}.drift`, { progress });
    cell.textContent = 'ready';
    show(model, { progress: shown });
    show(model, session.stats);
    return session;
}

async function timed(model, session, inputs, outputs) {
    const start = performance.now();
    const out = await session.run('main', inputs, { outputs });
    show(model, { runMs: performance.now() - start });
    return out;
}

async function sentences() {
    const session = await load('minilm');
    const encode = wordpiece(await session.bundle.attachment('tokenizer.json'), LONGEST);
    const embed = async (text) => {
        const ids = encode(text);
        const array = (value) => ({ shape: [1, ids.length], data: BigInt64Array.from(ids, (id) => BigInt(value ?? id)) });
        const inputs = { input_ids: array(), attention_mask: array(1), token_type_ids: array(0) };
        return (await timed('minilm', session, inputs, ['sentence_embedding'])).sentence_embedding.data;
    };
    const known = [];
    for (const text of SENTENCES) known.push({ text, vector: await embed(text) });
    let latest = 0;
    const compare = async () => {
        const turn = ++latest;
        const vector = await embed($('sentence').value);
        // Ignore results for text that has changed since.
        if (turn !== latest) return;
        const scored = known.map(({ text, vector: other }) => ({ text, score: vector.reduce((sum, v, i) => sum + v * other[i], 0) }));
        scored.sort((a, b) => b.score - a.score);
        facts.minilm.scores = scored;
        $('scores').replaceChildren(
            ...scored.map(({ text, score }) => {
                const row = document.createElement('li');
                const bar = document.createElement('meter');
                bar.value = Math.max(score, 0);
                row.append(bar, ` ${score.toFixed(2)} ${text}`);
                return row;
            }),
        );
    };
    $('sentence').addEventListener('input', compare);
    await compare();
}

/** Draws the initial picture, which contains words. Returns the extents of the words in pixels. */
function paint(context) {
    const sky = context.createLinearGradient(0, 0, WIDTH, HEIGHT);
    sky.addColorStop(0, '#e8f0ff');
    sky.addColorStop(1, '#c8e0c0');
    context.fillStyle = sky;
    context.fillRect(0, 0, WIDTH, HEIGHT);
    context.fillStyle = '#203040';
    const lines = [['36px sans-serif', 'One bundle', 40, 70], ['28px serif', 'runs everywhere', 240, 200]];
    return lines.map(([font, text, x, y]) => {
        context.font = font;
        context.fillText(text, x, y);
        const measured = context.measureText(text);
        const [left, right] = [x - measured.actualBoundingBoxLeft, x + measured.actualBoundingBoxRight];
        return { left, right, top: y - measured.actualBoundingBoxAscent, bottom: y + measured.actualBoundingBoxDescent };
    });
}

/** Returns the bounding boxes of connected marked pixels. */
function boxes(marked, width, height) {
    const seen = new Uint8Array(marked.length);
    const found = [];
    for (let start = 0; start < marked.length; start++) {
        if (!marked[start] || seen[start]) continue;
        const box = { left: width, top: height, right: 0, bottom: 0, size: 0 };
        const stack = [start];
        seen[start] = 1;
        while (stack.length) {
            const at = stack.pop();
            const [x, y] = [at % width, Math.floor(at / width)];
            box.left = Math.min(box.left, x);
            box.right = Math.max(box.right, x);
            box.top = Math.min(box.top, y);
            box.bottom = Math.max(box.bottom, y);
            box.size++;
            for (const next of [x > 0 && at - 1, x < width - 1 && at + 1, at - width, at + width]) {
                if (next !== false && marked[next] && !seen[next]) {
                    seen[next] = 1;
                    stack.push(next);
                }
            }
        }
        if (box.size > 50) found.push(box);
    }
    return found;
}

/**
 * Expands a box on every side by its area times `ratio` divided by its perimeter, up to the edges of the picture. The detector is
 * trained to mark the middle of each line of text, shrunk by this rule.
 */
function expand({ left, top, right, bottom }, ratio, width, height) {
    const [w, h] = [right - left + 1, bottom - top + 1];
    const by = Math.round((w * h * ratio) / (2 * (w + h)));
    return { left: Math.max(left - by, 0), top: Math.max(top - by, 0), right: Math.min(right + by, width - 1), bottom: Math.min(bottom + by, height - 1) };
}

async function pictures() {
    const session = await load('text');
    const canvas = $('picture');
    const context = canvas.getContext('2d', { willReadFrequently: true });
    const [input] = session.inputs('main');
    const [output] = session.outputs('main');
    const look = async () => {
        const { data } = context.getImageData(0, 0, WIDTH, HEIGHT);
        const plane = WIDTH * HEIGHT;
        const pixels = new Float32Array(3 * plane);
        // Channels in the order blue, green, red; values from -1 to 1.
        for (let i = 0; i < plane; i++) for (let c = 0; c < 3; c++) pixels[c * plane + i] = data[4 * i + 2 - c] / 127.5 - 1;
        const out = await timed('text', session, { [input.name]: { shape: [1, 3, HEIGHT, WIDTH], data: pixels } });
        const marked = boxes(out[output.name].data.map((p) => Number(p > 0.3)), WIDTH, HEIGHT);
        const found = marked.map((box) => expand(box, UNCLIP, WIDTH, HEIGHT));
        facts.text.boxes = found;
        context.strokeStyle = '#d03020';
        context.lineWidth = 2;
        for (const { left, top, right, bottom } of found) context.strokeRect(left, top, right - left + 1, bottom - top + 1);
        $('found').textContent = `${found.length} lines of text found`;
    };
    $('file').addEventListener('change', async () => {
        const bitmap = await createImageBitmap($('file').files[0]);
        const scale = Math.min(WIDTH / bitmap.width, HEIGHT / bitmap.height);
        context.clearRect(0, 0, WIDTH, HEIGHT);
        context.drawImage(bitmap, 0, 0, bitmap.width * scale, bitmap.height * scale);
        await look();
    });
    facts.text.painted = paint(context);
    await look();
}

try {
    await sentences();
    await pictures();
    document.body.dataset.state = 'ready';
} catch (error) {
    $('problem').textContent = error.message;
    document.body.dataset.state = 'failed';
}
