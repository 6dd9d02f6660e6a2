//! Plays one scenario and notes every outcome that differs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rxsteer_core::CpuId;
use rxsteer_sockets::{
    Cast, DeviceId, Family, Owner, Packet, SocketError, SocketId, SocketOption, SourceFilter,
};

use super::scenario::{Options, Scenario, Socket, Step, Way};
use super::subject::Subject;

/// What playing a scenario found.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Step and difference; sockets made before the first step have no step.
    pub(super) mismatches: Vec<(Option<usize>, String)>,
    /// Outcomes compared.
    pub(super) compared: u64,
    /// Packets not compared since they depend on a trait that is excused.
    pub(super) excused: u64,
    /// Who received the packet of a step.
    pub(super) received: BTreeMap<usize, Vec<u64>>,
    /// For each spread: its step, the members that the key of this run did not reach.
    pub(super) unreached: BTreeMap<usize, BTreeSet<u64>>,
}

/// Plays a scenario.
///
/// # Errors
/// The scenario contradicts itself: it names a device or a socket that does not exist.
pub(super) fn play(
    scenario: &Scenario,
    subject: &mut dyn Subject,
    excuse: &[String],
) -> Result<Played> {
    let mut player =
        Player { scenario, subject, excuse, ids: BTreeMap::new(), played: Played::default() };
    for sock in &scenario.sockets {
        player.new_socket(None, sock).with_context(|| format!("socket {}", sock.id))?;
    }
    for (at, step) in scenario.steps.iter().enumerate() {
        player.step(at, step).with_context(|| format!("step {at}"))?;
    }
    Ok(player.played)
}

struct Player<'a> {
    scenario: &'a Scenario,
    subject: &'a mut dyn Subject,
    excuse: &'a [String],
    ids: BTreeMap<u64, SocketId>,
    played: Played,
}

