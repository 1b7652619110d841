//! Colours and marks, the same for a subject on all charts.

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontStyle, IntoFont, RGBColor, TextStyle};

/// How a line looks. Marks distinguish the lines for readers who cannot distinguish the colours.
#[derive(Clone, Copy)]
pub struct Style {
    pub colour: RGBColor,
    pub width: u32,
    pub dashed: bool,
    pub mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mark {
    Disc,
    Square,
    Triangle,
    Cross,
    Ring,
}

pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
pub const FAINT: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// keyqueue, and keyqueue where a rival is faster. All colours are from Okabe and Ito's palette.
pub const OURS: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub const BEHIND: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);

/// The style is chosen by a part of the name, since the names of a subject differ a little from table to table. The first match counts. Subjects that do
/// less work, without dedup or without a queue, are dashed.
pub fn of(subject: &str) -> Style {
    use Mark::*;
    let line = |colour, mark| Style { colour, width: 2, dashed: false, mark };
    let dashed = |mark| Style { colour: FAINT, width: 1, dashed: true, mark };
    match subject {
        "keyqueue, 1 shard" => line(OURS, Ring),
        s if s.contains("keyqueue") => Style { colour: OURS, width: 4, dashed: false, mark: Disc },
        s if s.contains("bare thread") => dashed(Ring),
        s if s.contains("channel") => dashed(Square),
        s if s.contains("no dedup") => dashed(Triangle),
        s if s.contains("parking_lot") || s.contains("heap") => line(BEHIND, Square),
        s if s.contains("std mutex") => line(ORANGE, Triangle),
        s if s.contains("DashMap") || s.contains("DelayQueue") => line(GREEN, Cross),
        s if s.contains("kube") || s.contains("papaya") => line(PURPLE, Ring),
        _ => line(SKY, Triangle),
    }
}

/// The same colours on a dark page: an image follows the reader's setting.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    [fill='#FFFFFF'] { fill: #0d1117 } [stroke='#FFFFFF'] { stroke: #0d1117 } \
    [fill='#222222'] { fill: #e6edf3 } [stroke='#222222'] { stroke: #e6edf3 } \
    [fill='#777777'] { fill: #9aa4ae } [stroke='#777777'] { stroke: #9aa4ae } [stroke='#DDDDDD'] { stroke: #30363d } \
    [fill='#0072B2'] { fill: #4aa8e8 } [stroke='#0072B2'] { stroke: #4aa8e8 } \
    }</style>";

/// Adds the colours of dark pages, and in the lower right corner the machine on which was measured.
pub fn finish(svg: &str, machine: &str) -> String {
    let (head, rest) = svg.split_once('\n').expect("the element `svg` has a line of its own");
    let number = |name: &str| -> u32 {
        let value = head.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.and_then(|(value, _)| value.parse().ok()).expect("a chart has a size")
    };
    let (x, y) = (number("width") - 8, number("height") - 6);
    let machine = machine.replace('&', "&amp;").replace('<', "&lt;");
    let caption = format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" font-family=\"sans-serif\" font-size=\"10\" fill=\"#777777\">{machine}</text>"
    );
    let body = rest.trim_end().strip_suffix("</svg>").expect("the element `svg` ends");
    format!("{head}\n{DARK}\n{body}{caption}\n</svg>\n")
}

/// Text of this size, anchored as `anchor` says, and vertically at its middle.
pub fn text(size: u32, colour: RGBColor, anchor: HPos) -> TextStyle<'static> {
    TextStyle {
        color: colour.to_backend_color(),
        ..TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(anchor, VPos::Center))
    }
}

pub fn bold(text: TextStyle<'static>) -> TextStyle<'static> {
    TextStyle { font: text.font.style(FontStyle::Bold), ..text }
}
