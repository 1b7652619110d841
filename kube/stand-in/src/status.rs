//! What the server answers instead of an object.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is refused: a code of HTTP, and the word for it that clients read.
#[derive(Debug, PartialEq)]
pub(crate) struct Refused {
    code: u16,
    reason: &'static str,
}

impl Refused {
    /// A create of an object that exists. Its code is that of a conflict.
    pub(crate) const ALREADY_EXISTS: Self = Self { code: 409, reason: "AlreadyExists" };

    /// A refusal with the usual reason for this code.
    pub(crate) fn with(code: u16) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            410 => "Expired",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self { code, reason }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("the stand-in says {}", self.reason), "reason": self.reason, "code": self.code })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).expect("a rule names a code of HTTP");
        (code, Json(self.to_json())).into_response()
    }
}

/// The answer to the deletion of an object that is gone.
pub(crate) fn deleted() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200 })
}

/// The answer of a server that has too much to do.
pub(crate) fn too_many_requests(retry_after: u32) -> Response {
    let refused = Refused::with(429);
    let mut status = refused.to_json();
    status["details"] = json!({ "retryAfterSeconds": retry_after });
    (StatusCode::TOO_MANY_REQUESTS, [("Retry-After", retry_after.to_string())], Json(status)).into_response()
}
