//! The guard before the door: how much one client address may ask, and how often it may fail.
//!
//! Counters are sketches of a fixed size: no number of addresses takes more memory. They may count
//! an address too high where others share all of its slots, never too low, so they guard against
//! floods and are no quota.

use crate::config::Flood;
use crate::flow::Gateway;
use http::HeaderMap;
use pingora_limits::rate::Rate;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use weir_filters::error::{ApiError, Code};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Rows of a sketch: an address is miscounted only where all of its slots are shared.
const ROWS: usize = 4;
/// Slots of a row: 4 rows for two intervals are 1 MiB, and ten thousand busy addresses share all
/// four of their slots with chances of a few in a hundred.
const SLOTS: usize = 16_384;
/// IPv6 hands out nets of this many bits to one customer.
const V6_BITS: u32 = 64;

/// Counts per client address.
pub struct Guard {
    gateway: Arc<Gateway>,
    requests: Rate,
    failures: Rate,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl Guard {
    /// All counters at zero.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let rate = |interval| Rate::new_with_estimator_config(interval, ROWS, SLOTS);
        Self { gateway, requests: rate(SECOND), failures: rate(MINUTE) }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// 429: its address has asked too much in this second, or failed too often in this minute.
    pub fn pass(&self, flood: &Flood, client: IpAddr) -> Result<(), ApiError> {
        let key = slot(client);
        let over = |count: isize, most: u64| u64::try_from(count).unwrap_or(0) > most;
        if let Some(most) = flood.failed_auth_per_minute
            && over(self.failures.observe(&key, 0) + 1, most)
        {
            return Err(self.refuse("failed_auth_per_minute", most, client, MINUTE));
        }
        if let Some(most) = flood.requests_per_second
            && over(self.requests.observe(&key, 1), most)
        {
            return Err(self.refuse("requests_per_second", most, client, SECOND));
        }
        Ok(())
    }

    /// Counts a secret that opened nothing.
    pub fn failed(&self, flood: &Flood, client: IpAddr) {
        if flood.failed_auth_per_minute.is_some() {
            self.failures.observe(&slot(client), 1);
        }
    }

    /// An interval begins anew when the running one is over, so its length is enough to wait.
    fn refuse(&self, rule: &str, most: u64, client: IpAddr, wait: Duration) -> ApiError {
        self.gateway.metrics.limits.refused("client", rule, "");
        let seconds = wait.as_secs();
        let why = format!(
            "rate limit of client {client} reached: {rule} {most}; it resets within {seconds} s"
        );
        ApiError::new(Code::RateLimitExceeded, why).after(wait)
    }
}

/// What is counted as one client.
fn slot(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => {
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (128 - V6_BITS))))
        }
        v4 => v4,
    }
}

/// Who asks: the peer, or whom the nearest of its proxies that we do not trust is said to be. A
/// header of a peer that is not trusted says nothing.
pub fn client(peer: IpAddr, headers: &HeaderMap, flood: &Flood) -> IpAddr {
    let trusted = |ip: IpAddr| flood.trusted.iter().any(|net| net.has(ip));
    if !trusted(peer) {
        return peer;
    }
    let hops = |name: &str| {
        let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
        let hops: Vec<&str> = values.flat_map(|v| v.split(',')).map(str::trim).collect();
        Some(hops).filter(|hops| !hops.is_empty())
    };
    let found = hops("x-forwarded-for")
        .or_else(|| Some(hops("forwarded")?.into_iter().map(hop).collect()))
        .or_else(|| hops("x-real-ip"));
    let mut nearest = peer;
    for text in found.unwrap_or_default().into_iter().rev() {
        // What cannot be read was written by nobody we know: the last one known is counted.
        let Some(ip) = address(text) else { break };
        nearest = ip;
        if !trusted(ip) {
            break;
        }
    }
    nearest
}

/// `for=` of one element of `forwarded` (RFC 7239, section 4).
fn hop(element: &str) -> &str {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let named = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("for"));
    named.map(|(_, value)| value.trim_matches('"')).next().unwrap_or("")
}

/// An address, with a port or without.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let ip = bare.parse().ok();
    ip.or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip())).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flood(trusted: &str) -> Flood {
        let text = format!(
            "[flood]\nrequests_per_second = 1\ntrusted_proxies = [{trusted}]\n\
             [providers.a]\nwire = \"openai\"\nbase_url = \"http://127.0.0.1:9\"\nauth = \"none\"\n"
        );
        let loaded = crate::config::load_text("t.toml".as_ref(), &text, &|_| None).unwrap();
        loaded.snapshot.flood.unwrap()
    }

    #[test]
    fn only_trusted_proxies_say_who_asks() {
        let flood = flood("\"10.0.0.0/8\"");
        let check = |peer: &str, name: &'static str, value: &str, want: &str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                value.parse().unwrap(),
            )]);
            let got = client(peer.parse().unwrap(), &headers, &flood);
            assert_eq!(got.to_string(), want, "{peer} {name}: {value}");
        };
        check("1.1.1.1", "x-forwarded-for", "2.2.2.2", "1.1.1.1");
        check("10.0.0.1", "x-forwarded-for", "2.2.2.2", "2.2.2.2");
        check("10.0.0.1", "x-forwarded-for", "9.9.9.9, 2.2.2.2, 10.0.0.7", "2.2.2.2");
        check("10.0.0.1", "x-forwarded-for", "9.9.9.9, nonsense", "10.0.0.1");
        check("10.0.0.1", "x-forwarded-for", "2.2.2.2:4711", "2.2.2.2");
        check("10.0.0.1", "forwarded", "for=2.2.2.2;proto=https, for=10.0.0.9", "2.2.2.2");
        check("10.0.0.1", "forwarded", "For=\"[2001:db8::1]:4711\"", "2001:db8::1");
        check("10.0.0.1", "x-real-ip", "2.2.2.2", "2.2.2.2");
        check("10.0.0.1", "cookie", "a", "10.0.0.1");
    }

    #[test]
    fn one_net_of_ipv6_is_one_client() {
        let net = |text: &str| slot(text.parse().unwrap());
        assert_eq!(net("2001:db8::1"), net("2001:db8::ffff:1"));
        assert_ne!(net("2001:db8::1"), net("2001:db8:0:1::1"));
        assert_eq!(net("::ffff:1.2.3.4"), net("1.2.3.4"));
    }
}
