#!/bin/sh
# runner.sh PROGRAM ARGUMENTS: what cargo starts the programs of tests with. Those named here spend their time in the software
# driver's compiler and start no other program: they run on the newer Mesa that tests/setup.sh unpacked, whose compiler takes
# half as long and which has cooperative matrices. That compiler does not optimize there: most shaders run once, for a moment.
# All others, and these too with DRIFT_SYSTEM_DRIVER set, run on the system's.
case ${1##*/} in
functions-* | generation-* | generator-* | kernels-* | language-* | onnx_nodes-* | quantized-* | sharing-*)
    if [ -n "${DRIFT_NEWER_MESA:-}" ] && [ -z "${DRIFT_SYSTEM_DRIVER:-}${DRIFT_TEST_DEVICE:-}" ]; then
        GALLIVM_PERF=${GALLIVM_PERF-nopt} exec "$DRIFT_NEWER_MESA" "$@"
    fi
    ;;
esac
exec "$@"
