// The error class of this package. A message names the place, the reason and the remedy; `kind` identifies the failure for
// programs.

export type Kind =
    | 'Io' | 'NoRange' | 'NotABundle' | 'Version' | 'Corrupt' | 'Invalid' | 'Untrusted' | 'SelfTest'
    | 'NoWebGpu' | 'NoAdapter' | 'NoSuchTarget' | 'Unmet' | 'DeviceLost' | 'OutOfMemory' | 'Gpu'
    | 'NoSuchFunction' | 'NoSuchName' | 'NoSuchState' | 'Missing' | 'WrongType' | 'WrongShape' | 'OutOfBounds'
    | 'SymbolOutOfBounds' | 'WrongLength' | 'ValueOutOfRange' | 'Expression' | 'TooLarge';

export class DriftError extends Error {
    override readonly name = 'DriftError';

    constructor(readonly kind: Kind, message: string, options?: ErrorOptions) {
        super(message, options);
    }
}

/** Throws an error. The function has a result type, so that a call can stand after `??`. */
export function fail(kind: Kind, message: string, cause?: unknown): never {
    throw new DriftError(kind, message, cause === undefined ? undefined : { cause });
}

export const corrupt = (section: string, at: number, reason: string): never =>
    fail('Corrupt', `corrupt bundle, ${section} at byte ${at}: ${reason}; fetch or compile the bundle again`);

/** Formats names for a message. */
export const quoteList = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(', ') || 'none';

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
