// Self-test vectors of a bundle: generates their inputs, and compares outputs with the outputs of the CPU reference. A file of its
// own, which `Session.selfTest` imports.

import { elementBytes, fromDevice, toDevice, type TypedArray } from './convert.js';
import type { Func, HostType } from './decode.js';
import type { fail as failure } from './errors.js';
import { f64, Fault, i64, listOf, Reader, struct, text, u64, type Decoded, type Decoder } from './reader.js';
import type { Tensor } from './session.js';

/** Maximum bytes of the attachment. */
const LIMIT = 1 << 20;
/** Maximum number of compared elements of an output. */
const SAMPLES = 4096;
/** Maximum ratio of the size of an element in a caller's array to its size on the device: f64 to f16. */
const HOST_RATIO = 4;

const u64big: Decoder<bigint> = (reader) => {
    const [high, low] = reader.wide();
    return (BigInt(high) << 32n) | BigInt(low);
};
const vectors = listOf(struct({
    function: text, seed: u64big, relative: f64, absolute: f64,
    symbols: listOf((reader) => [text(reader), i64(reader)] as const),
    inputs: listOf(struct({ name: text, shape: listOf(u64), integers: u64big })),
    outputs: listOf(struct({ name: text, elements: u64, mean: f64, rms: f64, largest: f64, samples: listOf(f64) })),
}));
type Vector = Decoded<typeof vectors>[number];
type TestInput = Vector['inputs'][number];
type TestOutput = Vector['outputs'][number];

/** Operations of the session whose bundle is tested. */
export interface Tested {
    find(name: string): Func;
    reset(): void;
    run(
        name: string,
        inputs: Record<string, { data: TypedArray; shape: number[] }>,
        options: { symbols: Record<string, number>; outputs: string[] },
    ): Promise<Record<string, Tensor>>;
    fail: typeof failure;
}

/** Random numbers of 32 bits (xorshift64*). */
function generator(seed: bigint): () => number {
    const wrap = (value: bigint) => BigInt.asUintN(64, value);
    let state = wrap(seed * 0x9e3779b97f4a7c15n) | 1n;
    return () => {
        state ^= state >> 12n;
        state ^= wrap(state << 25n);
        state ^= state >> 27n;
        return Number(wrap(state * 0x2545f4914f6cdd1dn) >> 32n);
    };
}

/** Generates the elements of an input. */
function generate(type: HostType, count: number, integers: bigint, seed: bigint): TypedArray {
    const draw = generator(seed);
    if (type.includes('f')) {
        const floats = Float32Array.from({ length: count }, () => ((draw() % 256) - 128) / 128);
        return fromDevice('f32', floats.buffer, type, count);
    }
    const most = integers > 1n ? integers : 1n;
    const values = Array.from({ length: count }, () => 1n + (BigInt(draw()) % most));
    if (type === 'bool') return new Uint8Array(count).fill(1);
    const wide = BigUint64Array.from(values);
    if (type === 'u64') return wide;
    if (type === 'i64') return new BigInt64Array(wide.buffer);
    return fromDevice('u32', Uint32Array.from(values, (value) => Number(BigInt.asUintN(32, value))).buffer, type, count);
}

/** Positions of the compared elements. */
function positions(elements: number, count: number, seed: bigint): number[] {
    const draw = generator(seed);
    if (elements <= count) return Array.from({ length: elements }, (_, index) => index);
    return Array.from({ length: count }, () => draw() % elements);
}

