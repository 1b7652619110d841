//! The forms of handlers that compile, and which of them name the item's type. `ci/msrv.sh` compiles this file with the oldest supported
//! Rust, so it uses no other crate. (The page `keyqueue::handlers` has forms that do not compile.)

use keyqueue::{IntoOutcome, Item, Outcome, WorkQueue, Workers};
use std::error::Error;
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
    Outcome::Success
}

async fn visit_async(url: &Item<'_, String>) -> io::Result<()> {
    Client.fetch(url).await.map(drop)
}

#[test]
fn closures_that_are_passed_directly_name_no_type() {
    let queue = WorkQueue::<String>::new;
    threads(queue().workers().spawn(1, |url| assert!(url.key() == KEY && !url.is_dirty())));
    threads(queue().workers().spawn(1, |url| url.parse::<u32>().map_or(Outcome::Success, |_| Outcome::Retry)));
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
            Ok(Outcome::Success)
        })
    });
    task(|workers| {
        workers.run_boxed(move |url| {
            let client = Arc::clone(&client);
            Box::pin(async move { client.fetch(url).await.map(drop) })
        })
    });
}

/// In a handler that returns `Result<_, Outcome>`, `?` retries its key, and each error may have another outcome instead.
#[test]
fn question_marks_make_outcomes() {
    fn parse(url: &str) -> Result<(), String> {
        if url == KEY { Ok(()) } else { Err("not a page".to_owned()) }
    }
    fn page(url: &Item<'_, String>) -> Result<Outcome, Outcome> {
        check(url)?; // an `io::Error`
        parse(url).map_err(Outcome::failed)?; // no `Error`
        parse(url).map_err(|error| Outcome::GiveUp(error.into()))?;
        "200".parse::<u16>()?;
        if url.is_empty() {
            return Err(Outcome::GiveUp("no page".into()));
        }
        Ok(Outcome::Success)
    }
    threads(WorkQueue::new().workers().spawn(1, page));
    threads(WorkQueue::<String>::new().workers().spawn(1, |url| -> Result<(), Outcome> {
        check(url)?;
        parse(url).map_err(Outcome::failed)?;
        Ok(())
    }));
    task(|workers| {
        workers.run_async(async |url| -> Result<(), Outcome> {
            Client.fetch(url).await?;
            parse(url).map_err(Outcome::failed)?;
            Ok(())
        })
    });
    // What is no outcome, but converts into a boxed error.
    threads(WorkQueue::<String>::new().workers().spawn(1, |url| parse(url)));
    threads(WorkQueue::<String>::new().workers().spawn(1, |url| -> Result<(), Box<dyn Error + Send + Sync>> {
        check(url)?;
        parse(url)?;
        Ok(())
    }));

    // Each `?` has its own outcome.
    fn fails(at: u8) -> Result<(), Outcome> {
        match at {
            0 => check(KEY).and(Err(io::Error::other("disk")))?,
            1 => parse("x").map_err(Outcome::failed)?,
            _ => Err(Outcome::GiveUp("no page".into()))?,
        }
        Ok(())
    }
    let outcomes = [0, 1, 2].map(|at| format!("{:?}", fails(at).unwrap_err()));
    assert!(outcomes[0].starts_with("Failed(Custom"), "the error, not its text: {}", outcomes[0]);
    assert_eq!(outcomes[1..], ["Failed(\"not a page\")", "GiveUp(\"no page\")"]);
}

/// As of edition 2024 the type of such a closure is `!`.
#[test]
fn closures_that_only_panic_are_handlers() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let queue = WorkQueue::<String>::new();
    let workers = queue.workers().max_retries(0).spawn(1, |_| panic!("not yet written")).unwrap();
    queue.add(KEY.to_owned());
    queue.wait_idle();
    std::panic::set_hook(hook);
    assert_eq!((workers.tally().panicked, workers.tally().given_up), (1, 1));
    let _leftover = workers.stop();
}

/// For wrappers of handlers.
#[test]
fn generic_code_takes_any_handler() {
    fn counted<R: IntoOutcome>(handler: impl Fn(&str) -> R) -> impl Fn(&Item<'_, String>) -> Outcome {
        move |url| handler(url).into_outcome()
    }
    threads(WorkQueue::new().workers().spawn(1, counted(check)));
    threads(WorkQueue::new().workers().spawn(1, counted(|url| assert_eq!(url, KEY))));
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
