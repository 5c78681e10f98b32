//! Calls the C interface with random handles, names, shapes and sizes for a number of seconds: `fuzz BUNDLE [SECONDS]
//! [SEED]`. Any status except an internal error is accepted, so the program finds crashes and internal errors. Run it
//! under valgrind to find invalid reads and writes.

#![allow(unsafe_code)]

use drift::{
    Array, Port, Session, Stats, Status, Ticket, View, drift_array_free, drift_close, drift_deliver,
    drift_device_name, drift_device_output, drift_feed, drift_function_name, drift_import_fd, drift_input,
    drift_open, drift_open_bytes, drift_output, drift_port, drift_read, drift_run, drift_set_symbol,
    drift_share_fd, drift_stats, drift_submit, drift_wait, drift_write,
};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// Random number generator: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % end.max(1)
    }

    /// Returns a random element of `values`, or in one of `values.len() + 1` cases `other`.
    fn choose<T: Clone>(&mut self, values: &[T], other: T) -> T {
        let index = self.below(values.len() + 1);
        values.get(index).cloned().unwrap_or(other)
    }
}

/// Handles that earlier calls returned. Some of them may be closed.
#[derive(Default)]
struct Known {
    sessions: Vec<Session>,
    arrays: Vec<Array>,
    tickets: Vec<Ticket>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else { return eprintln!("usage: fuzz BUNDLE [SECONDS] [SEED]") };
    let number =
        |at: usize, other: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(other);
    let (seconds, seed) = (number(2, 10), number(3, 1));
    let bundle = std::fs::read(path).unwrap_or_default();
    let path = CString::new(path.as_str()).unwrap_or_default();
    let mut random = Random(seed.max(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut known = Known::default();
    let mut counts = [0u64; 10];
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let status = step(&mut random, &mut known, &path, &bundle);
        assert!(status != Status::Internal, "internal error in the runtime, seed {seed}");
        if let Some(count) = counts.get_mut(status as usize) {
            *count += 1;
        }
    }
    for session in known.sessions {
        drift_close(session);
    }
    println!("number of calls by status, from OK to INTERNAL: {counts:?}");
}

/// Random arguments of one call. The pointers are null or valid, `shape` has any rank, and `memory` holds 64 bytes.
struct Arguments {
    session: Session,
    array: Array,
    main: *const c_char,
    port: *const c_char,
    shape: &'static [usize],
    dtype: u32,
    size: usize,
    memory: *mut c_void,
}

impl Arguments {
    /// Returns random arguments for one call. `data` is the memory that the call reads or writes.
    fn draw(random: &mut Random, known: &Known, data: &mut [u8; 64]) -> Self {
        const SHAPES: [&[usize]; 5] = [&[2, 2], &[4], &[], &[usize::MAX, 2], &[1; 40]];
        let session = random.choose(&known.sessions, Session { id: 7 });
        let array = random.choose(&known.arrays, Array { id: 7 });
        let main = if random.below(8) == 0 { draw_string(random) } else { c"main".as_ptr() };
        let port = draw_string(random);
        let shape = random.choose(&SHAPES, &[2, 2]);
        let dtype = u32::try_from(random.below(15)).unwrap_or(0) % 14;
        let dtype = if random.below(2) == 0 { 0 } else { dtype };
        let size = random.choose(&[16, 0, 4, 64], 16);
        let memory = if random.below(9) == 0 { null_mut() } else { data.as_mut_ptr().cast() };
        Self { session, array, main, port, shape, dtype, size, memory }
    }
}

/// Returns a random string that ends with a zero byte, or null.
fn draw_string(random: &mut Random) -> *const c_char {
    let strings = [c"main", c"x", c"y", c"", c"\xff"];
    strings.get(random.below(12) / 2).map_or(null(), |text| text.as_ptr())
}

fn step(random: &mut Random, known: &mut Known, path: &CString, bundle: &[u8]) -> Status {
    let mut data = [0u8; 64];
    let arguments = Arguments::draw(random, known, &mut data);
    let Arguments { session, array, main, port, shape, dtype, size, memory } = arguments;
    let (x, y) = (c"x".as_ptr(), c"y".as_ptr());
    // SAFETY: strings end with zero, shapes and data have the stated lengths, and all other pointers are null or valid.
    unsafe {
        match random.below(20) {
            0 => open(random, known, port, path, bundle),
            1 if random.below(6) == 0 => drift_close(session),
            2 => {
                let mut described = std::mem::zeroed::<Port>();
                drift_port(session, main, dtype, random.below(3), &raw mut described)
            }
            3 => {
                let _ = (drift_device_name(session), drift_function_name(session, random.below(3)));
                let mut stats = std::mem::zeroed::<Stats>();
                drift_stats(session, &raw mut stats)
            }
            4..=6 => drift_write(session, main, x, dtype, shape.as_ptr(), shape.len(), memory, size),
            7 => fill_input(&arguments),
            8 | 9 => drift_run(session, main),
            10 | 11 => {
                let (outputs, mut ticket) = ([y, port], Ticket { id: 0 });
                let status = drift_submit(session, main, outputs.as_ptr(), random.below(3), &raw mut ticket);
                known.tickets.extend((status == Status::Ok).then_some(ticket));
                status
            }
            12 => drift_wait(session, random.choose(&known.tickets, Ticket { id: 0 })),
            13 => read_output(&arguments),
            14 => drift_read(session, main, y, memory, size),
            15 => {
                let mut made = Array { id: 0 };
                let status = drift_device_output(session, main, y, &raw mut made);
                known.arrays.extend((status == Status::Ok).then_some(made));
                status
            }
            16 => drift_feed(session, main, x, array),
            17 => drift_deliver(session, main, y, array),
            18 => share_and_import(&arguments, known),
            _ => match random.below(2) {
                0 => drift_set_symbol(session, main, port, 3),
                _ => drift_array_free(array),
            },
        }
    }
}

/// Opens at random the bundle, a damaged copy of the bundle, or the path `port`, where no bundle is.
fn open(
    random: &mut Random,
    known: &mut Known,
    port: *const c_char,
    path: &CString,
    bundle: &[u8],
) -> Status {
    let mut opened = Session { id: 0 };
    let few = known.sessions.len() < 40;
    // SAFETY: `path` ends with zero, `port` does or is null, and `changed` has the stated length.
    let status = unsafe {
        match random.below(3) {
            0 if few => drift_open(path.as_ptr(), null(), &raw mut opened),
            1 => {
                // A bundle that is truncated and has one byte changed.
                let mut changed = bundle.to_vec();
                changed.truncate(random.below(bundle.len() + 1));
                let at = random.below(changed.len());
                if let Some(byte) = changed.get_mut(at) {
                    *byte ^= 0x40;
                }
                drift_open_bytes(changed.as_ptr().cast(), changed.len(), null(), &raw mut opened)
            }
            _ => drift_open(port, null(), &raw mut opened),
        }
    };
    known.sessions.extend((status == Status::Ok).then_some(opened));
    status
}

/// Writes every byte of an input's memory.
fn fill_input(arguments: &Arguments) -> Status {
    let Arguments { session, main, port, shape, .. } = *arguments;
    let (mut to, mut length): (*mut c_void, usize) = (null_mut(), 0);
    let (shape, rank) = (shape.as_ptr(), shape.len());
    // SAFETY: the strings end with zero or are null, and a successful call returns memory of `length` bytes.
    unsafe {
        let status = drift_input(session, main, port, shape, rank, &raw mut to, &raw mut length);
        if status == Status::Ok {
            to.cast::<u8>().write_bytes(1, length);
        }
        status
    }
}

/// Reads every byte of an output's memory.
fn read_output(arguments: &Arguments) -> Status {
    let Arguments { session, main, .. } = *arguments;
    // SAFETY: the strings end with zero or are null, and a successful call returns memory of `view.size` bytes.
    unsafe {
        let mut view = std::mem::zeroed::<View>();
        let status = drift_output(session, main, c"y".as_ptr(), &raw mut view);
        if status == Status::Ok {
            let bytes = std::slice::from_raw_parts(view.bytes.cast::<u8>(), view.size);
            std::hint::black_box(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        }
        status
    }
}

/// Exports an array as a file descriptor and imports it again.
fn share_and_import(arguments: &Arguments, known: &mut Known) -> Status {
    let Arguments { session, dtype, shape, .. } = *arguments;
    let (mut made, mut descriptor) = (Array { id: 0 }, -1);
    let (shape, rank) = (shape.as_ptr(), shape.len());
    // SAFETY: `shape` has `rank` elements, and a successful export returns an open descriptor.
    unsafe {
        let status = drift_share_fd(session, dtype, shape, rank, &raw mut made, &raw mut descriptor);
        if status != Status::Ok {
            return status;
        }
        known.arrays.push(made);
        let imported = drift_import_fd(session, descriptor, 0, dtype, shape, rank, &raw mut made);
        known.arrays.extend((imported == Status::Ok).then_some(made));
        imported
    }
}
