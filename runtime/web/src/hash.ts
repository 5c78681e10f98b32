// BLAKE3 hash of bytes in memory: 32 bytes of output, no key.
//
// Words are read in the machine's byte order. WebGPU and typed arrays are little-endian on all supported machines.

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;
/** Index of the message word that each step of the seven rounds of BLAKE3 uses. */
const MESSAGE_ORDER: number[] = [...Array(16).keys()];
for (let r = 16; r < 112; r += 16) {
    [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8].forEach((from, i) => (MESSAGE_ORDER[r + i] = MESSAGE_ORDER[r - 16 + from]!));
}

const state = new Int32Array(16);

function mix(a: number, b: number, c: number, d: number, x: number, y: number): void {
    const v = state as any;
    v[a] += v[b] + x;
    let t = v[d] ^ v[a];
    v[c] += v[d] = (t << 16) | (t >>> 16);
    t = v[b] ^ v[c];
    v[a] += (v[b] = (t << 20) | (t >>> 12)) + y;
    t = v[d] ^ v[a];
    v[c] += v[d] = (t << 24) | (t >>> 8);
    t = v[b] ^ v[c];
    v[b] = (t << 25) | (t >>> 7);
}

/** Updates the chaining value `h` with a block of `length` bytes. */
function compress(h: Int32Array, m: any, at: number, counter: number, length: number, flags: number): void {
    state.set(h);
    state.set([IV[0]!, IV[1]!, IV[2]!, IV[3]!, counter, counter / 4294967296, length, flags], 8);
    for (let i = 0; i < 112; i += 16) {
        for (let k = 0; k < 8; k++) {
            const [x, y] = [m[at + MESSAGE_ORDER[i + 2 * k]!], m[at + MESSAGE_ORDER[i + 2 * k + 1]!]];
            const turn = k >> 2;
            mix(k & 3, 4 + ((k + turn) & 3), 8 + ((k + 2 * turn) & 3), 12 + ((k + 3 * turn) & 3), x, y);
        }
    }
    for (let i = 0; i < 8; i++) h[i] = state[i]! ^ state[i + 8]!;
}

type Words = Int32Array<ArrayBuffer>;

/** Returns the hash of bytes. */
export function blake3(bytes: Uint8Array): Uint8Array {
    const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
    const words = new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >> 2);
    const start = (): Words => Int32Array.from(IV);
    const tail = new Int32Array(16);
    const total = bytes.length;
    const chunks = Math.max(1, Math.ceil(total / 1024));
    // Roots of finished subtrees, largest first. Their sizes are the set bits of the number of chunks.
    const stack: Words[] = [];
    const join = (left: Words, right: Words, flags: number): Words => {
        const out = start();
        tail.set(left);
        tail.set(right, 8);
        compress(out, tail, 0, 0, 64, PARENT | flags);
        return out;
    };
    for (let chunk = 0; chunk < chunks; chunk++) {
        const from = chunk * 1024;
        const size = Math.min(1024, total - from);
        const blocks = Math.max(1, Math.ceil(size / 64));
        const h = start();
        for (let block = 0; block < blocks; block++) {
            const length = Math.min(64, size - block * 64);
            const last = block === blocks - 1;
            const flags =
                (block ? 0 : CHUNK_START) | (last ? CHUNK_END : 0) | (last && chunks === 1 ? ROOT : 0);
            const at = (from + block * 64) / 4;
            if (length === 64) {
                compress(h, words, at, chunk, 64, flags);
            } else {
                tail.fill(0);
                new Uint8Array(tail.buffer).set(aligned.subarray(at * 4, at * 4 + length));
                compress(h, tail, 0, chunk, length, flags);
            }
        }
        let root: Words = h;
        if (chunk < chunks - 1) {
            for (let done = chunk + 1; done % 2 === 0; done /= 2) root = join(stack.pop()!, root, 0);
        } else {
            while (stack.length) root = join(stack.pop()!, root, stack.length ? 0 : ROOT);
        }
        stack.push(root);
    }
    return new Uint8Array(stack[0]!.buffer);
}

export const hex = (bytes: Uint8Array): string => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

export const equalBytes = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((x, i) => x === b[i]);
