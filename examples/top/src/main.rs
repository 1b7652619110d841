//! What a queue does right now, as a page in the terminal: `top` for a queue.
//!
//! ```text
//! cargo run --release -p top                                  # q or Ctrl-C ends it
//! cargo run --release -p top -- --frames 3                    # prints three pages instead, half a second apart
//! cargo run -p top -- --picture examples/top/top.svg          # draws the page after 29 seconds of a mock clock
//! ```
//!
//! Four tenants share four workers here: `large` adds bursts, `steady` one key at a time, some of them later, `rare` asks
//! for some of its keys at HIGH, and `hourly` looks at its keys once an hour. Documents whose number ends in 13 always
//! fail, and one run in twenty of the others. A tenant has two keys in work at most, `steady` is handed out 80 a second and
//! left alone for two seconds now and then, and all together get 200 a second. What the page shows (`page.rs`) comes from
//! calls that any program can make.
//!
//! ```text
//!  `add`, a thread ──▶ queue ──▶ `work`, in 4 workers
//!                        │ each 500 ms: metrics, processing_keys, delayed_keys, groups, num_requeues
//!                        ▼
//!                   Page::turn ──▶ Page::draw ──▶ the terminal, its lines (--frames), or an SVG (--picture)
//!
//!  draw_head      keys in each state, rates, oldest key, the pace, groups         q quits
//!  draw_chart     ┌ queued keys ──────────────────────┐┌ times ──────────────────────────┐
//!  draw_times     │ a bar for each 500 ms             ││ of waits and runs: p50 p99 max  │
//!                 └───────────────────────────────────┘└─────────────────────────────────┘
//!  draw_tenants   ┌ tenants and their shares of the keys ────────────────────────────────┐
//!                 │ a row for each: keys in each state, oldest key, what holds it back   │
//!                 └──────────────────────────────────────────────────────────────────────┘
//!  table          ┌ processing keys ─────┐┌ delays to come ─┐┌ keys that fail most ───────┐
//!                 │ key, for how long    ││ keys in a range ││ key, failures, next try    │
//!                 └──────────────────────┘└─────────────────┘└────────────────────────────┘
//! ```
//! With fewer than 24 lines the page has no chart and no times, and with fewer than 76 columns no delays to come.

mod page;
mod picture;

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, Clock, Driver, GroupLimits, Outcome, Priority, WorkQueue};
use page::{Page, REFRESH};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use std::time::{Duration, Instant};
use std::{error::Error, io, thread};

/// A tenant, and the number of one of its documents.
type Key = (&'static str, u32);

const WORKERS: usize = 4;

fn queue(clock: Clock, driver: Driver) -> WorkQueue<Key> {
    let backoff = ItemExponentialFailure::new(REFRESH, Duration::from_secs(20));
    let settings = WorkQueue::builder().measure(true).rate_limiter(backoff).fair_by(|key: &Key| key.0);
    let settings = settings.pace(200.0, 5).group_limits(|key| {
        let limits = GroupLimits::new().max_processing(2);
        if key.0 == "steady" { limits.rate(80.0, 5) } else { limits }
    });
    settings.clock(clock).driver(driver).build()
}

/// Adds the keys of one turn; there is a turn each 10 ms.
fn add(queue: &WorkQueue<Key>, random: &mut fastrand::Rng, turn: u32) {
    if turn == 0 {
        queue.add_all((0..3).map(|n| ("hourly", n)));
    }
    if turn % 350 == 40 {
        queue.add_all((0..random.u32(300..900)).map(|n| ("large", n)));
    }
    queue.add(("steady", turn % 50));
    if turn % 400 == 50 {
        queue.group(&("steady", 0)).pause(Duration::from_secs(2)).expect("it has groups");
    }
    if random.u32(0..20) == 0 {
        queue.add_with(("rare", random.u32(0..20)), AddOptions::new().priority(Priority::HIGH));
    }
    if random.u32(0..10) == 0 {
        queue.add_after(("steady", 100 + random.u32(0..50)), Duration::from_millis(random.u64(100..5000)));
    }
}

/// How long a key takes, and how it ends: `Ok(Some(delay))` wants to run again after the delay.
fn work(key: Key, random: &mut fastrand::Rng) -> (Duration, Result<Option<Duration>, &'static str>) {
    let end = match key {
        (_, number) if number % 100 == 13 || random.u32(0..20) == 0 => Err("the store did not answer"),
        ("hourly", _) => Ok(Some(Duration::from_secs(3600))),
        ("rare", _) if random.bool() => Ok(Some(Duration::from_secs(2))),
        _ => Ok(None),
    };
    (Duration::from_millis(random.u64(2..20)), end)
}

/// Whether the user wants to end it, within one page's time.
fn ends() -> io::Result<bool> {
    let until = Instant::now() + REFRESH;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        if let Event::Key(key) = event::read()? {
            let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if key.code == KeyCode::Char('q') || is_ctrl_c {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let frames: Option<usize> = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--frames", count] => Some(count.parse()?),
        ["--picture", path] => return Ok(std::fs::write(path, picture::svg(&picture::simulated(), 100, 28))?),
        _ => return Err("usage: top [--frames N | --picture FILE.svg]".into()),
    };

    let (queue, mut page, start) = (queue(Clock::new(), Driver::Thread), Page::default(), Instant::now());
    queue.workers().spawn(WORKERS, |key| -> Result<Outcome, &'static str> {
        let (takes, end) = work(**key, &mut fastrand::Rng::new());
        thread::sleep(takes);
        Ok(end?.map_or(Outcome::Success, Outcome::RequeueAfter))
    })?;
    let adder = queue.clone();
    thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(7);
        for turn in 0.. {
            add(&adder, &mut random, turn);
            thread::sleep(Duration::from_millis(10));
        }
    });

    if let Some(frames) = frames {
        let mut terminal = Terminal::new(TestBackend::new(100, 28))?;
        page.turn(&queue, start.elapsed());
        for _ in 0..frames {
            thread::sleep(REFRESH);
            page.turn(&queue, start.elapsed());
            terminal.draw(|frame| page.draw(frame))?;
            terminal.backend().to_string().lines().for_each(|line| println!("{}", line.trim_matches('"')));
        }
        assert!(frames == 0 || queue.stats().handed_out > 0, "the workers work");
        assert!(frames < 3 || page.delays()[3] > 0, "`hourly` comes back in an hour");
        return Ok(());
    }
    let mut terminal = ratatui::init();
    let end = loop {
        page.turn(&queue, start.elapsed());
        match terminal.draw(|frame| page.draw(frame)).and_then(|_| ends()) {
            Ok(false) => {}
            end => break end,
        }
    };
    ratatui::restore(); // after an error too
    end?;
    Ok(())
}
