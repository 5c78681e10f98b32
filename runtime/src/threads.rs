//! Jobs of the runtime on several threads.

pub(crate) use drift_format::threads::beside;
use std::sync::Mutex;

/// As many as a workstation has cores. On smaller machines they share cores, which costs nothing worth asking the
/// system for their number, which is more code than all of this.
const MAX_THREADS: usize = 16;

/// Calls `job` with every number below `n_jobs`, on this thread and a few others.
/// Where no thread can be had, the others do the work.
pub(crate) fn each(n_jobs: usize, job: &(dyn Fn(usize) + Sync)) {
    beside(MAX_THREADS, n_jobs, job, &mut || ());
}

/// Does two things at once, the second on this thread.
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

#[cfg(test)]
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
