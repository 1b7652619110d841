//! A page as an SVG, of a queue whose time a mock clock counts: so the picture is the same each time.

use crate::page::{Page, REFRESH};
use crate::{Key, WORKERS, add, queue, work};
use keyqueue::{Clock, Driver, Item};
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};
use ratatui::{Terminal, backend::TestBackend};
use std::time::Duration;

/// The size of a cell, and the margin.
const WIDTH: usize = 9;
const HEIGHT: usize = 19;
const MARGIN: usize = 12;

/// The page after some simulated seconds, in which this thread does the workers' part.
pub fn simulated() -> Page {
    let (clock, time) = Clock::mock();
    let queue = queue(clock, Driver::Manual);
    let (mut random, mut page) = (fastrand::Rng::with_seed(7), Page::default());
    let mut busy = Vec::<(u32, Item<'_, Key>, _)>::new();
    for now in 0..=29_000 {
        if now % REFRESH.as_millis() as u32 == 0 {
            page.turn(&queue, Duration::from_millis(now.into()));
        }
        if now % 10 == 0 {
            add(&queue, &mut random, now / 10);
        }
        for (_, item, end) in busy.extract_if(.., |(until, ..)| *until <= now) {
            match end {
                Ok(None) => item.succeed(),
                Ok(Some(delay)) => _ = item.requeue_after(delay),
                Err(_) => _ = item.retry(),
            }
        }
        while busy.len() < WORKERS
            && let Ok(item) = queue.try_get()
        {
            let (takes, end) = work(*item, &mut random);
            busy.push((now + takes.as_millis() as u32, item, end));
        }
        time.advance(Duration::from_millis(1));
        queue.turn();
    }
    page
}

fn color(cell: &Cell) -> String {
    let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
    match cell.fg {
        // The cube of the 256 colours.
        Color::Indexed(n @ 16..232) => {
            let n = n - 16;
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        _ if cell.modifier.contains(Modifier::DIM) => "#8b949e".to_owned(),
        _ => "#e6edf3".to_owned(),
    }
}

/// The page, with that number of columns and lines. Bars and frames are shapes, and each text has its length, so that they fit
/// together in any font.
pub fn svg(page: &Page, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a buffer");
    let buffer = terminal.draw(|frame| page.draw(frame)).expect("a buffer").buffer;
    let (mut shapes, mut frames) = (String::new(), String::new());
    for (line, cells) in buffer.content.chunks(columns.into()).enumerate() {
        let symbol = |at: usize| cells.get(at).and_then(|cell| cell.symbol().chars().next()).unwrap_or(' ');
        let is_text = |at: usize| !matches!(symbol(at), ' ' | '─'..='█');
        let style = |at: usize| cells.get(at).map(|cell| (cell.fg, cell.modifier));
        let (mut at, y) = (0, MARGIN + line * HEIGHT);
        while at < cells.len() {
            // Cells that are drawn as one: equal bars and lines, and words with one space between them.
            let begin = at;
            let goes_on = |next: usize| {
                let alike = style(next) == style(begin);
                alike
                    && if is_text(begin) {
                        is_text(next)
                    } else {
                        symbol(next) == symbol(begin) && symbol(next) != '│'
                    }
            };
            at += 1;
            while goes_on(at) || is_text(begin) && symbol(at) == ' ' && goes_on(at + 1) {
                at += 1;
            }
            let (x, width, fill) = (MARGIN + begin * WIDTH, (at - begin) * WIDTH, color(&cells[begin]));
            let (center, middle, right, bottom) = (x + WIDTH / 2, y + HEIGHT / 2, x + width, y + HEIGHT);
            match symbol(begin) {
                ' ' => {}
                '─' => frames += &format!("M{x} {middle}H{right}"),
                '│' => frames += &format!("M{center} {y}V{bottom}"),
                '┌' => frames += &format!("M{right} {middle}H{center}V{bottom}"),
                '┐' => frames += &format!("M{x} {middle}H{center}V{bottom}"),
                '└' => frames += &format!("M{right} {middle}H{center}V{y}"),
                '┘' => frames += &format!("M{x} {middle}H{center}V{y}"),
                bar @ '▁'..='█' => {
                    let height = (HEIGHT * (bar as usize - '▁' as usize + 1)).div_ceil(8);
                    let y = bottom - height;
                    shapes += &format!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>"#);
                }
                _ => {
                    let text: String = cells[begin..at].iter().map(Cell::symbol).collect();
                    let text = text.replace('&', "&amp;").replace('<', "&lt;");
                    let weight =
                        if cells[begin].modifier.contains(Modifier::BOLD) { r#" font-weight="bold""# } else { "" };
                    let y = y + 14;
                    shapes +=
                        &format!(r#"<text x="{x}" y="{y}" textLength="{width}" fill="{fill}"{weight}>{text}</text>"#);
                }
            }
        }
        shapes += "\n";
    }
    let width = 2 * MARGIN + WIDTH * usize::from(columns);
    let height = 2 * MARGIN + HEIGHT * usize::from(lines);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
role="img" shape-rendering="crispEdges" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="15">
<title>keyqueue top</title>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<path d="{frames}" fill="none" stroke="#484f58" shape-rendering="auto"/>
{shapes}</svg>
"##
    )
}
