#!/usr/bin/env bash
# Compiles the Kotlin interface and its test, and runs the test. Usage: test.sh TARGET_DIR BUNDLE. The bundle must compute
# y = x + x with 2 x 2 floats. Needs the variables of TARGET_DIR/setup/env. kotlinc comes from PATH, or from the npm package
# kotlin-compiler; JNA from Debian (libjna-java).
set -euo pipefail

target=$(realpath -m "$1")
bundle=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
jna=/usr/share/java/jna.jar
[ -f "$jna" ] || { echo "kotlin: JNA is missing; run apt-get install libjna-java libjna-jni default-jdk-headless" >&2; exit 1; }
kotlinc=$(command -v kotlinc || true)
if [ -z "$kotlinc" ]; then
    kotlinc=$target/kotlin/node_modules/kotlin-compiler/bin/kotlinc
    [ -x "$kotlinc" ] || { npm install --silent --prefix "$target/kotlin" kotlin-compiler@2.4.20; chmod +x "$kotlinc"; }
fi
mkdir -p "$target/kotlin"
# Without the features of the tests, cargo builds all crates again.
read -ra features <<<"${DRIFT_TEST_FEATURES:-}"
cargo build --quiet --workspace "${features[@]}" --lib --bin change-weight
tested=$here/../../tests/golden_bundles/1.5/four_apis.drift
"$target/debug/change-weight" "$tested" "$target/kotlin/changed.drift"
"$kotlinc" -nowarn -classpath "$jna" -include-runtime -d "$target/kotlin/drift.jar" "$here/src"
java -Djna.library.path="$target/debug" -classpath "$target/kotlin/drift.jar:$jna" TestKt "$bundle" "$tested" "$target/kotlin/changed.drift"
