//! Backoff without a queue: replays of the real `wait.Backoff` (`data/backoff.jsonl`, 54 traces), and waits for a stop.

mod support {
    pub(crate) mod within;
}

use futures_executor::block_on;
use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until, backoff_until_async, jitter};
use keyqueue::{Clock, MockClock};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::within::within_30_s;

const TRACES: &str = include_str!("data/backoff.jsonl");

const SECOND: Duration = Duration::from_secs(1);

fn nanos(value: &Value) -> Duration {
    Duration::from_nanos(value.as_u64().expect("a duration that is not negative"))
}

fn backoff(config: &Value) -> Backoff {
    Backoff {
        duration: nanos(&config["duration"]),
        factor: config["factor"].as_f64().expect("a number"),
        jitter: config["jitter"].as_f64().unwrap_or(0.0),
        // A negative number means no steps.
        steps: config["steps"].as_i64().expect("a number").try_into().unwrap_or(0),
        cap: nanos(&config["cap"]),
    }
}

fn exponential(config: &Value) -> BackoffManager {
    let [initial, max, reset_after] = ["duration", "cap", "reset"].map(|name| nanos(&config[name]));
    let [factor, jitter] = ["factor", "jitter"].map(|name| config[name].as_f64().unwrap_or(0.0));
    BackoffManager::exponential(initial, max, reset_after, factor, jitter)
}

/// The object that a trace calls.
enum Subject {
    Steps(Backoff),
    Manager(BackoffManager, MockClock),
    Draws(Option<Backoff>, usize),
}

impl Subject {
    fn new(config: &Value) -> Self {
        let (clock, time) = Clock::mock();
        let manager = || BackoffManager::new(backoff(config), nanos(&config["reset"])).clock(clock.clone());
        let draws = || config["draws"].as_u64().expect("a number") as usize;
        match config["kind"].as_str().expect("a name") {
            "step" => Self::Steps(backoff(config)),
            "exp_manager" => Self::Manager(exponential(config).clock(clock.clone()), time),
            "delay_with_reset" => Self::Manager(manager().windowed(), time),
            "jitter" => Self::Draws(None, draws()),
            "jitter_step" => Self::Draws(Some(backoff(config)), draws()),
            other => panic!("no such kind: {other}"),
        }
    }

    /// Makes a call, and compares its result if `compare`: the original is known to be wrong in some calls.
    fn call(&mut self, op: &[Value], compare: bool) {
        let result = op.last().expect("a result");
        match (self, op[0].as_str().expect("a name")) {
            (Self::Steps(backoff), "step") => {
                let delay = backoff.step();
                if compare {
                    assert_eq!((delay, backoff.duration), (nanos(&result[0]), nanos(&result[2])), "{op:?}");
                    assert_eq!(backoff.steps as u64, result[1].as_u64().unwrap(), "{op:?}");
                }
            }
            (Self::Manager(_, time), "advance") => time.advance(nanos(&op[1])),
            (Self::Manager(manager, _), "next") => {
                let delay = manager.step();
                if compare {
                    assert_eq!(delay, nanos(result), "{op:?}");
                }
            }
            (Self::Draws(None, draws), "jitter") => {
                let (delay, factor) = (nanos(&op[1]), op[2].as_f64().unwrap());
                let bound = if factor > 0.0 { factor } else { 1.0 };
                spread((0..*draws).map(|_| jitter(delay, factor)), delay, bound);
            }
            (Self::Draws(Some(backoff), draws), "step") => {
                let before = backoff.clone();
                spread((0..*draws).map(|_| before.clone().step()), before.duration, before.jitter);
                backoff.step();
                assert_eq!(backoff.steps as u64, result[3].as_u64().unwrap(), "{op:?}");
                assert_eq!(backoff.duration, nanos(&result[4]), "{op:?}");
            }
            (_, other) => panic!("no such call: {other}"),
        }
    }
}

/// Checks that draws are within the bounds, and spread over them. Of a thousand draws, a tenth of the range gets none only once
/// in 10^45 runs.
fn spread(draws: impl Iterator<Item = Duration>, delay: Duration, factor: f64) {
    let width = delay.as_nanos() as f64 * factor;
    let mut tenths = BTreeMap::<_, usize>::new();
    let mut count = 0;
    for draw in draws {
        let more = draw.checked_sub(delay).expect("never shorter than the delay").as_nanos() as f64;
        assert!(more < width || width == 0.0 && more == 0.0, "{draw:?} of {delay:?} and {factor}");
        *tenths.entry((more / width * 10.0) as usize).or_default() += 1;
        count += 1;
    }
    if width >= 1000.0 && count >= 1000 {
        assert_eq!(tenths.len(), 10, "{tenths:?}");
    }
}

