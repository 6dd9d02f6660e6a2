//! What the comparison of policies shows: the rows, for the text and for the page.

use rxsteer_lab::report::{ByClass, PolicyReport};

use super::numbers::{count, percent, time};

/// How good or bad a figure is, where that can be said without the others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Tone {
    /// Nothing to say.
    #[default]
    Plain,
    /// Something that should not be.
    Bad,
    /// The row does not apply to the policy.
    Faint,
}

/// One figure of one policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cell {
    /// As it is shown.
    pub text: String,
    /// How it is shown.
    pub tone: Tone,
}

impl Cell {
    fn plain(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }

    fn none() -> Self {
        Self { text: "-".into(), tone: Tone::Faint }
    }

    fn packets(n: u64) -> Self {
        Self { text: count(n), tone: if n == 0 { Tone::Faint } else { Tone::Plain } }
    }

    /// A count that should be 0.
    fn fault(n: u64) -> Self {
        Self { text: count(n), tone: if n == 0 { Tone::Faint } else { Tone::Bad } }
    }

    fn share(part: u64, all: u64) -> Self {
        if all == 0 { Self::none() } else { Self::plain(percent(part as f64 / all as f64)) }
    }
}

/// One row: a figure of each policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// What it is, at most 24 characters.
    pub label: &'static str,
    /// One sentence on what it means.
    pub meaning: &'static str,
    /// One cell a policy.
    pub cells: Vec<Cell>,
}

/// Rows under one heading.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Its rows; never empty.
    pub rows: Vec<Row>,
}

/// Returns the comparison. Rows in which every policy has 0 or nothing are left out, unless `all`
/// are wanted.
pub fn sections(policies: &[PolicyReport], all: bool) -> Vec<Section> {
    let maker = Maker { policies, all };
    [
        ("decisions, in packets", maker.decisions()),
        ("flow table", maker.table()),
        ("order within flows", maker.order()),
        ("where processed", maker.places()),
        ("load", maker.load()),
        ("packets lost", maker.losses()),
        ("latency", maker.latency()),
    ]
    .into_iter()
    .map(|(title, rows)| Section { title, rows: rows.into_iter().flatten().collect() })
    .filter(|section| !section.rows.is_empty())
    .collect()
}

struct Maker<'a> {
    policies: &'a [PolicyReport],
    all: bool,
}

