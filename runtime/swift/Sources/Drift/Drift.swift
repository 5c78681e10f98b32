/// Bundles of driftc in Swift, over the C interface. Written by hand and never run: no Apple system was at hand.
import CDrift

/// What the runtime refuses: where, why, and what to do about it.
public struct DriftError: Error, CustomStringConvertible {
    public let status: drift_Status
    public let description: String
}

private func check(_ status: drift_Status) throws {
    guard status == DRIFT_STATUS_OK else {
        throw DriftError(status: status, description: String(cString: drift_last_error()))
    }
}

/// An array in memory of the device: an output that becomes an input without the host.
public final class DeviceArray {
    fileprivate let handle: drift_Array

    fileprivate init(_ handle: drift_Array) { self.handle = handle }

    deinit { drift_array_free(handle) }
}

/// A bundle that is loaded onto a device. One thread at a time uses it; two at once get an error.
public final class Session {
    private let handle: drift_Session

    /// Loads a bundle from a file.
    public init(path: String) throws {
        var session = drift_Session(id: 0)
        try check(drift_open(path, nil, &session))
        handle = session
    }

    deinit { drift_close(handle) }

    public var device: String { String(cString: drift_device_name(handle)) }

    /// Gives the memory of an input that is transferred to a closure that fills it.
    public func withInput(
        _ name: String, shape: [Int], function: String = "main", fill: (UnsafeMutableRawBufferPointer) throws -> Void
    ) throws {
        var memory: UnsafeMutableRawPointer?
        var size = 0
        try check(drift_input(handle, function, name, shape, shape.count, &memory, &size))
        try fill(UnsafeMutableRawBufferPointer(start: memory, count: size))
    }

    /// Sets an input of floats.
    public func setInput(_ name: String, _ values: [Float], shape: [Int], function: String = "main") throws {
        try values.withUnsafeBytes { bytes in
            try check(
                drift_write(
                    handle, function, name, UInt32(DRIFT_DTYPE_F32.rawValue), shape, shape.count, bytes.baseAddress,
                    bytes.count))
        }
    }

    /// Runs a function and waits.
    public func run(_ function: String = "main") throws { try check(drift_run(handle, function)) }

    /// Gives an output where it was transferred to, to a closure, with its shape.
    public func withOutput<Result>(
        _ name: String, function: String = "main", read: (UnsafeRawBufferPointer, [Int]) throws -> Result
    ) throws -> Result {
        var view = drift_View()
        try check(drift_output(handle, function, name, &view))
        let shape = withUnsafeBytes(of: view.shape) { Array($0.bindMemory(to: Int.self).prefix(view.rank)) }
        return try read(UnsafeRawBufferPointer(start: view.bytes, count: view.size), shape)
    }

    /// An output of the last run, to be an input of this session again.
    public func deviceOutput(_ name: String, function: String = "main") throws -> DeviceArray {
        var array = drift_Array(id: 0)
        try check(drift_device_output(handle, function, name, &array))
        return DeviceArray(array)
    }

    public func feed(_ name: String, _ array: DeviceArray, function: String = "main") throws {
        try check(drift_feed(handle, function, name, array.handle))
    }
}
