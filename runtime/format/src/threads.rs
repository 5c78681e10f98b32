//! Parallel work through one non-generic function, so that a program contains the code only once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `job` once with every number below `n_jobs`, in ascending order, on other threads while this thread runs
/// `main_task`. Afterwards this thread also runs jobs. Uses at most `n_threads` threads including this one.
pub fn run_jobs(n_threads: usize, n_jobs: usize, job: &(dyn Fn(usize) + Sync), main_task: &mut dyn FnMut()) {
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
        main_task();
        work();
    });
}
