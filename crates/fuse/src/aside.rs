//! Runs work that may wait for the kernel, on threads apart from those that serve requests.
//!
//! A notice that drops pages waits for the locks of these pages, and a request that waits for its reply may hold them (fuse-I2). If all
//! serving threads waited so, no thread could send that reply, and the mount would hang. The threads for such work start with the first of
//! it and end with the mount.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Enough that one file with locked pages does not hold up another. A waiting job costs the memory of one request.
const THREADS_MAX: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct Aside(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Aside {
    /// Queues `job` for another thread; runs it here if the system has no thread.
    pub fn run(&self, job: Job) {
        if let Some(job) = self.run_apart(job) {
            job();
        }
    }

    /// Queues `job` for another thread; gives it back if the system has none.
    #[must_use]
    pub fn run_apart(&self, job: Job) -> Option<Job> {
        let mut state = self.0.state.lock();
        if state.idle <= state.jobs.len() && state.threads < THREADS_MAX {
            let shared = self.0.clone();
            match std::thread::Builder::new().name("fuse-aside".into()).spawn(move || work(&shared)) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    tracing::warn!(%error, "no thread for work that may wait");
                    return Some(job);
                }
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.0.changed.notify_one();
        None
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        match state.jobs.pop_front() {
            Some(job) => {
                drop(state);
                job();
                state = shared.state.lock();
            }
            None if state.is_over => return,
            None => {
                state.idle += 1;
                shared.changed.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_beside_each_other_and_all_are_done() {
        let aside = Aside::default();
        let (sender, receiver) = mpsc::channel();
        let all_there = Arc::new(Barrier::new(THREADS_MAX));
        for n in 0..THREADS_MAX {
            let (sender, all_there) = (sender.clone(), all_there.clone());
            aside.run(Box::new(move || {
                all_there.wait();
                sender.send(n).unwrap();
            }));
        }
        for n in THREADS_MAX..100 {
            let sender = sender.clone();
            aside.run(Box::new(move || sender.send(n).unwrap()));
        }
        drop((sender, aside));
        let mut done: Vec<usize> = receiver.iter().collect();
        done.sort_unstable();
        assert!(done.iter().copied().eq(0..100), "what was begun is done, also when the door goes");
    }
}
