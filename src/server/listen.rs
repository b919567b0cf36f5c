//! Addresses, claimed before anything is started: a busy one is an answer, not a panic later.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;

/// Something the start needs and cannot have. Exit code 69.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {what}: {error}")]
pub struct Unavailable {
    action: &'static str,
    what: String,
    error: io::Error,
}

impl Unavailable {
    /// `cannot <action> <what>: <error>`.
    pub fn new(action: &'static str, what: impl fmt::Display, error: io::Error) -> Self {
        Self { action, what: what.to_string(), error }
    }
}

/// A client address that is ours.
#[derive(Debug)]
pub struct Claim {
    /// With its real port.
    pub address: SocketAddr,
    /// TLS is spoken there.
    pub tls: bool,
    /// Where config says port 0: a bound socket that never listens, so that the port the kernel
    /// gave stays ours until Pingora has bound it too. Both carry `SO_REUSEPORT`.
    hold: Option<OwnedFd>,
}

impl Claim {
    /// Claims an address that Pingora will listen on. A fixed port is bound for a moment: Pingora
    /// itself would retry for 30 s and then panic in a thread of its own, leaving a process that
    /// serves nothing (pingora-core 0.9.1, services/listening.rs).
    ///
    /// # Errors
    /// The address is busy, foreign, forbidden, or no address.
    pub fn client(address: &str, tls: bool) -> Result<Self, Unavailable> {
        let claimed = resolve(address).and_then(|a| {
            let (fd, bound) = bind_only(a)?;
            Ok(Self { address: bound, tls, hold: (a.port() == 0).then_some(fd) })
        });
        claimed.map_err(|error| Unavailable::new("listen on", address, error))
    }

    /// Whether Pingora must share the port with our holder.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Where a client of this machine reaches it.
    #[must_use]
    pub fn reachable(&self) -> SocketAddr {
        reachable(self.address)
    }
}

/// Where a client of this machine reaches a listener.
#[must_use]
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Listens on an address of the admin side; port 0 takes any.
///
/// # Errors
/// As [`Claim::client`].
pub fn bind(address: &str) -> Result<TcpListener, Unavailable> {
    let bound = resolve(address).and_then(|a| {
        let listener = TcpListener::bind(a)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| Unavailable::new("listen on", address, error))
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    address.to_socket_addrs()?.next().ok_or_else(none)
}

fn bind_only(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // As Pingora does: connections of a process that has just left do not count.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.port() == 0 {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    net::bind(&fd, &address)?;
    let bound = SocketAddr::try_from(net::getsockname(&fd)?)?;
    Ok((fd, bound))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_is_told_with_its_address() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap().to_string();
        for error in [Claim::client(&address, false).unwrap_err(), bind(&address).unwrap_err()] {
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot listen on {address}: ")), "{text}");
        }
    }

    #[test]
    fn port_zero_is_held_until_someone_listens_and_takes_no_connection_itself() {
        let claim = Claim::client("127.0.0.1:0", false).unwrap();
        assert!(claim.is_held() && claim.address.port() != 0);
        let nobody = std::net::TcpStream::connect(claim.address);
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let fixed = Claim::client("127.0.0.1:0", false).unwrap().address.to_string();
        assert!(!Claim::client(&fixed, false).unwrap().is_held(), "a fixed port is only tried");
    }

    #[test]
    fn an_unspecified_address_is_reached_over_loopback() {
        let claim = |a: &str| Claim { address: a.parse().unwrap(), tls: false, hold: None };
        let at = |a: &str| claim(a).reachable().to_string();
        assert_eq!(at("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "[::1]:8080");
        assert_eq!(at("10.0.0.1:80"), "10.0.0.1:80");
    }
}
