//! Work on several threads, through one function so that its machinery is in a program once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `own` on this thread and meanwhile calls `job` with every number below `n_jobs` on others, in that order; this thread
/// helps when `own` is done. There are at most `n_threads` with this one.
pub fn beside(n_threads: usize, n_jobs: usize, job: &(dyn Fn(usize) + Sync), own: &mut dyn FnMut()) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < n_jobs) {
            job(index);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..n_threads.min(n_jobs.saturating_add(1)) {
            drop(std::thread::Builder::new().spawn_scoped(scope, work));
        }
        own();
        work();
    });
}
