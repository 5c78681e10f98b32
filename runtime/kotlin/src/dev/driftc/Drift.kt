/** Runs driftc bundles on the JVM and on Android: the C interface (`drift.h`) through JNA. For 64-bit processes. */
package dev.driftc

import com.sun.jna.Library
import com.sun.jna.Memory
import com.sun.jna.Native
import com.sun.jna.Pointer
import com.sun.jna.StringArray
import com.sun.jna.ptr.LongByReference
import com.sun.jna.ptr.PointerByReference
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** An error of the runtime. The message says where, why, and what to do. */
class DriftException(val status: Int, message: String) : RuntimeException(message)

/** Element types, in the order of `drift_Dtype`. */
enum class DType(val bytes: Int) {
    F32(4), F16(2), BF16(2), F64(8), BOOL(1), I8(1), I16(2), I32(4), I64(8), U8(1), U16(2), U32(4), U64(8)
}

/** An input or output of a function: element types of arrays and of transfer memory, minimum and maximum shape. */
data class Port(
    val name: String,
    val dtype: DType,
    val deviceDType: DType,
    val minShape: List<Long>,
    val maxShape: List<Long>,
)

/** An output in transfer memory, which host and device both access. The next call for the session overwrites the bytes. */
class View internal constructor(val dtype: DType, val shape: List<Long>, val bytes: ByteBuffer)

/** C functions of `drift.h`. A C struct with one number, such as `drift_Session`, is passed as the number. */
@Suppress("ktlint", "FunctionName")
private interface CDrift : Library {
    fun drift_last_error(): String?
    fun drift_open(path: String, options: Pointer?, session: LongByReference): Int
    fun drift_open_bytes(bundle: ByteArray, size: Long, options: Pointer?, session: LongByReference): Int
    fun drift_close(session: Long): Int
    fun drift_device_name(session: Long): String?
    fun drift_target(session: Long): String?
    fun drift_function_name(session: Long, index: Long): String?
    fun drift_metadata_key(session: Long, index: Long): String?
    fun drift_metadata(session: Long, key: String): String?
    fun drift_port(session: Long, function: String, direction: Int, index: Long, port: Pointer): Int
    fun drift_set_symbol(session: Long, function: String, name: String, value: Long): Int
    fun drift_input(
        session: Long, function: String, input: String, shape: LongArray, rank: Long,
        memory: PointerByReference, size: LongByReference,
    ): Int
    fun drift_run(session: Long, function: String): Int
    fun drift_self_test(session: Long, vectors: LongByReference): Int
    fun drift_submit(session: Long, function: String, outputs: Pointer?, count: Long, ticket: LongByReference): Int
    fun drift_wait(session: Long, ticket: Long): Int
    fun drift_output(session: Long, function: String, output: String, view: Pointer): Int
    fun drift_device_output(session: Long, function: String, output: String, array: LongByReference): Int
    fun drift_feed(session: Long, function: String, input: String, array: Long): Int
    fun drift_array_free(array: Long): Int
}

private val UTF8 = mapOf(Library.OPTION_STRING_ENCODING to "UTF-8")
private val drift: CDrift by lazy { Native.load("drift", CDrift::class.java, UTF8) }
private const val MAX_RANK = 8
/** Size of `drift_Options`, whose last two fields are the array of trusted keys and their number. */
private const val OPTIONS_BYTES = 72L
private const val PORT_BYTES = 24L + 16 * MAX_RANK
private const val VIEW_BYTES = 32L + 8 * MAX_RANK

private fun check(status: Int) {
    if (status != 0) throw DriftException(status, drift.drift_last_error() ?: "status $status")
}

/** An array in device memory: an output that becomes an input without a copy to the host. */
class DeviceArray internal constructor(internal val id: Long) : AutoCloseable {
    override fun close() = check(drift.drift_array_free(id))
}

/** A bundle loaded on a device. One thread at a time uses a session; a second thread gets a [DriftException]. */
class Session private constructor(private val id: Long) : AutoCloseable {
    companion object {
        /**
         * Loads a bundle from a file. With trusted keys, the bundle must be signed by one of them: public keys in minisign's
         * format, each the base64 line or the text of the key file. An empty list refuses every bundle.
         */
        fun open(path: String, trustedKeys: List<String>? = null): Session =
            open(trustedKeys) { options, session -> drift.drift_open(path, options, session) }

        /** Loads a bundle from memory, such as an asset of an application. */
        fun open(bundle: ByteArray, trustedKeys: List<String>? = null): Session =
            open(trustedKeys) { options, session -> drift.drift_open_bytes(bundle, bundle.size.toLong(), options, session) }

        private fun open(trustedKeys: List<String>?, call: (Pointer?, LongByReference) -> Int): Session {
            val session = LongByReference()
            if (trustedKeys == null) {
                check(call(null, session))
            } else {
                val keys = StringArray(trustedKeys.toTypedArray(), "UTF-8")
                Memory(OPTIONS_BYTES).use { options ->
                    options.clear()
                    options.setPointer(OPTIONS_BYTES - 16, keys)
                    options.setLong(OPTIONS_BYTES - 8, trustedKeys.size.toLong())
                    check(call(options, session))
                }
            }
            return Session(session.value)
        }
    }

