//! Tables of open sessions and arrays. An id is never reused, so a call with a closed handle is an error.

use crate::c_text::c_text;
use crate::errors::{Failure, Result, argument};
use crate::types::Status;
use drift_runtime::{DeviceArray, Session, Ticket};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// An open session, with the strings that C may read.
pub(crate) struct Opened {
    state: Mutex<State>,
    pub(crate) names: Names,
}

/// The part of an open session that only one thread may use at a time.
pub(crate) struct State {
    pub(crate) session: Session,
    /// Tickets of submitted runs, each with the id that C received for it; at most one ticket per frame.
    pub(crate) tickets: Vec<(u64, Ticket)>,
    pub(crate) last_ticket: u64,
    /// Node names of the dispatches of the last timed run, which C may read.
    pub(crate) labels: Vec<CString>,
}

/// Strings that C may read until the session is closed: names of the device, the target and the functions, and the
/// metadata.
pub(crate) struct Names {
    pub(crate) device: CString,
    pub(crate) target: CString,
    pub(crate) functions: Vec<FunctionNames>,
    /// Metadata of the model: keys and values.
    pub(crate) metadata: Vec<(CString, CString)>,
}

pub(crate) struct FunctionNames {
    pub(crate) name: CString,
    pub(crate) inputs: Vec<CString>,
    pub(crate) outputs: Vec<CString>,
    pub(crate) symbols: Vec<CString>,
}

/// Values by id.
pub(crate) struct Table<T> {
    last_id: u64,
    values: BTreeMap<u64, T>,
}

static SESSIONS: Mutex<Table<Arc<Opened>>> = Mutex::new(Table::new());
static ARRAYS: Mutex<Table<DeviceArray>> = Mutex::new(Table::new());

pub(crate) fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table { last_id: 0, values: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, value: T) -> u64 {
        self.last_id += 1;
        self.values.insert(self.last_id, value);
        self.last_id
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.values.get(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        self.values.remove(&id)
    }
}

/// Table of values that threads use one at a time.
#[cfg(feature = "helpers")]
pub(crate) struct Shared<T>(Mutex<Table<Arc<Mutex<T>>>>);

#[cfg(feature = "helpers")]
impl<T> Shared<T> {
    pub(crate) const fn new() -> Shared<T> {
        Shared(Mutex::new(Table::new()))
    }

    pub(crate) fn add(&self, value: T) -> u64 {
        lock(&self.0).add(Arc::new(Mutex::new(value)))
    }

    /// Removes a value. If another thread is in a call for the value, the value is freed when that call ends.
    pub(crate) fn remove(&self, id: u64) {
        let removed = lock(&self.0).remove(id);
        // Freed after the table's lock is released.
        drop(removed);
    }

    /// Calls `work` with a value. `what` names the kind of value in errors.
    pub(crate) fn with(&self, id: u64, what: &str, work: impl FnOnce(&mut T) -> Result<()>) -> Result<()> {
        let opened = lock(&self.0).get(id).cloned();
        let opened = opened.ok_or_else(|| argument(format!("the {what} was closed or never opened")))?;
        work(&mut *try_lock(&opened)?)
    }
}

pub(crate) fn add_session(session: Session) -> u64 {
    let names = Names::from_session(&session);
    let state = State { session, tickets: Vec::new(), last_ticket: 0, labels: Vec::new() };
    lock(&SESSIONS).add(Arc::new(Opened { state: Mutex::new(state), names }))
}

pub(crate) fn session(id: u64) -> Result<Arc<Opened>> {
    let found = lock(&SESSIONS).get(id).cloned();
    found.ok_or_else(|| argument("the session was closed or never opened"))
}

/// Removes a session. If another thread is in a call for the session, the session is freed when that call ends.
pub(crate) fn close_session(id: u64) {
    let closed = lock(&SESSIONS).remove(id);
    // Freed after the table's lock is released.
    drop(closed);
}

pub(crate) fn add_array(array: DeviceArray) -> u64 {
    lock(&ARRAYS).add(array)
}

pub(crate) fn array(id: u64) -> Result<DeviceArray> {
    let found = lock(&ARRAYS).get(id).cloned();
    found.ok_or_else(|| argument("the array was freed or never created"))
}

pub(crate) fn free_array(id: u64) {
    let freed = lock(&ARRAYS).remove(id);
    drop(freed);
}

/// Locks a mutex without waiting.
///
/// # Errors
/// `DRIFT_STATUS_BUSY` if another thread holds the lock, `DRIFT_STATUS_INTERNAL` if an earlier call panicked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.try_lock().map_err(|error| {
        let (status, message) = match error {
            TryLockError::WouldBlock => (
                Status::Busy,
                "another thread is in a call for this session; use a session from one thread at a time",
            ),
            TryLockError::Poisoned(_) => (
                Status::Internal,
                "an earlier call for this session failed with an internal error; close the session",
            ),
        };
        Failure::new(status, message)
    })
}

impl Opened {
    /// Locks the session without waiting.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>> {
        try_lock(&self.state)
    }
}

impl Names {
    fn from_session(session: &Session) -> Names {
        let text = c_text;
        // Only the first function of a name is listed: its bounds contain the bounds of the specializations.
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
            metadata: session.bundle().metadata().map(|(key, value)| (text(key), text(value))).collect(),
        }
    }
}
