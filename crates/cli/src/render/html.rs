//! One self-contained page: the text's content and plots, no script, nothing loaded from elsewhere.
//!
//! Always true: every string of the report is escaped.

use std::fmt::Write as _;
use std::io::{self, Write};

use rxsteer_lab::report::{Report, Severity};

use super::chart::Axes;
use super::metrics::{self, Tone};
use super::numbers::{grouped, percent, plural, time};
use super::plot;
use super::text::fitting;

/// The head of the page. `INK` and `GRID` are the colours of the plots to replace in the dark.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2021;--soft:#5f6368;--paper:#fff;--line:#dcdfe3;--mark:#0a6f4f;\
--bad:#b3261e;--card:#f6f7f9}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#9aa0a6;--paper:#16181b;--line:#34383d;\
--mark:#4cc79a;--bad:#ff8a80;--card:#1f2226}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}\
.answer{background:var(--card);border-left:4px solid var(--mark);padding:.75rem 1rem}\
.answer strong{font-size:1.1rem}\
pre{background:var(--card);padding:.75rem 1rem;overflow-x:auto}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
td:first-child,th:first-child{text-align:left}\
tr.section td{color:var(--soft);padding-top:.7rem}th.chosen{color:var(--mark)}\
.bad{color:var(--bad)}.faint,.soft{color:var(--soft)}\
svg{max-width:100%;height:auto}svg [fill=\"#333435\"]{fill:var(--ink)}\
svg [stroke=\"#333435\"]{stroke:var(--ink)}svg [stroke=\"#DDDEDF\"]{stroke:var(--line)}\
.legend{margin:.2rem 0 0 3rem;color:var(--soft)}.legend span{margin-right:1.2rem}\
.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;border-radius:2px}\
dt{color:var(--soft)}dd{margin:0 0 .3rem 1.2rem}";

/// Returns text with the five characters that HTML gives a meaning replaced.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Writes the page.
///
/// # Errors
/// What the writer says.
pub fn write<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    let files = escape(&report.input.files.join(", "));
    // Writing to a string cannot fail.
    let _ = writeln!(page, "<title>rxsteer replay: {files}</title>\n<style>{STYLE}</style></head>");
    let _ = writeln!(page, "<body><h1>rxsteer replay: {files}</h1>");
    modelled(&mut page, report);
    if report.input.received > 0 {
        answer(&mut page, report);
        comparison(&mut page, report);
        plots(&mut page, report);
        flows(&mut page, report);
    }
    findings(&mut page, report);
    let _ = writeln!(
        page,
        "<p class=\"soft\">{}, seed {}. The same input and seed give the same page.</p></body></html>",
        escape(&report.generator),
        report.settings.seed
    );
    out.write_all(page.as_bytes())
}

fn modelled(page: &mut String, report: &Report) {
    let input = &report.input;
    let host = &report.host;
    let _ = writeln!(
        page,
        "<p class=\"soft\">{} in {}, {} of them received by the host and replayed. Host model: {}, \
         flow tables of {} entries. Flow hash of mode {}. Times and loads are those of a model: \
         believe the ratios between policies before the numbers.</p>",
        plural(input.packets_read, "packet"),
        time(input.span_ns as f64),
        grouped(input.received),
        escape(&host.source),
        grouped(host.rps_sock_flow_entries),
        escape(&report.settings.mode),
    );
}

fn answer(page: &mut String, report: &Report) {
    let verdict = &report.verdict;
    let summary = escape(&verdict.summary);
    let _ = writeln!(page, "<h2>Answer</h2>\n<div class=\"answer\"><strong>{summary}</strong><dl>");
    for (name, lines) in
        [("buys", &verdict.buys), ("costs", &verdict.costs), ("unless", &verdict.unless)]
    {
        if !lines.is_empty() {
            let _ = write!(page, "<dt>{name}</dt>");
        }
        for line in lines {
            let _ = write!(page, "<dd>{}</dd>", escape(line));
        }
    }
    page.push_str("</dl></div>\n");
    if !verdict.settings.is_empty() {
        page.push_str("<h2>Settings</h2>\n<pre>");
        for setting in &verdict.settings {
            let _ = writeln!(page, "{}   # {}", escape(&setting.line), escape(&setting.why));
        }
        page.push_str("</pre>\n");
    }
    if !verdict.others.is_empty() {
        page.push_str("<h2>Why not the others</h2>\n<dl>");
        for other in &verdict.others {
            let _ =
                write!(page, "<dt>{}</dt><dd>{}</dd>", escape(&other.policy), escape(&other.text));
        }
        page.push_str("</dl>\n");
    }
}

