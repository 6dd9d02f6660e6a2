//! What all plots are drawn with: colours, axes, curves over a plane, bars in groups. `plotters` draws;
//! colours are replaced by the page's style sheet, so that they suit a light and a dark page.

use std::ops::Range;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use rxsteer_core::steer::PolicyKind;

/// Ratio of the largest to the smallest value from which an axis multiplies rather than adds.
const WIDE: f64 = 1000.0;
/// Width of the labels of a y axis, in pixels.
const Y_LABELS: i32 = 62;
/// Room on either side of a group of bars, as a share of its width.
pub(super) const SIDE: f64 = 0.07;

/// Colour of axes and text; the page gives it another value in the dark.
pub(super) const INK: RGBColor = RGBColor(0x33, 0x34, 0x35);
/// Colour of grid lines, likewise.
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xde, 0xdf);

/// Colours that can be told apart by most people, light or dark (after Okabe and Ito, 2008).
pub(super) const COLOURS: [RGBColor; PolicyKind::ALL.len()] = [
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x9b, 0x6b, 0xff),
    RGBColor(0x00, 0x9e, 0x73),
];

/// Returns the colour of a policy, or of the `place`-th of other names.
pub(super) fn colour_or(name: &str, place: usize) -> RGBColor {
    let policy = PolicyKind::ALL.iter().position(|kind| kind.name() == name);
    COLOURS[policy.unwrap_or(place) % COLOURS.len()]
}

/// Size of a plot in pixels.
const SIZE: (u32, u32) = (860, 300);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Named points of one line.
pub(super) struct Line {
    /// What it shows.
    pub(super) name: String,
    /// Its points.
    pub(super) points: Vec<(f64, f64)>,
}

/// What the axes of curves say.
pub(super) struct Axes<'a> {
    /// Name of the x axis.
    pub(super) x: &'a str,
    /// Name of the y axis.
    pub(super) y: &'a str,
    /// Whether the x axis doubles rather than adds.
    pub(super) doubling: bool,
}

/// Draws lines, each in its colour, if there is a point; the y axis multiplies rather than adds where
/// values span three powers of ten or more, and then has a label a power.
pub(super) fn curves(root: &Area<'_>, lines: &[Line], axes: &Axes<'_>) -> Drawn {
    let all = || lines.iter().flat_map(|line| &line.points);
    let across = |x: f64| if axes.doubling { x.max(1.0).log2() } else { x };
    let (low_x, high_x) = bounds(all().map(|point| across(point.0)));
    let (low_y, high_y) = bounds(all().map(|point| point.1));
    let wide = low_y > 0.0 && high_y / low_y >= WIDE;
    let up = |y: f64| if wide { y.log10() } else { y };
    let y_range = match wide {
        true => low_y.log10().floor()..high_y.log10().ceil(),
        false => 0.0..high_y.max(1e-9) * 1.05,
    };
    // As many labels as there are whole powers, so that each is at one.
    let whole = |range: &Range<f64>| (range.end - range.start).round() as usize + 1;
    let x_range = low_x..high_x.max(low_x + 1e-9);
    let x_labels = if axes.doubling { whole(&x_range).clamp(2, 16) } else { 10 };
    let y_labels = if wide { whole(&y_range) } else { 10 };
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(38)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(x_range, y_range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12, &INK))
        .x_labels(x_labels)
        .y_labels(y_labels)
        .x_label_formatter(&|x| {
            if axes.doubling { size(x.exp2().round() as u64) } else { short(*x) }
        })
        .y_label_formatter(&|y| long(if wide { 10f64.powf(*y) } else { *y }))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .draw()?;
    for (place, line) in lines.iter().enumerate() {
        let style = colour_or(&line.name, place).stroke_width(2);
        let points = line.points.iter().map(|(x, y)| (across(*x), up(*y)));
        chart.draw_series(LineSeries::new(points, style))?;
    }
    Ok(())
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// Bars of one group, in the order drawn: colour and height.
pub(super) type Group = Vec<(RGBColor, f64)>;
/// A plane on which a group of bars is 1 wide.
pub(super) type Bars<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws groups of bars up to `top`, and leaves this many pixels below them for their names.
pub(super) fn bars<'a, 'b>(
    area: &'a Area<'b>,
    groups: &[Group],
    top: f64,
    below: i32,
    (x_name, y_name): (&str, &str),
) -> Result<Bars<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(below)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12, &INK))
        .x_labels(0)
        .y_label_formatter(&|y| long(*y))
        .x_desc(x_name)
        .y_desc(y_name)
        .draw()?;
    let most = groups.iter().map(Vec::len).max().unwrap_or(1);
    let width = (1.0 - 2.0 * SIDE) / most.max(1) as f64;
    for (place, group) in groups.iter().enumerate() {
        let bars = group.iter().enumerate().map(|(index, (colour, height))| {
            let left = place as f64 + SIDE + width * index as f64;
            Rectangle::new([(left, 0.0), (left + width * 0.92, *height)], colour.filled())
        });
        chart.draw_series(bars)?;
    }
    Ok(chart)
}

