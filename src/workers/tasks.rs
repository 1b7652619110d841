//! Loops as tasks of Tokio, whose handles the workers keep.

use super::run_loop::Loop;
use super::size::Start;
use super::{IntoOutcome, Workers};
use crate::Item;
use crate::sync::Arc;
use std::future::Future;
use std::hash::Hash;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use tokio::runtime::Handle;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Starts `tasks` tasks on the current Tokio runtime. Each task runs a loop. A later call may start more. The workers keep the handles
    /// of the tasks: a drain with a deadline aborts a task whose handler hangs.
    ///
    /// When each call returns, and what happens to a handler that still runs then:
    ///
    /// | the call | returns | a handler that still runs |
    /// |---|---|---|
    /// | [`drain_until`], [`drain_timeout`](Self::drain_timeout) | when no key is queued or processing and all loops have ended, or at the deadline | **is aborted** at the deadline; its key is in [`processing`] |
    /// | [`drain_async`](Self::drain_async), [`drain`](Self::drain) | the same, without a deadline | (does not occur) |
    /// | [`finish_until`](Self::finish_until), [`finish`](Self::finish) | when all loops have ended, which begin no queued key, or at the deadline | **is aborted** at the deadline; its key is in `processing` |
    /// | [`stop`](Self::stop) | at once | runs to its end; its key is in `processing` |
    /// | [`join_async`](Self::join_async), [`join`](Self::join) | when all loops have ended | (does not occur) |
    /// | drop of the `Workers` | at once | goes on, and so does its loop |
    /// | drop of the runtime | when it has dropped its tasks | is dropped; its key is queued again |
    ///
    /// [`drain_until`]: Self::drain_until
    /// [`processing`]: crate::Leftover::processing
    ///
    /// No call aborts a handler in a thread, or a handler of [`run_async`](Self::run_async). To abort all tasks at once, call
    /// `drain_until(std::future::ready(()))`.
    ///
    /// An aborted task ends where its handler awaits: the runtime drops the handler's future, and the key is no longer processing. This
    /// happens soon after the drain returns, and [`join_async`](Self::join_async) waits for it. If a handler blocks its thread, its task
    /// ends only when the handler awaits or returns. The run has not succeeded, so the key is added again, which the queue refuses: a
    /// later stop returns it in [`refused`](crate::Leftover::refused). If it was added while it was processing, it is queued again, and
    /// another task may get it before the drain aborts that task too.
    ///
    /// In a task, use the calls for tasks, because `drain_timeout`, `drain` and `join` block a thread that the runtime may need for the
    /// handlers.
    ///
    /// # The handler
    /// It returns a boxed future, as in [`run_boxed`](Self::run_boxed), because Tokio wants futures that are `Send`, and stable Rust cannot
    /// yet require this of the futures of an async closure. Pass an `async fn` as `|url| Box::pin(visit(url))`. A closure clones its
    /// captured values for each call:
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// # let client = Arc::new(Client);
    /// workers.spawn_tasks(8, move |url| {
    ///     let client = Arc::clone(&client);
    ///     Box::pin(async move { client.fetch(url).await })
    /// });
    /// # }
    /// ```
    /// The box costs an allocation per key. For an async closure, spawn [`run_async`](Self::run_async) in a `JoinSet` of your own. If the
    /// compiler refuses your closure, look for its text among the [handlers](crate::handlers).
    ///
    /// # Panics
    /// If it is not called within a Tokio runtime (in a task, in `block_on`, or after `runtime.enter()`), or if `tasks` is 0. Then it
    /// starts no task.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Item, WorkQueue};
    /// use std::time::Duration;
    ///
    /// async fn visit(url: &Item<'_, String>) -> Result<(), std::io::Error> {
    ///     # if url.key() == "https://example.org/hangs" {
    ///     #     std::future::pending().await
    ///     # }
    ///     println!("visiting {url}");
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::new();
    /// let workers = queue.workers().max_retries(15).build();
    /// workers.spawn_tasks(8, |url| Box::pin(visit(url)));
    /// queue.add("https://example.org".to_owned());
    /// queue.add("https://example.org/hangs".to_owned());
    ///
    /// let deadline = tokio::time::sleep(Duration::from_millis(25));
    /// let leftover = workers.drain_until(deadline).await;
    /// assert_eq!(leftover.processing, ["https://example.org/hangs"]);
    /// workers.join_async().await; // the task that hung has ended
    /// assert_eq!((workers.tally().running, queue.processing_len()), (0, 0));
    /// # }
    /// ```
    #[track_caller]
    pub fn spawn_tasks<F, R>(&self, tasks: usize, handler: F)
    where
        F: for<'i> Fn(&'i Item<'_, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>> + Send + Sync + 'static,
        R: IntoOutcome + 'static,
    {
        assert!(tasks > 0, "spawn_tasks: tasks is 0, so no task would process keys");
        let Ok(runtime) = Handle::try_current() else {
            panic!(
                "spawn_tasks: there is no Tokio runtime here; call it in a task, in block_on, or after runtime.enter()"
            );
        };
        let starter = std::sync::Arc::new(Tasks { runtime, handler, results: PhantomData });
        self.inner.start_with(&starter);
        // The last task has the original. If this call kept one, it might drop what the handler has captured after a join has returned.
        for starter in std::iter::repeat_n(starter, tasks) {
            starter.start(Loop::new(Arc::clone(&self.inner), true)).expect("a task can always be started");
        }
    }
}

