//! Plots of an experiment as SVG, each with its legend: bars a case, lines against what was swept,
//! lines over time.

use plotters::prelude::*;
use rxsteer_lab::experiment::{ExperimentReport, Measure, PlotReport};

use super::super::plot::{Area, Drawn, GRID, INK, Line, colour_or, short, size, svg};

/// Height of the legend above a plot, in pixels.
const LEGEND: u32 = 26;
/// Size of the names of cases, and the width of a letter of them, in pixels.
const LABEL: i32 = 11;
const LETTER: u32 = 6;
/// Lines that the name of a case may take.
const LABEL_LINES: usize = 4;
/// Width that the cases share, in pixels.
const PLOT_WIDTH: u32 = 770;
/// Ratio of the largest to the smallest value from which an axis multiplies rather than adds.
const WIDE: f64 = 1000.0;

/// Returns a plot for a page, or `None` if there is nothing to show.
pub(super) fn svg_of(report: &ExperimentReport, plot: &PlotReport) -> Option<String> {
    let percent = Measure::named(&plot.measure).is_some_and(|m| m.unit == "share");
    let factor = if percent { 100.0 } else { 1.0 };
    let y_name = axis(&plot.measure, percent);
    if plot.form == "bars" {
        return bars(report, &plot.measure, factor, &y_name);
    }
    let (lines, x_name, doubling) = if plot.form == "lines" {
        let x_name = report.sweep.clone().unwrap_or_default();
        (swept(report, plot, factor), x_name, true)
    } else {
        (over_time(report, plot, factor), "seconds".to_owned(), false)
    };
    curves(&lines, &x_name, &y_name, doubling)
}

/// Returns a plot that stands by itself: on a ground of its own, with a fixed size.
pub fn standing_svg(report: &ExperimentReport, plot: &PlotReport) -> Option<String> {
    let svg = svg_of(report, plot)?;
    let (head, rest) = svg.split_once('>')?;
    Some(format!(
        "{head} width=\"860\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{rest}"
    ))
}

fn axis(measure: &str, percent: bool) -> String {
    let unit = if percent { "%" } else { Measure::named(measure).map_or("", |m| m.unit) };
    format!("{}, {unit}", measure.replace('_', " "))
}

fn policies(report: &ExperimentReport) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for policy in report.cases.iter().flat_map(|case| &case.policies) {
        if !names.contains(&policy.policy) {
            names.push(policy.policy.clone());
        }
    }
    names
}

fn swept(report: &ExperimentReport, plot: &PlotReport, factor: f64) -> Vec<Line> {
    let of_case =
        |case: &str| plot.case.as_ref().is_none_or(|name| case.starts_with(&format!("{name}, ")));
    let line = |name: String| Line {
        points: report
            .cases
            .iter()
            .filter(|case| of_case(&case.case))
            .filter_map(|case| {
                let value = report.value(&plot.measure, &format!("{}/{name}", case.case))?;
                Some((case.x?, value * factor))
            })
            .collect(),
        name,
    };
    policies(report).into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

fn over_time(report: &ExperimentReport, plot: &PlotReport, factor: f64) -> Vec<Line> {
    let case =
        report.cases.iter().find(|case| plot.case.as_ref().is_none_or(|name| *name == case.case));
    let of_policy = |policy: &rxsteer_lab::experiment::PolicyResult| {
        let course = policy.course.iter().find(|course| course.measure == plot.measure)?;
        let points = course.points.iter().map(|(x, y)| (*x, y * factor)).collect();
        Some(Line { name: policy.policy.clone(), points })
    };
    case.into_iter().flat_map(|case| &case.policies).filter_map(of_policy).collect()
}

fn legend(root: &Area<'_>, names: &[String]) -> Drawn {
    let style = ("sans-serif", 12, &INK).into_text_style(root);
    let mut x = 60;
    for (place, name) in names.iter().enumerate() {
        let square = Rectangle::new([(x, 10), (x + 11, 21)], colour_or(name, place).filled());
        root.draw(&square)?;
        root.draw_text(name, &style, (x + 16, 10))?;
        x += 34 + 7 * name.chars().count() as i32;
    }
    Ok(())
}

fn bars(report: &ExperimentReport, measure: &str, factor: f64, y_name: &str) -> Option<String> {
    let names = policies(report);
    let value = |case: &str, policy: &str| report.value(measure, &format!("{case}/{policy}"));
    let all = report.cases.iter().flat_map(|case| {
        let of_case = names.iter().map(|name| value(&case.case, name).unwrap_or(0.0) * factor);
        of_case.collect::<Vec<_>>()
    });
    let top = all.fold(0.0, f64::max);
    if report.cases.is_empty() {
        return None;
    }
    let count = report.cases.len();
    svg(|root| {
        legend(root, &names)?;
        let (_, area) = root.split_vertically(LEGEND);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(if count > 1 { 6 + LABEL * LABEL_LINES as i32 } else { 8 })
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..count as f64, 0.0..(top * 1.08).max(1e-9))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(0)
            .y_label_formatter(&|y| long(*y))
            .y_desc(y_name)
            .draw()?;
        let drawn = |case: &str| names.iter().filter(|name| value(case, name).is_some()).count();
        let most = report.cases.iter().map(|case| drawn(&case.case)).max().unwrap_or(1);
        let width = 0.86 / most.max(1) as f64;
        for (group, case) in report.cases.iter().enumerate() {
            let mut left = group as f64 + 0.07;
            for (place, name) in names.iter().enumerate() {
                let Some(height) = value(&case.case, name) else { continue };
                let bar = [(left, 0.0), (left + width * 0.92, height * factor)];
                chart.draw_series([Rectangle::new(bar, colour_or(name, place).filled())])?;
                left += width;
            }
        }
        if count > 1 {
            let style = ("sans-serif", LABEL, &INK).into_text_style(root);
            let room = (PLOT_WIDTH / count as u32 / LETTER).max(1) as usize;
            for (group, case) in report.cases.iter().enumerate() {
                let (x, y) = chart.backend_coord(&(group as f64 + 0.07, 0.0));
                for (line, text) in wrapped(&case.case, room).iter().take(LABEL_LINES).enumerate() {
                    root.draw_text(text, &style, (x, y + 6 + line as i32 * LABEL))?;
                }
            }
        }
        Ok(())
    })
}

