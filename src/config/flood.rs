//! `[flood]`: what one client address may do before anybody asks who it is.

use super::Flood;
use super::value::{Shape, View};
use std::net::IpAddr;

const FLOOD: Shape = Shape {
    known: &["requests_per_second", "failed_auth_per_minute", "trusted_proxies"],
    later: &[],
};

/// More is no guard; the counters behind it hold far more.
const RATE_MAX: u64 = 1_000_000_000;

/// Addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    bits: u32,
}

impl Net {
    /// `10.0.0.0/8`, or one address.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { address, bits })
    }

    /// Whether an address is one of them; one of IPv4 in IPv6's clothes is of IPv4.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let rest = 32 - self.bits;
                let (net, ip) = (net.to_bits(), ip.to_bits());
                net.checked_shr(rest).unwrap_or(0) == ip.checked_shr(rest).unwrap_or(0)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let rest = 128 - self.bits;
                let (net, ip) = (net.to_bits(), ip.to_bits());
                net.checked_shr(rest).unwrap_or(0) == ip.checked_shr(rest).unwrap_or(0)
            }
            _ => false,
        }
    }
}

pub(super) fn flood(root: &View<'_>) -> Option<Flood> {
    let v = root.table("flood", &FLOOD)?;
    let mut trusted = Vec::new();
    for (at, text) in v.texts("trusted_proxies").unwrap_or_default() {
        match Net::parse(text) {
            Some(net) => trusted.push(net),
            None => {
                let why = format!("{text:?} is no address or net such as \"10.0.0.0/8\"");
                v.book.fault(at, &v.key("trusted_proxies"), why);
            }
        }
    }
    if ["requests_per_second", "failed_auth_per_minute"].iter().all(|key| v.get(key).is_none()) {
        v.complain(
            "guards against nothing: it needs requests_per_second or failed_auth_per_minute",
        );
    }
    Some(Flood {
        requests_per_second: v.integer("requests_per_second", 1..=RATE_MAX),
        failed_auth_per_minute: v.integer("failed_auth_per_minute", 1..=RATE_MAX),
        trusted,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_net_has_the_addresses_that_share_its_bits() {
        let has = |net: &str, ip: &str| Net::parse(net).unwrap().has(ip.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(has("2001:db8::/32", "2001:db8::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("::/0", "::1"));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "x", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(Net::parse(bad).is_none(), "{bad}");
        }
    }
}
