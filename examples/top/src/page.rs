//! What the page shows, and how it is drawn.

use crate::Key;
use keyqueue::observe::{Histogram, Metrics};
use keyqueue::{DelayedKey, HeldBack, Priority, ProcessingKey, Stats, WorkQueue};
use ratatui::Frame;
use ratatui::layout::Constraint::{Fill, Length};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, RenderDirection, Row, Sparkline, Table};
use std::collections::{BTreeMap, VecDeque};
use std::{cmp::Reverse, time::Duration};

/// The time between two pages.
pub const REFRESH: Duration = Duration::from_millis(500);
/// Rates and times are those of the last ten pages: steadier than those of one.
const WINDOW: usize = 10;

/// The colours of the states, near Okabe's and Ito's blue, green, purple and vermilion: people who are colour-blind can tell
/// them apart. They are of the 256 that nearly all terminals have, with a contrast above 3 on black and on white.
const COLORS: [Color; 4] = [QUEUED, PROCESSING, DELAYED, FAILING];
const QUEUED: Color = Color::Indexed(33);
const PROCESSING: Color = Color::Indexed(29);
const DELAYED: Color = Color::Indexed(169);
const FAILING: Color = Color::Indexed(166);

/// The ranges of the delays to come, with their ends in seconds.
const RANGES: [(&str, f64); 4] = [("<100 ms", 0.1), ("<1 s", 1.0), ("<10 s", 10.0), ("later", f64::INFINITY)];

#[derive(Default)]
pub struct Page {
    /// The metrics of the last pages, each with its moment. The newest is the last.
    metrics: VecDeque<(Duration, Metrics)>,
    /// Numbers of queued keys, newest first.
    depths: VecDeque<u64>,
    processing: Vec<ProcessingKey<Key>>,
    delayed: Vec<DelayedKey<Key>>,
    /// Each tenant that a page has shown: its row stays when it has no keys.
    tenants: BTreeMap<&'static str, Tenant>,
    /// The failures of each key that has not succeeded since.
    failing: BTreeMap<Key, usize>,
}

#[derive(Default)]
struct Tenant {
    /// The numbers of its keys in each state.
    keys: [usize; 4],
    /// How long the oldest queued key has waited.
    oldest: Option<Duration>,
    held_back: Option<HeldBack>,
}

impl Page {
    /// Looks at the queue: `at` is the moment. Any program can make these calls, at any time and from any thread. None holds
    /// the queue's lock for long.
    pub fn turn(&mut self, queue: &WorkQueue<Key>, at: Duration) {
        let metrics = queue.inspect().metrics();
        self.depths.push_front(metrics.stats.len as u64);
        self.depths.truncate(500);
        self.metrics.push_back((at, metrics));
        self.metrics.drain(..self.metrics.len().saturating_sub(WINDOW + 1));
        (self.processing, self.delayed) = (queue.inspect().processing_keys(), queue.inspect().delayed_keys());

        // A key that has failed is delayed until its backoff ends. (One whose backoff is shorter than a page may be missed.)
        let held = self.processing.iter().map(|held| held.key);
        self.failing.extend(held.chain(self.delayed.iter().map(|delay| delay.key)).map(|key| (key, 0)));
        self.failing.retain(|key, failures| {
            *failures = queue.num_requeues(key);
            *failures > 0
        });

        self.tenants.values_mut().for_each(|tenant| *tenant = Tenant::default());
        // `groups` has only those with queued or processing keys.
        for group in queue.inspect().groups() {
            let tenant = self.tenants.entry(group.key.0).or_default();
            let keys = [group.queued, group.processing, 0, 0];
            *tenant = Tenant { keys, oldest: group.oldest, held_back: group.held_back };
        }
        self.delayed.iter().for_each(|delay| self.tenants.entry(delay.key.0).or_default().keys[2] += 1);
        self.failing.keys().for_each(|key| self.tenants.entry(key.0).or_default().keys[3] += 1);
    }

    /// The number of delays in each range.
    pub fn delays(&self) -> [usize; RANGES.len()] {
        let mut counts = [0; RANGES.len()];
        for delay in &self.delayed {
            counts[RANGES.iter().position(|(_, end)| delay.left.as_secs_f64() < *end).expect("no end")] += 1;
        }
        counts
    }

