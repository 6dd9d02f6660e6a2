//! The eBPF program that sends: it writes a source into a frame and redirects it to the device.
//!
//! A dozen lines of C, put together here so that neither a compiler nor another object is needed. The
//! kernel's verifier checks it as any other.
//!
//! Source: RFC 9669 (the instruction set); bpf-helpers(7) for the numbers of the helpers.

use crate::traffic::{Checksum, Pattern, Places};

/// Name of the program, and of its section.
pub(super) const NAME: &str = "send";

const CTX: u8 = 1;
const DATA: u8 = 6;
const END: u8 = 7;
const PORT: u8 = 8;
const ADDRESS: u8 = 9;

const GET_PRANDOM_U32: i32 = 7;
const REDIRECT: i32 = 23;

const XDP_DROP: i32 = 1;

/// What the program does.
pub(super) struct Plan {
    /// The device.
    pub(super) device: u32,
    /// Where the source is.
    pub(super) places: Places,
    /// Which flow comes next.
    pub(super) pattern: Pattern,
    /// Flows.
    pub(super) flows: u32,
    /// Source port of the first.
    pub(super) first_port: u16,
}

/// Instructions, and the place of the one that takes the address of the counter.
pub(super) struct Code {
    pub(super) bytes: Vec<u8>,
    pub(super) counter: Option<u64>,
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    counter: Option<u64>,
}

impl Writer {
    fn put(&mut self, code: u8, dst: u8, src: u8, offset: i16, value: i32) {
        let registers =
            if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        self.bytes.extend([code, registers]);
        self.bytes.extend(offset.to_ne_bytes());
        self.bytes.extend(value.to_ne_bytes());
    }

    fn set(&mut self, dst: u8, value: i32) {
        self.put(0xb7, dst, 0, 0, value);
    }

    fn copy(&mut self, dst: u8, src: u8) {
        self.put(0xbf, dst, src, 0, 0);
    }

    fn add(&mut self, dst: u8, value: i32) {
        self.put(0x07, dst, 0, 0, value);
    }

    fn add_register(&mut self, dst: u8, src: u8) {
        self.put(0x0f, dst, src, 0, 0);
    }

    fn modulo(&mut self, dst: u8, value: u32) {
        self.put(0x97, dst, 0, 0, value as i32);
    }

    fn invert_16(&mut self, dst: u8) {
        self.put(0xa7, dst, 0, 0, 0xffff);
    }

    fn load_16(&mut self, dst: u8, at: usize) {
        self.put(0x69, dst, DATA, at as i16, 0);
    }

    fn store_16(&mut self, at: usize, src: u8) {
        self.put(0x6b, DATA, src, at as i16, 0);
    }

    fn swap_to_network(&mut self, dst: u8) {
        self.put(0xdc, dst, 0, 0, 16);
    }

    fn call(&mut self, helper: i32) {
        self.put(0x85, 0, 0, 0, helper);
    }

    /// Puts the next number of a counter into a register.
    fn count(&mut self, dst: u8) {
        self.counter = Some(self.bytes.len() as u64);
        // The address of the counter is written in when the program is loaded.
        self.put(0x18, 1, 0, 0, 0);
        self.put(0, 0, 0, 0, 0);
        self.put(0x79, dst, 1, 0, 0);
        self.copy(2, dst);
        self.add(2, 1);
        self.put(0x7b, 1, 2, 0, 0);
    }

    /// Writes a word into the frame, and into the checksums over it (RFC 1624, equation 3; the sum does
    /// not depend on the order of the bytes).
    fn write(&mut self, at: usize, new: u8, checksums: &[Checksum]) {
        self.load_16(3, at);
        self.store_16(at, new);
        self.invert_16(3);
        for Checksum { at, is_udp } in checksums {
            self.load_16(4, *at);
            self.invert_16(4);
            self.add_register(4, 3);
            self.add_register(4, new);
            for _ in 0..2 {
                self.copy(5, 4);
                self.put(0x77, 5, 0, 0, 16); // shift right
                self.put(0x57, 4, 0, 0, 0xffff); // and
                self.add_register(4, 5);
            }
            self.invert_16(4);
            if *is_udp {
                self.put(0x55, 4, 0, 1, 0); // not 0: jump over one
                self.set(4, 0xffff);
            }
            self.store_16(*at, 4);
        }
    }
}

/// Writes the program.
pub(super) fn assemble(plan: &Plan) -> Code {
    let Places { address, ip_checksum, port, checksum, id: _ } = plan.places;
    let header = ip_checksum.map(|at| Checksum { at, is_udp: false });
    let over_address: Vec<Checksum> = header.into_iter().chain(checksum).collect();
    let over_port: Vec<Checksum> = checksum.into_iter().collect();
    let last = [Some(address + 4), ip_checksum.map(|at| at + 2), checksum.map(|c| c.at + 2), port]
        .into_iter()
        .flatten()
        .max();
    let mut w = Writer::default();
    w.put(0x61, DATA, CTX, 0, 0); // data
    w.put(0x61, END, CTX, 4, 0); // data_end
    w.copy(2, DATA);
    w.add(2, last.unwrap_or(0) as i32);
    // A frame that is too short is aborted; it is our own, so there is none.
    w.put(0xbd, 2, END, 2, 0); // lower or equal: jump over two
    w.set(0, 0);
    w.put(0x95, 0, 0, 0, 0);
    match plan.pattern {
        Pattern::Random => {
            w.call(GET_PRANDOM_U32);
            w.copy(PORT, 0);
            w.modulo(PORT, u32::from(u16::MAX) - 1023);
            w.add(PORT, 1024);
            w.call(GET_PRANDOM_U32);
            w.copy(ADDRESS, 0);
            // Not 0, which would be the address of the network.
            w.modulo(ADDRESS, u32::from(u16::MAX));
            w.add(ADDRESS, 1);
            w.swap_to_network(ADDRESS);
            w.write(address + 2, ADDRESS, &over_address);
        }
        Pattern::Uniform => {
            w.call(GET_PRANDOM_U32);
            w.copy(PORT, 0);
            w.modulo(PORT, plan.flows);
            w.add(PORT, i32::from(plan.first_port));
        }
        Pattern::InTurn | Pattern::HeavyTail => {
            w.count(PORT);
            w.modulo(PORT, plan.flows);
            w.add(PORT, i32::from(plan.first_port));
        }
    }
    w.swap_to_network(PORT);
    if let Some(port) = port {
        w.write(port, PORT, &over_port);
    }
    w.set(1, plan.device as i32);
    w.set(2, 0);
    w.call(REDIRECT);
    w.put(0x95, 0, 0, 0, 0);
    Code { bytes: w.bytes, counter: w.counter }
}

/// A program that drops every frame.
pub(super) fn drop_all() -> Code {
    let mut w = Writer::default();
    w.set(0, XDP_DROP);
    w.put(0x95, 0, 0, 0, 0);
    Code { bytes: w.bytes, counter: None }
}

/// A program that redirects every frame to a device, as it is.
#[cfg(test)]
pub(super) fn redirect(device: u32) -> Code {
    let mut w = Writer::default();
    w.set(1, device as i32);
    w.set(2, 0);
    w.call(REDIRECT);
    w.put(0x95, 0, 0, 0, 0);
    Code { bytes: w.bytes, counter: None }
}
