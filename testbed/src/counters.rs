//! Counters of the kernel: softirq work and drops by CPU, protocols by namespace, devices.
//!
//! Always true: a difference of two readings never goes below zero, since none of these counters
//! does but by wrapping.
//! Source: proc_stat(5); the columns of `/proc/net/softnet_stat` as sysstat and the kernel's
//! Documentation/networking/scaling.rst name them; RFC 4293 and RFC 4113 for `/proc/net/snmp`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use rxsteer_core::CpuId;

/// What went through a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets that were to be sent and were dropped.
    pub tx_dropped: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets that were to be sent and met an error.
    pub tx_errors: u64,
}

/// How a CPU spent its time since boot, in steps of a clock tick (mostly 10 ms).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes {
    /// Which CPU.
    pub cpu: CpuId,
    /// User mode, nice or not.
    pub user: Duration,
    /// Kernel, without interrupts.
    pub system: Duration,
    /// Idle, or waiting for input and output.
    pub idle: Duration,
    /// Hardware interrupts.
    pub irq: Duration,
    /// Softirqs: packet work in the wake of an interrupt. What `ksoftirqd` or a NAPI thread does is
    /// in `system`.
    pub softirq: Duration,
    /// Taken by the hypervisor for others.
    pub steal: Duration,
}

impl CpuTimes {
    /// Returns what was spent since an earlier reading of the same CPU.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu,
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Returns all of it but the idle time.
    pub fn busy(&self) -> Duration {
        self.user + self.system + self.irq + self.softirq + self.steal
    }
}

/// Returns how each online CPU has spent its time.
///
/// # Errors
/// If `/proc/stat` cannot be read.
pub fn softirq_now() -> io::Result<Vec<CpuTimes>> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100).try_into().unwrap_or(100);
    Ok(cpu_times_in(&fs::read_to_string("/proc/stat")?, ticks))
}

fn cpu_times_in(text: &str, ticks_per_second: u64) -> Vec<CpuTimes> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let time = |columns: &[usize]| {
            let ticks: u64 = columns.iter().map(|c| ticks.get(*c).copied().unwrap_or(0)).sum();
            Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1)))
        };
        Some(CpuTimes {
            cpu: CpuId(cpu),
            user: time(&[0, 1]),
            system: time(&[2]),
            idle: time(&[3, 4]),
            irq: time(&[5]),
            softirq: time(&[6]),
            steal: time(&[7]),
        })
    };
    text.lines().filter_map(line).collect()
}

/// What the backlog of a CPU met, of all namespaces together; counters of 32 bits, which wrap.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SoftnetCpu {
    /// Which CPU; its place in the file where an old kernel does not say.
    pub cpu: CpuId,
    /// Packets taken off a device or a backlog.
    pub processed: u32,
    /// Packets for which a backlog had no room.
    pub dropped: u32,
    /// Times the poll loop stopped with work left.
    pub time_squeeze: u32,
    /// Signals taken from other CPUs to process their packets.
    pub received_rps: u32,
    /// Packets dropped by the flow limit.
    pub flow_limit: u32,
}

/// The backlogs of all CPUs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Softnet(pub Vec<SoftnetCpu>);

impl Softnet {
    /// Returns what was counted since an earlier reading; a CPU that is new counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let each = |now: &SoftnetCpu| {
            let was = earlier.0.iter().find(|was| was.cpu == now.cpu).copied().unwrap_or_default();
            SoftnetCpu {
                cpu: now.cpu,
                processed: now.processed.wrapping_sub(was.processed),
                dropped: now.dropped.wrapping_sub(was.dropped),
                time_squeeze: now.time_squeeze.wrapping_sub(was.time_squeeze),
                received_rps: now.received_rps.wrapping_sub(was.received_rps),
                flow_limit: now.flow_limit.wrapping_sub(was.flow_limit),
            }
        };
        Self(self.0.iter().map(each).collect())
    }

    /// Returns the packets that all backlogs dropped, for want of room or by the flow limit.
    ///
    /// The flow limit's packets are in `dropped` too.
    pub fn dropped(&self) -> u64 {
        self.0.iter().map(|cpu| u64::from(cpu.dropped)).sum()
    }
}

/// Reads the backlogs' counters.
///
/// # Errors
/// If `/proc/net/softnet_stat` cannot be read.
pub fn softnet_now() -> io::Result<Softnet> {
    Ok(softnet_in(&fs::read_to_string("/proc/thread-self/net/softnet_stat")?))
}

fn softnet_in(text: &str) -> Softnet {
    let line = |(index, line): (usize, &str)| {
        let words: Vec<u32> = line
            .split_ascii_whitespace()
            .map_while(|word| u32::from_str_radix(word, 16).ok())
            .collect();
        let word = |column: usize| words.get(column).copied().unwrap_or(0);
        SoftnetCpu {
            // Column 13 of 13 or 15 names the CPU; before it, the CPUs that are online are in order.
            cpu: CpuId(words.get(12).map_or(index as u16, |cpu| *cpu as u16)),
            processed: word(0),
            dropped: word(1),
            time_squeeze: word(2),
            received_rps: word(9),
            flow_limit: word(10),
        }
    };
    Softnet(text.lines().enumerate().map(line).collect())
}