    pub fn draw(&self, frame: &mut Frame<'_>) {
        let Some(((since, before), (at, now))) = self.metrics.front().zip(self.metrics.back()) else { return };
        let Rect { width, height, .. } = frame.area();
        // A small terminal has no room for the chart, the times and the delays to come.
        let upper = if height < 24 { 0 } else { (height / 4).min(9) };
        let delays = if width < 76 { 0 } else { 20 };
        let tenants = self.tenants.len().min(height as usize / 3) as u16 + 3;
        let heights = [Length(5), Length(upper), Length(tenants), Fill(1)];
        let [head, upper, tenants, lower] = Layout::vertical(heights).areas(frame.area());
        let [chart, times] = Layout::horizontal([Fill(1), Length(34)]).areas(upper);
        let [held, delays, failing] = Layout::horizontal([Fill(28), Fill(delays), Fill(32)]).areas(lower);
        draw_head(frame, head, &now.stats, &before.stats, *at - *since);
        self.draw_chart(frame, chart);
        draw_times(frame, times, now, before, *at - *since);
        self.draw_tenants(frame, tenants);

        let rows =
            self.processing.iter().map(|held| [name(held.key).fg(PROCESSING).into(), short(held.elapsed).into()]);
        table(frame, held, "processing keys", ["", "   for"], rows);
        let rows = RANGES.iter().zip(self.delays()).map(|((name, _), keys)| [(*name).into(), count(keys, DELAYED)]);
        table(frame, delays, "delays to come", ["", "  keys"], rows);
        let mut failing_keys: Vec<_> = self.failing.iter().collect();
        failing_keys.sort_by_key(|(key, failures)| (Reverse(**failures), **key));
        let rows = failing_keys.into_iter().map(|(key, failures)| {
            let next = match self.delayed.iter().find(|delay| delay.key == *key) {
                _ if self.processing.iter().any(|held| held.key == *key) => "now".fg(PROCESSING),
                Some(delay) => short(Some(delay.left)).fg(DELAYED),
                None => "queued".fg(QUEUED),
            };
            [name(*key).into(), count(*failures, FAILING), next.into()]
        });
        table(frame, failing, "keys that fail most", ["", "failures", "next try"], rows);
    }

    /// Queued keys, with the scale at the left and the time below.
    fn draw_chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = titled("queued keys");
        let [scale, plot] = Layout::horizontal([Length(5), Fill(1)]).spacing(1).areas(block.inner(area));
        let [plot, axis] = Layout::vertical([Fill(1), Length(1)]).areas(plot);
        let zero = Rect { y: axis.y.saturating_sub(1), ..scale }.intersection(scale);
        let shown: Vec<_> = self.depths.iter().take(plot.width.into()).copied().collect();
        let most = shown.iter().max().map_or(1, |most| *most.max(&1));
        let bars = Sparkline::default().data(shown).max(most).direction(RenderDirection::RightToLeft);
        frame.render_widget(block, area);
        frame.render_widget(bars.style(QUEUED), plot);
        frame.render_widget(Line::from(most.to_string()).right_aligned(), scale);
        frame.render_widget(Line::from("0").right_aligned(), zero);
        frame.render_widget(short(Some(REFRESH * plot.width.into())) + " ago", axis);
        frame.render_widget(Line::from("now").right_aligned(), axis);
    }

    fn draw_tenants(&self, frame: &mut Frame<'_>, area: Rect) {
        // Those with the most queued keys, if there is no room for all.
        let mut shown: Vec<_> = self.tenants.iter().collect();
        shown.sort_by_key(|(_, tenant)| Reverse(tenant.keys[0]));
        shown.truncate(area.height.saturating_sub(3).into());
        shown.sort_by_key(|(name, _)| **name);
        let all: usize = self.tenants.values().flat_map(|tenant| &tenant.keys[..3]).sum();
        let room = usize::from(area.width.saturating_sub(67));
        // No part is too small to be seen.
        let bar = |(keys, color): (usize, Color)| "▇".repeat((keys * room / all.max(1)).max(keys.min(1))).fg(color);
        let rows = shown.into_iter().map(|(name, tenant)| {
            let states: [_; 4] = std::array::from_fn(|state| (tenant.keys[state], COLORS[state]));
            let [queued, processing, delayed, failing] = states.map(|(keys, color)| count(keys, color));
            let share = Line::from_iter(states[..3].iter().copied().map(bar)); // a failing key is also in another state
            let held_back = match tenant.held_back {
                None => "".into(),
                Some(HeldBack::Full) => "full".into(),
                Some(HeldBack::Throttled { left }) => format!("rate {}", short(Some(left))),
                Some(HeldBack::Paused { left }) => format!("paused {}", short(Some(left))),
                Some(other) => format!("{other:?}"),
            };
            let oldest = short(tenant.oldest).into();
            [(*name).into(), queued, processing, delayed, failing, oldest, held_back.into(), share]
        });
        let head = ["tenant ", "queued", "processing", "delayed", "failing", "oldest", "     held back", ""];
        table(frame, area, "tenants and their shares of the keys", head, rows);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, now: &Stats, before: &Stats, window: Duration) {
    let rate = |now: u64, before: u64| (now - before) as f64 / window.as_secs_f64().max(0.001);
    let [adds, coalesced] = [rate(now.adds(), before.adds()), rate(now.coalesced, before.coalesced)];
    let [runs, failures] = [rate(now.handed_out, before.handed_out), rate(now.failures, before.failures)];
    let oldest = short(now.oldest_queued.filter(|_| now.len > 0));
    let longest = short(now.longest_running.filter(|_| now.processing > 0));
    let next = short(now.next_deadline);
    let mut states = Line::from(vec![
        format!("queued {:>5}", now.len).fg(QUEUED),
        format!("  processing {:>3}", now.processing).fg(PROCESSING),
        format!("  delayed {:>5}", now.delayed).fg(DELAYED),
        format!("  failing {:>4}", now.failing).fg(FAILING),
    ]);
    if area.width >= 76 {
        states.push_span(format!("  idle workers {}", now.waiters).not_bold());
    }
    let lines = vec![
        "keyqueue top".bold().into(),
        states.bold(),
        format!("per second {adds:>4.0} adds {coalesced:>4.0} coalesced {runs:>4.0} runs {failures:>3.0} failures")
            .into(),
        format!("oldest queued {oldest:>6}  longest run {longest:>6}  next delay {next:>6}").into(),
        format!(
            "groups {}: {} full, {} throttled, {} paused  next token of the pace {:>6}",
            now.groups,
            now.groups_full,
            now.groups_throttled,
            now.groups_paused,
            short(now.paced_for)
        )
        .into(),
    ];
    frame.render_widget(Paragraph::new(lines), area);
    frame.render_widget(Line::from("q quits").right_aligned(), area);
}

