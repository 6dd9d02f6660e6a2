//! Plots as SVG, drawn by `plotters`; colours are replaced by the page's style sheet, so that they
//! suit a light and a dark page.

use plotters::coord::Shift;
use plotters::prelude::*;
use rxsteer_core::steer::PolicyKind;
use rxsteer_lab::report::{PolicyReport, SweepCurve};

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

/// Returns the colour of a policy, the same in every plot.
pub(super) fn colour(policy: &str) -> RGBColor {
    colour_or(policy, 0)
}

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

/// Returns the busy share of each CPU as bars: a group a CPU, a bar a policy.
pub(super) fn cpu_load(policies: &[PolicyReport]) -> Option<String> {
    let cpus = policies.first()?.cpus.len();
    if cpus == 0 {
        return None;
    }
    let highest = policies.iter().map(|policy| policy.max_busy).fold(0.0, f64::max);
    let top = (highest * 110.0).clamp(1.0, 105.0);
    let names = policies.iter().map(|policy| policy.policy.as_str());
    svg(|root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..cpus as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(0)
            .y_label_formatter(&|y| short(*y))
            .x_desc("CPU")
            .y_desc("busy, %")
            .draw()?;
        let width = 0.86 / policies.len() as f64;
        for (index, policy) in policies.iter().enumerate() {
            let colour = colour(&policy.policy);
            let bars = policy.cpus.iter().enumerate().map(|(place, cpu)| {
                let left = place as f64 + 0.07 + width * index as f64;
                Rectangle::new([(left, 0.0), (left + width, cpu.busy * 100.0)], colour.filled())
            });
            chart.draw_series(bars)?;
        }
        let every = cpus.div_ceil(32);
        let labels = policies.first().into_iter().flat_map(|policy| &policy.cpus);
        let style = ("sans-serif", 12, &INK).into_text_style(root);
        for (place, cpu) in labels.enumerate().filter(|(place, _)| place % every == 0) {
            let (x, y) = chart.backend_coord(&(place as f64 + 0.5, 0.0));
            root.draw_text(&cpu.cpu.to_string(), &style, (x - 4, y + 6))?;
        }
        Ok(())
    })
    .map(|plot| plot + &legend(names))
}

/// Returns lines over a plane whose x axis is linear or doubles.
pub(super) fn lines(lines: &[Line], x_name: &str, y_name: &str, doubling: bool) -> Option<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    all().next()?;
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let low = all().map(pick).fold(f64::INFINITY, f64::min);
        let high = all().map(pick).fold(f64::NEG_INFINITY, f64::max);
        (low, if high > low { high } else { low + 1.0 })
    };
    let scale = move |x: f64| if doubling { x.max(1.0).log2() } else { x };
    let (low_x, high_x) = bounds(|point| point.0);
    let (low_x, high_x) = (scale(low_x), scale(high_x));
    let (_, high_y) = bounds(|point| point.1);
    svg(|root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(38)
            .y_label_area_size(48)
            .build_cartesian_2d(low_x..high_x.max(low_x + 1e-9), 0.0..high_y.max(1e-9) * 1.05)?;
        let labels = if doubling { (high_x - low_x).round() as usize + 1 } else { 10 };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(labels.min(16))
            .x_label_formatter(&|x| {
                if doubling { size(x.exp2().round() as u64) } else { short(*x) }
            })
            .y_label_formatter(&|y| short(*y))
            .x_desc(x_name)
            .y_desc(y_name)
            .draw()?;
        for line in lines {
            let style = colour(&line.name).stroke_width(2);
            let points = line.points.iter().map(|(x, y)| (scale(*x), *y));
            chart.draw_series(LineSeries::new(points, style))?;
        }
        Ok(())
    })
    .map(|plot| plot + &legend(lines.iter().map(|line| line.name.as_str())))
}

/// Returns the hit rate over time, in percent of the packets of flows that asked the table; a unit
/// of time is this many ns.
pub(super) fn hit_rate_lines(policies: &[PolicyReport], unit_ns: f64) -> Vec<Line> {
    let line = |policy: &PolicyReport| Line {
        name: policy.policy.clone(),
        points: policy
            .series
            .points
            .iter()
            .enumerate()
            .filter(|(_, point)| point.asked > 0)
            .map(|(index, point)| {
                let time = index as f64 * policy.series.width_ns as f64 / unit_ns;
                (time, point.hits as f64 / point.asked as f64 * 100.0)
            })
            .collect(),
    };
    policies.iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// Returns the hit rate against the swept quantity, in percent.
pub(super) fn sweep_lines(sweeps: &[SweepCurve]) -> Vec<Line> {
    let line = |curve: &SweepCurve| Line {
        name: curve.policy.clone(),
        points: curve
            .points
            .iter()
            .filter_map(|point| Some((point.value as f64, point.hit_rate? * 100.0)))
            .collect(),
    };
    sweeps.iter().map(line).collect()
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

/// Returns the names with their colours.
fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let entries = names.map(|name| {
        let RGBColor(r, g, b) = colour(name);
        let name = super::html::escape(name);
        format!("<span><i style=\"background:#{r:02x}{g:02x}{b:02x}\"></i>{name}</span>")
    });
    format!("<p class=\"legend\">{}</p>", entries.collect::<String>())
}