impl Maker<'_> {
    fn row(
        &self,
        label: &'static str,
        meaning: &'static str,
        cell: impl Fn(&PolicyReport) -> Cell,
    ) -> Option<Row> {
        let cells: Vec<_> = self.policies.iter().map(cell).collect();
        let says_something = cells.iter().any(|cell| cell.tone != Tone::Faint);
        (says_something || self.all).then_some(Row { label, meaning, cells })
    }

    fn decisions(&self) -> Vec<Option<Row>> {
        let reason = |label, meaning, pick: fn(&PolicyReport) -> ByClass| {
            self.row(label, meaning, move |p| Cell::packets(pick(p).total()))
        };
        vec![
            reason("hit", "An entry of the flow table named the CPU.", |p| p.reasons.hit),
            reason("miss", "The table had nothing usable; spread by hash.", |p| p.reasons.miss),
            reason("no flow", "The table was not asked; spread by hash.", |p| p.reasons.no_flow),
            reason(
                "held",
                "The consumer moved, but packets of the flow still wait on the old CPU.",
                |p| p.reasons.held,
            ),
            reason("beside", "The consumer's CPU is full; put beside it.", |p| p.reasons.beside),
            reason(
                "spilled",
                "No flow, and its CPU is deep in backlog; took its second choice.",
                |p| p.reasons.spilled,
            ),
            reason("shed", "Its socket has no room; dropped before any work.", |p| p.reasons.shed),
            reason("local", "Stayed on the CPU that took it.", |p| p.reasons.local),
        ]
    }

    fn table(&self) -> Vec<Option<Row>> {
        let probe = |label, meaning, pick: fn(&PolicyReport) -> u64| {
            self.row(label, meaning, move |p| Cell::packets(pick(p)))
        };
        let fault = |label, meaning, pick: fn(&PolicyReport) -> u64| {
            self.row(label, meaning, move |p| Cell::fault(pick(p)))
        };
        vec![
            self.row(
                "hit rate of flows",
                "Packets of connected sockets that found their own entry.",
                |p| p.hit_rate.map_or_else(Cell::none, |rate| Cell::plain(percent(rate))),
            ),
            fault("steered wrong", "Packets steered by an entry that another flow wrote.", |p| {
                p.wrong_steers
            }),
            probe("miss: empty", "Nothing at the flow's place.", |p| p.probes.empty),
            probe("miss: other flow", "An entry of another flow, seen to be so.", |p| {
                p.probes.other_flow
            }),
            probe("miss: stale", "An entry too old to be believed.", |p| p.probes.stale),
            probe("miss: offline", "An entry names an offline CPU.", |p| p.probes.offline),
            probe("writes by flows", "Changes by connected sockets.", |p| p.writes.by_flows),
            fault("writes by non-flows", "Changes of the table by traffic that is no flow.", |p| {
                p.writes.by_non_flows
            }),
            probe("evictions", "Entries that had to give way.", |p| p.writes.evictions),
            fault(
                "others' wiped at close",
                "Entries of other flows wiped when a socket closed.",
                |p| p.writes.wiped_others,
            ),
        ]
    }

    fn order(&self) -> Vec<Option<Row>> {
        vec![
            self.row("moves to another CPU", "A flow changed its CPU.", |p| {
                Cell::packets(p.moves.moved)
            }),
            self.row("moves held back", "Kept until the old CPU had drained.", |p| {
                Cell::packets(p.moves.held)
            }),
            self.row("reordered packets", "Finished after a later packet of their flow.", |p| {
                Cell::fault(p.reordered)
            }),
        ]
    }

    fn places(&self) -> Vec<Option<Row>> {
        let with_reader = |p: &PolicyReport| {
            p.distances.same_cpu + p.distances.same_cache + p.distances.elsewhere
        };
        vec![
            self.row("on the reader's CPU", "Of packets that somebody reads.", |p| {
                Cell::share(p.distances.same_cpu, with_reader(p))
            }),
            self.row("in its cache group", "On a CPU that shares a cache with it.", |p| {
                Cell::share(p.distances.same_cache, with_reader(p))
            }),
            self.row("elsewhere", "On any other CPU.", |p| {
                Cell::share(p.distances.elsewhere, with_reader(p))
            }),
            self.row("hand-offs per packet", "Put on another CPU's backlog.", |p| {
                Cell::plain(format!("{:.3}", p.handoffs_per_packet))
            }),
        ]
    }

    fn load(&self) -> Vec<Option<Row>> {
        vec![
            self.row("CPU time per packet", "All work, reading included.", |p| {
                Cell::plain(time(p.cpu_ns_per_packet))
            }),
            self.row("busiest CPU", "Busy share of the time.", |p| {
                Cell::plain(percent(p.max_busy))
            }),
            self.row("mean of all CPUs", "Busy share of the time.", |p| {
                Cell::plain(percent(p.mean_busy))
            }),
            self.row("max / mean packets", "1.00 is an even spread.", |p| {
                Cell::plain(format!("{:.2}", p.max_over_mean))
            }),
        ]
    }

    fn losses(&self) -> Vec<Option<Row>> {
        let loss = |label, meaning, pick: fn(&PolicyReport) -> u64| {
            self.row(label, meaning, move |p| Cell::fault(pick(p)))
        };
        vec![
            loss("ring full", "The device had no room.", |p| p.drops.ring),
            loss("backlog full", "The chosen CPU had no room.", |p| p.drops.backlog),
            loss("flow limit", "Too much of the backlog was of its flow.", |p| p.drops.flow_limit),
            loss("receive buffer full", "The socket had no room.", |p| p.drops.receive_buffer),
            loss("shed early", "The socket would have had no room.", |p| p.drops.shed),
            loss("CPU offline", "No CPU took over.", |p| p.drops.offline),
            loss("limit of the model", "Too many packets in flight.", |p| p.drops.model_limit),
        ]
    }

    fn latency(&self) -> Vec<Option<Row>> {
        let quantile = |label, meaning, pick: fn(&PolicyReport) -> u64| {
            self.row(label, meaning, move |p| {
                if p.latency.count == 0 { Cell::none() } else { Cell::plain(time(pick(p) as f64)) }
            })
        };
        vec![
            quantile("median", "From arrival until its reader has it.", |p| p.latency.p50_ns),
            quantile("90 %", "Nine of ten packets are faster.", |p| p.latency.p90_ns),
            quantile("99 %", "99 of 100 packets are faster.", |p| p.latency.p99_ns),
            quantile("99.9 %", "999 of 1000 packets are faster.", |p| p.latency.p999_ns),
        ]
    }
}
