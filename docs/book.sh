#!/usr/bin/env bash
# book.sh TARGET_DIR: builds the site of the documents in TARGET_DIR/book with mdBook.
# The documents link each other and the sources across folders, so the book is built from a copy of the tracked tree.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${1:-target}")
mdbook=$(command -v mdbook || true)
if [ -z "$mdbook" ]; then
    mdbook=$target/tools/bin/mdbook
    [ -x "$mdbook" ] || "${CARGO:-cargo}" install --quiet --locked --root "$target/tools" mdbook@0.5.4
fi
source=$target/book-source
rm -rf "$source" "$target/book"
mkdir -p "$source/src"
# Pages and the files that they link to; weights and recorded tensors stay out.
files=('*.md' '*.svg' '*.rs' '*.toml' '*.h' '*.c' '*.cpp' '*.kt' '*.swift' '*.py' '*.txt' 'LICENSE-*')
git ls-files -z -co --exclude-standard -- "${files[@]}" | while IFS= read -r -d '' file; do
    [ ! -f "$file" ] || cp --parents -t "$source/src" "$file"
done
# The pages of the log are chapters below the figures.
while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line == *benches/README.md* ]] || continue
    for page in "$source"/src/benches/log/*-*-*-*.md; do
        printf '    - [%s](benches/log/%s)\n' "$(basename "$page" .md)" "$(basename "$page")"
    done
done <"$source/src/docs/SUMMARY.md" >"$source/src/SUMMARY.md"
rm "$source/src/docs/SUMMARY.md"
# mdBook writes README.md as index.html but does not change links to it.
for folder in benches targets; do
    mv "$source/src/$folder/README.md" "$source/src/$folder/index.md"
    grep -rlZ --include='*.md' "$folder/README.md" "$source/src" | xargs -0 sed -i "s#$folder/README.md#$folder/index.md#g"
done
printf '[book]\ntitle = "driftc"\nlanguage = "en"\n[build]\nbuild-dir = "../book"\n' >"$source/book.toml"
"$mdbook" build "$source"
echo "book: $target/book/index.html"