fn comparison(page: &mut String, report: &Report) {
    page.push_str("<h2>Comparison</h2>\n<div class=\"scroll\"><table><tr><th></th>");
    for policy in &report.policies {
        let class = if policy.policy == report.verdict.policy { " class=\"chosen\"" } else { "" };
        let _ = write!(page, "<th{class}>{}</th>", escape(&policy.policy));
    }
    page.push_str("</tr>\n");
    let columns = report.policies.len() + 1;
    for section in metrics::sections(&report.policies, false) {
        let _ = writeln!(
            page,
            "<tr class=\"section\"><td colspan=\"{columns}\">{}</td></tr>",
            escape(section.title)
        );
        for row in section.rows {
            let (label, meaning) = (escape(row.label), escape(row.meaning));
            let _ = write!(page, "<tr><td title=\"{meaning}\">{label}</td>");
            for cell in row.cells {
                let class = match cell.tone {
                    Tone::Plain => "",
                    Tone::Bad => " class=\"bad\"",
                    Tone::Faint => " class=\"faint\"",
                };
                let _ = write!(page, "<td{class}>{}</td>", escape(&cell.text));
            }
            page.push_str("</tr>\n");
        }
    }
    page.push_str("</table></div>\n");
}

fn plots(page: &mut String, report: &Report) {
    let policies = &report.policies;
    let mut plot = |title: &str, svg: Option<String>| {
        if let Some(svg) = svg {
            let _ = writeln!(page, "<h2>{}</h2>\n<figure>{svg}</figure>", escape(title));
        }
    };
    plot("Load of each CPU", plot::cpu_load(policies));
    let (unit_ns, unit) =
        if report.input.span_ns < 2_000_000_000 { (1e6, "ms") } else { (1e9, "seconds") };
    let over_time = plot::hit_rate_lines(policies, unit_ns);
    let x = format!("{unit} since the first packet");
    let axes = Axes { x: &x, y: "hits, %", doubling: false };
    plot("Hit rate of flows over time", plot::lines(&over_time, &axes));
    if let Some(first) = report.sweeps.first() {
        let axes = Axes { x: &first.parameter, y: "hits, %", doubling: true };
        plot(
            &format!("Hit rate of flows against {}", first.parameter),
            plot::lines(&plot::sweep_lines(&report.sweeps), &axes),
        );
    }
}

fn flows(page: &mut String, report: &Report) {
    let flows = &report.flows;
    let _ = writeln!(
        page,
        "<h2>Flows and table size</h2>\n<p>{} flows, the largest with {} of the packets. At most {} \
         active within 1 s ({} with a connected socket), {} within 10 s ({}). {}</p>",
        grouped(flows.seen),
        percent(flows.largest_share),
        grouped(flows.one_second.max_flows),
        grouped(flows.one_second.max_connected),
        grouped(flows.ten_seconds.max_flows),
        grouped(flows.ten_seconds.max_connected),
        fitting(flows),
    );
}

fn findings(page: &mut String, report: &Report) {
    if report.findings.is_empty() && report.input.notes.is_empty() {
        return;
    }
    page.push_str("<h2>Findings</h2>\n<ul>\n");
    for finding in &report.findings {
        let class = if finding.severity == Severity::Problem { " class=\"bad\"" } else { "" };
        let _ = writeln!(page, "<li{class}>{}</li>", escape(&finding.text));
    }
    for note in &report.input.notes {
        let _ = writeln!(page, "<li>{}: {}</li>", escape(&note.file), escape(&note.text));
    }
    page.push_str("</ul>\n");
}
