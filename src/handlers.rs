//! Which shape does a handler have? This module has no items: it is a page.
//!
//! A handler gets its key by reference, as an [`&Item`](crate::Item), or a batch of keys as a slice of [`BatchItem`](crate::BatchItem)s,
//! and returns what [`IntoOutcome`](crate::IntoOutcome) lists. Which closures a call takes depends on where the call runs them:
//!
//! | the call | runs it | takes |
//! |---|---|---|
//! | [`spawn`](crate::WorkersBuilder::spawn) | in several threads | <code>\|key\| …</code>, `Fn + Send + Sync + 'static` |
//! | [`run`](crate::Workers::run), [`run_batch`](crate::Workers::run_batch) | in this thread | <code>\|key\| …</code>, `FnMut`, may borrow |
//! | [`run_async`](crate::Workers::run_async), [`run_batch_async`](crate::Workers::run_batch_async) | as a future of yours | <code>async \|key\| …</code>, may borrow if the future need not be `'static` |
//! | [`run_boxed`](crate::Workers::run_boxed) | as a future of yours, in generic code | <code>\|key\| Box::pin(async move { … })</code>, `FnMut` |
//! | `spawn_tasks`, with the feature `tokio` | in tasks of Tokio, which a drain can abort | the same, `Fn + Send + Sync + 'static` |
//!
//! `spawn_tasks` takes no async closure, because Tokio wants futures that are `Send`, and stable Rust cannot require this of the futures of
//! an async closure. (It can check it of a future whose type it knows, so `tokio::spawn(workers.run_async(async |key| …))` compiles.)
//!
//! # What compiles
//!
//! ```
//! use keyqueue::{Item, WorkQueue};
//! use std::io;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # #[derive(Clone)]
//! struct Client;
//!
//! impl Client {
//!     fn read(&self, _url: &str) -> io::Result<()> {
//!         Ok(())
//!     }
//!     async fn fetch(&self, _url: &str) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! fn read(url: &Item<'_, String>) -> io::Result<()> {
//!     Client.read(url)
//! }
//!
//! async fn fetch(url: &Item<'_, String>) -> io::Result<()> {
//!     Client.fetch(url).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> io::Result<()> {
//! let client = Arc::new(Client);
//! let queue = WorkQueue::<String>::new(); // names the type of the keys
//! let workers = queue.workers().build();
//! # queue.shut_down();
//!
//! // Threads: a function, or a closure.
//! queue.workers().spawn(4, read)?;
//! queue.workers().spawn(4, {
//!     let client = Arc::clone(&client);
//!     move |url| client.read(url)
//! })?;
//! workers.run(|url| client.read(url)); // borrows the client
//! workers.run_batch(100, Duration::ZERO, |batch| {
//!     batch.iter_mut().for_each(|url| {
//!         let result = client.read(url);
//!         url.set_outcome(result);
//!     });
//! });
//!
//! // Tasks: a function, or an async closure.
//! tokio::spawn(workers.run_async(fetch));
//! tokio::spawn(workers.run_async({
//!     let client = Arc::clone(&client);
//!     async move |url| client.fetch(url).await
//! }));
//! workers.run_async(async |url| client.fetch(url).await).await; // borrows the client
//!
//! // With `?`, a closure names what it returns.
//! tokio::spawn(workers.run_async(async |url| -> io::Result<()> {
//!     Client.fetch(url).await?;
//!     Ok(())
//! }));
//!
//! // A closure that is not async itself names the type of its argument, and its future owns a clone of the key.
//! tokio::spawn(workers.run_async({
//!     let client = Arc::clone(&client);
//!     move |url: &Item<'_, String>| {
//!         let (client, url) = (Arc::clone(&client), url.key().clone());
//!         async move { client.fetch(&url).await }
//!     }
//! }));
//!
//! // Boxed futures: each call clones what the closure has captured.
//! tokio::spawn(workers.run_boxed({
//!     let client = Arc::clone(&client);
//!     move |url| {
//!         let client = Arc::clone(&client);
//!         Box::pin(async move { client.fetch(url).await })
//!     }
//! }));
//! # #[cfg(feature = "tokio")]
//! workers.spawn_tasks(8, |url| Box::pin(fetch(url)));
//! # #[cfg(feature = "tokio")]
//! workers.spawn_tasks(8, move |url| {
//!     let client = Arc::clone(&client);
//!     Box::pin(async move { client.fetch(url).await })
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # What the compiler says
//!
//! The texts are those of rustc 1.95. Each program below is one that it refuses.
//!
//! ## The size for values of type `str` cannot be known
//!
//! ```text
//! error[E0277]: the size for values of type `str` cannot be known at compilation time
//! error[E0631]: type mismatch in closure arguments
//!    = note: expected closure signature `for<'a, 'b> fn((&'a Item<'b, String>,)) -> _`
//!               found closure signature `fn((str,)) -> _`
//! ```
//! `run_async` got a closure that is not async. The compiler does not look at the call for the type of its argument then, guesses it from
//! the body, and guesses wrong. Write <code>async \|url\| …</code>.
//! ```compile_fail,E0277
//! # use keyqueue::WorkQueue;
//! # struct Client;
//! # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
//! # let client = std::sync::Arc::new(Client);
//! # let workers = WorkQueue::<String>::new().workers().build();
//! let _ = workers.run_async(|url| async move { client.fetch(&url).await });
//! ```
//! `spawn_tasks` says the same of an async closure, with `type mismatch in function arguments`. It wants a boxed future:
//! <code>\|url\| Box::pin(async move { … })</code>.
#![cfg_attr(
    feature = "tokio",
    doc = r#"```compile_fail,E0277
