//! Retries that depend on the reason: what a handler returns decides whether and when its key runs again.
//!
//! ```text
//! cargo run --release --example retry_with_reasons
//! ```
//!
//! | the page's server | the handler returns | what happens |
//! |---|---|---|
//! | answers | `Ok(Outcome::Success)` | its failures are forgotten |
//! | does not answer | `Err(Outcome::failed(error))`, or `?` | a retry after the limiter's delay, which grows; given up after 5 |
//! | says 429, and when to come back | `Err(Outcome::RetryAfter { .. })` | a retry no earlier than that |
//! | says 404 | `Err(Outcome::GiveUp(reason))` | no retry |
//! | makes the handler panic | – | caught and counted; a retry, as for an error |
//!
//! `on_error` and `on_give_up` get the key and the reason, so no handler logs by itself.

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{Outcome, WorkQueue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server that answers in its own way to the nth request for a page.
fn fetch(page: &str, nth: u32) -> Result<&'static str, Outcome> {
    match (page, nth) {
        ("/gone", _) => Err(Outcome::GiveUp("404".into())),
        ("/busy", 0) => Err(Outcome::RetryAfter { delay: Duration::from_millis(300), error: "429".into() }),
        ("/flaky", 0..=2) => Err(Outcome::failed("connection reset")),
        ("/down", _) => Err(Outcome::failed("connection refused")),
        ("/odd", 0) => panic!("a tag that the parser does not expect"),
        _ => Ok("<html>"),
    }
}

fn main() -> std::io::Result<()> {
    // The worker's panics are part of this example: without their messages.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let backoff = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1));
    let queue = WorkQueue::<&str>::builder().rate_limiter(backoff).build();
    let given_up = Arc::new(Mutex::new(BTreeMap::new()));
    let workers = queue
        .workers()
        .max_retries(5)
        .on_error(|page, error| println!("{page}: {error}"))
        .on_panic(|page, message| println!("{page}: panicked: {message}"))
        .on_give_up({
            let given_up = Arc::clone(&given_up);
            move |page: &&str, why| _ = given_up.lock().unwrap().insert(*page, why.to_string())
        })
        .spawn(2, |page| -> Result<Outcome, Outcome> {
            let text = fetch(page, page.num_requeues() as u32)?;
            println!("{}: {text}", page.key());
            Ok(Outcome::Success)
        })?;

    queue.add_all(["/", "/gone", "/busy", "/flaky", "/down", "/odd"]);
    queue.wait_idle(); // for the retries, too, which are delays; a drain does not wait for delays
    let leftover = workers.drain();
    std::panic::set_hook(hook);

    let (tally, given_up) = (workers.tally(), given_up.lock().unwrap());
    println!("{tally:?}\n{given_up:#?}");
    assert!(leftover.is_empty());
    assert_eq!((tally.succeeded, tally.given_up, tally.panicked, queue.stats().failing), (4, 2, 1, 0));
    assert_eq!(tally.retried, 1 + 3 + 5 + 1, "/busy, /flaky, /down, /odd");
    assert_eq!(given_up.keys().copied().collect::<Vec<_>>(), ["/down", "/gone"]);
    Ok(())
}
