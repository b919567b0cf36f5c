//! Answers of the admin side: JSON, and errors in the one form that clients of ours know.

use crate::config::Fault;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json as object};

/// JSON under a status.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_value(body) {
        Ok(body) => (status, Json(body)).into_response(),
        Err(fault) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &fault.to_string()),
    }
}

/// `{"error":{"message","type","param","code"}}`
pub fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(body(status, code, message))).into_response()
}

/// What a later version does: 501.
pub fn not_implemented() -> Response {
    error(StatusCode::NOT_IMPLEMENTED, "not_implemented", "not in this version")
}

/// A config that was refused: 422, every fault with its place.
pub fn faults(faults: &[Fault]) -> Response {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let mut body = body(status, "invalid_config", "the config was refused, the old one stays");
    let place = |f: &Fault| {
        object!({"file": f.file.display().to_string(), "line": f.line, "key": f.key,
                 "message": f.message})
    };
    body["faults"] = faults.iter().map(place).collect();
    (status, Json(body)).into_response()
}

/// Plain text.
pub fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

fn body(status: StatusCode, code: &str, message: &str) -> Value {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        s if s.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    object!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
