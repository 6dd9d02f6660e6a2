//! What can be asked to play a scenario: the tables, or the rules by linear scan.

use std::net::IpAddr;

use rxsteer_core::CpuId;
use rxsteer_sockets::model::Model;
use rxsteer_sockets::{
    Family, Found, Namespace, Owner, Packet, SocketError, SocketId, SocketOption,
};

/// A namespace of sockets.
pub(super) trait Subject {
    fn open(&mut self, family: Family, owner: Owner) -> Result<SocketId, SocketError>;
    fn set(&mut self, id: SocketId, option: SocketOption) -> Result<(), SocketError>;
    fn bind(&mut self, id: SocketId, address: IpAddr, port: u16) -> Result<u16, SocketError>;
    fn connect(
        &mut self,
        id: SocketId,
        to: (IpAddr, u16),
        source: IpAddr,
    ) -> Result<(), SocketError>;
    fn disconnect(&mut self, id: SocketId) -> Result<(), SocketError>;
    fn close(&mut self, id: SocketId) -> Result<(), SocketError>;
    fn local(&self, id: SocketId) -> Result<(IpAddr, u16), SocketError>;
    fn deliver(&mut self, packet: &Packet<'_>) -> Vec<Found>;
    /// As `deliver`, but changes nothing.
    fn find(&self, packet: &Packet<'_>) -> Vec<Found>;
    fn note_cpu(&mut self, id: SocketId, cpu: CpuId);
}

/// Tables and scan have operations of the same names and arguments.
macro_rules! subject {
    ($kind:ty) => {
        impl Subject for $kind {
            fn open(&mut self, family: Family, owner: Owner) -> Result<SocketId, SocketError> {
                <$kind>::open(self, family, owner)
            }

            fn set(&mut self, id: SocketId, option: SocketOption) -> Result<(), SocketError> {
                <$kind>::set(self, id, option)
            }

            fn bind(&mut self, id: SocketId, at: IpAddr, port: u16) -> Result<u16, SocketError> {
                <$kind>::bind(self, id, at, port)
            }

            fn connect(
                &mut self,
                id: SocketId,
                to: (IpAddr, u16),
                source: IpAddr,
            ) -> Result<(), SocketError> {
                <$kind>::connect(self, id, to.0, to.1, source)
            }

            fn disconnect(&mut self, id: SocketId) -> Result<(), SocketError> {
                <$kind>::disconnect(self, id)
            }

            fn close(&mut self, id: SocketId) -> Result<(), SocketError> {
                <$kind>::close(self, id)
            }

            fn local(&self, id: SocketId) -> Result<(IpAddr, u16), SocketError> {
                <$kind>::local(self, id)
            }

            fn deliver(&mut self, packet: &Packet<'_>) -> Vec<Found> {
                let mut found = Vec::new();
                <$kind>::deliver(self, packet, |each| found.push(each));
                found
            }

            fn find(&self, packet: &Packet<'_>) -> Vec<Found> {
                let mut found = Vec::new();
                <$kind>::find(self, packet, |each| found.push(each));
                found
            }

            fn note_cpu(&mut self, id: SocketId, cpu: CpuId) {
                <$kind>::note_cpu(self, id, cpu);
            }
        }
    };
}

subject!(Namespace);
subject!(Model);
