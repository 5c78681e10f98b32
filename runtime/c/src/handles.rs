//! What handles stand for. A number is never used again, so a handle that was closed is known as such.

use crate::errors::{Failure, Result, argument};
use crate::types::Status;
use drift_runtime::{DeviceArray, Session, Ticket};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A session and what belongs to it.
pub(crate) struct Opened {
    state: Mutex<State>,
    pub(crate) names: Names,
}

/// What calls take turns at.
pub(crate) struct State {
    pub(crate) session: Session,
    /// Runs that were submitted, by number; as many as there are frames.
    pub(crate) tickets: Vec<(u64, Ticket)>,
    pub(crate) last_ticket: u64,
    /// Names of the dispatches that were timed last.
    pub(crate) labels: Vec<CString>,
}

/// Names that C may keep until the session is closed.
pub(crate) struct Names {
    pub(crate) device: CString,
    pub(crate) target: CString,
    pub(crate) functions: Vec<FunctionNames>,
}

pub(crate) struct FunctionNames {
    pub(crate) name: CString,
    pub(crate) inputs: Vec<CString>,
    pub(crate) outputs: Vec<CString>,
    pub(crate) symbols: Vec<CString>,
}

/// Things by number.
pub(crate) struct Table<T> {
    last: u64,
    things: BTreeMap<u64, T>,
}

static SESSIONS: Mutex<Table<Arc<Opened>>> = Mutex::new(Table::new());
static ARRAYS: Mutex<Table<DeviceArray>> = Mutex::new(Table::new());

pub(crate) fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table { last: 0, things: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, thing: T) -> u64 {
        self.last += 1;
        self.things.insert(self.last, thing);
        self.last
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.things.get(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        self.things.remove(&id)
    }
}

pub(crate) fn add_session(session: Session) -> u64 {
    let names = Names::of(&session);
    let state = State { session, tickets: Vec::new(), last_ticket: 0, labels: Vec::new() };
    lock(&SESSIONS).add(Arc::new(Opened { state: Mutex::new(state), names }))
}

pub(crate) fn session(id: u64) -> Result<Arc<Opened>> {
    let found = lock(&SESSIONS).get(id).cloned();
    found.ok_or_else(|| argument("the session is closed, or none was opened"))
}

/// Takes a session away. What another thread is at ends first, and memory is freed behind it.
pub(crate) fn close_session(id: u64) {
    let closed = lock(&SESSIONS).remove(id);
    // Freed without holding the table.
    drop(closed);
}

pub(crate) fn add_array(array: DeviceArray) -> u64 {
    lock(&ARRAYS).add(array)
}

pub(crate) fn array(id: u64) -> Result<DeviceArray> {
    let found = lock(&ARRAYS).get(id).cloned();
    found.ok_or_else(|| argument("the array was freed, or none was made"))
}

pub(crate) fn free_array(id: u64) {
    let freed = lock(&ARRAYS).remove(id);
    drop(freed);
}

/// What calls take turns at, unless another thread has it.
pub(crate) fn turn<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.try_lock().map_err(|error| {
        let (status, message) = match error {
            TryLockError::WouldBlock => (
                Status::Busy,
                "another thread is in a call for this session; use a session from one thread at a time",
            ),
            TryLockError::Poisoned(_) => (
                Status::Internal,
                "an earlier call for this session failed by a mistake in the runtime; close the session",
            ),
        };
        Failure { status, message: message.to_owned() }
    })
}

impl Opened {
    /// The session, unless another thread has it.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>> {
        turn(&self.state)
    }
}

/// Text for C, which knows no zero bytes in it.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Names {
    fn of(session: &Session) -> Names {
        let text = c_text;
        // Functions of one name count once: the first takes all sizes that any of them takes.
        let all = session.functions().iter().enumerate();
        let first = all.filter(|(index, function)| {
            session.functions().iter().take(*index).all(|before| before.name != function.name)
        });
        let functions = first.map(|(_, function)| FunctionNames {
            name: text(&function.name),
            inputs: function.inputs.iter().map(|port| text(&port.name)).collect(),
            outputs: function.outputs.iter().map(|port| text(&port.name)).collect(),
            symbols: function.symbols.iter().map(|symbol| text(&symbol.name)).collect(),
        });
        Names {
            device: text(&session.device().name),
            target: text(&session.variant().target),
            functions: functions.collect(),
        }
    }
}
