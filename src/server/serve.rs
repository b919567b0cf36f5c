//! Pingora, set up: one proxy service on every claimed address, and a way to close it.

use super::front::Front;
use super::{Claim, Shared};
use crate::flow::Gateway;
use crate::proxy::Proxy;
use crate::proxy::resolver::Resolver;
use async_trait::async_trait;
use pingora::listeners::{L4BufferSettings, ListenerConfig, TcpSocketOptions};
use pingora::protocols::TcpKeepalive;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use pingora::services::listening::Service;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pingora's default of 64 KiB is most of what an idle stream weighs; 8 KiB hold any usual head.
const READ_BUFFER: usize = 8 << 10;
/// Pingora counts every turn of its loop, dead pooled connections and the parts of a request too;
/// the plan of a request has its own, smaller bounds.
const LOOP_TURNS_MAX: usize = 320;
/// How much later than our own drain Pingora's net ends the process.
const NET_SECONDS: u64 = 10;
/// A client that vanished without a word is found after a minute and a half.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 3,
    user_timeout: Duration::ZERO,
};

/// A server that is ready to run, and the providers' addresses that its proxy uses.
pub fn build(
    gateway: &Arc<Gateway>,
    shared: &Arc<Shared>,
    claims: &[Claim],
) -> (Server, Arc<Resolver>) {
    let settings = gateway.snapshot.load().server.clone();
    let drain = settings.drain.saturating_add(settings.drain_delay).as_secs();
    let conf = ServerConf {
        threads: settings.threads,
        // Pingora multiplies it by the threads (pingora-core 0.9.1, connectors/mod.rs).
        upstream_keepalive_pool_size: settings.upstream_idle.div_ceil(settings.threads.max(1)),
        max_retries: LOOP_TURNS_MAX,
        grace_period_seconds: Some(drain.saturating_add(NET_SECONDS)),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let proxy = Proxy::new(gateway.clone());
    let resolver = proxy.resolver();
    let proxy = pingora::proxy::http_proxy(&server.configuration, proxy);
    let secure = claims.iter().filter(|claim| claim.tls).map(|claim| claim.address).collect();
    let front = Front::new(gateway.clone(), shared.clone(), proxy, secure);
    let mut service = Service::new("clients".into(), front);
    for claim in claims {
        let mut socket = TcpSocketOptions::default();
        socket.so_reuseport = claim.is_held().then_some(true);
        socket.tcp_keepalive = Some(KEEPALIVE);
        let listener = ListenerConfig::tcp(claim.address.to_string())
            .tcp_socket_options(socket)
            .l4_buffer(L4BufferSettings::default().read(READ_BUFFER));
        service.add_listener(listener);
    }
    server.add_service(service);
    (server, resolver)
}

/// Serves until `closing` becomes true, then sleeps out the grace period (the control thread ends
/// the process long before).
pub fn run(server: Server, closing: watch::Receiver<bool>) {
    server.run(RunArgs { shutdown_signal: Box::new(Closing(closing)) });
}

/// Pingora's signal watch is ours: it hears of a shutdown when the drain delay is over.
struct Closing(watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for Closing {
    async fn recv(&self) -> ShutdownSignal {
        // An error means that the control thread is gone: leaving is right then too.
        let _ = self.0.clone().wait_for(|close| *close).await;
        ShutdownSignal::GracefulTerminate
    }
}
