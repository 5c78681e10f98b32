//! Work on several threads, through one function so that its machinery is in a program once.

#[cfg(feature = "session")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As many as a workstation has cores. On smaller machines they share cores, which costs nothing worth asking the
/// system for their number, which is more code than all of this.
#[cfg(feature = "session")]
const MAX_THREADS: usize = 16;

/// Calls `job` with every number below `n_jobs`, on this thread and a few others.
/// Where no thread can be had, the others do the work.
#[cfg(feature = "session")]
pub(crate) fn each(n_jobs: usize, job: &(dyn Fn(usize) + Sync)) {
    beside(MAX_THREADS, n_jobs, job, &mut || ());
}

/// Does `own` on this thread and meanwhile calls `job` with every number below `n_jobs` on others, in that order; this thread
/// helps when `own` is done. There are at most `n_threads` with this one.
pub(crate) fn beside(n_threads: usize, n_jobs: usize, job: &(dyn Fn(usize) + Sync), own: &mut dyn FnMut()) {
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

/// Does two things at once, the second on this thread.
#[cfg(feature = "session")]
pub(crate) fn both<A: Send, B>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (Option<A>, Option<B>) {
    let first = Mutex::new((Some(first), None));
    let (mut second, mut result) = (Some(second), None);
    let job = |_| {
        let Ok(mut task) = first.lock() else { return };
        if let Some(work) = task.0.take() {
            task.1 = Some(work());
        }
    };
    beside(2, 1, &job, &mut || result = second.take().map(|work| work()));
    (first.into_inner().ok().and_then(|(_, result)| result), result)
}

#[cfg(all(test, feature = "session"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_job_runs_once() {
        let runs: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        let run = |index: usize| {
            runs[index].fetch_add(1, Ordering::Relaxed);
        };
        super::each(runs.len(), &run);
        assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == 1));
        super::each(0, &|_| panic!("there is no job"));
        for n_threads in 0..4 {
            let mut own = 0;
            super::beside(n_threads, runs.len(), &run, &mut || own += 1);
            assert_eq!(own, 1);
            assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == n_threads + 2));
        }
        let here = std::thread::current().id();
        assert_eq!(super::both(|| 1, || std::thread::current().id()), (Some(1), Some(here)));
    }
}
