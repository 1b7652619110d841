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
        s if s.contains("keyqueue") => Style { colour: OURS, width: 4, dashed: false, mark: Disc },
        s if s.contains("bare thread") => dashed(Ring),
        s if s.contains("channel") => dashed(Square),
        s if s.contains("no dedup") => dashed(Triangle),
        s if s.contains("parking_lot") || s.contains("heap") => line(BEHIND, Square),
        s if s.contains("std mutex") => line(ORANGE, Triangle),
        s if s.contains("DashMap") || s.contains("DelayQueue") => line(GREEN, Cross),
        s if s.contains("kube") => line(PURPLE, Ring),
        _ => line(SKY, Triangle),
    }
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