/// Starts tasks.
struct Tasks<H, R> {
    runtime: Handle,
    handler: H,
    results: PhantomData<fn() -> R>,
}

impl<K, H, R> Start<K> for Tasks<H, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: for<'i> Fn(&'i Item<'_, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>> + Send + Sync + 'static,
    R: IntoOutcome + 'static,
{
    fn start(self: std::sync::Arc<Self>, own: Loop<K>) -> io::Result<()> {
        let (workers, counts, runtime) = (Arc::clone(own.workers()), Arc::clone(own.counts()), self.runtime.clone());
        let mut work = (async move |item: &Item<'_, K>| (self.handler)(item).await, own);
        let task = runtime.spawn(async move {
            let (handler, own) = &mut work;
            own.run_async(handler).await;
        });
        workers.loops.keep_task(&counts, task.abort_handle());
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::WorkQueue;
    use crate::sync::Arc;
    use std::future::{pending, ready};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// What is kept for a task goes when its loop has ended: by itself, by an abort, or because the runtime was dropped, also before
    /// the handle was kept.
    #[test]
    fn handles_of_ended_tasks_are_dropped() {
        let runtime = runtime();
        let queue = WorkQueue::<u32>::new();
        let workers = queue.workers().build();
        let start = |tasks| {
            let _in_it = runtime.enter();
            workers.spawn_tasks(tasks, |_| Box::pin(pending::<()>()));
            workers.inner.loops.weak_counts()
        };
        let running = |kept: &[std::sync::Weak<_>]| kept.iter().filter(|counts| counts.strong_count() > 0).count();
        let kept = start(3);
        queue.add(1);
        while queue.processing_len() == 0 {
            runtime.block_on(tokio::task::yield_now());
        }
        assert_eq!(running(&kept), 3);
        runtime.block_on(async {
            queue.shut_down(); // two loops wait, and end by themselves
            while workers.tally().running > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(running(&kept), 1);
            assert_eq!(workers.drain_until(ready(())).await.processing, [1]);
            workers.join_async().await;
        });
        assert_eq!((running(&kept), queue.processing_len()), (0, 0));

        let kept = start(2);
        assert_eq!(running(&kept), 2);
        drop(runtime);
        assert_eq!((running(&kept), workers.tally().running), (0, 0));
        assert_eq!(Arc::strong_count(&workers.inner), 1);
    }

    /// A drain that aborts the tasks may come between the start of a task and the keeping of its handle.
    #[test]
    fn a_task_that_starts_during_an_abort_is_aborted() {
        runtime().block_on(async {
            let workers = WorkQueue::<u32>::new().workers().build();
            let (handler, own) = workers.enter(());
            let task = tokio::spawn(pending::<()>());
            workers.inner.loops.abort_tasks();
            workers.inner.loops.keep_task(own.counts(), task.abort_handle());
            assert!(task.await.unwrap_err().is_cancelled());
            drop((handler, own));
        });
    }
}
