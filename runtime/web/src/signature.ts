// Signatures of bundles in minisign's format. A file of its own, which `Session.load` imports only if there are trusted keys.

/** A public key or a signature: its key id and the bytes behind the id. */
interface Keyed {
    id: string;
    rest: Uint8Array<ArrayBuffer>;
}

const PUBLIC_DIGITS = 56;
const SECRET_DIGITS = 212;
const ED25519 = 'Ed25519';

/** A bundle is not trusted, or a key is invalid. */
export class Untrusted extends Error {}

/**
 * Checks that one of the keys signed the header of a bundle. Returns the id of the key.
 * @param text signature behind the manifest; empty if the bundle is not signed.
 */
export async function checkSignature(text: string, header: Uint8Array, keys: readonly string[]): Promise<string> {
    const trusted = keys.map(publicKey);
    const ids = trusted.map((key) => key.id).join(' ') || 'none';
    const foreign = (found: string) =>
        new Untrusted(`${found}, but trusted keys are: ${ids}; get a bundle that a trusted key signed`);
    if (!text) throw foreign('it is not signed');
    const lines = text.split('\n');
    const signature = keyed(lines[1] ?? '', 'ED', 74);
    const global = base64(lines[3] ?? '');
    const comment = lines[2]?.startsWith('trusted comment: ') ? lines[2].slice(17) : undefined;
    const complete = lines.length === 5 && lines[4] === '' && lines[0]!.startsWith('untrusted comment: ');
    if (!complete || !signature || global?.length !== 64 || comment === undefined) {
        throw new Untrusted('the bytes behind its manifest are no minisign signature; fetch the bundle again');
    }
    const named = trusted.filter((key) => key.id === signature.id);
    if (!named.length) throw foreign(`key ${signature.id} signed it`);
    const commented = new Uint8Array([...signature.rest, ...new TextEncoder().encode(comment)]);
    for (const { rest } of named) {
        const key = await importKey(rest);
        const signed = await crypto.subtle.verify(ED25519, key, signature.rest, blake2b(header));
        if (signed && (await crypto.subtle.verify(ED25519, key, global, commented))) return signature.id;
    }
    throw new Untrusted(`the signature of key ${signature.id} does not match it; fetch the bundle again`);
}

async function importKey(bytes: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
    try {
        return await crypto.subtle.importKey('raw', bytes, ED25519, false, ['verify']);
    } catch {
        throw new Untrusted('this browser cannot check signatures (Ed25519 in a secure context); use https and a newer browser');
    }
}

function publicKey(text: string, index: number): Keyed {
    const lines = text.split('\n').map((line) => line.trim()).filter((line) => line && !line.startsWith('untrusted comment:'));
    const line = lines.length === 1 ? lines[0]! : '';
    const fail = (reason: string) => new Untrusted(`trusted key ${index + 1}: ${reason}`);
    if (line.length === SECRET_DIGITS) throw fail('it is a secret key; give the public key, and keep the secret key secret');
    const key = line.length === PUBLIC_DIGITS ? (keyed(line, 'Ed', 42) ?? keyed(line, 'ED', 42)) : undefined;
    if (!key) throw fail('it is no minisign public key, which is one base64 line of 56 characters');
    return key;
}

/** Reads a base64 line: the algorithm, the key id and the rest. */
function keyed(line: string, algorithm: string, size: number): Keyed | undefined {
    const bytes = base64(line);
    if (bytes?.length !== size || String.fromCharCode(bytes[0]!, bytes[1]!) !== algorithm) return undefined;
    const id = Array.from(bytes.slice(2, 10).reverse(), (byte) => byte.toString(16).padStart(2, '0'));
    return { id: id.join('').toUpperCase(), rest: bytes.slice(10) };
}

function base64(line: string): Uint8Array<ArrayBuffer> | undefined {
    try {
        return Uint8Array.from(atob(line), (char) => char.charCodeAt(0));
    } catch {
        return undefined;
    }
}

const IV = [
    0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
    0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
/** Message words of each of the first ten rounds, as hexadecimal digits, the first word first. */
const SIGMA = [
    0x0123456789abcdefn, 0xea489fd61c02b753n, 0xb8c052fdae367194n, 0x7931dcbe265a40f8n, 0x905724afe1bc683dn,
    0x2c6a0b834d75fe19n, 0xc51fed4a0763928bn, 0xdb7ec13950f4862an, 0x6fe9b308c2d714a5n, 0xa2847615fb9e3cd0n,
];

/** BLAKE2b-512 of one block of 128 bytes, the size of a bundle's header. */
function blake2b(block: Uint8Array): Uint8Array<ArrayBuffer> {
    const view = new DataView(block.buffer, block.byteOffset, 128);
    const m = Array.from({ length: 16 }, (_, i) => view.getBigUint64(8 * i, true));
    const h = IV.map((word, i) => (i ? word : word ^ 0x01010040n));
    const v = [...h, ...IV];
    v[12]! ^= 128n;
    v[14]! = BigInt.asUintN(64, ~v[14]!);
    const rotate = (x: bigint, n: bigint) => BigInt.asUintN(64, (x >> n) | (x << (64n - n)));
    const mix = (a: number, b: number, c: number, d: number, x: bigint, y: bigint) => {
        for (const [word, first, second] of [[x, 32n, 24n], [y, 16n, 63n]] as const) {
            v[a] = BigInt.asUintN(64, v[a]! + v[b]! + word);
            v[d] = rotate(v[d]! ^ v[a]!, first);
            v[c] = BigInt.asUintN(64, v[c]! + v[d]!);
            v[b] = rotate(v[b]! ^ v[c]!, second);
        }
    };
    for (let round = 0; round < 12; round++) {
        const word = (i: number) => m[Number((SIGMA[round % 10]! >> BigInt(60 - 4 * i)) & 15n)]!;
        for (let i = 0; i < 4; i++) mix(i, i + 4, i + 8, i + 12, word(2 * i), word(2 * i + 1));
        for (let i = 0; i < 4; i++) mix(i, ((i + 1) % 4) + 4, ((i + 2) % 4) + 8, ((i + 3) % 4) + 12, word(8 + 2 * i), word(9 + 2 * i));
    }
    const out = new DataView(new ArrayBuffer(64));
    h.forEach((word, i) => out.setBigUint64(8 * i, word ^ v[i]! ^ v[i + 8]!, true));
    return new Uint8Array(out.buffer);
}
