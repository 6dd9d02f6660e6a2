//! Frames, header by header, from the inside out.

/// Addresses of the documentation ranges.
pub(crate) const A: [u8; 4] = [192, 0, 2, 1];
pub(crate) const B: [u8; 4] = [198, 51, 100, 1];
pub(crate) const A6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
pub(crate) const B6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub(crate) fn eth(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A VLAN tag, without the ethertype in front of it.
pub(crate) fn vlan(tci: u16, inner: u16, payload: &[u8]) -> Vec<u8> {
    [&tci.to_be_bytes()[..], &inner.to_be_bytes(), payload].concat()
}

pub(crate) fn v4(src: [u8; 4], dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    v4_frag(src, dst, protocol, 0, 0, payload)
}

/// `fragment` is the field as it stands: flags and offset in units of eight bytes.
pub(crate) fn v4_frag(
    src: [u8; 4],
    dst: [u8; 4],
    protocol: u8,
    id: u16,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(src);
    header.extend(dst);
    let sum = !sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(payload);
    header
}

pub(crate) fn v6(src: [u8; 16], dst: [u8; 16], next: u8, label: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = Vec::from((0x6000_0000 | label).to_be_bytes());
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next, 64]);
    header.extend(src);
    header.extend(dst);
    header.extend(payload);
    header
}

pub(crate) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let words = [src, dst, length, 0].map(u16::to_be_bytes);
    [words.as_flattened(), payload].concat()
}

pub(crate) fn tcp(src: u16, dst: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = [src, dst, 0, 1, 0, 2].map(u16::to_be_bytes).as_flattened().to_vec();
    header.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    header.extend(payload);
    header
}

/// An extension header of IPv6 with `units` times eight bytes behind its first eight.
pub(crate) fn extension(next: u8, units: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 8 + usize::from(units) * 8];
    header[0] = next;
    header[1] = units;
    header.extend(payload);
    header
}

pub(crate) fn v6_fragment(next: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![next, 0];
    header.extend((offset << 3 | u16::from(more)).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend(payload);
    header
}

/// An AH whose length field is `length` (in units of four bytes, less two).
pub(crate) fn ah(next: u8, length: u8, spi: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![next, length, 0, 0];
    header.extend(spi.to_be_bytes());
    header.resize((usize::from(length) + 2) * 4, 0);
    header.extend(payload);
    header
}

pub(crate) fn gre(flags: u16, protocol: u16, words: &[u32], payload: &[u8]) -> Vec<u8> {
    let mut header = [flags, protocol].map(u16::to_be_bytes).as_flattened().to_vec();
    header.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    header.extend(payload);
    header
}

/// A PPPoE session header with a length field of its own.
pub(crate) fn pppoe(session: u16, length: u16, payload: &[u8]) -> Vec<u8> {
    [&[0x11, 0][..], &session.to_be_bytes(), &length.to_be_bytes(), payload].concat()
}

/// The sum of RFC 1071, written down a second time.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
