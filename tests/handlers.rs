//! The forms of handlers that compile, and which of them name the item's type. `ci/msrv.sh` compiles this file with the oldest supported
//! Rust, so it uses no other crate. (The docs of `Workers::run_async` have forms that do not compile.)

use keyqueue::{Item, Outcome, WorkQueue, Workers};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Stands for what a handler has captured.
struct Client;

impl Client {
    async fn fetch(&self, url: &str) -> io::Result<usize> {
        Ok(url.len())
    }
}

fn check(url: &str) -> io::Result<()> {
    assert_eq!(url, KEY);
    Ok(())
}

const KEY: &str = "https://example.org";

/// Workers of a queue that has a key and is shut down, so that each loop ends by itself.
fn workers() -> Workers<String> {
    let queue = WorkQueue::new();
    queue.add(KEY.to_owned());
    queue.shut_down();
    queue.workers().build()
}

/// Checks that a loop of threads has processed the key.
fn threads(spawned: io::Result<Workers<String>>) {
    let workers = spawned.unwrap();
    workers.queue().add(KEY.to_owned());
    assert!(workers.drain().is_empty());
    assert_eq!(workers.tally().succeeded, 1);
}

/// Checks that a loop has processed the key. Its future may go to another thread: `tokio::spawn` takes it.
fn task<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(&Workers<String>) -> F) {
    let workers = workers();
    let poll = pin!(run(&workers)).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll, Poll::Ready(()));
    assert_eq!(workers.tally().succeeded, 1);
}

fn visit(url: &Item<'_, String>) -> Outcome {
    assert_eq!(url.key(), KEY);
    Outcome::Done
}

async fn visit_async(url: &Item<'_, String>) -> io::Result<()> {
    Client.fetch(url).await.map(drop)
}

#[test]
fn closures_that_are_passed_directly_name_no_type() {
    let queue = WorkQueue::<String>::new;
    threads(queue().workers().spawn(1, |url| assert!(url.key() == KEY && !url.is_dirty())));
    threads(queue().workers().spawn(1, |url| url.parse::<u32>().map_or(Outcome::Done, |_| Outcome::Retry)));
    // With `?`, a closure names what it returns.
    threads(queue().workers().spawn(1, |url| -> io::Result<()> {
        check(url)?;
        Ok(())
    }));

    let mut seen = Vec::new();
    workers().run(|url| seen.push(url.key().clone()));
    assert_eq!(seen, [KEY]);

    let client = Arc::new(Client);
    let own = Arc::clone(&client);
    task(|workers| workers.run_async(async move |url| own.fetch(url).await.map(drop)));
    task(|workers| workers.run_async(async |url| assert_eq!(url.key(), KEY)));
    task(|workers| {
        workers.run_async(async |url| -> io::Result<Outcome> {
            Client.fetch(url).await?;
            Ok(Outcome::Done)
        })
    });
    task(|workers| {
        workers.run_boxed(move |url| {
            let client = Arc::clone(&client);
            Box::pin(async move { client.fetch(url).await.map(drop) })
        })
    });
}

#[test]
fn functions_and_closures_in_variables_name_the_type() {
    threads(WorkQueue::new().workers().spawn(1, visit));
    task(|workers| workers.run_async(visit_async));

    let handler = |url: &Item<'_, String>| assert_eq!(url.key(), KEY);
    threads(WorkQueue::new().workers().spawn(1, handler));
    let handler = async |url: &Item<'_, String>| Client.fetch(url).await.map(drop);
    task(|workers| workers.run_async(handler));
}

/// So does a closure that is not `async` and returns a future.
#[test]
fn closures_that_return_a_future_name_the_type() {
    let client = Arc::new(Client);
    task(|workers| {
        workers.run_async(move |url: &Item<'_, String>| {
            let (client, url) = (Arc::clone(&client), url.key().clone());
            async move { client.fetch(&url).await.map(drop) }
        })
    });
}
