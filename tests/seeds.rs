//! Who does not know the seed of a queue cannot choose keys with equal hashes, and retries of two programs do not meet: without a seed of
//! the user, two queues hash differently, and so do two limiters; and two draws of a random part differ. In one thread, in two threads, and
//! in two processes. With a seed they are the same, but for those of `backoff::jitter`, which has none.

use keyqueue::backoff::jitter;
use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{Driver, WorkQueue};
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What is drawn at random, as text.
fn draw(seed: Option<u64>) -> [(&'static str, String); 4] {
    let mut queue = WorkQueue::builder().shards(64).driver(Driver::Manual);
    let mut limiter = ItemExponentialFailure::new(SECOND, 1000 * SECOND).max_tracked(5000).jitter(1.0);
    if let Some(seed) = seed {
        (queue, limiter) = (queue.seed(seed), limiter.seed(seed));
    }
    let queue = queue.build();
    let shards: Vec<_> = (0..64).map(|key: u64| queue.shard_index(&key)).collect();
    let delays: Vec<_> = (0..20_000).map(|key: u64| limiter.when(&key)).collect();
    let remembered: Vec<_> = (0..20_000).filter(|key| limiter.num_requeues(key) > 0).collect();
    assert!((1..20_000).contains(&remembered.len()), "some are forgotten");
    [
        ("the hashes of a queue", format!("{shards:?}")),
        ("the hashes of a limiter", format!("{:?}", &remembered[..100])),
        ("the random parts of a limiter", format!("{:?}", &delays[..10])),
        ("jitter", format!("{:?}", [(); 10].map(|()| jitter(SECOND, 1.0)))),
    ]
}

/// All of one differ from all of the other.
fn differ<T: AsRef<str>>(one: &[(&str, String)], other: &[T]) {
    for ((what, one), other) in one.iter().zip(other) {
        assert_ne!(one, other.as_ref(), "{what} are drawn twice");
    }
    assert_eq!(one.len(), other.len());
}

#[test]
fn no_two_draws_are_the_same() {
    let draws = [draw(None), draw(None), std::thread::spawn(|| draw(None)).join().expect("it draws")];
    let [first, second, third] = draws.map(|draw| draw.map(|(what, drawn)| (what, drawn)));
    for (one, other) in [(&first, &second), (&first, &third), (&second, &third)] {
        differ(one, &other.clone().map(|(_, drawn)| drawn));
    }
}

#[test]
fn a_seed_draws_the_same() {
    let [first, second, other] = [7, 7, 8].map(|seed| draw(Some(seed)));
    assert_eq!(first[..3], second[..3]);
    differ(&first, &other.map(|(_, drawn)| drawn));
}

/// Set in the child.
const CHILD: &str = "KEYQUEUE_SEEDS_CHILD";
/// Before each line of its draws.
const DRAWN: &str = "drawn ";

/// Each process makes the same calls in the same order, so nothing but a seed of the system can tell their draws apart.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
#[cfg_attr(target_family = "wasm", ignore = "starts a process")]
fn two_processes_draw_differently() {
    if std::env::var_os(CHILD).is_some() {
        return draw(None).iter().for_each(|(_, drawn)| println!("\n{DRAWN}{drawn}"));
    }
    let child = || {
        let program = std::env::current_exe().expect("this test has a file");
        let args = ["--exact", "two_processes_draw_differently", "--nocapture", "--test-threads=1"];
        let output = Command::new(program).args(args).env(CHILD, "1").output().expect("a child process");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}");
        printed.lines().filter_map(|line| line.strip_prefix(DRAWN).map(str::to_owned)).collect::<Vec<_>>()
    };
    let (one, other) = (child(), child());
    let one: Vec<_> = draw(None).into_iter().zip(one).map(|((what, _), drawn)| (what, drawn)).collect();
    differ(&one, &other);
}