/// Protocol counters of a namespace, by names such as `Udp.InDatagrams` and `Udp6.RcvbufErrors`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snmp(pub BTreeMap<String, u64>);

impl Snmp {
    /// Returns a counter; 0 if the kernel does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns what was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let each =
            |(name, now): (&String, &u64)| (name.clone(), now.wrapping_sub(earlier.get(name)));
        Self(self.0.iter().map(each).collect())
    }
}

/// Reads the protocol counters of the calling thread's namespace.
///
/// # Errors
/// If `/proc/net/snmp` cannot be read.
pub fn snmp_now() -> io::Result<Snmp> {
    let mut all = snmp_in(&fs::read_to_string("/proc/thread-self/net/snmp")?);
    // Not there without IPv6.
    let six = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    all.0.extend(snmp6_in(&six));
    Ok(all)
}

fn snmp_in(text: &str) -> Snmp {
    let mut all = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for [names, values] in lines.as_chunks::<2>().0 {
        let (Some((protocol, names)), Some((_, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            // One of them, the TCP maximum of connections, is -1.
            if let Ok(value) = value.parse() {
                all.insert(format!("{protocol}.{name}"), value);
            }
        }
    }
    Snmp(all)
}

fn snmp6_in(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        let (protocol, name) = name.split_at_checked(name.find('6')? + 1)?;
        Some((format!("{protocol}.{name}"), value.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_each_cpu_are_read_and_the_sum_line_is_not() {
        let text = "cpu  9 9 9 9\ncpu0 10 1 20 300 4 5 60 7 0 0\ncpu3 1\nintr 5\n";
        let times = cpu_times_in(text, 100);
        assert_eq!(times.len(), 2);
        let ms = |n| Duration::from_millis(n);
        assert_eq!(times[0].user, ms(110));
        assert_eq!(times[0].idle, ms(3040));
        assert_eq!(times[0].softirq, ms(600));
        assert_eq!(times[0].busy(), ms(110 + 200 + 50 + 600 + 70));
        assert_eq!((times[1].cpu, times[1].user), (CpuId(3), ms(10)));
    }

    /// The four forms that kernels have had: 10, 11, 13 and 15 columns.
    #[test]
    fn backlogs_of_all_forms_are_read() {
        let ten = "0000000a 00000002 00000001 0 0 0 0 0 00000000 00000007\n";
        assert_eq!(softnet_in(ten).0[0].received_rps, 7);
        let eleven = "0000000a 2 1 0 0 0 0 0 0 7 9\n0000000b 2 1 0 0 0 0 0 0 7 9\n";
        let eleven = softnet_in(eleven);
        assert_eq!((eleven.0[0].flow_limit, eleven.0[1].cpu), (9, CpuId(1)));
        let fifteen = "a 2 1 0 0 0 0 0 0 7 9 0 5 0 0\n";
        let fifteen = softnet_in(fifteen);
        assert_eq!(fifteen.0[0].cpu, CpuId(5));
        assert_eq!(fifteen.dropped(), 2);
        let later = softnet_in("5 1 1 0 0 0 0 0 0 7 9 0 5 0 0\n");
        // From 0xa over the wrap to 5.
        assert_eq!(later.since(&fifteen).0[0].processed, 0xffff_fffb);
    }

    #[test]
    fn protocol_counters_of_both_versions_are_named_alike() {
        let four = "Tcp: MaxConn ActiveOpens\nTcp: -1 5\nUdp: InDatagrams NoPorts\nUdp: 12 3\n";
        let four = snmp_in(four);
        assert_eq!((four.get("Udp.InDatagrams"), four.get("Tcp.ActiveOpens")), (12, 5));
        assert_eq!(four.get("Tcp.MaxConn"), 0);
        let six = Snmp(snmp6_in("Ip6InReceives   \t7\nUdp6RcvbufErrors \t4\n").collect());
        assert_eq!((six.get("Udp6.RcvbufErrors"), six.get("Ip6.InReceives")), (4, 7));
    }

    #[test]
    fn this_kernel_is_read() {
        let times = softirq_now().unwrap();
        let online = crate::allowed_cpus().unwrap().count();
        assert!(times.len() >= online, "{times:?}");
        assert!(times.iter().any(|cpu| !cpu.idle.is_zero() || !cpu.busy().is_zero()));
        assert_eq!(softnet_now().unwrap().0.len(), times.len());
        assert!(snmp_now().unwrap().0.contains_key("Udp.RcvbufErrors"));
    }
}