# use keyqueue::WorkQueue;
# struct Client;
# impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
# let client = std::sync::Arc::new(Client);
# let workers = WorkQueue::<String>::new().workers().build();
workers.spawn_tasks(8, async move |url| client.fetch(&url).await);
```"#
)]
//!
//! ## Type mismatch in closure arguments
//!
//! ```text
//! error[E0631]: type mismatch in closure arguments
//!    = note: expected closure signature `for<'a, 'b> fn(&'a Item<'b, _>) -> _`
//!               found closure signature `fn(Item<'_, _>) -> _`
//! ```
//! The closure names the type of its argument without the `&`. Leave the type out, or write `&Item<'_, String>`.
//! ```compile_fail,E0631
//! # use keyqueue::{Item, WorkQueue};
//! # let queue = WorkQueue::<String>::new();
//! let _ = queue.workers().spawn(4, |url: Item<'_, String>| println!("{url}"));
//! ```
//!
//! ## Not general enough
//!
//! ```text
//! error: implementation of `Fn` is not general enough
//! error: implementation of `AsyncFnMut` is not general enough
//! ```
//! The closure is in a variable, and does not name the type of its argument. Pass it directly, or write <code>\|url: &Item<'_,
//! String>\|</code>.
//! ```compile_fail
//! # use keyqueue::WorkQueue;
//! # let queue = WorkQueue::<String>::new();
//! let handler = |url| println!("{url}");
//! let _ = queue.workers().spawn(4, handler);
//! ```
//!
//! ## Cannot move out of a captured variable
//!
//! ```text
//! error[E0507]: cannot move out of `client`, a captured variable in an `Fn` closure
//! ```
//! The first call of the handler would take the client away from the next. Clone it in the closure, before the `async move`.
//! ```compile_fail,E0507
//! # use keyqueue::WorkQueue;
//! # struct Client;
//! # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
//! # let client = std::sync::Arc::new(Client);
//! # let workers = WorkQueue::<String>::new().workers().build();
//! let _ = workers.run_boxed(move |url| Box::pin(async move { client.fetch(url).await }));
//! ```
//!
//! ## Lifetime may not live long enough
//!
//! ```text
//! error: lifetime may not live long enough
//!        returning this value requires that `'1` must outlive `'2`
//! ```
//! The future of an `async` block borrows the argument of a closure, which only an async closure or `run_boxed` allows. Write
//! <code>async \|url\| …</code>, or clone the key.
//! ```compile_fail
//! # use keyqueue::{Item, WorkQueue};
//! # struct Client;
//! # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
//! # let client = std::sync::Arc::new(Client);
//! # let workers = WorkQueue::<String>::new().workers().build();
//! let _ = workers.run_async(|url: &Item<'_, String>| {
//!     let client = client.clone();
//!     async move { client.fetch(url).await }
//! });
//! ```
//!
//! ## Does not live long enough
//!
//! ```text
//! error[E0597]: `queue` does not live long enough
//!        argument requires that `queue` is borrowed for `'static`
//! ```
//! An item of [`get`](crate::WorkQueue::get) or [`get_async`](crate::WorkQueue::get_async) borrows its queue, and a thread or task of its
//! own may outlive that. Take the item by [`get_owned`](crate::WorkQueue::get_owned) or
//! [`get_owned_async`](crate::WorkQueue::get_owned_async).
//! ```compile_fail,E0597
//! # use keyqueue::WorkQueue;
//! # let queue = WorkQueue::<String>::new();
//! while let Some(url) = queue.get() {
//!     std::thread::spawn(move || println!("{url}"));
//! }
//! ```
//! The same text about what a handler uses, such as `client`, means that the handler borrows it, and must own it: `move`, with a clone of
//! an `Arc`.
//!
//! ## Cannot assign to a captured variable
//!
//! ```text
//! error[E0594]: cannot assign to `seen`, as it is a captured variable in a `Fn` closure
//! ```
//! Several threads run the closure at the same time. Use an atomic, or a mutex, or [`run`](crate::Workers::run), whose closure one thread
//! has to itself.
//! ```compile_fail,E0594
//! # use keyqueue::WorkQueue;
//! # let queue = WorkQueue::<String>::new();
//! let mut seen = 0;
//! let _ = queue.workers().spawn(4, move |url| seen += url.len());
//! ```
//!
//! ## A handler cannot return
//!
//! ```text
//! error[E0277]: a handler cannot return `{async closure body@src/main.rs:10:46: 10:69}`
//! ```
//! Threads got an async closure. Write a closure that is not async, or take [`run_async`](crate::Workers::run_async). Of any other type,
//! the text goes on with what a handler may return.
//! ```compile_fail,E0277
//! # use keyqueue::WorkQueue;
//! # let queue = WorkQueue::<String>::new();
//! let _ = queue.workers().spawn(4, async |url| println!("{url}"));
//! ```
//!
//! ## Type annotations needed
//!
//! ```text
//! error[E0283]: type annotations needed for `Result<(), _>`
//! ```
//! A closure with `?` does not say which error it returns. Name it: <code>\|url\| -> Result<(), Outcome> { … }</code>.
//! ```compile_fail,E0283
//! # use keyqueue::WorkQueue;
//! # fn read(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//! # let queue = WorkQueue::<String>::new();
//! let _ = queue.workers().spawn(4, |url| {
//!     read(url)?;
//!     Ok(())
//! });
//! ```
//! ```text
//! error[E0282]: type annotations needed for `WorkQueue<_>`
//! ```
//! The handler uses the key before a call tells its type. Write `WorkQueue::<String>::new()`.
//! ```compile_fail,E0282
//! # use keyqueue::WorkQueue;
//! let queue = WorkQueue::new();
//! let _ = queue.workers().build().run_async(async |url| println!("{}", url.len()));
//! queue.add(String::new());
//! ```
//!
//! ## The question mark does not convert the error
//!
//! ```text
//! error[E0277]: `?` couldn't convert the error: `String: std::error::Error` is not satisfied
//!    = note: required for `Outcome` to implement `From<String>`
//! ```
//! A text, a boxed error and an `anyhow::Error` are no `std::error::Error`. Write `.map_err(Outcome::failed)?`: see
//! [`Outcome`](crate::Outcome#the-question-mark).
//! ```compile_fail,E0277
//! # use keyqueue::{Outcome, WorkQueue};
//! # fn parse(_: &str) -> Result<u32, String> { Ok(7) }
//! # let queue = WorkQueue::<String>::new();
//! let _ = queue.workers().spawn(4, |url| -> Result<(), Outcome> {
//!     let _number = parse(url)?;
//!     Ok(())
//! });
//! ```
