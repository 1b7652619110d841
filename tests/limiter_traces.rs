//! Replays recorded calls of client-go's limiters, without a queue, and compares every answer: `data/limiters.jsonl` (100 traces
//! of the per-key and of the combined limiters), and `data/bucket.jsonl` (54 of a token bucket, `x/time/rate`).
//!
//! Where client-go computes in doubles, and so returns a negative or a rounded number (37 calls, each marked in its trace), this
//! crate returns the number of saturating integer arithmetic. The plain limiters of `support/limits.rs` compute that number, and
//! replay the same traces.

#[path = "support/limits.rs"]
mod limits;
mod support {
    pub(crate) mod client_go;
}

use keyqueue::Clock;
use keyqueue::rate_limiter::Bucket;
use limits::{Doubles, duration, off};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use support::client_go::{limiter_of, limits_of};

const LIMITERS: &str = include_str!("data/limiters.jsonl");
const BUCKET: &str = include_str!("data/bucket.jsonl");

/// In a trace, this stands for a wait as long or longer, or without end.
const NEVER: u128 = i64::MAX as u128;

fn parse(traces: &str) -> impl Iterator<Item = Value> {
    traces.lines().map(|line| serde_json::from_str(line).expect("one JSON object per line"))
}

fn ops(trace: &Value) -> &[Value] {
    trace["ops"].as_array().expect("a list of calls")
}

#[test]
fn the_limiters_answer_as_client_gos_did() {
    let (mut traces, mut calls, mut quirks) = (0, 0, 0);
    for trace in parse(LIMITERS) {
        let config = &trace["config"]["limiter"];
        let (ours, mut plain) = (limiter_of(config, &Clock::mock().0, &Arc::default()), limits_of(config));
        let is_quirk = |at| trace["quirk_at"].as_array().is_some_and(|quirks| quirks.contains(&Value::from(at)));
        for (at, op) in ops(&trace).iter().enumerate() {
            let (key, expected) = (op[1].as_u64().expect("keys are numbers"), &op[2]);
            let place = format!("{}, call {at}: {op:?}", trace["id"]);
            match op[0].as_str() {
                Some("when") => {
                    let expected = i128::from(expected.as_i64().expect("a delay is a number"));
                    let (delay, saturated) = (ours.when(&key), plain.when(&key));
                    assert_eq!(delay, duration(saturated), "{place}");
                    let saturated = i128::try_from(saturated.min(NEVER)).expect("small");
                    assert_eq!(saturated != expected, is_quirk(at), "integers say {saturated}, {place}");
                    quirks += usize::from(is_quirk(at));
                }
                Some("forget") => {
                    ours.forget(&key);
                    plain.forget(&key);
                }
                Some("num_requeues") => {
                    assert_eq!(Some(ours.num_requeues(&key) as u64), expected.as_u64(), "{place}");
                    assert_eq!(ours.num_requeues(&key), plain.num_requeues(&key), "{place}");
                }
                other => panic!("no such call in these traces: {other:?}"),
            }
            calls += 1;
        }
        traces += 1;
    }
    assert_eq!((traces, calls, quirks), (100, 9_819, 37));
}

#[test]
fn the_bucket_answers_as_gos_did() {
    let (mut traces, mut reservations, mut worst) = (0, 0, 0);
    for trace in parse(BUCKET) {
        let config = &trace["config"];
        let unlimited = config["inf"].as_bool().expect("yes or no");
        let rate = if unlimited { f64::INFINITY } else { config["limit"].as_f64().expect("a number") };
        let burst = config["burst"].as_u64().and_then(|burst| burst.try_into().ok()).expect("a small number");
        let (clock, time) = Clock::mock();
        let (bucket, mut doubles) = (Bucket::with_clock(rate, burst, clock), Doubles::new(rate, burst));
        // This clock does not go back. When the time of Go's bucket does, the bucket earns nothing and goes on from the earlier
        // time. So what counts is the time of a reservation minus that of the one before, if it is positive.
        let (mut now, mut last) = (0_i64, 0);
        for (at, op) in ops(&trace).iter().enumerate() {
            let place = format!("{}, call {at}: {op:?}", trace["id"]);
            match op[0].as_str() {
                Some("advance") => now += op[1].as_i64().expect("a number"),
                Some("reserve") => {
                    let (expected, granted) =
                        (op[1][0].as_i64().expect("a number"), op[1][1].as_bool().expect("yes or no"));
                    assert_eq!(doubles.reserve(now), (expected, granted), "{place}");
                    time.advance(Duration::from_nanos((now - last).try_into().unwrap_or(0)));
                    last = now;
                    let delay = bucket.reserve().delay();
                    assert!(granted || delay == Duration::MAX, "{place}");
                    if let Some(off) = off(delay, expected) {
                        worst = if expected < 1 << 52 { off.max(worst) } else { worst };
                    }
                    reservations += 1;
                }
                other => panic!("no such call in these traces: {other:?}"),
            }
        }
        traces += 1;
    }
    println!("{traces} traces, {reservations} reservations, at most {worst} ns off in waits below 52 days");
    assert_eq!((traces, reservations), (54, 5_363));
}