/// Returns a number with no more decimals than it needs, at most three.
pub(super) fn short(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn size(n: u64) -> String {
    match n {
        _ if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        _ if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{}k", n >> 10),
        _ => n.to_string(),
    }
}

/// Draws into a string; `None` if the plotter refuses, so that a page without the plot remains.
pub(super) fn svg(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&root).ok()?;
        root.present().ok()?;
    }
    // Let it shrink with the page.
    let fixed = format!("width=\"{}\" height=\"{}\" viewBox", SIZE.0, SIZE.1);
    Some(text.replacen(&fixed, "role=\"img\" viewBox", 1))
}

/// Returns a number on an axis, with k and M from a thousand on.
fn long(y: f64) -> String {
    match y {
        _ if y >= 1e6 => format!("{} M", short(y / 1e6)),
        _ if y >= 1e4 => format!("{} k", short(y / 1e3)),
        _ => short(y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of a plot.
    fn labels(svg: &str) -> Vec<&str> {
        svg.split("<text")
            .skip(1)
            .filter_map(|text| text.split(['>', '<']).nth(1))
            .map(str::trim)
            .collect()
    }

    #[test]
    fn an_axis_that_multiplies_has_its_labels_at_powers_of_ten() {
        for (low, high, powers) in [
            (2.0, 3000.0, &["1", "10", "100", "1000", "10 k"][..]),
            (100.0, 1e5, &["100", "1000", "10 k", "100 k"]),
            (0.5, 2e6, &["0.1", "1", "10", "100", "1000", "10 k", "100 k", "1 M", "10 M"]),
        ] {
            let lines = [Line { name: "rps".into(), points: vec![(1.0, low), (8.0, high)] }];
            let axes = Axes { x: "n", y: "p", doubling: true };
            let svg = svg(|root| curves(root, &lines, &axes)).unwrap();
            let of_x = ["1", "2", "4", "8", "n", "p"];
            let of_y: Vec<&str> =
                labels(&svg).into_iter().filter(|text| powers.contains(text)).collect();
            let rest: Vec<&str> = labels(&svg)
                .into_iter()
                .filter(|text| !powers.contains(text) && !of_x.contains(text))
                .collect();
            assert!(rest.is_empty(), "{low} to {high}: {rest:?}");
            assert!(powers.iter().all(|power| of_y.contains(power)), "{low} to {high}: {of_y:?}");
        }
    }

    #[test]
    fn names_that_are_no_policies_can_be_told_apart() {
        assert_ne!(colour_or("two-tables", 0), colour_or("three-tables", 1));
        assert_eq!(colour_or("rps", 0), colour_or("rps", 5), "a policy has its own");
    }
}