    val device: String get() = drift.drift_device_name(id) ?: closed()
    val target: String get() = drift.drift_target(id) ?: closed()
    val functions: List<String>
        get() = generateSequence(0L) { it + 1 }.map { drift.drift_function_name(id, it) }.takeWhile { it != null }
            .map { it!! }.toList()

    /** Metadata of the source model by key, such as the labels of its classes. */
    val metadata: Map<String, String>
        get() = generateSequence(0L) { it + 1 }.map { drift.drift_metadata_key(id, it) }.takeWhile { it != null }
            .associate { it!! to drift.drift_metadata(id, it).orEmpty() }

    fun inputs(function: String = "main"): List<Port> = ports(function, 0)

    fun outputs(function: String = "main"): List<Port> = ports(function, 1)

    /** Sets the value of a symbol that no input shape determines. The value applies to all runs until it is set again. */
    fun setSymbol(name: String, value: Long, function: String = "main") =
        check(drift.drift_set_symbol(id, function, name, value))

    /** Returns the transfer memory of an input. Fill the memory with elements of the device type before the next call. */
    fun input(name: String, shape: LongArray, function: String = "main"): ByteBuffer {
        val memory = PointerByReference()
        val size = LongByReference()
        check(drift.drift_input(id, function, name, shape, shape.size.toLong(), memory, size))
        return memory.value.getByteBuffer(0, size.value).order(ByteOrder.LITTLE_ENDIAN)
    }

    /** Runs a function on the written inputs and waits for the end of the run. */
    fun run(function: String = "main") = check(drift.drift_run(id, function))

    /**
     * Runs the bundle's self-test and compares the outputs with the outputs of the CPU reference. Returns the number of test
     * vectors: 0 if the bundle has none. The message of the error names the first output that differs. All states are zero
     * afterwards. Needs a library with the feature `self-test`.
     */
    fun selfTest(): Long {
        val vectors = LongByReference()
        check(drift.drift_self_test(id, vectors))
        return vectors.value
    }

    /** Starts a run of a function, and returns a ticket for [await]. Only the named outputs are copied to the host. */
    fun submit(outputs: List<String>, function: String = "main"): Long {
        val ticket = LongByReference()
        val names = if (outputs.isEmpty()) null else StringArray(outputs.toTypedArray(), "UTF-8")
        check(drift.drift_submit(id, function, names, outputs.size.toLong(), ticket))
        return ticket.value
    }

    fun await(ticket: Long) = check(drift.drift_wait(id, ticket))

    /** Returns an output of the function's last run, in transfer memory. */
    fun output(name: String, function: String = "main"): View = Memory(VIEW_BYTES).use { view ->
        check(drift.drift_output(id, function, name, view))
        val bytes = view.getPointer(0).getByteBuffer(0, view.getLong(8)).order(ByteOrder.LITTLE_ENDIAN)
        View(DType.entries[view.getInt(16)], shape(view, 32, view.getLong(24)), bytes.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN))
    }

    /** Returns an output of the function's last run as an array in device memory. The array can be an input of this session. */
    fun deviceOutput(name: String, function: String = "main"): DeviceArray {
        val array = LongByReference()
        check(drift.drift_device_output(id, function, name, array))
        return DeviceArray(array.value)
    }

    fun feed(name: String, array: DeviceArray, function: String = "main") =
        check(drift.drift_feed(id, function, name, array.id))

    override fun close() = check(drift.drift_close(id))

    private fun ports(function: String, direction: Int): List<Port> {
        val found = mutableListOf<Port>()
        Memory(PORT_BYTES).use { port ->
            while (true) {
                val status = drift.drift_port(id, function, direction, found.size.toLong(), port)
                // There are no more ports. Any other invalid request already fails for the first port.
                if (status == REQUEST && found.isNotEmpty()) return found
                check(status)
                val (dtype, device) = DType.entries[port.getInt(8)] to DType.entries[port.getInt(12)]
                val rank = port.getLong(16)
                val name = port.getPointer(0).getString(0, "UTF-8")
                found += Port(name, dtype, device, shape(port, 24, rank), shape(port, 24L + 8 * MAX_RANK, rank))
            }
        }
    }

    private fun shape(from: Pointer, at: Long, rank: Long) = from.getLongArray(at, rank.toInt()).toList()

    private fun closed(): Nothing = throw DriftException(1, "the session is closed")
}

private const val REQUEST = 7

