//! Requests of our own to other servers: one POST, one small answer, no retry.

use super::resolver::Resolver;
use crate::base::Base;
use bytes::Bytes;
use pingora::connectors::http::v1::Connector;
use pingora::http::RequestHeader;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use std::time::Duration;

/// The whole of one request.
const TOTAL: Duration = Duration::from_secs(10);
/// A longer answer is none of those that we ask for.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Posts, and keeps nothing.
#[derive(Default)]
pub struct Outbound {
    resolver: Resolver,
}

impl Outbound {
    /// Posts a form to `at`, whose path is the whole path: the status and the body.
    ///
    /// # Errors
    /// In words for the log, without any of the form.
    pub async fn post_form(&self, at: &Base, form: &str) -> Result<(u16, Vec<u8>), String> {
        self.within(at, ("application/x-www-form-urlencoded", form)).await
    }

    /// The same with JSON.
    ///
    /// # Errors
    /// As above.
    pub async fn post_json(&self, at: &Base, body: &str) -> Result<(u16, Vec<u8>), String> {
        self.within(at, ("application/json", body)).await
    }

    async fn within(&self, at: &Base, what: (&str, &str)) -> Result<(u16, Vec<u8>), String> {
        let posted = tokio::time::timeout(TOTAL, self.post(at, what)).await;
        posted.unwrap_or_else(|_| Err(format!("no answer within {} seconds", TOTAL.as_secs())))
    }

    async fn post(&self, at: &Base, (kind, text): (&str, &str)) -> Result<(u16, Vec<u8>), String> {
        let say = |error: Box<pingora::Error>| error.to_string();
        let way = self.resolver.way(at).await?;
        let sni = if at.tls { at.host.clone() } else { String::new() };
        let mut peer = HttpPeer::new(way.address, at.tls, sni);
        peer.options.alpn = ALPN::H1;
        peer.options.connection_timeout = Some(TOTAL);
        peer.options.total_connection_timeout = Some(TOTAL);
        peer.options.custom_l4 = Some(way.dial(Some(TOTAL)));
        let (mut session, _) = Connector::new(None).get_http_session(&peer).await.map_err(say)?;
        let path = if at.path.is_empty() { "/" } else { &at.path };
        let mut head = RequestHeader::build("POST", path.as_bytes(), Some(5)).map_err(say)?;
        for (name, value) in [
            ("host", at.authority()),
            ("content-type", kind.to_owned()),
            ("content-length", text.len().to_string()),
            ("accept", "application/json".to_owned()),
            ("connection", "close".to_owned()),
        ] {
            head.insert_header(name, value).map_err(say)?;
        }
        session.write_request_header(Box::new(head)).await.map_err(say)?;
        session.write_body(text.as_bytes()).await.map_err(say)?;
        session.finish_body().await.map_err(say)?;
        session.read_response().await.map_err(say)?;
        let status = session.resp_header().map_or(0, |head| head.status.as_u16());
        let mut body = Vec::new();
        while let Some(piece) = session.read_body_bytes().await.map_err(say)? {
            let piece: Bytes = piece;
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err("the answer is too long".into());
            }
            body.extend_from_slice(&piece);
        }
        Ok((status, body))
    }
}
