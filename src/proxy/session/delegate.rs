//! [`Downstream`] as Pingora sees it: its trait, nearly all of it handed to the real session.

use super::Downstream;
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use std::time::Duration;

type Messages = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

#[async_trait]
impl Session for Downstream {
    // What is ours: the body of this try, the wait, and what is written.

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(self.control.exchange().feed.next_piece())
    }
    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if no_body_expected {
            return self.watch(None).await;
        }
        let room = {
            let feed = &mut self.control.exchange().feed;
            let piece = feed.next_piece();
            if piece.is_some() {
                return Ok(piece);
            }
            feed.room()
        };
        self.watch(room).await
    }
    fn is_body_done(&mut self) -> bool {
        self.control.exchange().feed.is_done()
    }
    fn is_body_empty(&mut self) -> bool {
        self.control.exchange().feed.is_empty()
    }
    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        self.relay(tasks).await
    }
    fn enable_retry_buffering(&mut self) {}
    fn retry_buffer_truncated(&self) -> bool {
        false
    }
    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    // What is the real session's.

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }
    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }
    async fn drain_request_body(&mut self) -> Result<()> {
        self.inner.drain_request_body().await
    }
    async fn write_response_header(&mut self, resp: Box<ResponseHeader>, end: bool) -> Result<()> {
        match &mut *self.inner {
            ServerSession::H2(s) => s.write_response_header(resp, end),
            other => other.write_response_header(resp).await,
        }
    }
    async fn write_response_header_ref(&mut self, resp: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(resp.clone()), end).await
    }
    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.inner.write_response_body(data, end).await
    }
    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }
    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }
    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }
    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }
    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }
    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }
    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }
    fn request_summary(&self) -> String {
        super::super::summary(self.inner.req_header())
    }
    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }
    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }
    async fn finish(&mut self) -> Result<()> {
        self.inner.finish_body().await
    }
    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }
    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }
    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }
    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }
    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }
    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }
    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner.to_h1_raw()
    }
    fn is_upgrade_req(&self) -> bool {
        false
    }
    fn was_upgraded(&self) -> bool {
        false
    }
    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }
    fn take_custom_message_reader(&mut self) -> Option<Messages> {
        None
    }
    fn restore_custom_message_reader(&mut self, _reader: Messages) -> Result<()> {
        Ok(())
    }
    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }
    fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
