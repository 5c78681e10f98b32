//! The types that cross the boundary: plain data without pointers into Rust.

use drift_runtime::format::{DeviceType, HostType};
use std::ffi::{c_char, c_int, c_void};

/// The most axes that a shape here can have.
pub const MAX_RANK: usize = 8;

/// What came of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok = 0,
    /// A null pointer, a handle that is closed, text that is not UTF-8, a number that is out of range.
    Argument = 1,
    /// A file cannot be read.
    Io = 2,
    /// The bundle is damaged, of another version, or no bundle.
    Bundle = 3,
    /// No device, or none that the bundle runs on, or a driver that failed.
    Device = 4,
    /// The device was lost: close the session and open it again.
    DeviceLost = 5,
    OutOfMemory = 6,
    /// Names, shapes, types or values that the bundle does not take.
    Request = 7,
    /// Another thread is in a call for this session.
    Busy = 8,
    /// A mistake in this library; the session takes no more calls.
    Internal = 9,
}

/// Types of elements. On the device there are F32, F16, I32 and U32 alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F32 = 0,
    F16 = 1,
    Bf16 = 2,
    F64 = 3,
    Bool = 4,
    I8 = 5,
    I16 = 6,
    I32 = 7,
    I64 = 8,
    U8 = 9,
    U16 = 10,
    U32 = 11,
    U64 = 12,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Input = 0,
    Output = 1,
}

/// An open session; 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: u64,
}

/// An array in memory of the device; 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    pub id: u64,
}

/// A run that was submitted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub id: u64,
}

/// A language model with a text; 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    pub id: u64,
}

/// What to generate. All zeros beside `max_tokens` take the most likely token each time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub max_tokens: usize,
    /// Ids that end the text; null where there are none.
    pub stops: *const u32,
    pub stop_count: usize,
    /// Only so many of the most likely tokens are drawn from; 0: all.
    pub top_k: usize,
    /// Equal seeds give equal texts.
    pub seed: u64,
    /// Logits are divided by it; 0 takes the most likely token.
    pub temperature: f32,
    /// Only the most likely tokens that together have this probability are drawn from; 0 is 1: all.
    pub top_p: f32,
    /// Logits of tokens that the text has are divided by it where positive, multiplied where negative; 0 is 1: nothing.
    pub repetition_penalty: f32,
    /// Not 0: what followed the last time the text had the same few tokens is guessed to follow, and checked in one run.
    pub guess: u8,
}

/// Gets a token and what the caller passed; 0 ends generating.
pub type Each = Option<unsafe extern "C" fn(token: u32, user: *mut c_void) -> c_int>;

/// Why there is no further token.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model gave one of the stops.
    Stop = 0,
    /// There are as many tokens as were asked for.
    Length = 1,
    /// The caller wanted no more.
    Caller = 2,
}

/// What generating took and gave.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Tokens that were generated, a stop among them.
    pub tokens: usize,
    pub ended: Ended,
    /// The id of the stop, where there was one.
    pub stop: u32,
    /// Tokens of the text that had to be computed first.
    pub prompt_tokens: usize,
    /// Nanoseconds from the call until the first token was there.
    pub prompt_ns: u64,
    /// Nanoseconds from the first token until the last one.
    pub decode_ns: u64,
}

/// When a dispatch ran, in nanoseconds since the start of its run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The node of the model it computes. Valid until the next timed run of the session.
    pub label: *const c_char,
    pub start_ns: f64,
    pub end_ns: f64,
}

/// How to open a bundle. All zeros are right for most programs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Part of a device's name, or its number; null: the best.
    pub device: *const c_char,
    /// The target whose variant to use; null: the one that fits best.
    pub target: *const c_char,
    /// A file for the driver's compiled pipelines; null: none.
    pub pipeline_cache: *const c_char,
    /// How many runs may be in flight at once; 0 is 1.
    pub frames: usize,
    /// Not 0: do not compare weights and shaders with their hashes.
    pub trust_file: u8,
}

/// An input or output.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Valid until the session is closed.
    pub name: *const c_char,
    /// The type of arrays that are written and read.
    pub dtype: Dtype,
    /// The type of elements in the memory that is transferred.
    pub device_dtype: Dtype,
    pub rank: usize,
    /// The smallest and largest size of each axis; equal where the size is known.
    pub min_shape: [usize; 8],
    pub max_shape: [usize; 8],
}

/// A size that is known at run time only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Valid until the session is closed.
    pub name: *const c_char,
    pub min: i64,
    pub max: i64,
}

/// An output where it was transferred to. Valid until the next call for the session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub bytes: *const c_void,
    /// How many bytes there are.
    pub size: usize,
    /// The type of elements.
    pub device_dtype: Dtype,
    pub rank: usize,
    pub shape: [usize; 8],
}

/// What was made; nothing of it changes after a session was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    pub pipelines: u32,
    pub allocations: u32,
    pub allocated_bytes: u64,
}

macro_rules! pairs {
    ($($name:ident)*) => {
        impl From<HostType> for Dtype {
            fn from(host: HostType) -> Dtype {
                match host { $(HostType::$name => Dtype::$name,)* }
            }
        }

        /// The type of this number.
        pub(crate) fn host_type(number: u32) -> Option<HostType> {
            // Both ways are exhaustive: neither side has a type that the other one lacks.
            let host = |dtype: Dtype| match dtype { $(Dtype::$name => HostType::$name,)* };
            [$(Dtype::$name),*].into_iter().find(|dtype| *dtype as u32 == number).map(host)
        }
    };
}

pairs! { F32 F16 Bf16 F64 Bool I8 I16 I32 I64 U8 U16 U32 U64 }

impl From<DeviceType> for Dtype {
    fn from(device: DeviceType) -> Dtype {
        match device {
            DeviceType::F32 => Dtype::F32,
            DeviceType::F16 => Dtype::F16,
            DeviceType::I32 => Dtype::I32,
            DeviceType::U32 => Dtype::U32,
        }
    }
}

/// The type of this number, where the device has it.
pub(crate) fn device_type(number: u32) -> Option<DeviceType> {
    let known = [DeviceType::F32, DeviceType::F16, DeviceType::I32, DeviceType::U32];
    known.into_iter().find(|device| Dtype::from(*device) as u32 == number)
}
