//! A failure as an answer, and changes that do not end with whoever waits for their answer.

use axum::response::{IntoResponse, Response};
use larder_api::{Failure, endpoint};
use larder_base::task;

use crate::json;

/// A failure as a response.
pub struct Refusal(pub Failure);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (endpoint::status_of(self.0.kind), json::answer(&self.0)).into_response()
    }
}

/// Runs a change to its end also when the client goes away in the middle of it.
pub async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    task::spawn_for(work).await.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}"))))
}
