//! Providers' addresses, looked up in the background: no request waits for a name twice, and none
//! fails because a name server does for a while.

use super::dial::Way;
use crate::flow::Gateway;
use crate::route::Base;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Between two look-ups of a name in use. `getaddrinfo` tells no lifetime.
const REFRESH: Duration = Duration::from_secs(30);

/// One name's addresses, used in turn.
#[derive(Debug)]
pub struct Known {
    addresses: Vec<SocketAddr>,
    /// Beside each address: the last connection to it failed. Forgotten at the next look-up.
    failed: Vec<AtomicBool>,
    turn: AtomicUsize,
}

impl Known {
    /// Addresses that nothing is known of yet.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        let failed = addresses.iter().map(|_| AtomicBool::new(false)).collect();
        Self { addresses, failed, turn: AtomicUsize::new(0) }
    }

    /// This turn's: the next that has not failed, or the next.
    fn next(&self) -> Option<SocketAddr> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let from = turn.checked_rem(self.addresses.len())?;
        let sound = |at: &usize| !self.failed.get(*at).is_some_and(|f| f.load(Ordering::Relaxed));
        let at = (from..self.addresses.len()).chain(0..from).find(sound).unwrap_or(from);
        self.addresses.get(at).copied()
    }

    /// Every address, this one first and those that failed last.
    pub fn from(&self, first: SocketAddr) -> Vec<SocketAddr> {
        let mut order: Vec<_> = self.addresses.iter().copied().zip(&self.failed).collect();
        order.sort_by_key(|(a, failed)| (*a != first, failed.load(Ordering::Relaxed)));
        order.into_iter().map(|(address, _)| address).collect()
    }

    /// Whether a connection to an address could be made.
    pub fn answers(&self, address: SocketAddr, well: bool) {
        let at = self.addresses.iter().position(|a| *a == address);
        if let Some(failed) = at.and_then(|at| self.failed.get(at)) {
            failed.store(!well, Ordering::Relaxed);
        }
    }

    fn forgive(&self) {
        self.failed.iter().for_each(|failed| failed.store(false, Ordering::Relaxed));
    }
}

/// Every provider's addresses.
#[derive(Debug, Default)]
pub struct Resolver {
    known: RwLock<HashMap<(String, u16), Arc<Known>>>,
}

impl Resolver {
    /// The way to a provider, by its next address. Looks up only what has never been looked up.
    ///
    /// # Errors
    /// The name has no address, in the resolver's words.
    pub async fn way(&self, base: &Base) -> Result<Way, String> {
        if let Ok(ip) = base.host.parse::<IpAddr>() {
            return Ok(Way { address: SocketAddr::new(ip, base.port), known: None });
        }
        let name = (base.host.clone(), base.port);
        let known = self.known.read().get(&name).cloned();
        let known = match known {
            Some(known) => known,
            None => self.look_up(name).await?,
        };
        let address = known.next().ok_or_else(|| format!("no address for {}", base.host))?;
        let known = (known.addresses.len() > 1).then_some(known);
        Ok(Way { address, known })
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
            old.forgive();
            return Ok(old);
        }
        let known = Arc::new(Known::new(addresses));
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
            if provider.through.is_none() && base.host.parse::<IpAddr>().is_err() {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn base(host: &str) -> Base {
        Base { tls: false, host: host.into(), port: 80, path: String::new() }
    }

    #[tokio::test]
    async fn addresses_need_no_look_up_and_unknown_names_are_errors() {
        let resolver = Resolver::default();
        let six = resolver.way(&base("::1")).await.unwrap();
        assert!(six.address == "[::1]:80".parse().unwrap() && six.known.is_none());
        assert!(resolver.way(&base("localhost")).await.is_ok());
        assert!(resolver.way(&base("no-such-name.invalid")).await.is_err());
    }

    #[test]
    fn addresses_take_turns_and_one_that_failed_waits_for_the_next_look_up() {
        let all: Vec<SocketAddr> =
            ["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"].map(|a| a.parse().unwrap()).into();
        let known = Known::new(all.clone());
        let turns = |n: usize| (0..n).map(|_| known.next().unwrap()).collect::<Vec<_>>();
        assert_eq!(turns(4), [all[0], all[1], all[2], all[0]]);
        known.answers(all[1], false);
        assert!(!turns(6).contains(&all[1]));
        assert_eq!(known.from(all[2]), [all[2], all[0], all[1]], "this one, and the failed last");
        known.answers(all[0], false);
        known.answers(all[2], false);
        assert_eq!(turns(3).len(), 3, "where all failed, any is as good");
        known.forgive();
        let mut three = turns(3);
        three.sort();
        assert_eq!(three, all);
    }
}
