//! Runs work of the runtime on several threads in parallel.

pub(crate) use drift_format::threads::run_jobs;
use std::sync::Mutex;

/// Maximum number of threads: the core count of a typical workstation. More threads than cores cost little, and
/// querying the core count takes more code than this module.
const MAX_THREADS: usize = 16;

/// Calls `job` with every number below `n_jobs`, on the calling thread and several others. If threads cannot be
/// spawned, the threads that run do all the work.
pub(crate) fn parallel_for(n_jobs: usize, job: &(dyn Fn(usize) + Sync)) {
    run_jobs(MAX_THREADS, n_jobs, job, &mut || ());
}

/// Runs two closures in parallel, the second one on the calling thread. Returns their results.
pub(crate) fn join<A: Send, B>(
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
    run_jobs(2, 1, &job, &mut || result = second.take().map(|work| work()));
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
        super::parallel_for(runs.len(), &run);
        assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == 1));
        super::parallel_for(0, &|_| panic!("there is no job"));
        for n_threads in 0..4 {
            let mut main_task_runs = 0;
            super::run_jobs(n_threads, runs.len(), &run, &mut || main_task_runs += 1);
            assert_eq!(main_task_runs, 1);
            assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == n_threads + 2));
        }
        let here = std::thread::current().id();
        assert_eq!(super::join(|| 1, || std::thread::current().id()), (Some(1), Some(here)));
    }
}
