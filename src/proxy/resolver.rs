//! Providers' addresses, looked up in the background: no request waits for a name twice, and none
//! fails because a name server does for a while.

use crate::flow::Gateway;
use crate::route::Base;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Between two look-ups of a name in use. `getaddrinfo` tells no lifetime.
const REFRESH: Duration = Duration::from_secs(30);

/// One name's addresses, used in turn.
#[derive(Debug)]
struct Known {
    addresses: Vec<SocketAddr>,
    turn: AtomicUsize,
}

/// Every provider's addresses.
#[derive(Debug, Default)]
pub struct Resolver {
    known: RwLock<HashMap<(String, u16), Arc<Known>>>,
}

impl Resolver {
    /// The next address of a provider. Looks up only what has never been looked up.
    ///
    /// # Errors
    /// The name has no address, in the resolver's words.
    pub async fn address(&self, base: &Base) -> Result<SocketAddr, String> {
        if let Ok(ip) = base.host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, base.port));
        }
        let name = (base.host.clone(), base.port);
        let known = self.known.read().get(&name).cloned();
        let known = match known {
            Some(known) => known,
            None => self.look_up(name).await?,
        };
        let turn = known.turn.fetch_add(1, Ordering::Relaxed);
        let at = turn.checked_rem(known.addresses.len()).unwrap_or(0);
        known.addresses.get(at).copied().ok_or_else(|| format!("no address for {}", base.host))
    }

    async fn look_up(&self, name: (String, u16)) -> Result<Arc<Known>, String> {
        let found = tokio::net::lookup_host((name.0.as_str(), name.1)).await;
        let found = found.map(Iterator::collect);
        let mut addresses: Vec<SocketAddr> =
            found.map_err(|error| format!("cannot resolve {}: {error}", name.0))?;
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(format!("no address for {}", name.0));
        }
        let old = self.known.read().get(&name).cloned();
        if let Some(old) = old.filter(|old| old.addresses == addresses) {
            return Ok(old);
        }
        let known = Arc::new(Known { addresses, turn: AtomicUsize::new(0) });
        self.known.write().insert(name, known.clone());
        Ok(known)
    }

    /// Looks up every provider's name now; those that fail keep their last good addresses. Names
    /// that no provider uses any more are forgotten.
    pub async fn refresh(&self, gateway: &Gateway) {
        let snapshot = gateway.snapshot.load_full();
        let mut used = Vec::new();
        for provider in snapshot.routes.providers.values() {
            let base = &provider.base;
            if base.host.parse::<IpAddr>().is_err() {
                used.push((base.host.clone(), base.port));
            }
        }
        used.sort();
        used.dedup();
        for name in &used {
            if let Err(error) = self.look_up(name.clone()).await {
                log::warn!("dns: {error}");
            }
        }
        self.known.write().retain(|name, _| used.contains(name));
    }
}

/// Keeps the addresses fresh for as long as it is polled.
pub async fn run(resolver: Arc<Resolver>, gateway: Arc<Gateway>) {
    loop {
        resolver.refresh(&gateway).await;
        tokio::time::sleep(REFRESH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(host: &str) -> Base {
        Base { tls: false, host: host.into(), port: 80, path: String::new() }
    }

    #[tokio::test]
    async fn addresses_need_no_look_up_and_unknown_names_are_errors() {
        let resolver = Resolver::default();
        assert_eq!(resolver.address(&base("::1")).await, Ok("[::1]:80".parse().unwrap()));
        assert!(resolver.address(&base("localhost")).await.is_ok());
        assert!(resolver.address(&base("no-such-name.invalid")).await.is_err());
    }
}
