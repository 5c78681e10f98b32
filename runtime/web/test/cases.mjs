// Runs bundles on a device and compares their outputs with expected arrays, in browsers, Node and Deno.

const ARRAYS = {
    f32: Float32Array, f16: Uint16Array, bf16: Uint16Array, f64: Float64Array, i8: Int8Array, i16: Int16Array,
    i32: Int32Array, i64: BigInt64Array, u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array,
    bool: Uint8Array,
};
const NPY = {
    f4: 'f32', f2: 'f16', f8: 'f64', i1: 'i8', i2: 'i16', i4: 'i32', i8: 'i64', u1: 'u8', u2: 'u16', u4: 'u32',
    u8: 'u64', b1: 'bool',
};

/** Reads a `.npy` file. */
export function npy(buffer) {
    const length = new DataView(buffer).getUint16(8, true);
    const header = new TextDecoder().decode(new Uint8Array(buffer, 10, length));
    const type = NPY[/'descr': '[<|=](..)'/.exec(header)[1]];
    const shape = /'shape': \(([^)]*)\)/.exec(header)[1].split(',').filter((dim) => dim.trim()).map(Number);
    return { type, shape, data: new ARRAYS[type](buffer.slice(10 + length)) };
}

const fromF16 = (bits) => {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return bits & 0x8000 ? -size : size;
};
const fromBf16 = (bits) => new Float32Array(new Uint32Array([bits << 16]).buffer)[0];

const floats = ({ type, data }) =>
    type === 'f16' ? Float64Array.from(data, fromF16)
    : type === 'bf16' ? Float64Array.from(data, fromBf16)
    : type === 'f32' || type === 'f64' ? data : undefined;

/** Describes how a result differs from the expected array, or returns `undefined`. */
export function difference(name, got, want, { relative, absolute }) {
    if (got.type !== want.type || got.shape.join() !== want.shape.join()) {
        return `${name}: ${got.type}[${got.shape}], expected ${want.type}[${want.shape}]`;
    }
    const [a, b] = [floats(got), floats(want)];
    if (!a) {
        const wrong = got.data.findIndex((value, index) => value !== want.data[index]);
        return wrong < 0 ? undefined : `${name}: element ${wrong} is ${got.data[wrong]}, expected ${want.data[wrong]}`;
    }
    let largest = 0;
    for (const value of b) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value));
    let worst = -1;
    let largestError = 1;
    for (let i = 0; i < b.length; i++) {
        if (a[i] === b[i] || (Number.isNaN(a[i]) && Number.isNaN(b[i]))) continue;
        const error = Math.abs(a[i] - b[i]) / Math.max(relative * Math.abs(b[i]) + absolute * largest, 1e-38);
        if (!(error <= largestError)) [worst, largestError] = [i, error];
        if (Number.isNaN(error)) break;
    }
    return worst < 0 ? undefined : `${name}: element ${worst} of ${b.length} is ${a[worst]}, expected ${b[worst]} (${largestError.toFixed(1)} times the tolerance)`;
}

/** Reads the arrays of a run, from one file with all arrays or from `.npy` files. */
async function arrays(run, list, read) {
    if (typeof list[0] === 'string') return Promise.all(list.map(async (path) => npy(await read(path))));
    const bytes = await read(run.data);
    return list.map(({ name, type, shape, offset, bytes: size }) => {
        const data = new ARRAYS[type](bytes.slice(offset, offset + size));
        return { name, type, shape, data };
    });
}

/** Runs one case. Returns a description of the failure, or `undefined`. */
export async function runCase(drift, test, { read, open, device }) {
    const session = await drift.Session.load(await open(test.bundle), { device, cache: false });
    try {
        const { inputs, outputs } = { inputs: session.inputs('main'), outputs: session.outputs('main') };
        for (const run of test.runs) {
            const given = await arrays(run, run.inputs, read);
            const want = await arrays(run, run.outputs, read);
            const named = Object.fromEntries(given.map((array, index) => [array.name ?? inputs[index].name, array]));
            const symbols = Object.fromEntries(Object.entries(run.symbols ?? {}));
            // Only symbols that no input shape determines need a value.
            const got = await session.run('main', named, { symbols });
            for (const [index, array] of want.entries()) {
                const name = array.name ?? outputs[index].name;
                const wrong = difference(name, got[name], array, test);
                if (wrong) return wrong;
            }
        }
    } finally {
        session.destroy();
    }
    return undefined;
}

/** Runs cases, up to `parallel` at a time, and reports each. */
export async function runAll(drift, tests, host, report, parallel = 4) {
    const left = tests.values();
    const worker = async () => {
        for (const test of left) {
            let wrong;
            try {
                wrong = await runCase(drift, test, host);
            } catch (error) {
                wrong = `${error?.kind ?? ''} ${error?.message ?? error}`.trim();
            }
            report(test.name, wrong);
        }
    };
    await Promise.all(Array.from({ length: parallel }, worker));
}
