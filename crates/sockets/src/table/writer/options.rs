//! Options, and how a group chooses.

use crate::group::Selector;
use crate::{SocketError, SocketId, SocketOption};

use super::Writer;
use crate::table::publish::{Published, Touched, When};

impl Writer {
    pub(crate) fn set(
        &mut self,
        published: &Published,
        id: SocketId,
        option: SocketOption,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let mut touched = Touched::new(published);
        let sock = self.sock_mut(i);
        match option {
            SocketOption::Device(device) => {
                let device = match device {
                    Some(device) if device.0 == 0 => return Err(SocketError::NoDevice),
                    Some(device) => device.0,
                    None => 0,
                };
                let old = sock.device;
                self.rekey(i, |sock| sock.device = device);
                self.rehash(i, &mut touched);
                self.regroup(i, old, &mut touched)?;
            }
            SocketOption::ReuseAddr(on) => {
                sock.reuseaddr = on;
                let (rank, port_rank) = (sock.rank, sock.port_rank);
                let (port, address) = (sock.port, sock.listed_at);
                if port != 0 {
                    let chain = self.ports.entry(port).or_default();
                    chain.set_reuseaddr(port_rank, i, on);
                    let chain = self.addresses.entry((address, port)).or_default();
                    chain.set_reuseaddr(rank, i, on);
                }
            }
            SocketOption::ReusePort(on) => self.rekey(i, |sock| sock.reuseport = on),
            SocketOption::IncomingCpu(cpu) => {
                sock.cpu_given = cpu.is_some();
                let group = sock.group;
                if let Some(group) = self.groups.get_mut(&group) {
                    group.count_cpu(touched.has_cpu(i), cpu.is_some());
                }
                published.set_cpu(i, cpu);
                touched.group(group, When::Before);
            }
            other => {
                let bound = sock.port != 0;
                sock.options.set(other, sock.family, bound)?;
                published.set_joined(i, &sock.options.joined);
            }
        }
        touched.socket(i);
        touched.publish(self);
        Ok(())
    }

    pub(crate) fn select_by(
        &mut self,
        published: &Published,
        id: SocketId,
        selector: Selector,
    ) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let group = self.sock(i).home;
        self.groups.get_mut(&group).ok_or(SocketError::Invalid)?.selector = selector;
        let mut touched = Touched::new(published);
        touched.group(group, When::Before);
        touched.publish(self);
        Ok(())
    }
}
