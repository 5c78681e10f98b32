// Signatures of bundles in minisign's format. A file of its own, which `Session.load` imports only if there are trusted keys.
// The browser checks Ed25519; the package @noble/hashes computes BLAKE2b, which browsers lack.

import { blake2b } from '@noble/hashes/blake2.js';

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
    const hash = Uint8Array.from(blake2b(header));
    for (const { rest } of named) {
        const key = await importKey(rest);
        const signed = await crypto.subtle.verify(ED25519, key, signature.rest, hash);
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
