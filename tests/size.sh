#!/usr/bin/env bash
# Prints the crates and lines of the runtime, and the sizes of files. Fails if a file is larger than its budget.
# Usage: size.sh FILE BUDGET [FILE BUDGET ...]. Budgets are in bytes.
set -euo pipefail

echo "Crates of the runtime:"
cargo tree -p drift-runtime -e normal --locked
echo
echo "Lines, without blank ones:"
for folder in compiler/src compiler/cli runtime models tests benches; do
    for kind in rs wgsl; do
        lines=$(find "$folder" -path "*/fuzz/target" -prune -o -name "*.$kind" -exec cat {} + 2>/dev/null | grep -c '[^[:space:]]' || true)
        [ "$lines" -eq 0 ] || printf '%9d  %-13s %s\n' "$lines" "$folder" "$kind"
    done
done
echo
over=0
while [ $# -gt 0 ]; do
    bytes=$(stat -c %s "$1")
    echo "$1: $bytes bytes, budget $2"
    [ "$bytes" -le "$2" ] || { echo "size: $1 exceeds its budget; find what grew before you raise the budget" >&2; over=1; }
    shift 2
done
exit $over
