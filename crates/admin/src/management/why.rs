//! Why somebody is slow: `GET /api/why?client=…|topic=…|group=…&seconds=…`, which RabbitMQ does not have.

use axum::http::Method;

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::route::{Access, Route, route};
use crate::why::{self, Refused};

pub(crate) const ROUTES: &[Route] = &[route(Method::GET, "/why", Access::Monitoring, answer)];

fn answer(call: &Call<'_>) -> Outcome {
    match why::why(call.broker(), |name| call.query(name)) {
        Ok(found) => Ok(Answer::of(found)),
        Err(Refused::Invalid(reason)) => Err(Answer::bad_request(reason)),
        Err(Refused::Unknown) => Err(Answer::not_found()),
    }
}
