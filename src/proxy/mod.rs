//! The data plane: Pingora's phases, each one short call.

use crate::flow::Gateway;
use async_trait::async_trait;
use pingora::prelude::*;
use pingora::proxy::{ProxyHttp, Session};
use std::sync::Arc;

/// Stand-in.
pub struct Proxy(Arc<Gateway>);

impl Proxy {
    /// Stand-in.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self(gateway)
    }
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();
    fn new_ctx(&self) -> Self::CTX {}
    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Err(Error::explain(HTTPStatus(503), "stand-in"))
    }
    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        let _ = self.0.drain.phase();
        let status = if session.req_header().uri.path() == "/health" { 200 } else { 503 };
        session.respond_error(status).await?;
        Ok(true)
    }
}
