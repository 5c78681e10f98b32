// Every way in which opening, loading or running a bundle can fail, as one class. A message names the place, the
// reason and what to do about it; `kind` tells programs which failure it is.

export type Kind =
    | 'Io' | 'NoRange' | 'NotABundle' | 'Version' | 'Corrupt' | 'Invalid'
    | 'NoWebGpu' | 'NoAdapter' | 'NoSuchTarget' | 'Unmet' | 'DeviceLost' | 'OutOfMemory' | 'Gpu'
    | 'NoSuchFunction' | 'NoSuchName' | 'NoSuchState' | 'Missing' | 'WrongType' | 'WrongShape' | 'OutOfBounds'
    | 'SymbolOutOfBounds' | 'WrongLength' | 'ValueOutOfRange' | 'Expression' | 'TooLarge';

export class DriftError extends Error {
    override readonly name = 'DriftError';

    constructor(readonly kind: Kind, message: string, options?: ErrorOptions) {
        super(message, options);
    }
}

/** Throws; an expression, so that it can stand behind `??`. */
export function fail(kind: Kind, message: string, cause?: unknown): never {
    throw new DriftError(kind, message, cause === undefined ? undefined : { cause });
}

export const corrupt = (section: string, at: number, reason: string): never =>
    fail('Corrupt', `corrupt bundle, ${section} at byte ${at}: ${reason}; fetch or compile the bundle again`);

/** Names in a message. */
export const list = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(', ') || 'none';

export const text = (error: unknown): string => (error instanceof Error ? error.message : String(error));
