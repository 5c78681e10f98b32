// WordPiece tokenizer of BERT models, from the `tokenizer.json` in a bundle.

const PUNCTUATION = /[\p{P}$+<=>^`|~]/u;

/** Returns a function that converts text to token ids, with [CLS] and [SEP]. */
export function wordpiece(bytes, maxTokens) {
    const { vocab, unk_token: unknown } = JSON.parse(new TextDecoder().decode(bytes)).model;
    const ids = new Map(Object.entries(vocab));
    const tokenize = (word) => {
        const out = [];
        const letters = [...word];
        for (let start = 0; start < letters.length; ) {
            let end = letters.length;
            let found;
            for (; end > start && found === undefined; end--) {
                found = ids.get((start ? '##' : '') + letters.slice(start, end).join(''));
            }
            if (found === undefined) return [ids.get(unknown)];
            out.push(found);
            start = end + 1;
        }
        return out;
    };
    return (text) => {
        const plain = text.toLowerCase().normalize('NFD').replace(/\p{Mn}/gu, '');
        const spaced = [...plain].map((c) => (PUNCTUATION.test(c) || /\p{Script=Han}/u.test(c) ? ` ${c} ` : c)).join('');
        const tokens = spaced.split(/\s+/).filter(Boolean).flatMap(tokenize).slice(0, maxTokens - 2);
        return [ids.get('[CLS]'), ...tokens, ids.get('[SEP]')];
    };
}
