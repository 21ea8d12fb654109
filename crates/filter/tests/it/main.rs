//! The filter language as its users meet it.

mod language;
mod model;
mod refusals;
mod steps;
mod summaries;
