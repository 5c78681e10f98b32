// The tokenizer of BERT models, from the `tokenizer.json` that travels in a bundle.

const PUNCTUATION = /[\p{P}$+<=>^`|~]/u;

/** A function from text to ids, with the marks of beginning and end. */
export function wordpiece(bytes, longest) {
    const { vocab, unk_token: unknown } = JSON.parse(new TextDecoder().decode(bytes)).model;
    const ids = new Map(Object.entries(vocab));
    const pieces = (word) => {
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
        const apart = [...plain].map((c) => (PUNCTUATION.test(c) || /\p{Script=Han}/u.test(c) ? ` ${c} ` : c)).join('');
        const inner = apart.split(/\s+/).filter(Boolean).flatMap(pieces).slice(0, longest - 2);
        return [ids.get('[CLS]'), ...inner, ids.get('[SEP]')];
    };
}
