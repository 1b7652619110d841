//! A chart of horizontal bars in groups, each with its name at its left and its value at its end.

use super::axis::Axis;
use super::style::{self, FAINT, GRID, INK};
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged as _;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

const WIDTH: u32 = 800;
/// Where names end and bars begin, and the margin at the right.
const NAMES: i32 = 285;
const RIGHT: i32 = 60;
/// Above the first bar: title and axis.
const TOP: i32 = 78;
const BOTTOM: i32 = 12;
/// Heights of a heading and of a bar, each with the space below.
const HEADING: i32 = 26;
const BAR: i32 = 17;

pub struct Bars {
    pub title: String,
    pub x: Axis,
    /// Where bars begin.
    pub origin: f64,
    /// Headings and their bars.
    pub groups: Vec<(String, Vec<Bar>)>,
}

pub struct Bar {
    pub name: String,
    pub value: f64,
    /// At the end of the bar.
    pub text: String,
    pub colour: RGBColor,
    /// A line across the bar: the target.
    pub tick: Option<f64>,
}

impl Bars {
    pub fn draw(&self) -> String {
        let bars: usize = self.groups.iter().map(|(_, bars)| bars.len()).sum();
        let height = TOP + self.groups.len() as i32 * HEADING + bars as i32 * BAR + BOTTOM;
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        self.draw_on(&root, height).expect("a string takes it all");
        drop(root);
        svg
    }

    fn draw_on(&self, root: &DrawingArea<SVGBackend, Shift>, height: i32) -> Result<(), Box<dyn Error + '_>> {
        root.fill(&WHITE)?;
        root.draw_text(&self.title, &style::text(19, INK, HPos::Left), (20, 24))?;
        let middle = (NAMES + WIDTH as i32 - RIGHT) / 2;
        root.draw_text(&self.x.label, &style::text(15, INK, HPos::Center), (middle, TOP - 34))?;
        for (value, name) in &self.x.ticks {
            let x = self.pixel(*value);
            root.draw(&PathElement::new([(x, TOP - 8), (x, height - BOTTOM)], GRID))?;
            root.draw_text(name, &style::text(14, INK, HPos::Center), (x, TOP - 16))?;
        }
        let mut y = TOP;
        let origin = self.pixel(self.origin);
        for (heading, bars) in &self.groups {
            root.draw_text(heading, &style::bold(style::text(15, INK, HPos::Left)), (20, y + HEADING / 2 + 2))?;
            y += HEADING;
            for bar in bars {
                self.bar(root, bar, origin, y)?;
                y += BAR;
            }
        }
        root.draw(&PathElement::new([(origin, TOP - 8), (origin, height - BOTTOM)], FAINT.stroke_width(1)))?;
        root.present()?;
        Ok(())
    }

    fn bar(
        &self,
        root: &DrawingArea<SVGBackend, Shift>,
        bar: &Bar,
        origin: i32,
        y: i32,
    ) -> Result<(), Box<dyn Error + '_>> {
        let end = self.pixel(bar.value);
        let middle = y + BAR / 2;
        let bold = bar.name == crate::results::OURS;
        let name = style::text(14, INK, HPos::Right);
        root.draw_text(&bar.name, &if bold { style::bold(name) } else { name }, (NAMES - 12, middle))?;
        let rectangle = [(origin.min(end), y + 2), (origin.max(end), y + BAR - 2)];
        root.draw(&Rectangle::new(rectangle, bar.colour.filled()))?;
        let tick = bar.tick.map(|tick| self.pixel(tick));
        if let Some(tick) = tick {
            root.draw(&PathElement::new([(tick, y), (tick, y + BAR)], INK.stroke_width(3)))?;
        }
        // To the right of bar and tick.
        let right = end.max(origin).max(tick.filter(|tick| (0..50).contains(&(tick - end.max(origin)))).unwrap_or(0));
        root.draw_text(&bar.text, &style::text(14, INK, HPos::Left), (right + 6, middle))?;
        Ok(())
    }

    fn pixel(&self, value: f64) -> i32 {
        self.x.map(&value, (NAMES, WIDTH as i32 - RIGHT))
    }
}
