//! Work on several threads, through one function so that its machinery is in a program once.

#[cfg(feature = "session")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As many as a workstation has cores. On smaller machines they share cores, which costs nothing worth asking the
/// system for their number, which is more code than all of this.
const MAX_THREADS: usize = 16;

/// Calls `job` with every number below `n_jobs`, on this thread and a few others.
/// Where no thread can be had, the others do the work.
pub(crate) fn each(n_jobs: usize, job: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < n_jobs) {
            job(index);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..MAX_THREADS.min(n_jobs) {
            drop(std::thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
}

/// Does two things at once.
#[cfg(feature = "session")]
pub(crate) fn both<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (Option<A>, Option<B>) {
    let (first, second) = (Mutex::new((Some(first), None)), Mutex::new((Some(second), None)));
    each(2, &|index| match index {
        0 => run(&first),
        _ => run(&second),
    });
    (
        first.into_inner().ok().and_then(|(_, result)| result),
        second.into_inner().ok().and_then(|(_, result)| result),
    )
}

#[cfg(feature = "session")]
fn run<F: FnOnce() -> T, T>(task: &Mutex<(Option<F>, Option<T>)>) {
    let Ok(mut task) = task.lock() else { return };
    if let Some(work) = task.0.take() {
        task.1 = Some(work());
    }
}

#[cfg(all(test, feature = "session"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_job_runs_once() {
        let runs: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        super::each(runs.len(), &|index| {
            runs[index].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == 1));
        super::each(0, &|_| panic!("there is no job"));
        assert_eq!(super::both(|| 1, || "two"), (Some(1), Some("two")));
    }
}