fn curves(lines: &[Line], x_name: &str, y_name: &str, doubling: bool) -> Option<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    all().next()?;
    let scale = move |x: f64| if doubling { x.max(1.0).log2() } else { x };
    let low_x = all().map(|p| scale(p.0)).fold(f64::INFINITY, f64::min);
    let high_x = all().map(|p| scale(p.0)).fold(f64::NEG_INFINITY, f64::max);
    let high_y = all().map(|p| p.1).fold(0.0, f64::max);
    let low_y = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let wide = low_y > 0.0 && high_y / low_y >= WIDE;
    let tall = move |y: f64| if wide { y.log10() } else { y };
    let y_range = match wide {
        true => low_y.log10().floor()..high_y.log10().ceil(),
        false => 0.0..high_y.max(1e-9) * 1.05,
    };
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    svg(|root| {
        legend(root, &names)?;
        let (_, area) = root.split_vertically(LEGEND);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(36)
            .y_label_area_size(62)
            .build_cartesian_2d(low_x..high_x.max(low_x + 1e-9), y_range)?;
        let labels = if doubling { (high_x - low_x).round() as usize + 1 } else { 10 };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(labels.clamp(2, 16))
            .x_label_formatter(&|x| {
                if doubling { size(x.exp2().round() as u64) } else { short(*x) }
            })
            .y_label_formatter(&|y| long(if wide { 10f64.powf(*y) } else { *y }))
            .x_desc(x_name)
            .y_desc(y_name)
            .draw()?;
        for (place, line) in lines.iter().enumerate() {
            let style = colour_or(&line.name, place).stroke_width(2);
            let points = line.points.iter().map(|(x, y)| (scale(*x), tall(*y)));
            chart.draw_series(LineSeries::new(points, style))?;
        }
        Ok(())
    })
}

/// Returns a name in lines of at most `room` letters, cut between words where there are some.
fn wrapped(name: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split(' ') {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
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

    #[test]
    fn a_name_is_cut_between_words() {
        assert_eq!(wrapped("16 cores, 1 queue, mask", 10), ["16 cores,", "1 queue,", "mask"]);
        assert_eq!(wrapped("a", 1), ["a"]);
        assert_eq!(wrapped("unbreakable word", 3), ["unbreakable", "word"], "a word stays whole");
    }

    #[test]
    fn names_that_are_no_policies_can_be_told_apart() {
        assert_ne!(colour_or("two-tables", 0), colour_or("three-tables", 1));
        assert_eq!(colour_or("rps", 0), colour_or("rps", 5), "a policy has its own");
    }
}
