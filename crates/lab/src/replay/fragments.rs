//! Fragments of a datagram and the flow that its first one told.
//!
//! One place for each hash of addresses, protocol and identification; the last datagram has it.
//! 4,096 places, so memory does not depend on what is sent.

use rxsteer_core::FlowKey;
use rxsteer_core::dissect::Fragment;

use super::frame::{Frame, Ident};

const PLACES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Known {
    datagram: (Ident, u32),
    ident: Ident,
    key: FlowKey,
}

/// Datagrams whose first fragment was seen.
#[derive(Debug)]
pub(super) struct Fragments {
    known: Vec<Option<Known>>,
    /// Later fragments whose first one was not seen before them.
    pub(super) without_first: u64,
}

impl Fragments {
    pub(super) fn new() -> Self {
        Self { known: vec![None; PLACES], without_first: 0 }
    }

    /// Gives a fragment the flow of its datagram, if the first fragment told it.
    pub(super) fn resolve(&mut self, frame: &mut Frame) {
        let ends = Ident { src_port: 0, dst_port: 0, fragment: true, ..frame.ident };
        let datagram = (ends, frame.fragment_id);
        let mut sum = u64::from(frame.fragment_id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for word in ends.words() {
            sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        let place = &mut self.known[sum as usize % PLACES];
        if frame.fragment == Fragment::First {
            frame.ident.fragment = false;
            *place = Some(Known { datagram, ident: frame.ident, key: frame.key });
            return;
        }
        match place {
            Some(known) if known.datagram == datagram => {
                frame.ident = known.ident;
                frame.key = known.key;
                // The socket gets the datagram once, with its last fragment.
                frame.has_socket = frame.fragment == Fragment::Last;
                if frame.fragment == Fragment::Last {
                    *place = None;
                }
            }
            _ => self.without_first += 1,
        }
    }
}
