#!/usr/bin/env bash
# Prints what embedding the runtime costs, and fails when it costs more than the budget.
# size.sh BUDGET PROGRAM ...: each program has what the one before it has, and one part more.
set -euo pipefail

budget=$1
shift

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
before=0
for program in "$@"; do
    bytes=$(stat -c %s "$program")
    echo "$program: $bytes bytes of at most $budget, $((bytes - before)) more than the one before"
    [ "$bytes" -le "$budget" ] || { echo "size: the runtime is over its budget" >&2; exit 1; }
    before=$bytes
done