/// How long keys waited lately, by priority, and how long their handlers took.
fn draw_times(frame: &mut Frame<'_>, area: Rect, now: &Metrics, before: &Metrics, window: Duration) {
    let row = |name: Span<'static>, lately: Histogram| {
        let at = |share| short(Some(lately.quantile(share)).filter(|_| lately.count() > 0)).into();
        [name.into(), at(0.5), at(0.99), at(1.0)]
    };
    let waits = now.levels.iter().map(|level| {
        let before = before.levels.iter().find(|of| of.priority == level.priority);
        let before = before.map(|of| of.queue_duration.clone()).unwrap_or_default();
        let name = if level.priority == Priority::HIGH { "wait, HIGH" } else { "wait" };
        row(name.fg(QUEUED), level.queue_duration.since(&before))
    });
    let run = row("run".fg(PROCESSING), now.work_duration.since(&before.work_duration));
    let title = format!("times, last {}", short(Some(window)));
    table(frame, area, &title, ["", "   p50", "   p99", "   max"], waits.chain([run]));
}

fn name((tenant, number): Key) -> String {
    format!("{tenant}/{number}")
}

/// A duration in at most six characters, with its unit.
fn short(duration: Option<Duration>) -> String {
    match duration.map(|duration| (duration.as_micros(), duration.as_secs())) {
        None => "–".to_owned(),
        Some((micros @ 0..1000, _)) => format!("{micros} µs"),
        Some((micros @ 1000..1_000_000, _)) => format!("{} ms", micros / 1000),
        Some((micros, 1..10)) => format!("{}.{} s", micros / 1_000_000, micros / 100_000 % 10),
        Some((_, seconds @ 0..100)) => format!("{seconds} s"),
        Some((_, seconds @ 100..6000)) => format!("{} min", seconds / 60),
        Some(_) => ">99 min".to_owned(),
    }
}

/// A number in the colour of its state; zeros are dim.
fn count(number: usize, color: Color) -> Line<'static> {
    if number == 0 { "0".dim().into() } else { number.to_string().fg(color).into() }
}

fn titled(title: &str) -> Block<'static> {
    Block::bordered().border_style(Style::new().dim()).title(format!(" {title} ").not_dim().bold())
}

/// A table with columns as wide as their names, or as the room allows if they have none. These and the first begin at the left,
/// the others hold numbers and end at the right.
fn table<'a, const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: [&'a str; N],
    rows: impl Iterator<Item = [Line<'a>; N]>,
) {
    let row = |cells: [Line<'a>; N]| {
        let cells = cells.into_iter().enumerate();
        Row::new(cells.map(|(at, cell)| if at == 0 || head[at].is_empty() { cell } else { cell.right_aligned() }))
    };
    let widths = head.map(|name| if name.is_empty() { Fill(1) } else { Length(name.len() as u16) });
    let table = Table::new(rows.map(row), widths).header(row(head.map(Line::from)).bold());
    frame.render_widget(table.block(titled(title)), area);
}
