//! How a provider is reached: address, TLS, waits, and which kept connections may be used.

use crate::route::Provider;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

/// Past our own timers, so that Pingora's coarse one never decides.
const NET: Duration = Duration::from_secs(10);

/// The peer of one try. `left` is what is left of the request's time, `age` seconds since start.
#[must_use]
pub fn peer(
    provider: &Provider,
    address: SocketAddr,
    left: Option<Duration>,
    age: u64,
) -> HttpPeer {
    let sni = if provider.base.tls { provider.base.host.clone() } else { String::new() };
    let mut peer = HttpPeer::new(address, provider.base.tls, sni);
    let times = &provider.timeouts;
    let connect = match (times.connect, left) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    peer.options.connection_timeout = connect;
    peer.options.total_connection_timeout = connect;
    peer.options.write_timeout = times.write;
    let longest = [times.first_token, times.idle, times.reply];
    let longest = longest.into_iter().try_fold(Duration::ZERO, |a, b| b.map(|b| a.max(b)));
    peer.options.read_timeout = longest.map(|d| d + NET);
    peer.options.idle_timeout = provider.pool.idle_timeout;
    peer.options.alpn = ALPN::H1;
    // Connections are grouped by provider, so that two at one address share none, and by the time
    // they were made, so that none is used for longer than `max_age`.
    let mut hasher = DefaultHasher::new();
    provider.id.hash(&mut hasher);
    let period = provider.pool.max_age.map_or(0, |d| d.as_secs().max(1));
    age.checked_div(period).hash(&mut hasher);
    peer.group_key = hasher.finish();
    peer
}
