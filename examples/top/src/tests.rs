use crate::page::Page;
use crate::picture::{simulated, svg};
use crate::{Key, queue};
use keyqueue::{Clock, Driver, MockClock, WorkQueue};
use ratatui::{Terminal, backend::TestBackend};
use std::time::Duration;

fn mocked() -> (WorkQueue<Key>, MockClock, Page) {
    let (clock, time) = Clock::mock();
    (queue(clock, Driver::Manual), time, Page::default())
}

/// The lines of the page, without the frames.
fn lines(page: &Page, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| page.draw(frame)).unwrap();
    let cells = terminal.backend().buffer().content.chunks(width.into());
    cells.map(|cells| cells.iter().map(|cell| cell.symbol()).collect()).collect()
}

/// The numbers in the row of a tenant.
fn row(page: &Page, tenant: &str) -> String {
    let begin = format!("│{tenant}");
    let rows: Vec<_> = lines(page, 80, 24).into_iter().filter(|line| line.starts_with(&format!("{begin} "))).collect();
    assert_eq!(rows.len(), 1, "rows of {tenant}");
    let cells = rows[0].trim_matches(|c| " │▇".contains(c)).split_whitespace();
    cells.skip(1).collect::<Vec<_>>().join(" ")
}

/// Where the word ends in the line, in characters.
fn end(line: &str, word: &str) -> usize {
    let begin = line.find(word).unwrap_or_else(|| panic!("{word} in {line}"));
    line[..begin].chars().count() + word.chars().count()
}

#[test]
fn a_tenant_without_keys_keeps_its_row() {
    let (queue, _time, mut page) = mocked();
    queue.add_all([("large", 1), ("rare", 1), ("large", 2)]);
    page.turn(&queue, Duration::ZERO);
    assert_eq!((row(&page, "large"), row(&page, "rare")), ("2 0 0 0 0 µs".to_owned(), "1 0 0 0 0 µs".to_owned()));

    while let Ok(item) = queue.try_get() {
        item.succeed();
    }
    page.turn(&queue, Duration::from_secs(1));
    assert!(queue.inspect().groups().is_empty());
    assert_eq!((row(&page, "large"), row(&page, "rare")), ("0 0 0 0 –".to_owned(), "0 0 0 0 –".to_owned()));
}

#[test]
fn a_failing_key_is_listed_until_it_succeeds() {
    let (queue, time, mut page) = mocked();
    queue.add(("rare", 7));
    let mut failures = Vec::new();
    for second in 0..4 {
        let item = queue.try_get().unwrap();
        if second == 3 {
            item.succeed()
        } else {
            assert!(item.retry().is_accepted())
        }
        page.turn(&queue, Duration::from_secs(second));
        failures.extend(lines(&page, 80, 24).iter().filter(|line| line.contains("rare/7")).map(|line| {
            let cells: Vec<_> = line[line.find("rare/7").unwrap()..].trim_end_matches('│').split_whitespace().collect();
            cells[1..].join(" ")
        }));
        time.advance(Duration::from_secs(2));
        queue.turn();
    }
    assert_eq!(failures, ["1 500 ms", "2 1.0 s", "3 2.0 s"]);
}

#[test]
fn numbers_are_right_aligned() {
    let (queue, _time, mut page) = mocked();
    queue.add_all((0..1234).map(|n| ("large", n)));
    queue.add_all((0..5).map(|n| ("rare", n)));
    queue.add_after(("rare", 100), Duration::from_secs(5));
    queue.add_after(("large", 5000), Duration::from_secs(3600));
    page.turn(&queue, Duration::ZERO);
    for (width, height) in [(60, 18), (80, 24), (110, 34)] {
        let lines = lines(&page, width, height);
        let line = |begin: &str| lines.iter().find(|line| line.starts_with(begin)).unwrap();
        let (head, large, rare) = (line("│tenant "), line("│large "), line("│rare "));
        assert_eq!([end(large, "1234"), end(rare, "5")], [end(head, "queued"); 2], "{lines:#?}");
        assert_eq!([end(large, "1 "), end(rare, "1 ")], [end(head, "delayed") + 1; 2], "{lines:#?}");
        assert_eq!([end(large, "0 µs"), end(rare, "0 µs")], [end(head, "oldest"); 2], "{lines:#?}");
    }
}

#[test]
fn an_empty_queue_has_no_ages() {
    let (queue, _time, mut page) = mocked();
    page.turn(&queue, Duration::ZERO);
    let head = lines(&page, 80, 24)[3].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(head, "oldest queued – longest run – next delay –");
}

const SMALL: [&str; 4] = [
    " processing keys ",
    " keys that fail most ",
    "tenant  queued processing delayed failing oldest",
    "failures next try",
];
const TALL: [&str; 5] = [" queued keys ", "s ago", "now", " times, last 5.0 s ", "   p50    p99    max"];

#[test]
fn headings_are_whole_in_small_and_large_terminals() {
    let page = simulated();
    for (width, height) in [(60, 18), (60, 24), (80, 24), (110, 34)] {
        let lines = lines(&page, width, height);
        let ends = ["q quits", "", " failures", " ms"];
        let are_whole = lines.iter().zip(ends).all(|(line, end)| line.trim_end().ends_with(end));
        assert!(are_whole, "{width}x{height}: {lines:#?}");
        let text = lines.join("\n");
        let tall = TALL.iter().filter(|_| height >= 24);
        let wide = [" delays to come ", "idle workers 0"].iter().filter(|_| width >= 76);
        for heading in SMALL.iter().chain(tall).chain(wide) {
            assert!(text.contains(heading), "{width}x{height} has no {heading:?}:\n{text}");
        }
        for tenant in ["hourly", "large", "rare", "steady"] {
            assert!(text.contains(&format!("│{tenant} ")), "{width}x{height} has no {tenant}:\n{text}");
        }
    }
    lines(&page, 20, 5); // too small to read, but no panic
}

/// Drawn anew with `cargo run -p top -- --picture examples/top/top.svg`.
#[test]
fn the_picture_has_the_panels() {
    let drawn = svg(&simulated(), 100, 28);
    assert_eq!(drawn, svg(&simulated(), 100, 28), "the same each time");
    for (name, picture) in [("top.svg", include_str!("../top.svg")), ("the new picture", &drawn)] {
        assert!(picture.len() < 40_000, "{name} has {} bytes", picture.len());
        let texts: Vec<_> = picture.split("</text>").filter_map(|part| Some(part.rsplit_once('>')?.1)).collect();
        let panels = ["queued keys", "times, last 5.0 s", "processing keys", "delays to come", "keys that fail most"];
        let words =
            ["tenants and their shares of the keys", "failures next try", "&lt;100 ms", "29 s ago", "now", "large"];
        for text in panels.iter().chain(&words) {
            assert!(texts.contains(text), "{name} has no {text:?}: {texts:?}");
        }
        for color in ["#0087ff", "#00875f", "#d75faf", "#d75f00"] {
            assert!(picture.contains(color), "{name} has no {color}");
        }
    }
}
