//! What a request comes to: a body or a refusal, with RabbitMQ's status codes and words.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::answers::{Text, Unmade};
use crate::bodies::Unread;

/// What is sent.
#[derive(Debug)]
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Text(Box<Text>),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Content,
    pub location: Option<String>,
    /// The file name under which a browser keeps it.
    pub file: Option<String>,
    /// What `Allow` names.
    pub allowed: Option<String>,
}

/// Why nothing is done.
pub(crate) type Refusal = Answer;
/// What handlers return.
pub(crate) type Outcome = Result<Answer, Refusal>;

impl Answer {
    pub fn of(body: Value) -> Self {
        Self::with_status(StatusCode::OK, body)
    }

    /// Of what is written already.
    pub fn of_text(text: Text) -> Self {
        Self { body: Content::Text(Box::new(text)), ..Self::empty(StatusCode::OK) }
    }

    fn empty(status: StatusCode) -> Self {
        Self { status, body: Content::Nothing, location: None, file: None, allowed: None }
    }

    pub fn created() -> Self {
        Self::empty(StatusCode::CREATED)
    }

    pub fn done() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// 201 for what is new, 204 for what was there.
    pub fn put(is_new: bool) -> Self {
        if is_new { Self::created() } else { Self::done() }
    }

    pub fn with_status(status: StatusCode, body: Value) -> Self {
        Self { body: Content::Json(body), ..Self::empty(status) }
    }

    fn refusal(status: StatusCode, error: &str, reason: impl Into<Value>) -> Self {
        Self::with_status(status, json!({"error": error, "reason": reason.into()}))
    }

    /// There is no such thing.
    pub fn not_found() -> Refusal {
        Self::refusal(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    /// Something that the request names is not there.
    pub fn no_such(reason: impl Into<Value>) -> Refusal {
        Self::refusal(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub fn bad_request(reason: impl Into<Value>) -> Refusal {
        Self::refusal(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    pub fn bad_page(error: &str, reason: String) -> Refusal {
        Self::refusal(StatusCode::BAD_REQUEST, error, reason)
    }

    /// 412: as things are it is not done.
    pub fn precondition(reason: String) -> Refusal {
        Self::refusal(StatusCode::PRECONDITION_FAILED, "precondition_failed", reason)
    }

    /// Who asks may not.
    pub fn not_authorised(reason: &str) -> Refusal {
        Self::refusal(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    /// The request came from a page or by a name that is not ours.
    pub fn forbidden(reason: &str) -> Refusal {
        Self::refusal(StatusCode::FORBIDDEN, "forbidden", reason)
    }

    /// Name and password are not those of a user.
    pub fn wrong_credentials() -> Refusal {
        Self::refusal(StatusCode::UNAUTHORIZED, "not_authorized", "Not_Authorized")
    }

    /// Nobody said who he is.
    pub fn who_are_you() -> Refusal {
        Self::empty(StatusCode::UNAUTHORIZED)
    }

    /// Too many wrong passwords have come from where this one does.
    pub fn throttled() -> Refusal {
        Self::refusal(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "too many wrong passwords, try again later")
    }

    /// 405; `allowed`: as `Allow` names them.
    pub fn method_not_allowed(allowed: String) -> Refusal {
        Self { allowed: Some(allowed), ..Self::empty(StatusCode::METHOD_NOT_ALLOWED) }
    }

    /// An answer that is not made.
    pub fn unmade(why: Unmade) -> Refusal {
        match why {
            Unmade::Busy => Self::refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "others have to take their answers first, try again",
            ),
            Unmade::Defect => Self::failed("a defect of the broker"),
        }
    }

    /// A body that is not read.
    pub fn unread(why: Unread, most: usize) -> Refusal {
        let (status, reason) = match why {
            Unread::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {most} bytes here")),
            Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body does not come".to_owned()),
            Unread::TooManyValues => {
                (StatusCode::BAD_REQUEST, "the body has too many values for its length".to_owned())
            }
            Unread::TooMuch => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body would take more memory than there is for it: send it in parts".to_owned(),
            ),
            Unread::Busy => return Self::busy(),
        };
        Self::refusal(status, "bad_request", reason)
    }

    /// The controller, or what else would do it, has too much to do.
    pub fn busy() -> Refusal {
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, "busy", "the broker has too much to do, try again")
    }

    /// What the journal or a defect of ours prevented.
    pub fn failed(reason: impl ToString) -> Refusal {
        Self::refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", reason.to_string())
    }

    pub fn at(self, location: String) -> Self {
        Self { location: Some(location), ..self }
    }

    /// What is wrong, of a refusal.
    pub fn reason(&self) -> String {
        let Content::Json(body) = &self.body else { return String::new() };
        let reason = body.get("reason");
        reason.map_or_else(String::new, |reason| reason.as_str().map_or_else(|| reason.to_string(), str::to_owned))
    }

    /// With its body as text.
    pub fn written(self, mut text: Text) -> Self {
        let Content::Json(value) = &self.body else { return self };
        text.value(value);
        Self { body: Content::Text(Box::new(text)), ..self }
    }

    /// Its body, if that is text.
    pub fn text(&self) -> Option<&Text> {
        if let Content::Text(text) = &self.body { Some(text) } else { None }
    }

    /// As it is sent.
    pub fn into_response(self) -> Response<Body> {
        let body = match self.body {
            Content::Nothing => Body::empty(),
            Content::Json(value) => Text::of_value(&value).into_body(),
            Content::Text(text) => text.into_body(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding, origin"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"RabbitMQ Management\""));
        }
        if let Some(location) = self.location.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::LOCATION, location);
        }
        if let Some(allowed) = self.allowed.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::ALLOW, allowed);
        }
        if let Some(file) =
            self.file.and_then(|name| HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")).ok())
        {
            headers.insert(header::CONTENT_DISPOSITION, file);
        }
        response
    }
}
