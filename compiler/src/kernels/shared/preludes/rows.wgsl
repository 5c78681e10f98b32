// Rows of a tensor: LANES invocations compute a row, and a workgroup computes ROWS rows. The kernels that use this file
// are `add_norms`, `arg_reduce`, `cum_sum`, `normalize`, `quantize_rows`, `reduce` and `softmax`.
//
// The compiler replaces the knobs and the sizes. It replaces LOADS and ROW_IN_REGISTERS only in kernels that use them.

const LANES = 64u;
const ROWS = 1u;
const THREADS = LANES * ROWS;
/// True if neighboring invocations read neighboring rows, false if they read neighboring elements of a row.
const ROWS_FIRST = false;
/// Number of loads that an invocation has in flight per operand.
const LOADS = 2u;
/// True if LOADS loads per invocation cover the whole row, which then stays in registers.
const ROW_IN_REGISTERS = false;
const_assert LANES > 0u && (LANES & (LANES - 1u)) == 0u;

/// Number of rows.
fn rows() -> u32 { return 3u; }
/// Number of elements or vec4s per row.
fn length() -> u32 { return 100u; }

/// Returns the index of an invocation among the invocations of its row.
fn lane_of(local: u32) -> u32 { return select(local % LANES, local / ROWS, ROWS_FIRST); }
/// Returns the index of an invocation's row among the rows of its workgroup.
fn group_row_of(local: u32) -> u32 { return select(local / LANES, local % ROWS, ROWS_FIRST); }
/// Returns the index of the first row that a workgroup computes. If rows are split, each part counts as a row.
fn first_row(group: vec3<u32>, groups: vec3<u32>) -> u32 { return (group.x + group.y * groups.x) * ROWS; }