#[test]
fn backoff_does_what_client_go_did() {
    let (mut calls, mut skipped) = (0, 0);
    for line in TRACES.lines() {
        let trace: Value = serde_json::from_str(line).expect("one JSON object per line");
        let mut subject = Subject::new(&trace["config"]);
        let quirks = trace["quirk_at"].as_array().cloned().unwrap_or_default();
        for (at, op) in trace["ops"].as_array().expect("a list of calls").iter().enumerate() {
            // The original overflows to a negative delay there; this crate goes on with the longest delay.
            let compare = !quirks.contains(&at.into());
            subject.call(op.as_array().expect("a call is a list"), compare);
            calls += 1;
            skipped += usize::from(!compare);
        }
    }
    assert_eq!(TRACES.lines().count(), 54);
    assert!(calls > 2000 && skipped < 400, "{calls} calls, {skipped} skipped");
}

#[test]
fn products_saturate() {
    let start = Backoff { duration: SECOND, factor: 1e10, steps: 10, ..Backoff::default() };
    let delays: Vec<_> = start.clone().into_iter().collect();
    assert_eq!(delays[..2], [SECOND, Duration::from_secs(10_000_000_000)]);
    assert_eq!(delays[2..], [Duration::MAX; 8]);
    let capped = Backoff { cap: SECOND * 3600, ..start };
    assert_eq!(capped.into_iter().collect::<Vec<_>>(), [SECOND], "the cap ends the steps");
    assert_eq!(jitter(Duration::MAX, 1.0), Duration::MAX);
}

#[test]
fn invalid_factors_count_as_documented() {
    for factor in [0.0, -0.0, -2.0, f64::NAN, f64::NEG_INFINITY] {
        let mut backoff = Backoff { duration: SECOND, factor, jitter: factor, steps: 3, cap: SECOND / 2 };
        assert_eq!([(); 4].map(|()| backoff.step()), [SECOND; 4], "{factor}");
        assert_eq!(backoff.steps, 0);
        spread((0..1000).map(|_| jitter(SECOND, factor)), SECOND, 1.0);
    }
    let mut infinite = Backoff { duration: SECOND, factor: f64::INFINITY, steps: 3, ..Backoff::default() };
    assert_eq!([(); 3].map(|()| infinite.step()), [SECOND, Duration::MAX, Duration::MAX]);
    assert_eq!(jitter(Duration::ZERO, f64::INFINITY), Duration::ZERO);
}

/// client-go's backoff adds the jitter to the cap; a backoff within its cap, and the exponential manager, do not.
#[test]
fn jitter_exceeds_the_cap_unless_the_backoff_is_within_it() {
    let cap = 6 * SECOND;
    let plain = Backoff { duration: SECOND, factor: 2.0, jitter: 0.5, steps: 10, cap };
    let at_cap = |mut backoff: Backoff| {
        (0..9).for_each(|_| _ = backoff.step());
        backoff
    };
    let draws = |backoff: &Backoff| (0..1000).map(|_| backoff.clone().step()).collect::<Vec<_>>();
    spread(draws(&at_cap(plain.clone())).into_iter(), cap, 0.5); // 6 to 9 s
    spread(draws(&at_cap(plain.clone().within_cap())).into_iter(), 4 * SECOND, 0.5); // 4 to 6 s
    let manager = BackoffManager::exponential(SECOND, cap, 60 * SECOND, 2.0, 0.5);
    let ranges = [1.0, 2.0, 4.0, 4.0, 4.0].map(Duration::from_secs_f64);
    for _ in 0..1000 {
        let delays = manager.clone().take(5).zip(ranges);
        delays.for_each(|(delay, least)| assert!((least..least * 3 / 2).contains(&delay), "{delay:?}, {least:?}"));
    }
    let at_max = |_| manager.clone().nth(5).unwrap();
    spread((0..1000).map(at_max), 4 * SECOND, 0.5);
    let mut manager = BackoffManager::new(plain.within_cap(), 60 * SECOND);
    assert!((0..1000).all(|_| manager.step() <= cap));
}

