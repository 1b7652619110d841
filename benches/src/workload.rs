//! A workload and its subjects. Each module of subjects has a list of workloads.

use std::time::Duration;

/// One workload with its subjects.
pub struct Workload {
    /// Workloads of a group are shown in one table.
    pub group: &'static str,
    pub name: String,
    /// The timed parts of a run, and the target of each.
    pub figures: Vec<(&'static str, Option<f64>)>,
    /// Operations a run.
    pub ops: u64,
    /// keyqueue, or what stands for it, is the first. Look the others up by name: not every subject can run every workload.
    pub subjects: Vec<(&'static str, Run)>,
    /// The number of subjects, from the second on, to which the targets apply.
    pub rivals: usize,
}

/// Runs a workload once, and returns a time for each of its figures.
pub type Run = Box<dyn Fn() -> Vec<Duration>>;

/// A run with one timed part.
pub fn once(run: impl Fn() -> Duration + 'static) -> Run {
    Box::new(move || vec![run()])
}

/// The names of queues, each with a run of the workload on it, which has one timed part.
#[macro_export]
macro_rules! runs {
    ($key:ty; $($queue:ty),*; $work:ident $arguments:tt) => {
        vec![$($crate::runs!(@ $queue, $key, $work $arguments)),*]
    };
    (@ $queue:ty, $key:ty, $work:ident($($argument:expr),*)) => {
        (<$queue as $crate::Subject<$key>>::NAME, $crate::workload::once(move || $work::<$key, $queue>($($argument),*)))
    };
}

/// The names of subjects, each with a run of the workload on it, which returns its times.
#[macro_export]
macro_rules! subjects {
    ($subject:path; $($queue:ty),*; $work:ident $arguments:tt) => {
        vec![$((<$queue as $subject>::NAME, $crate::subjects!(@ $queue, $work $arguments))),*]
    };
    (@ $queue:ty, $work:ident($($argument:expr),*)) => {
        Box::new(move || $work::<$queue>($($argument),*)) as $crate::workload::Run
    };
}

impl Workload {
    /// The subjects to which the targets apply.
    pub fn rivals(&self) -> impl Iterator<Item = &'static str> {
        self.subjects[1..][..self.rivals].iter().map(|(name, _)| *name)
    }
}