impl Player<'_> {
    fn step(&mut self, at: usize, step: &Step) -> Result<()> {
        match step {
            Step::New { sock } => self.new_socket(Some(at), sock)?,
            Step::Connect { id, to, local, err } => {
                let socket = self.id(*id)?;
                if err.is_some() {
                    self.bind_as_connect_did(socket, *local)?;
                } else {
                    self.connect(Some(at), *id, socket, *to, Some(*local));
                }
                self.compare_local(Some(at), *id, *local);
            }
            Step::Disconnect { id, local } => {
                let socket = self.id(*id)?;
                if let Err(error) = self.subject.disconnect(socket) {
                    self.differ(Some(at), format!("disconnect of socket {id}: {error}"));
                }
                if let Some(local) = local {
                    self.compare_local(Some(at), *id, *local);
                }
            }
            Step::Close { id } => {
                let socket = self.id(*id)?;
                if let Err(error) = self.subject.close(socket) {
                    self.differ(Some(at), format!("close of socket {id}: {error}"));
                }
                self.ids.remove(id);
            }
            Step::Set { id, opt, value } => self.set(at, *id, opt, value)?,
            Step::Packet { way, sport, rx, any_of, same_as } => {
                let excused = self.is_excused(way);
                let got = self.packet(way, *sport, !excused)?;
                self.played.received.insert(at, got.clone());
                if excused {
                    // What it did to the sockets is given, as all that is not compared.
                    if let Some([only]) = rx.as_deref() {
                        let socket = self.id(*only)?;
                        self.subject.note_cpu(socket, CpuId(way.cpu));
                    }
                    return Ok(());
                }
                self.played.compared += 1;
                match (rx, any_of, same_as) {
                    (Some(rx), _, _) => {
                        let mut want = rx.clone();
                        want.sort_unstable();
                        if got != want {
                            self.differ(Some(at), format!("received by {got:?}, kernel {rx:?}"));
                        }
                    }
                    (None, Some(any_of), _) => {
                        if !matches!(got.as_slice(), [one] if any_of.contains(one)) {
                            let text = format!("received by {got:?}, kernel one of {any_of:?}");
                            self.differ(Some(at), text);
                        }
                    }
                    (None, None, Some(_)) => {}
                    (None, None, None) => bail!("a packet without an outcome"),
                }
                if let Some(earlier) = same_as {
                    let then = self.played.received.get(earlier).cloned();
                    if then.as_ref().is_some_and(|then| *then != got) {
                        let text =
                            format!("received by {got:?}, the same of step {earlier} by {then:?}");
                        self.differ(Some(at), text);
                    }
                }
            }
            Step::Spread { way, sports: (first, count), each_of } => {
                let last = u32::from(*first) + count;
                ensure!(last <= 65_536, "source ports beyond 65535");
                let mut reached = BTreeSet::new();
                for port in u32::from(*first)..last {
                    let got = self.packet(way, port as u16, true)?;
                    match got.as_slice() {
                        [one] => {
                            reached.insert(*one);
                        }
                        _ => {
                            let text = format!("from port {port} received by {got:?}");
                            self.differ(Some(at), text);
                        }
                    }
                }
                if self.is_excused(way) {
                    return Ok(());
                }
                self.played.compared += 1;
                let want: BTreeSet<u64> = each_of.iter().copied().collect();
                if !reached.is_subset(&want) {
                    let text = format!("received by {reached:?}, kernel each of {each_of:?}");
                    self.differ(Some(at), text);
                } else if reached.len() < want.len() {
                    self.played.unreached.insert(at, &want - &reached);
                }
            }
        }
        Ok(())
    }

    fn new_socket(&mut self, at: Option<usize>, sock: &Socket) -> Result<()> {
        let family = match sock.family {
            4 => Family::V4,
            6 => Family::V6,
            other => bail!("family {other}"),
        };
        if sock.err.as_deref() == Some("EADDRNOTAVAIL") {
            return Ok(());
        }
        let id = self.subject.open(family, Owner(sock.opts.uid))?;
        for option in self.options(sock.dev.as_deref(), &sock.opts)? {
            self.subject.set(id, option.clone()).with_context(|| format!("{option:?}"))?;
        }
        if let Some(address) = sock.bind {
            self.played.compared += 1;
            let got = self.subject.bind(id, address, sock.port).err();
            if got.map(SocketError::name) != sock.err.as_deref() {
                let text = format!("bind of socket {}: {got:?}, kernel {:?}", sock.id, sock.err);
                self.differ(at, text);
            }
            if got.is_some() {
                self.subject.close(id)?;
                return Ok(());
            }
        }
        self.ids.insert(sock.id, id);
        if let Some(to) = sock.connect {
            if sock.connect_err.is_none() {
                self.connect(at, sock.id, id, to, sock.local);
            } else if let Some(local) = sock.local {
                self.bind_as_connect_did(id, local)?;
            }
        }
        if let Some(local) = sock.local {
            self.compare_local(at, sock.id, local);
        }
        Ok(())
    }

    fn options(&self, dev: Option<&str>, opts: &Options) -> Result<Vec<SocketOption>> {
        let mut options = Vec::new();
        if let Some(dev) = dev {
            options.push(SocketOption::Device(Some(self.device(dev)?)));
        }
        if opts.reuseaddr {
            options.push(SocketOption::ReuseAddr(true));
        }
        if opts.reuseport {
            options.push(SocketOption::ReusePort(true));
        }
        if opts.v6only {
            options.push(SocketOption::V6Only(true));
        }
        if let Some(cpu) = opts.incoming_cpu {
            options.push(SocketOption::IncomingCpu(cpu_of(cpu)?));
        }
        if let Some(on) = opts.mcast_all {
            options.push(SocketOption::MulticastAll(on));
        }
        for (group, device) in &opts.join {
            let device = self.device(device)?;
            options.push(SocketOption::Join(*group, device, SourceFilter::ANY));
        }
        if let Some(port) = opts.auto_port {
            options.push(SocketOption::PortRange(port, port));
        }
        Ok(options)
    }

    fn set(&mut self, at: usize, id: u64, opt: &str, value: &serde_json::Value) -> Result<()> {
        let socket = self.id(id)?;
        let flag = || value.as_bool().with_context(|| format!("{opt} is {value}"));
        let option = match opt {
            "dev" => SocketOption::Device(match value.as_str() {
                Some(name) => Some(self.device(name)?),
                None if value.is_null() => None,
                None => bail!("dev is {value}"),
            }),
            "reuseaddr" => SocketOption::ReuseAddr(flag()?),
            "reuseport" => SocketOption::ReusePort(flag()?),
            "incoming_cpu" => {
                let cpu = value.as_i64().with_context(|| format!("{opt} is {value}"))?;
                SocketOption::IncomingCpu(cpu_of(cpu)?)
            }
            _ => bail!("option {opt}"),
        };
        if let Err(error) = self.subject.set(socket, option) {
            self.differ(Some(at), format!("{opt} of socket {id}: {error}"));
        }
        Ok(())
    }

    fn connect(
        &mut self,
        at: Option<usize>,
        id: u64,
        socket: SocketId,
        to: (IpAddr, u16),
        local: Option<(IpAddr, u16)>,
    ) {
        self.played.compared += 1;
        // Source-address selection is routing's: what it chose is given.
        let source = local.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |(address, _)| address);
        if let Err(error) = self.subject.connect(socket, to, source) {
            self.differ(at, format!("connect of socket {id}: {error}"));
        }
    }

    /// After a refused connect only the automatic bind may have happened.
    fn bind_as_connect_did(&mut self, socket: SocketId, local: (IpAddr, u16)) -> Result<()> {
        if self.subject.local(socket)?.1 == 0 && local.1 != 0 {
            let any = match local.0 {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            self.subject.bind(socket, any, 0)?;
        }
        Ok(())
    }

    fn compare_local(&mut self, at: Option<usize>, id: u64, want: (IpAddr, u16)) {
        self.played.compared += 1;
        let Some(socket) = self.ids.get(&id) else { return };
        match self.subject.local(*socket) {
            Ok(got) if got == want => {}
            Ok(got) => self.differ(at, format!("socket {id} is at {got:?}, kernel {want:?}")),
            Err(error) => self.differ(at, format!("socket {id}: {error}")),
        }
    }

    /// Sends a packet; returns who received it. `deliver`: with what that does to sockets.
    fn packet(&mut self, way: &Way, src_port: u16, deliver: bool) -> Result<Vec<u64>> {
        ensure!(way.src.is_ipv4() == way.dst.is_ipv4(), "source and destination differ in family");
        let everyone = way.dst == IpAddr::V4(Ipv4Addr::BROADCAST)
            || self.scenario.devices.iter().any(|device| device.bcast.contains(&way.dst));
        let cast = match way.dst {
            dst if dst.is_multicast() => Cast::Multicast,
            _ if everyone => Cast::Broadcast,
            _ => Cast::Unicast,
        };
        let packet = Packet {
            src: way.src,
            src_port,
            dst: way.dst,
            dst_port: way.dport,
            device: self.device(&way.device)?,
            cpu: CpuId(way.cpu),
            cast,
            from_this_host: way.from_this_host,
            payload: &[],
        };
        let found = match deliver {
            true => self.subject.deliver(&packet),
            false => self.subject.find(&packet),
        };
        let named = |socket: SocketId| {
            let mut ids = self.ids.iter().filter(|(_, id)| **id == socket);
            ids.next().map(|(name, _)| *name).ok_or_else(|| anyhow!("received by a closed socket"))
        };
        let mut got = found.iter().map(|found| named(found.socket)).collect::<Result<Vec<_>>>()?;
        got.sort_unstable();
        Ok(got)
    }

    fn is_excused(&mut self, way: &Way) -> bool {
        let excused = way.depends.iter().any(|name| self.excuse.contains(name));
        self.played.excused += u64::from(excused);
        excused
    }

    fn device(&self, name: &str) -> Result<DeviceId> {
        let place = self.scenario.devices.iter().position(|device| device.name == name);
        let place = place.with_context(|| format!("no device {name}"))?;
        Ok(DeviceId(place as u32 + 1))
    }

    fn id(&self, id: u64) -> Result<SocketId> {
        self.ids.get(&id).copied().with_context(|| format!("no socket {id}"))
    }

    fn differ(&mut self, at: Option<usize>, text: String) {
        self.played.mismatches.push((at, text));
    }
}

/// Reads a CPU number; -1 means none.
fn cpu_of(cpu: i64) -> Result<Option<CpuId>> {
    match cpu {
        -1 => Ok(None),
        _ => Ok(Some(CpuId(u16::try_from(cpu).context("CPU number")?))),
    }
}