#[test]
fn what_within_cap_does_at_the_edges() {
    let cap = 6 * SECOND;
    let backoff = Backoff { duration: SECOND, factor: 2.0, jitter: 0.5, steps: 10, cap };
    // The first delay above the cap, with or without growth; or above the longest delay before the jitter.
    for (duration, factor) in [(9, 2.0), (9, 0.0), (9, 1.0), (5, 2.0), (5, 0.0)] {
        let backoff = Backoff { duration: duration * SECOND, factor, ..backoff.clone() };
        let mut within = backoff.clone().within_cap();
        spread((0..1000).map(|_| within.clone().step()), 4 * SECOND, 0.5);
        assert!([(); 10].iter().all(|()| within.step() <= cap));
        let mut manager = BackoffManager::exponential(duration * SECOND, cap, 60 * SECOND, factor, 0.5);
        assert!((0..100).all(|_| (4 * SECOND..cap).contains(&manager.step())));
    }
    // Without a cap, or without jitter.
    let endless = Backoff { cap: Duration::ZERO, ..backoff.clone() };
    assert_eq!(endless.clone().within_cap(), endless);
    for jitter in [0.0, -0.0, -1.0, f64::NAN] {
        let backoff = Backoff { jitter, ..backoff.clone() };
        let delays: Vec<_> = backoff.clone().within_cap().into_iter().collect();
        assert_eq!(delays, backoff.clone().into_iter().collect::<Vec<_>>());
        let late = Backoff { duration: 9 * SECOND, ..backoff };
        assert_eq!(late.within_cap().step(), cap);
        let mut manager = BackoffManager::exponential(9 * SECOND, cap, 60 * SECOND, 2.0, jitter);
        assert_eq!([manager.step(), manager.step()], [9 * SECOND, cap], "as client-go's");
    }
    // A factor so large that nothing would be left of the delay.
    for jitter in [1e12, f64::MAX, f64::INFINITY] {
        let mut within = Backoff { jitter, ..backoff.clone() }.within_cap();
        let delays: Vec<_> = (0..1000).map(|_| within.step()).collect();
        assert!(delays.iter().all(|delay| (Duration::from_nanos(1)..=cap).contains(delay)), "{jitter}");
        assert!(delays.iter().filter(|delay| **delay > cap / 2).count() > 300, "{jitter}");
    }
    // No cap that jitter could exceed.
    let longest = Backoff { duration: Duration::MAX, cap: Duration::MAX, ..backoff }.within_cap();
    assert_eq!((longest.cap, longest.clone().step()), (Duration::MAX, Duration::MAX));
}

#[test]
fn an_iterator_ends_with_the_steps() {
    let backoff = Backoff { duration: SECOND, factor: 3.0, steps: 4, ..Backoff::default() };
    let steps = backoff.into_iter();
    assert_eq!(steps.size_hint(), (1, Some(4)));
    assert_eq!(steps.map(|delay| delay.as_secs()).collect::<Vec<_>>(), [1, 3, 9, 27]);
    assert_eq!(Backoff::default().into_iter().next(), None);
}

#[test]
fn a_manager_resets_after_more_than_the_quiet_time() {
    let (mut manager, time) = doubling();
    assert_eq!(manager.size_hint(), (usize::MAX, None));
    assert_eq!(manager.by_ref().take(3).collect::<Vec<_>>(), [SECOND, SECOND * 2, SECOND * 4]);
    time.advance(QUIET);
    assert_eq!(manager.step(), SECOND * 8, "exactly the quiet time is not enough");
    time.advance(QUIET + Duration::from_nanos(1));
    assert_eq!(manager.step(), SECOND);
}

/// After this time without a step the delays begin anew.
const QUIET: Duration = Duration::from_secs(3600);

/// A manager whose delays are 1 s, 2 s, 4 s, and its mock clock.
fn doubling() -> (BackoffManager, MockClock) {
    let (clock, time) = Clock::mock();
    let backoff = Backoff { duration: SECOND, factor: 2.0, steps: usize::MAX, ..Backoff::default() };
    (BackoffManager::new(backoff, QUIET).clock(clock), time)
}

