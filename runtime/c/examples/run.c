/* Runs `main` of a bundle with zeros as inputs, at the minimum shapes: run MODEL.drift. C99. */
#include "drift.h"
#include <stdio.h>
#include <string.h>

static const char *const FUNCTION = "main";

static int check(drift_Status status) {
    if (status == DRIFT_STATUS_OK) return 0;
    fprintf(stderr, "run: %s\n", drift_last_error());
    return 1;
}

int main(int argc, char **argv) {
    drift_Session session = {0};
    drift_Port port;
    drift_View view;
    size_t index, axis, size;
    void *memory;
    if (argc != 2) return fprintf(stderr, "usage: run MODEL.drift\n"), 1;
    if (check(drift_open(argv[1], NULL, &session))) return 1;
    printf("on %s, for %s\n", drift_device_name(session), drift_target(session));
    for (index = 0; drift_port(session, FUNCTION, DRIFT_DIRECTION_INPUT, index, &port) == DRIFT_STATUS_OK; index++) {
        if (check(drift_input(session, FUNCTION, port.name, port.min_shape, port.rank, &memory, &size))) return 1;
        memset(memory, 0, size);
    }
    if (check(drift_run(session, FUNCTION))) return 1;
    for (index = 0; drift_port(session, FUNCTION, DRIFT_DIRECTION_OUTPUT, index, &port) == DRIFT_STATUS_OK; index++) {
        if (check(drift_output(session, FUNCTION, port.name, &view))) return 1;
        printf("%s: shape", port.name);
        for (axis = 0; axis < view.rank; axis++) printf(" %lu", (unsigned long)view.shape[axis]);
        if (view.device_dtype == DRIFT_DTYPE_F32 && view.size >= sizeof(float))
            printf(", first value %g", (double)*(const float *)view.bytes);
        printf("\n");
    }
    return check(drift_close(session));
}
