/**
 * Test of the Kotlin interface. Needs a bundle that computes y = x + x with 2 x 2 floats, a bundle with a self-test, and a copy of
 * the latter in which a weight of the output y is changed.
 */
import dev.driftc.DType
import dev.driftc.DriftException
import dev.driftc.Session

private fun floats(session: Session) = FloatArray(4).also { session.output("y").bytes.asFloatBuffer().get(it) }.toList()

private fun assertFails(word: String, call: () -> Unit) {
    val message = try { call(); "no error" } catch (error: DriftException) { error.message ?: "" }
    check(word in message) { "the message lacks `$word`: $message" }
}

fun main(arguments: Array<String>) {
    val (path, tested, changed) = arguments
    Session.open(path).use { session ->
        check(session.functions == listOf("main") && session.device.isNotEmpty() && session.target.isNotEmpty())
        check(session.metadata.isEmpty()) { "${session.metadata}" }
        val port = session.inputs().single()
        check(port.name == "x" && port.dtype == DType.F32 && port.maxShape == listOf(2L, 2L)) { "$port" }
        session.input("x", longArrayOf(2, 2)).asFloatBuffer().put(floatArrayOf(1f, 2f, 3f, 4f))
        session.run()
        check(floats(session) == listOf(2f, 4f, 6f, 8f)) { "${floats(session)}" }
        session.deviceOutput("y").use { session.feed("x", it); session.await(session.submit(listOf("y"))) }
        check(floats(session) == listOf(4f, 8f, 12f, 16f)) { "${floats(session)}" }
        assertFails("[2, 3]") { session.input("x", longArrayOf(2, 3)) }
        assertFails("`z`") { session.input("z", longArrayOf(2, 2)) }
    }
    Session.open(java.io.File(path).readBytes()).use { other ->
        other.close()
        assertFails("closed") { other.run() }
        assertFails("closed") { other.target }
    }
    assertFails("nowhere") { Session.open("/nowhere/at/all") }
    val key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
    assertFails("it is not signed") { Session.open(path, listOf(key)) }
    assertFails("trusted keys are: none") { Session.open(path, emptyList()) }
    assertFails("trusted key 2") { Session.open(java.io.File(path).readBytes(), listOf(key, "abc")) }
    Session.open(tested).use { session ->
        check(session.selfTest() == 1L)
        check(session.selfTest() == 1L)
        session.close()
        assertFails("closed") { session.selfTest() }
    }
    Session.open(changed).use { assertFails("output `y` of function `main` differs") { it.selfTest() } }
    println("kotlin: test passed")
}
