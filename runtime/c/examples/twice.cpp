// Runs `main` of a bundle twice: twice MODEL.drift VALUE. The input and the output must have the same shape. The output of
// the first run is the input of the second run and stays in device memory. C++11.
#include "drift.h"
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace {
void check(drift_Status status) {
    if (status != DRIFT_STATUS_OK) throw std::runtime_error(drift_last_error());
}

struct Session {
    drift_Session handle{};
    explicit Session(const char *path) { check(drift_open(path, nullptr, &handle)); }
    ~Session() { drift_close(handle); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
};

void run(const char *path, float value) {
    Session session(path);
    drift_Port input, output;
    check(drift_port(session.handle, "main", DRIFT_DIRECTION_INPUT, 0, &input));
    check(drift_port(session.handle, "main", DRIFT_DIRECTION_OUTPUT, 0, &output));
    std::size_t count = 1;
    for (std::size_t axis = 0; axis < input.rank; axis++) count *= input.min_shape[axis];
    std::vector<float> values(count, value);
    check(drift_write(session.handle, "main", input.name, input.dtype, input.min_shape, input.rank, values.data(),
                      count * sizeof(float)));
    check(drift_submit(session.handle, "main", nullptr, 0, nullptr));
    drift_Array array;
    check(drift_device_output(session.handle, "main", output.name, &array));
    check(drift_feed(session.handle, "main", input.name, array));
    check(drift_run(session.handle, "main"));
    check(drift_array_free(array));
    check(drift_read(session.handle, "main", output.name, values.data(), count * sizeof(float)));
    std::cout << "from " << *std::min_element(values.begin(), values.end()) << " to "
              << *std::max_element(values.begin(), values.end()) << "\n";
}
} // namespace

int main(int argc, char **argv) {
    try {
        if (argc != 3) throw std::runtime_error("usage: twice MODEL.drift VALUE");
        run(argv[1], std::strtof(argv[2], nullptr));
    } catch (const std::exception &error) {
        std::cerr << "twice: " << error.what() << "\n";
        return 1;
    }
}
