//! Selection by the connection id of QUIC: a client that moves keeps its worker.
//!
//! The server writes the number of the worker into the connection ids that it issues. Packets with
//! a short header, and long headers of handshakes, carry such an id. The first packets of a
//! connection (Initial, 0-RTT) carry an id that the client made up, so the 4-tuple decides, which
//! is the same for all of them.
//!
//! Source: RFC 9000, section 17 (header forms) and 5.1 (connection ids); RFC 8999, section 5.

use super::Choice;

/// Where the server's connection ids name the worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionIdRule {
    /// Length of the server's connection ids in bytes, 1 to 20; short headers do not say it.
    pub id_len: u8,
    /// The byte of the id that holds the worker, from 0; below `id_len`.
    pub worker_at: u8,
    /// The byte is taken modulo this number of workers; 0: as it is.
    pub modulo: u8,
}

impl ConnectionIdRule {
    /// Returns the worker that a datagram's connection id names, as the member of that index;
    /// [`Choice::Hash`] for a client's own id; `None` if there is no id of the server in it: too
    /// short, not QUIC, or another version's long header.
    pub fn choose(&self, payload: &[u8]) -> Option<Choice> {
        let (&first, rest) = payload.split_first()?;
        let id = if first & 0x80 == 0 {
            // The fixed bit tells QUIC from what else may come to the port (RFC 9000, 17.3.1).
            if first & 0x40 == 0 {
                return None;
            }
            rest
        } else {
            let (version, rest) = rest.split_first_chunk::<4>()?;
            let (&len, rest) = rest.split_first()?;
            // A client never sends version negotiation (version 0) or Retry.
            let initial_or_early = match u32::from_be_bytes(*version) {
                1 => matches!(first >> 4 & 3, 0 | 1),
                // Version 2 numbers the types otherwise (RFC 9369, section 3.2).
                0x6b33_43cf => matches!(first >> 4 & 3, 1 | 2),
                _ => return None,
            };
            let id = rest.get(..usize::from(len))?;
            if initial_or_early {
                return Some(Choice::Hash);
            }
            if len != self.id_len {
                return None;
            }
            id
        };
        let id = id.get(..usize::from(self.id_len))?;
        let worker = *id.get(usize::from(self.worker_at))?;
        let worker = if self.modulo == 0 { worker } else { worker % self.modulo };
        Some(Choice::Member(usize::from(worker)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ConnectionIdRule = ConnectionIdRule { id_len: 4, worker_at: 0, modulo: 4 };

    fn long(first: u8, version: u32, id: &[u8]) -> Vec<u8> {
        let mut packet = vec![first];
        packet.extend(version.to_be_bytes());
        packet.push(id.len() as u8);
        packet.extend(id);
        packet
    }

    #[test]
    fn a_short_header_names_its_worker() {
        assert_eq!(RULE.choose(&[0x40, 6, 1, 2, 3, 9, 9]), Some(Choice::Member(2)));
        let whole = ConnectionIdRule { modulo: 0, worker_at: 3, ..RULE };
        assert_eq!(whole.choose(&[0x5f, 6, 1, 2, 200]), Some(Choice::Member(200)));
    }

    #[test]
    fn a_handshake_names_its_worker_and_an_initial_does_not() {
        assert_eq!(RULE.choose(&long(0xe0, 1, &[7, 0, 0, 0])), Some(Choice::Member(3)));
        assert_eq!(RULE.choose(&long(0xc0, 1, &[7; 8])), Some(Choice::Hash));
        assert_eq!(RULE.choose(&long(0xd0, 1, &[7; 8])), Some(Choice::Hash));
        // Version 2: 1 is Initial, 3 is Handshake.
        assert_eq!(RULE.choose(&long(0xd0, 0x6b33_43cf, &[7; 8])), Some(Choice::Hash));
        assert_eq!(RULE.choose(&long(0xf0, 0x6b33_43cf, &[5, 0, 0, 0])), Some(Choice::Member(1)));
    }

    #[test]
    fn what_has_no_id_of_the_server_is_refused_without_reading_beyond_its_end() {
        let short = [0x40, 6, 1, 2, 3];
        let handshake = long(0xe0, 1, &[7, 0, 0, 0]);
        for packet in [&short[..], &handshake[..]] {
            for len in 0..packet.len() {
                assert_eq!(RULE.choose(&packet[..len]), None, "{len} bytes of {packet:?}");
            }
        }
        assert_eq!(RULE.choose(&[0x00, 1, 2, 3, 4, 5]), None, "not QUIC");
        assert_eq!(RULE.choose(&long(0xe0, 0, &[7, 0, 0, 0])), None, "version negotiation");
        assert_eq!(RULE.choose(&long(0xe0, 1, &[7, 0, 0])), None, "an id of another length");
    }
}