#[test]
fn a_loop_that_is_stopped_before_it_begins_calls_nothing() {
    let (manager, _) = doubling();
    let stop = Stop::new();
    stop.stop();
    stop.stop();
    backoff_until(|| panic!("called"), manager.clone(), Timing::Sliding, &stop);
    block_on(backoff_until_async(|| async { panic!("called") }, manager, Timing::Sliding, stop, |_| async {}));
}

#[test]
fn a_panic_of_the_call_propagates() {
    let (manager, _) = doubling();
    let stop = Stop::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        backoff_until(|| std::panic::resume_unwind(Box::new(7)), manager, Timing::Sliding, &stop);
    }));
    assert_eq!(*result.unwrap_err().downcast::<i32>().unwrap(), 7);
    assert!(!stop.is_stopped());
}

#[test]
fn an_async_loop_waits_for_the_delays() {
    let cases = [
        (Timing::Sliding, 500, [1000, 2000, 4000]),
        // These count from the start of a call. If that takes longer, the next follows at once.
        (Timing::NonSliding, 500, [500, 1500, 3500]),
        (Timing::NonSliding, 1500, [0, 500, 2500]),
    ];
    for (timing, call, expected) in cases {
        let (manager, time) = doubling();
        let (stop, slept) = (Stop::new(), RefCell::new(Vec::new()));
        let sleep = |delay: Duration| {
            slept.borrow_mut().push(delay.as_millis());
            if slept.borrow().len() == 3 {
                stop.stop();
            }
            std::future::ready(())
        };
        let mut calls = 0;
        let f = || {
            calls += 1;
            let time = time.clone();
            async move { time.advance(SECOND / 1000 * call) }
        };
        block_on(backoff_until_async(f, manager, timing, stop.clone(), sleep));
        assert_eq!((calls, &slept.borrow()[..]), (3, &expected[..]), "{timing:?}, {call} ms");
    }
}

#[test]
fn a_stop_interrupts_a_waiting_task() {
    let (stop, calls) = (Stop::new(), AtomicUsize::new(0));
    let f = || std::future::ready(_ = calls.fetch_add(1, SeqCst));
    let task = backoff_until_async(f, doubling().0, Timing::Sliding, stop.clone(), |_| std::future::pending());
    let (mut task, mut context) = (pin!(task), Context::from_waker(Waker::noop()));
    assert!(task.as_mut().poll(&mut context).is_pending());
    assert!(task.as_mut().poll(&mut context).is_pending());
    assert!(!stop.wait_timeout(SECOND / 1000));
    stop.stop();
    assert!(task.poll(&mut context).is_ready() && stop.wait_timeout(Duration::MAX));
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn the_async_loop_is_send() {
    fn spawnable<T: Send + 'static>(_: T) {}
    let f = || async { poll_fn(|_| Poll::Ready(())).await };
    spawnable(backoff_until_async(f, doubling().0, Timing::Sliding, Stop::new(), |_| std::future::ready(())));
}

#[test]
fn a_dropped_future_leaves_the_wait_list() {
    let stop = Stop::new();
    {
        let mut context = Context::from_waker(Waker::noop());
        let mut stopped = pin!(stop.wait_async());
        assert!(stopped.as_mut().poll(&mut context).is_pending());
        assert!(stopped.as_mut().poll(&mut context).is_pending());
        assert!(format!("{stop:?}").contains("waiters: 1"));
    }
    assert!(format!("{stop:?}").contains("waiters: 0"));
}

/// The thread parks for as long as the clock has to go, and reads it again.
#[test]
fn a_wait_by_a_clock_that_is_a_function_ends_when_it_shows_the_time() {
    let pause = SECOND / 100;
    let manager = BackoffManager::new(Backoff { duration: pause, ..Backoff::default() }, SECOND);
    // Each reading is a bit later.
    let readings = Arc::new(AtomicU32::new(0));
    let read = Arc::clone(&readings);
    let clock = Clock::from_fn(move || pause / 10 * read.fetch_add(1, SeqCst));
    let calls = within_30_s(move || {
        let (stop, mut calls) = (Stop::new(), 0);
        let call = || {
            calls += 1;
            if calls == 3 {
                stop.stop();
            }
        };
        backoff_until(call, manager.clock(clock), Timing::Sliding, &stop);
        calls
    });
    assert_eq!(calls, 3);
    assert!(readings.load(SeqCst) > 20, "two pauses, and none ends early");
}
