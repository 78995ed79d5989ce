//! The answers of the steps, before they are responses.

use hyper::StatusCode;
use larder_api::Failure;

use crate::asset::Asset;

pub enum Outcome {
    Page(StatusCode, String),
    Go(&'static str),
    /// With a cookie.
    Enter(&'static str, String),
    Asset(&'static Asset),
}

pub type Answer = Result<Outcome, Failure>;
