//! Plots of a replay as SVG, each with its legend in HTML.

use plotters::prelude::*;
use rxsteer_lab::report::{PolicyReport, SweepCurve};

use super::chart::{Axes, Group, INK, Line, bars, colour_or, curves, svg};

/// Returns the busy share of each CPU as bars: a group a CPU, a bar a policy.
pub(super) fn cpu_load(policies: &[PolicyReport]) -> Option<String> {
    let cpus = &policies.first()?.cpus;
    if cpus.is_empty() {
        return None;
    }
    let highest = policies.iter().map(|policy| policy.max_busy).fold(0.0, f64::max);
    let top = (highest * 110.0).clamp(1.0, 105.0);
    let of_cpu = |place: usize| -> Group {
        let busy = |policy: &PolicyReport| policy.cpus.get(place).map_or(0.0, |cpu| cpu.busy);
        policies.iter().map(|p| (colour_or(&p.policy, 0), busy(p) * 100.0)).collect()
    };
    let groups: Vec<Group> = (0..cpus.len()).map(of_cpu).collect();
    svg(|root| {
        let chart = bars(root, &groups, top, 34, ("CPU", "busy, %"))?;
        let every = cpus.len().div_ceil(32);
        let style = ("sans-serif", 12, &INK).into_text_style(root);
        for (place, cpu) in cpus.iter().enumerate().step_by(every) {
            let (x, y) = chart.backend_coord(&(place as f64 + 0.5, 0.0));
            root.draw_text(&cpu.cpu.to_string(), &style, (x - 4, y + 6))?;
        }
        Ok(())
    })
    .map(|plot| plot + &legend(policies.iter().map(|policy| policy.policy.as_str())))
}

/// Returns lines over a plane whose x axis is linear or doubles.
pub(super) fn lines(lines: &[Line], axes: &Axes<'_>) -> Option<String> {
    lines.iter().find(|line| !line.points.is_empty())?;
    svg(|root| curves(root, lines, axes))
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

/// Returns the names with their colours.
fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let entries = names.map(|name| {
        let RGBColor(r, g, b) = colour_or(name, 0);
        let name = super::html::escape(name);
        format!("<span><i style=\"background:#{r:02x}{g:02x}{b:02x}\"></i>{name}</span>")
    });
    format!("<p class=\"legend\">{}</p>", entries.collect::<String>())
}
