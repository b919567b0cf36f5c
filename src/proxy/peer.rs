//! How a provider is reached: address, TLS, waits, and which kept connections may be used.

use super::dial::{Tunnel, Way};
use crate::route::Provider;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Past our own timers, so that Pingora's coarse one never decides.
const NET: Duration = Duration::from_secs(10);
/// Requests that share one HTTP/2 connection: what servers usually allow.
const H2_STREAMS_MAX: usize = 100;

/// The peer of one try. `way` is `None` behind a proxy, which looks names up itself; `left` is
/// what is left of the request's time, `age` seconds since start.
#[must_use]
pub fn peer(provider: &Provider, way: Option<Way>, left: Option<Duration>, age: u64) -> HttpPeer {
    let sni = if provider.base.tls { provider.base.host.clone() } else { String::new() };
    let nowhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, provider.base.port));
    let address = way.as_ref().map_or_else(nowhere, |way| way.address);
    let mut peer = HttpPeer::new(address, provider.base.tls, sni);
    let times = &provider.timeouts;
    let within = |time: Option<Duration>| match (time, left) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let connect = within(times.connect);
    peer.options.connection_timeout = connect;
    peer.options.total_connection_timeout = connect;
    // While a write waits, Pingora looks at nothing else: not at our timers, nor at an answer.
    peer.options.write_timeout = within(times.write);
    let longest = [times.first_token, times.idle, times.reply];
    let longest = longest.into_iter().try_fold(Duration::ZERO, |a, b| b.map(|b| a.max(b)));
    peer.options.read_timeout = longest.map(|d| d + NET);
    peer.options.idle_timeout = provider.pool.idle_timeout;
    if provider.http2 {
        // Without TLS nobody can choose: HTTP/2 it is.
        peer.options.alpn = if provider.base.tls { ALPN::H2H1 } else { ALPN::H2 };
        peer.options.max_h2_streams = H2_STREAMS_MAX;
    } else {
        peer.options.alpn = ALPN::H1;
    }
    peer.options.ca = provider.trust.as_ref().map(|trust| trust.roots.clone());
    if let Some(through) = &provider.through {
        peer.options.custom_l4 = Some(Arc::new(Tunnel::new(through.clone(), &provider.base)));
    } else if let Some(several) = way.and_then(|way| way.several(connect)) {
        peer.options.custom_l4 = Some(several);
    }
    peer.group_key = group(provider, age);
    peer
}

/// Connections are grouped by provider and how it is reached, so that two at one address share
/// none and none outlives a change, and by the time they were made, so that none is used for
/// longer than `max_age`.
fn group(provider: &Provider, age: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&provider.id, &provider.base.host, provider.base.port, provider.http2).hash(&mut hasher);
    provider.trust.as_ref().map(|trust| trust.mark).hash(&mut hasher);
    if let Some(through) = &provider.through {
        (&through.host, through.port).hash(&mut hasher);
    }
    let period = provider.pool.max_age.map_or(0, |d| d.as_secs().max(1));
    age.checked_div(period).hash(&mut hasher);
    hasher.finish()
}
