//! A chart of lines, each with its name at its right end.

use super::axis::Axis;
use super::style::{self, FAINT, GRID, INK, Mark, Style};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

const SIZE: (u32, u32) = (840, 450);
/// Where the plot ends and the names begin.
const NAMES: u32 = 272;
/// From one name to the next.
const LINE: i32 = 19;

pub struct Lines {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

/// At least one point.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// All values of the lines, for the axis.
pub fn values(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| &line.points).map(|point| point.1)
}

type Pixels = (i32, i32);

impl Lines {
    pub fn draw(&self) -> String {
        let mut svg = String::new();
        self.draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area()).expect("a string takes it all");
        svg
    }

    fn draw_on(&self, root: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn Error + '_>> {
        let Self { x, y, .. } = self;
        root.fill(&WHITE)?;
        root.draw_text(&self.title, &style::text(19, INK, HPos::Left).into_text_style(root), (20, 26))?;
        let mut chart = ChartBuilder::on(root)
            .margin_top(50)
            .margin_bottom(8)
            .margin_left(8)
            .margin_right(NAMES)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(x.ticks.len())
            .y_labels(y.ticks.len())
            .label_style(("sans-serif", 15, &INK))
            .axis_desc_style(("sans-serif", 16, &INK))
            .x_desc(&x.label)
            .y_desc(&y.label)
            .draw()?;
        let pixels =
            |line: &Line| -> Vec<Pixels> { line.points.iter().map(|point| chart.backend_coord(point)).collect() };
        let (_, height) = chart.plotting_area().get_pixel_range();
        let ends: Vec<i32> = self.lines.iter().map(|line| pixels(line).last().expect("a point").1).collect();
        let heights = apart(&ends, LINE, height.start..height.end);
        let left = (SIZE.0 - NAMES) as i32 + 22;
        // The first is drawn last, on top.
        for (line, height) in self.lines.iter().zip(heights).rev() {
            let (style, points) = (style::of(&line.name), pixels(line));
            path(root, &points, style)?;
            let end = *points.last().expect("a point");
            root.draw(&PathElement::new([end, (left - 8, height)], style.colour.mix(0.45).stroke_width(1)))?;
            mark(root, (left, height), style)?;
            let mut text = style::text(16, INK, HPos::Left);
            if line.name == crate::results::OURS {
                text = style::bold(text);
            }
            root.draw_text(&line.name, &text.into_text_style(root), (left + 12, height))?;
        }
        root.present()?;
        Ok(())
    }
}

fn path(
    root: &DrawingArea<SVGBackend, Shift>,
    points: &[Pixels],
    style: Style,
) -> Result<(), Box<dyn Error + 'static>> {
    let stroke = style.colour.stroke_width(style.width);
    if style.dashed {
        root.draw(&DashedPathElement::new(points.to_vec(), 7, 4, stroke)).map_err(|error| error.to_string())?;
    } else {
        root.draw(&PathElement::new(points, stroke)).map_err(|error| error.to_string())?;
    }
    points.iter().try_for_each(|point| mark(root, *point, style))
}

fn mark(
    root: &DrawingArea<SVGBackend, Shift>,
    at: Pixels,
    Style { colour, mark, .. }: Style,
) -> Result<(), Box<dyn Error + 'static>> {
    let (x, y) = at;
    let (filled, stroke) = (colour.filled(), colour.stroke_width(2));
    let drawn = match mark {
        Mark::Disc => root.draw(&Circle::new(at, 5, filled)),
        Mark::Ring => {
            root.draw(&Circle::new(at, 4, WHITE.filled())).and_then(|()| root.draw(&Circle::new(at, 4, stroke)))
        }
        Mark::Square => root.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], filled)),
        Mark::Triangle => root.draw(&TriangleMarker::new(at, 6, filled)),
        Mark::Cross => root.draw(&Cross::new(at, 4, stroke)),
    };
    Ok(drawn.map_err(|error| error.to_string())?)
}

/// Moves the heights so that no two are closer than `gap`. Keeps their order, and stays within the bounds if there is room.
fn apart(heights: &[i32], gap: i32, bounds: std::ops::Range<i32>) -> Vec<i32> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by_key(|&n| heights[n]);
    let mut moved = heights.to_vec();
    // Blocks of adjacent names, each centred on the ends of its lines.
    let mut blocks: Vec<(i32, Vec<usize>)> = Vec::new();
    for n in order {
        let mut block = vec![n];
        loop {
            let sum: i32 = block.iter().map(|&n| heights[n]).sum();
            let tall = (block.len() as i32 - 1) * gap;
            let top = (sum / block.len() as i32 - tall / 2).min(bounds.end - tall).max(bounds.start);
            match blocks.pop() {
                Some((above, others)) if above + others.len() as i32 * gap > top => {
                    block = [others, block].concat();
                }
                last => {
                    blocks.extend(last);
                    blocks.push((top, block));
                    break;
                }
            }
        }
    }
    for (top, block) in blocks {
        for (line, n) in block.into_iter().enumerate() {
            moved[n] = top + line as i32 * gap;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_their_order_and_their_place_if_they_can() {
        assert_eq!(apart(&[100, 200, 20], 20, 0..300), [100, 200, 20]);
        assert_eq!(apart(&[100, 104, 102], 20, 0..300), [82, 122, 102]);
        assert_eq!(apart(&[298, 299, 290], 20, 0..300), [280, 300, 260]);
        for heights in [vec![0, 0, 0, 5, 70, 71, 300], vec![150; 9]] {
            let moved = apart(&heights, 20, 0..300);
            let mut sorted = moved.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 20), "{moved:?}");
            assert!(sorted.iter().all(|height| (0..=300).contains(height)), "{moved:?}");
        }
    }
}
