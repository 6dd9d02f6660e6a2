//! What the means against overload cost per packet.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use rxsteer_core::dissect::AddrKind;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::Class;
use rxsteer_core::{FlowHash, FlowKey};
use rxsteer_engine::overload::elephants::Elephants;
use rxsteer_engine::overload::{
    Governor, GovernorSettings, Key, Offer, Room, ShedSettings, Shedder, SourcePrefix, Took,
    Verdict,
};

const LIMIT: u64 = 256;
const BURST: u32 = 64;

fn offer(n: u32) -> Offer {
    Offer {
        socket: 1,
        hash: FlowHash(n | 1),
        source: SourcePrefix::v4(n.to_be_bytes()),
        class: Class::Udp,
        known_flow: false,
        true_size: 1,
    }
}

/// Sixty-four packets, one after the other, of one flow or of strangers.
fn judge(c: &mut Criterion, name: &str, used: u64, stranger: bool) {
    let mut shedder = Shedder::new(ShedSettings::default(), Key { k0: 1, k1: 2 });
    let mut n = 1u32;
    let room = Room::packets(used, LIMIT);
    // The flow becomes familiar first.
    for now in 0..100u64 {
        if let Verdict::Admit { ticket, .. } = shedder.judge(&offer(7), &room, now * 1_000_000) {
            shedder.reached(ticket);
        }
    }
    c.bench_function(name, |b| {
        b.iter(|| {
            for _ in 0..BURST {
                n = if stranger {
                    n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
                } else {
                    7
                };
                let verdict = shedder.judge(black_box(&offer(n)), &room, 200_000_000);
                if let Verdict::Admit { ticket, .. } = verdict {
                    shedder.reached(ticket);
                }
            }
        });
    });
}

fn shed(c: &mut Criterion) {
    // For comparison: the software hash of as many keys.
    let hasher = SoftHasher { k0: 1, k1: 2 };
    let key = FlowKey { addr_kind: AddrKind::V4, src_port: 1, dst_port: 53, ..FlowKey::EMPTY };
    c.bench_function("floor/64/hash", |b| {
        b.iter(|| {
            for _ in 0..BURST {
                black_box(hasher.hash_key(black_box(&key)));
            }
        });
    });
    judge(c, "judge/64/room/flow", 16, false);
    judge(c, "judge/64/room/strangers", 16, true);
    judge(c, "judge/64/half_full/flow", 160, false);
    judge(c, "judge/64/half_full/strangers", 160, true);
    judge(c, "judge/64/full/strangers", LIMIT, true);
}

fn rest(c: &mut Criterion) {
    c.bench_function("elephants/64/one", |b| {
        b.iter_batched_ref(
            Elephants::default,
            |sketch| (0..BURST).for_each(|_| sketch.add(black_box(FlowHash(7)), 500)),
            BatchSize::SmallInput,
        );
    });
    c.bench_function("elephants/64/mice", |b| {
        b.iter_batched_ref(
            Elephants::default,
            |sketch| (1..=BURST).for_each(|n| sketch.add(black_box(FlowHash(n)), 500)),
            BatchSize::SmallInput,
        );
    });
    let mut governor = Governor::new(GovernorSettings::default());
    let mut now = 0;
    c.bench_function("governor/64/ask_and_took", |b| {
        b.iter(|| {
            for _ in 0..BURST {
                now += 1000;
                black_box(governor.ask(now, true));
                governor.took(now, 100, Took::Useful { protected: false });
            }
        });
    });
}

criterion_group!(benches, shed, rest);
criterion_main!(benches);
