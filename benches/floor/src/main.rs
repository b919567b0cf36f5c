//! The floor: a Pingora proxy that only forwards. `LISTEN`, `UPSTREAM` and `THREADS` come from the
//! environment.

use async_trait::async_trait;
use pingora::prelude::{HttpPeer, Server};
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::configuration::ServerConf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bare {
    upstream: String,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();
    fn new_ctx(&self) {}
    async fn upstream_peer(
        &self,
        _session: &mut Session,
        _ctx: &mut (),
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream.as_str(), false, String::new())))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let conf = ServerConf {
        threads: std::env::var("THREADS")?.parse()?,
        // As weir's default `upstream_idle`.
        upstream_keepalive_pool_size: 1024,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let bare = Bare { upstream: std::env::var("UPSTREAM")? };
    let mut service = http_proxy_service(&server.configuration, bare);
    service.add_tcp(&std::env::var("LISTEN")?);
    server.add_service(service);
    server.run_forever()
}
