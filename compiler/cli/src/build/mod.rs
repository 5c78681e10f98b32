//! `driftc build`: many models, artifacts and targets from one manifest.

pub(crate) mod actions;
pub(crate) mod arguments;
pub(crate) mod budget;
pub(crate) mod cache;
pub(crate) mod execute;
pub(crate) mod imports;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod lock;
pub(crate) mod manifest;
pub(crate) mod observer;
pub(crate) mod outcome;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod shared_cache;
pub(crate) mod sizes;
pub(crate) mod stamps;
pub(crate) mod state;
