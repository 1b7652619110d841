//! What a queue does right now, as a page in the terminal: `top` for a queue.
//!
//! ```text
//! cargo run --release -p top                # q or Ctrl-C ends it
//! cargo run --release -p top -- --frames 3  # prints three pages instead, half a second apart
//! ```
//!
//! Four tenants share four workers here: `large` adds bursts, `steady` one key at a time, some of them later, `rare` asks for some of
//! its keys at HIGH, and `hourly` looks at its keys once an hour. One run in ten fails. All that the page shows comes from calls that any
//! program can make, at any time and from any thread: `metrics` (with `stats`), `processing_keys`, `delayed_keys` and `groups`. None
//! holds the queue's lock for long.

use keyqueue::observe::{Histogram, Metrics};
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, DelayedKey, GroupStats, Item, Outcome, Priority, ProcessingKey, WorkQueue};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

/// A tenant, and the number of one of its documents.
type Key = (&'static str, u32);

const REFRESH: Duration = Duration::from_millis(500);

/// The ranges of the delays to come, but for the last, which has no end: a delay may be as long as `Duration::MAX`.
const RANGES: [(&str, Duration); 4] = [
    ("<10 ms", Duration::from_millis(10)),
    ("<100 ms", Duration::from_millis(100)),
    ("<1 s", Duration::from_secs(1)),
    ("<10 s", Duration::from_secs(10)),
];

/// Adds keys for ever.
fn produce(queue: &WorkQueue<Key>) {
    let mut random = fastrand::Rng::with_seed(7);
    queue.add_all((0..3).map(|n| ("hourly", n)));
    for turn in 0_u32.. {
        if turn % 200 == 0 {
            queue.add_all((0..300).map(|n| ("large", n)));
        }
        queue.add(("steady", turn % 50));
        if random.u32(0..20) == 0 {
            queue.add_with(("rare", random.u32(0..20)), AddOptions::new().priority(Priority::HIGH));
        }
        if random.u32(0..10) == 0 {
            queue.add_after(("steady", 100 + random.u32(0..50)), Duration::from_millis(random.u64(100..5000)));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn handle(key: &Item<'_, Key>) -> Result<Outcome, &'static str> {
    thread::sleep(Duration::from_millis(fastrand::u64(2..20)));
    match fastrand::u32(0..10) {
        0 => Err("the store did not answer"),
        _ if key.0 == "hourly" => Ok(Outcome::RequeueAfter(Duration::from_secs(3600))),
        1 if key.0 == "rare" => Ok(Outcome::RequeueAfter(Duration::from_secs(2))),
        _ => Ok(Outcome::Done),
    }
}

/// What one page shows.
struct View {
    at: Instant,
    metrics: Metrics,
    processing: Vec<ProcessingKey<Key>>,
    delayed: Vec<DelayedKey<Key>>,
    groups: Vec<GroupStats<Key>>,
}

impl View {
    fn of(queue: &WorkQueue<Key>) -> Self {
        let (at, metrics) = (Instant::now(), queue.inspect().metrics());
        let mut groups = queue.inspect().groups();
        groups.sort_by_key(|group| group.key.0);
        Self {
            at,
            metrics,
            processing: queue.inspect().processing_keys(),
            delayed: queue.inspect().delayed_keys(),
            groups,
        }
    }

    /// The number of delays in each range, by group and by the priority that the keys will have, the highest first. `groups` has only
    /// groups with queued or processing keys, so a group may be in one of the lists alone.
    fn to_come(&self) -> BTreeMap<(&'static str, Reverse<Priority>), [usize; RANGES.len() + 1]> {
        let mut rows = BTreeMap::new();
        for DelayedKey { key, left, priority, .. } in &self.delayed {
            let range = RANGES.iter().position(|(_, end)| left < end).unwrap_or(RANGES.len());
            rows.entry((key.0, Reverse(*priority))).or_insert([0; RANGES.len() + 1])[range] += 1;
        }
        for group in &self.groups {
            if rows.keys().all(|(name, _)| *name != group.key.0) {
                rows.insert((group.key.0, Reverse(Priority::NORMAL)), [0; RANGES.len() + 1]);
            }
        }
        rows
    }
}

/// A duration, short.
fn short(duration: Duration) -> String {
    match duration.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..10_000_000 => format!("{} ms", micros / 1000),
        micros => format!("{} s", micros / 1_000_000),
    }
}

fn maybe(duration: Option<Duration>) -> String {
    duration.map_or("–".to_owned(), short)
}

/// How long something took lately.
fn percentiles(name: &str, now: &Histogram, last: &Histogram) -> Row<'static> {
    let lately = now.since(last);
    let at = |share| short(lately.quantile(share));
    Row::new([name.to_owned(), lately.count().to_string(), at(0.5), at(0.9), at(0.99), at(1.0)])
}

fn draw(frame: &mut Frame<'_>, now: &View, last: &View, depths: &VecDeque<u64>) {
    let [top, upper, middle, bottom] =
        Layout::vertical([Constraint::Length(5), Constraint::Length(8), Constraint::Length(6), Constraint::Min(6)])
            .areas(frame.area());
    let [chart, to_come] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(upper);
    let [times, levels] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(middle);
    let [processing, groups] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(bottom);
    let (stats, before) = (&now.metrics.stats, &last.metrics.stats);
    let seconds = now.at.duration_since(last.at).as_secs_f64().max(0.001);
    let per_second = |now: u64, before: u64| format!("{:.0}", (now - before) as f64 / seconds);

    let lines = [
        format!(
            "queued {}   processing {}   delayed {}   failing {}   waiting workers {}",
            stats.len, stats.processing, stats.delayed, stats.failing, stats.waiters
        ),
        format!(
            "a second: {} adds, {} coalesced, {} handed out, {} retries",
            per_second(stats.adds(), before.adds()),
            per_second(stats.coalesced, before.coalesced),
            per_second(stats.handed_out, before.handed_out),
            per_second(stats.failures, before.failures)
        ),
        format!(
            "oldest queued {}   longest running {}   next delay in {}",
            maybe(stats.oldest_queued),
            maybe(stats.longest_running),
            maybe(stats.next_deadline)
        ),
    ];
    frame.render_widget(Paragraph::new(lines.map(Line::from).to_vec()).block(titled("keyqueue top · q quits")), top);
    let width = chart.width.saturating_sub(2) as usize;
    let depths: Vec<u64> = depths.iter().rev().take(width).rev().copied().collect();
    frame.render_widget(Sparkline::default().data(depths).block(titled("queued")), chart);
    let rows = now.to_come().into_iter().map(|((group, Reverse(priority)), counts)| {
        let counts = counts.map(|count| if count == 0 { "·".to_owned() } else { count.to_string() });
        Row::new([group.to_owned(), priority.0.to_string()].into_iter().chain(counts))
    });
    let [first, second, third, fourth] = RANGES.map(|(name, _)| name);
    let head = ["", "level", first, second, third, fourth, "more"];
    table(frame, to_come, "delays to come", head, rows.collect());
    table(
        frame,
        times,
        "times, since the last page",
        ["", "runs", "p50", "p90", "p99", "max"],
        vec![
            percentiles("wait", &now.metrics.queue_duration, &last.metrics.queue_duration),
            percentiles("work", &now.metrics.work_duration, &last.metrics.work_duration),
        ],
    );
    let rows = now.metrics.levels.iter().map(|level| {
        let waited = short(level.queue_duration.quantile(0.9));
        Row::new([
            level.priority.0.to_string(),
            level.len.to_string(),
            level.queue_duration.count().to_string(),
            waited,
        ])
    });
    table(frame, levels, "priorities", ["", "queued", "runs", "p90 wait"], rows.collect());
    let rows = now
        .processing
        .iter()
        .map(|ProcessingKey { key, elapsed, .. }| Row::new([format!("{}/{}", key.0, key.1), maybe(*elapsed)]));
    table(frame, processing, "processing, longest first", ["key", "for"], rows.collect());
    let rows = now.groups.iter().map(|group| {
        let GroupStats { key, queued, processing, handed_out, oldest, .. } = group;
        Row::new([key.0.to_owned(), queued.to_string(), processing.to_string(), handed_out.to_string(), maybe(*oldest)])
    });
    table(frame, groups, "groups", ["", "queued", "processing", "runs", "oldest"], rows.collect());
}

fn titled(title: &str) -> Block<'_> {
    Block::bordered().title(title)
}

fn table<const N: usize>(frame: &mut Frame<'_>, area: Rect, title: &str, head: [&str; N], rows: Vec<Row<'_>>) {
    let head = Row::new(head.map(str::to_owned)).style(Style::new().bold());
    frame.render_widget(Table::new(rows, [Constraint::Fill(1); N]).header(head).block(titled(title)), area);
}

/// Whether the user wants to end it, within one page's time.
fn ends(until: Instant) -> Result<bool, Box<dyn Error>> {
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
    let mut arguments = std::env::args().skip(1);
    let frames: Option<usize> = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => None,
        (Some("--frames"), Some(count)) => Some(count.parse()?),
        _ => return Err("usage: top [--frames N]".into()),
    };

    let backoff = ItemExponentialFailure::new(Duration::from_millis(50), Duration::from_secs(5));
    let queue = WorkQueue::builder().measure(true).rate_limiter(backoff).fair_by(|key: &Key| key.0).build();
    queue.workers().spawn(4, handle)?;
    thread::spawn({
        let queue = queue.clone();
        move || produce(&queue)
    });

    let (mut last, mut depths) = (View::of(&queue), VecDeque::new());
    let mut next = |last: &mut View, draw_page: &mut dyn FnMut(&View, &View, &VecDeque<u64>)| {
        let now = View::of(&queue);
        depths.push_back(now.metrics.stats.len as u64);
        depths.drain(..depths.len().saturating_sub(500));
        draw_page(&now, last, &depths);
        *last = now;
    };
    if let Some(frames) = frames {
        let mut terminal = Terminal::new(TestBackend::new(100, 26))?;
        for _ in 0..frames {
            thread::sleep(REFRESH);
            next(&mut last, &mut |now, last, depths| _ = terminal.draw(|frame| draw(frame, now, last, depths)));
            let page = terminal.backend().to_string();
            page.lines().for_each(|line| println!("{}", line.trim_matches('"')));
        }
        assert!(frames == 0 || last.metrics.stats.handed_out > 0, "the workers work");
        let later = last.to_come().values().map(|counts| counts[RANGES.len()]).sum::<usize>();
        assert!(frames < 3 || later > 0, "`hourly` comes back in an hour");
        return Ok(());
    }
    let mut terminal = ratatui::init();
    loop {
        next(&mut last, &mut |now, last, depths| _ = terminal.draw(|frame| draw(frame, now, last, depths)));
        if ends(Instant::now() + REFRESH)? {
            break;
        }
    }
    ratatui::restore();
    Ok(())
}
