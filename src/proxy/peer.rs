//! How a provider is reached: address, TLS, waits, and which kept connections may be used.

use super::dial::{Tunnel, Way};
use crate::route::Provider;
use foldhash::fast::FixedState;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How much later than our own timers Pingora's coarse one ends a try: only where ours are not
/// looked at does it decide.
const NET: Duration = Duration::from_secs(1);
/// Requests that share one HTTP/2 connection: what servers usually allow.
const H2_STREAMS_MAX: usize = 100;

/// How long a try may take.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    /// What is left of the request's time.
    pub total: Option<Duration>,
    /// The longest silence of the provider that is waited for.
    pub silence: Option<Duration>,
}

/// The peer of one try. `way` is `None` behind a proxy, which looks names up itself; `age` is in
/// seconds since start.
#[must_use]
pub fn peer(provider: &Provider, way: Option<Way>, left: Left, age: u64) -> HttpPeer {
    let sni = if provider.base.tls { provider.base.host.clone() } else { String::new() };
    let nowhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, provider.base.port));
    let address = way.as_ref().map_or_else(nowhere, |way| way.address);
    let mut peer = HttpPeer::new(address, provider.base.tls, sni);
    let times = &provider.timeouts;
    let connect = sooner(times.connect, left.total);
    peer.options.connection_timeout = connect;
    peer.options.total_connection_timeout = connect;
    // While a write waits, Pingora reads no answer, and over HTTP/2 it does not look at the client
    // and our timers either: it writes inside the select that would, and never comes back to them
    // after a write that failed (pingora-proxy 0.9.1, proxy_h2.rs `bidirection_down_to_up`). Its
    // own read runs beside that, so that there `read_timeout` is the end of a body nobody takes.
    peer.options.write_timeout = sooner(times.write, left.total);
    peer.options.idle_timeout = provider.pool.idle_timeout;
    if provider.http2 {
        // Not over HTTP/1: it costs a timer a chunk.
        peer.options.read_timeout = sooner(left.silence, left.total).map(|d| d + NET);
        // Without TLS nobody can choose: HTTP/2 it is.
        peer.options.alpn = if provider.base.tls { ALPN::H2H1 } else { ALPN::H2 };
        peer.options.max_h2_streams = H2_STREAMS_MAX;
    } else {
        peer.options.alpn = ALPN::H1;
    }
    peer.options.ca = provider.trust.as_ref().map(|trust| trust.roots.clone());
    if let Some(through) = &provider.through {
        peer.options.custom_l4 = Some(Arc::new(Tunnel::new(through.clone(), &provider.base)));
    } else if let Some(way) = way {
        peer.options.custom_l4 = Some(way.dial(connect));
    }
    peer.group_key = group(provider, age);
    peer
}

/// The shorter of two waits, `None` being for ever.
pub(super) fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Connections are grouped by provider and how it is reached, so that two at one address share
/// none and none outlives a change, and by the time they were made, so that none is used for
/// longer than `max_age`.
fn group(provider: &Provider, age: u64) -> u64 {
    // Names of config alone: nobody can choose them to clash.
    let mut hasher = FixedState::default().build_hasher();
    (&provider.id, &provider.base.host, provider.base.port, provider.http2).hash(&mut hasher);
    provider.trust.as_ref().map(|trust| trust.mark).hash(&mut hasher);
    if let Some(through) = &provider.through {
        (&through.host, through.port).hash(&mut hasher);
    }
    let period = provider.pool.max_age.map_or(0, |d| d.as_secs().max(1));
    age.checked_div(period).hash(&mut hasher);
    hasher.finish()
}
