//! Plots of an experiment as SVG, each with its legend: bars a case, lines against what was swept,
//! lines over time.

use plotters::prelude::*;
use rxsteer_lab::experiment::{CaseReport, ExperimentReport, Measure, PlotReport};

use super::super::chart::{self, Area, Axes, Drawn, Group, INK, Line, SIDE, colour_or, svg};

/// Height of the legend above a plot, in pixels.
const LEGEND: u32 = 26;
/// Size of the names of cases, and the width of a letter of them, in pixels.
const LABEL: i32 = 11;
const LETTER: u32 = 6;
/// Lines that the name of a case may take.
const LABEL_LINES: usize = 4;
/// Width that the cases share, in pixels.
const PLOT_WIDTH: u32 = 770;

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
    curves(&lines, &Axes { x: &x_name, y: &y_name, doubling })
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
    let of_case = |case: &CaseReport| -> Group {
        let bar = |(place, name): (usize, &String)| {
            let value = report.value(measure, &format!("{}/{name}", case.case))?;
            Some((colour_or(name, place), value * factor))
        };
        names.iter().enumerate().filter_map(bar).collect()
    };
    let groups: Vec<Group> = report.cases.iter().map(of_case).collect();
    let top = groups.iter().flatten().map(|bar| bar.1).fold(0.0, f64::max);
    let count = groups.len();
    if count == 0 {
        return None;
    }
    svg(|root| {
        legend(root, &names)?;
        let (_, area) = root.split_vertically(LEGEND);
        let below = if count > 1 { 6 + LABEL * LABEL_LINES as i32 } else { 8 };
        let chart = chart::bars(&area, &groups, (top * 1.08).max(1e-9), below, ("", y_name))?;
        if count > 1 {
            let style = ("sans-serif", LABEL, &INK).into_text_style(root);
            let room = (PLOT_WIDTH / count as u32 / LETTER).max(1) as usize;
            for (group, case) in report.cases.iter().enumerate() {
                let (x, y) = chart.backend_coord(&(group as f64 + SIDE, 0.0));
                for (line, text) in wrapped(&case.case, room).iter().take(LABEL_LINES).enumerate() {
                    root.draw_text(text, &style, (x, y + 6 + line as i32 * LABEL))?;
                }
            }
        }
        Ok(())
    })
}

fn curves(lines: &[Line], axes: &Axes<'_>) -> Option<String> {
    lines.iter().find(|line| !line.points.is_empty())?;
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    svg(|root| {
        legend(root, &names)?;
        let (_, area) = root.split_vertically(LEGEND);
        chart::curves(&area, lines, axes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_words() {
        assert_eq!(wrapped("16 cores, 1 queue, mask", 10), ["16 cores,", "1 queue,", "mask"]);
        assert_eq!(wrapped("a", 1), ["a"]);
        assert_eq!(wrapped("unbreakable word", 3), ["unbreakable", "word"], "a word stays whole");
    }
}
