//! The three tables: by port, by address and port, and connected sockets by 4-tuple.
//!
//! Writers change the state of the sockets ([`Writer`]) under the lock of the namespace and then
//! publish what look-ups need ([`Published`]): lists of candidates for each address and port, groups,
//! and, with the feature `hash4`, connected sockets by 4-tuple. Look-ups read what is published and
//! take no lock.
//!
//! Always true: at any instant a socket is published in its old place, in its new one, or in
//! both; a look-up that could have missed it in both starts again (`publish`).
//! Elsewhere: the rules of choice (`lookup`, `flood`), of binding (`bind`) and of connecting
//! (`writer`).

mod bind;
mod entry;
mod explain;
mod flood;
#[cfg(feature = "hash4")]
mod four;
mod list;
mod lookup;
mod publish;
mod ranked;
mod segments;
mod sock;
mod sync;
mod tuple;
mod versions;
mod walk;
mod writer;

pub(crate) use publish::Published;
pub(crate) use tuple::Tuple;
#[cfg(any(test, feature = "model"))]
pub(crate) use tuple::TupleHash;
pub(crate) use writer::Writer;
