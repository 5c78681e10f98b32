#!/usr/bin/env bash
# Prints what embedding the runtime costs, and fails when it costs more than the budget.
set -euo pipefail

program=$1
budget=$2
bytes=$(stat -c %s "$program")

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
echo "$program: $bytes bytes of at most $budget"
[ "$bytes" -le "$budget" ] || { echo "size: the runtime is over its budget" >&2; exit 1; }
