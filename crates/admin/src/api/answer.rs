//! What a request comes to: a body, or a refusal that says what is wrong and where.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::answers::{Text, Unmade};
use crate::bodies::Unread;

/// Pages of other places may neither show what is answered nor run anything of it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// What is sent.
#[derive(Debug)]
enum Content {
    Nothing,
    Json(Value),
    /// JSON that is written already.
    Text(Text),
    /// A body of another kind, sent as it comes: its content type, and itself.
    Other(&'static str, Body),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    content: Content,
    headers: Vec<(header::HeaderName, String)>,
}

/// Why nothing is done: boxed, because most requests are not refused.
pub(crate) type Refusal = Box<Answer>;
/// What handlers return.
pub(crate) type Outcome = Result<Answer, Refusal>;

impl Answer {
    fn with(status: StatusCode, content: Content) -> Self {
        Self { status, content, headers: Vec::new() }
    }

    /// 200.
    pub fn of(body: Value) -> Self {
        Self::with(StatusCode::OK, Content::Json(body))
    }

    /// 200, of what is written already.
    pub fn of_text(text: Text) -> Self {
        Self::with(StatusCode::OK, Content::Text(text))
    }

    /// 201 for what is new, 200 for what was there, and for what would be made.
    pub fn made(is_new: bool, body: Value) -> Self {
        Self::with(if is_new { StatusCode::CREATED } else { StatusCode::OK }, Content::Json(body))
    }

    /// 204.
    pub fn done() -> Self {
        Self::with(StatusCode::NO_CONTENT, Content::Nothing)
    }

    /// 200 with a body of another kind than JSON, such as a stream of events.
    pub fn other(content_type: &'static str, body: Body) -> Self {
        Self::with(StatusCode::OK, Content::Other(content_type, body))
    }

    /// One more header.
    pub fn header(mut self, name: header::HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    fn refusal(status: StatusCode, error: &str, reason: impl Into<String>, field: Option<&str>) -> Refusal {
        Box::new(Self::with(status, Content::Json(json!({"error": error, "reason": reason.into(), "field": field}))))
    }

    /// 400: a value cannot be taken; `field` is its path in the body, or the parameter of the query.
    pub fn invalid(field: &str, reason: impl Into<String>) -> Refusal {
        Self::refusal(StatusCode::BAD_REQUEST, "invalid", reason, Some(field))
    }

    /// 400: the request makes no sense as a whole.
    pub fn bad_request(reason: impl Into<String>) -> Refusal {
        Self::refusal(StatusCode::BAD_REQUEST, "bad_request", reason, None)
    }

    /// 401: nobody knows who asks. `basic`: whoever asks may be asked for a name and a password by its program.
    pub fn not_authenticated(reason: &str, basic: bool) -> Refusal {
        let refusal = Self::refusal(StatusCode::UNAUTHORIZED, "not_authenticated", reason, None);
        let scheme = if basic { "Basic realm=\"Mainstem\"" } else { "Session realm=\"Mainstem\"" };
        Box::new(refusal.header(header::WWW_AUTHENTICATE, scheme.to_owned()))
    }

    /// 403: who asks may not.
    pub fn not_allowed(reason: impl Into<String>) -> Refusal {
        Self::refusal(StatusCode::FORBIDDEN, "not_allowed", reason, None)
    }

    /// 403: the page that asks is not ours.
    pub fn wrong_origin(reason: &str) -> Refusal {
        Self::refusal(StatusCode::FORBIDDEN, "wrong_origin", reason, None)
    }

    /// 403: a change by cookie that our own page did not ask for.
    pub fn csrf() -> Refusal {
        Self::refusal(StatusCode::FORBIDDEN, "csrf", "a change needs the session's token in X-Mainstem-CSRF", None)
    }

    /// 404.
    pub fn not_found(reason: impl Into<String>) -> Refusal {
        Self::refusal(StatusCode::NOT_FOUND, "not_found", reason, None)
    }

    /// 405; `allowed`: as `Allow` names them.
    pub fn method_not_allowed(allowed: String) -> Refusal {
        let reason = format!("this path takes {allowed}");
        Box::new(
            Self::refusal(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &reason, None)
                .header(header::ALLOW, allowed),
        )
    }

    /// 409: as things are it is not done.
    pub fn conflict(reason: impl Into<String>) -> Refusal {
        Self::refusal(StatusCode::CONFLICT, "conflict", reason, None)
    }

    /// 408.
    pub fn too_slow() -> Refusal {
        Self::refusal(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body does not come", None)
    }

    /// A body that is not read.
    pub fn unread(why: Unread, most: usize) -> Refusal {
        match why {
            Unread::TooLarge => Self::too_large(most),
            Unread::TooSlow => Self::too_slow(),
            Unread::TooManyValues => Self::bad_request("the body has too many values for its length"),
            Unread::TooMuch => Self::too_much(),
            Unread::Busy => Self::busy(),
        }
    }

    /// An answer that is not made.
    pub fn unmade(why: Unmade) -> Refusal {
        match why {
            Unmade::Busy => Self::unavailable("busy", "others have to take their answers first: try again"),
            Unmade::Defect => Self::failed("a defect of the broker"),
        }
    }

    /// 413.
    pub fn too_large(max: usize) -> Refusal {
        Self::refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("a body has at most {max} bytes"), None)
    }

    /// 413.
    fn too_much() -> Refusal {
        let text = "the body would take more memory than there is for it: send it in parts";
        Self::refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text.to_owned(), None)
    }

    /// 415.
    pub fn not_json() -> Refusal {
        Self::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", "a body is application/json", None)
    }

    /// 429: try again after so many seconds.
    pub fn throttled(seconds: u64) -> Refusal {
        let reason = format!("too many wrong logins: try again in {seconds} s");
        let refusal = Self::refusal(StatusCode::TOO_MANY_REQUESTS, "throttled", reason, None);
        Box::new(refusal.header(header::RETRY_AFTER, seconds.to_string()))
    }

    /// 500: what the journal or a defect of ours prevented.
    pub fn failed(reason: impl ToString) -> Refusal {
        Self::refusal(StatusCode::INTERNAL_SERVER_ERROR, "failed", reason.to_string(), None)
    }

    /// 503: try again.
    pub fn unavailable(error: &str, reason: &str) -> Refusal {
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, error, reason, None)
    }

    /// 503: the controller, or whoever else would do it, has too much to do.
    pub fn busy() -> Refusal {
        Self::unavailable("busy", "the broker has too much to do, try again")
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// With its JSON as text.
    pub fn written(self, mut text: Text) -> Self {
        let Content::Json(value) = &self.content else { return self };
        text.value(value);
        Self { content: Content::Text(text), ..self }
    }

    /// Its JSON, if that is text.
    pub fn text(&self) -> Option<&Text> {
        if let Content::Text(text) = &self.content { Some(text) } else { None }
    }

    /// As it is sent.
    pub fn into_response(self) -> Response<Body> {
        let (kind, body) = match self.content {
            Content::Nothing => (None, Body::empty()),
            Content::Json(value) => (Some("application/json"), Text::of_value(&value).into_body()),
            Content::Text(text) => (Some("application/json"), text.into_body()),
            Content::Other(kind, body) => (Some(kind), body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(kind) = kind {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let fixed = [
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(name, value);
            }
        }
        response
    }
}