/** Runs the vectors, and returns their number. */
export async function selfTest(bytes: Uint8Array, session: Tested): Promise<number> {
    const tests = decode(bytes, session);
    for (const [index, vector] of tests.entries()) {
        const inputs: Record<string, { data: TypedArray; shape: number[] }> = {};
        const func = session.find(vector.function);
        vector.inputs.forEach((input, position) => {
            const seed = BigInt.asUintN(64, vector.seed * 1000n + BigInt(position));
            inputs[input.name] = testInput(session, func, `self-test ${index + 1}, input \`${input.name}\``, input, seed);
        });
        session.reset();
        const outputs = vector.outputs.map((output) => output.name);
        const symbols = Object.fromEntries(vector.symbols);
        const got = await session.run(vector.function, inputs, { symbols, outputs }).finally(() => session.reset());
        for (const expected of vector.outputs) {
            const wrong = difference(vector, expected, got[expected.name]!);
            if (wrong === undefined) continue;
            session.fail(
                'SelfTest',
                `self-test ${index + 1}: output \`${expected.name}\` of function \`${vector.function}\` differs from the CPU ` +
                    `reference: ${wrong}; fetch the bundle again, or update the browser or the device's driver`,
            );
        }
    }
    return tests.length;
}

function decode(bytes: Uint8Array, { fail }: Tested): Vector[] {
    const reader = new Reader(bytes);
    try {
        const found = vectors(reader);
        if (!reader.left && bytes.length <= LIMIT) return found;
    } catch (error) {
        if (!(error instanceof Fault)) throw error;
    }
    return fail('Invalid', 'invalid bundle, self-test: the attachment is damaged; compile the model again');
}

function testInput(session: Tested, func: Func, place: string, input: TestInput, seed: bigint) {
    const invalid = (reason: string) => session.fail('Invalid', `invalid bundle, ${place}: ${reason}`);
    const port = func.inputs.find((port) => port.name === input.name) ?? invalid('the function has no such input');
    const count = input.shape.reduce((product, size) => product * size, 1);
    const size = func.slots[port.slot]!.size * HOST_RATIO;
    // The comparison is false for NaN, the product of 0 and a size above 2^53.
    if (!(count * elementBytes(port.host_type) <= size)) invalid('the shape is too large');
    return { data: generate(port.host_type, count, input.integers, seed), shape: input.shape };
}

/** Describes how an output differs from the expected one, or returns `undefined`. */
function difference(vector: Vector, expected: TestOutput, got: Tensor): string | undefined {
    const values = numbers(got);
    if (values.length !== expected.elements) return `it has ${values.length} elements instead of ${expected.elements}`;
    const differs = (got: number, want: number) => {
        const tolerance = vector.relative * Math.abs(want) + vector.absolute * expected.largest;
        const equal = got === want || (Number.isNaN(got) && Number.isNaN(want)) || Math.abs(got - want) <= tolerance;
        return equal ? undefined : `${got.toExponential(6)} instead of ${want.toExponential(6)}, tolerance ${tolerance.toExponential(1)}`;
    };
    const at = positions(expected.elements, Math.min(expected.samples.length, SAMPLES), vector.seed);
    for (const [index, position] of at.entries()) {
        const wrong = differs(values[position]!, expected.samples[index]!);
        if (wrong) return `element ${position} is ${wrong}`;
    }
    if (![expected.mean, expected.rms, expected.largest].every(Number.isFinite)) return undefined;
    const found = statistics(values);
    for (const name of ['mean', 'rms', 'largest'] as const) {
        const wrong = differs(found[name], expected[name]);
        if (wrong) return `the value \`${name}\` of its elements is ${wrong}`;
    }
    return undefined;
}

function statistics(values: readonly number[]) {
    let [sum, squares, largest] = [0, 0, 0];
    for (const value of values) {
        sum += value;
        squares += value * value;
        if (Math.abs(value) > largest) largest = Math.abs(value);
    }
    const count = values.length || 1;
    return { mean: sum / count, rms: Math.sqrt(squares / count), largest };
}

/** Returns the elements of a tensor as numbers. Arrays of f16 and bf16 hold the bits. */
function numbers({ type, data }: Tensor): number[] {
    if (type !== 'f16' && type !== 'bf16') return Array.from(data as ArrayLike<number | bigint>, Number);
    const bytes = toDevice(type, data, 'f32', '');
    return Array.from(new Float32Array(bytes.buffer, bytes.byteOffset, data.length));
}
