/// Runs driftc bundles from Swift, through the C interface. This wrapper is written by hand and was never compiled or run.
import CDrift
import Foundation

/// An error of the runtime. The message says where, why, and what to do.
public struct DriftError: Error, CustomStringConvertible {
    public let status: drift_Status
    public let description: String
}

private func check(_ status: drift_Status) throws {
    guard status == DRIFT_STATUS_OK else {
        throw DriftError(status: status, description: String(cString: drift_last_error()))
    }
}

/// An array in device memory: an output that becomes an input without a copy to the host.
public final class DeviceArray {
    fileprivate let handle: drift_Array

    fileprivate init(_ handle: drift_Array) { self.handle = handle }

    deinit { drift_array_free(handle) }
}

/// A bundle loaded on a device. One thread at a time uses a session; a second thread gets an error.
public final class Session {
    private let handle: drift_Session

    /// Loads a bundle from a file. With trusted keys, the bundle must be signed by one of them: public keys in minisign's format,
    /// each the base64 line or the text of the key file. An empty list refuses every bundle. Trusted keys need a library with the
    /// feature `signatures`.
    public init(path: String, trustedKeys: [String]? = nil) throws {
        var session = drift_Session(id: 0)
        if let trustedKeys {
            let texts = trustedKeys.map { strdup($0) }
            defer { texts.forEach { free($0) } }
            // The C interface takes a null pointer for no trusted keys, so an empty list still needs an array.
            let keys: [UnsafePointer<CChar>?] = texts.map { UnsafePointer($0) } + [nil]
            try keys.withUnsafeBufferPointer { keys in
                var options = drift_Options()
                options.trusted_keys = keys.baseAddress
                options.trusted_key_count = trustedKeys.count
                try check(drift_open(path, &options, &session))
            }
        } else {
            try check(drift_open(path, nil, &session))
        }
        handle = session
    }

    deinit { drift_close(handle) }

    public var device: String { String(cString: drift_device_name(handle)) }

    /// Metadata of the source model by key, such as the labels of its classes.
    public var metadata: [String: String] {
        var found: [String: String] = [:]
        while let key = drift_metadata_key(handle, found.count) {
            found[String(cString: key)] = String(cString: drift_metadata(handle, key))
        }
        return found
    }

    /// Passes the transfer memory of an input to a closure, which fills the memory with elements of the device type.
    public func withInput(
        _ name: String, shape: [Int], function: String = "main", fill: (UnsafeMutableRawBufferPointer) throws -> Void
    ) throws {
        var memory: UnsafeMutableRawPointer?
        var size = 0
        try check(drift_input(handle, function, name, shape, shape.count, &memory, &size))
        try fill(UnsafeMutableRawBufferPointer(start: memory, count: size))
    }

    /// Copies an array of f32 values into an input, for all runs until the input is written again.
    public func setInput(_ name: String, _ values: [Float], shape: [Int], function: String = "main") throws {
        try values.withUnsafeBytes { bytes in
            try check(
                drift_write(
                    handle, function, name, UInt32(DRIFT_DTYPE_F32.rawValue), shape, shape.count, bytes.baseAddress,
                    bytes.count))
        }
    }

    /// Runs a function on the written inputs and waits for the end of the run.
    public func run(_ function: String = "main") throws { try check(drift_run(handle, function)) }

    /// Runs the bundle's self-test and compares the outputs with the outputs of the CPU reference. Returns the number of test
    /// vectors: 0 if the bundle has none. The error names the first output that differs. All states are zero afterwards. Needs a
    /// library with the feature `self-test`.
    public func selfTest() throws -> Int {
        var vectors = 0
        try check(drift_self_test(handle, &vectors))
        return vectors
    }

    /// Passes the bytes of an output of the function's last run, in transfer memory, and its shape to a closure.
    public func withOutput<Result>(
        _ name: String, function: String = "main", read: (UnsafeRawBufferPointer, [Int]) throws -> Result
    ) throws -> Result {
        var view = drift_View()
        try check(drift_output(handle, function, name, &view))
        let shape = withUnsafeBytes(of: view.shape) { Array($0.bindMemory(to: Int.self).prefix(view.rank)) }
        return try read(UnsafeRawBufferPointer(start: view.bytes, count: view.size), shape)
    }

    /// Returns an output of the function's last run as an array in device memory. The array can be an input of this session.
    public func deviceOutput(_ name: String, function: String = "main") throws -> DeviceArray {
        var array = drift_Array(id: 0)
        try check(drift_device_output(handle, function, name, &array))
        return DeviceArray(array)
    }

    public func feed(_ name: String, _ array: DeviceArray, function: String = "main") throws {
        try check(drift_feed(handle, function, name, array.handle))
    }
}
