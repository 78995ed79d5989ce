//! The current password, asked for once more before a lasting way in is made or ended.

use larder_api::{Failure, FailureKind};

use crate::login::Refusal;
use crate::text::duration;
use crate::visit::Visit;

/// `browsers.password_again`
pub async fn knows_password(visit: &Visit<'_>) -> Result<(), Failure> {
    let given = visit.form.get("current").unwrap_or_default().to_owned();
    let refusal = match visit.server.log_in.check(visit.user().to_owned(), given, visit.peer.addr).await {
        Ok(_) => return Ok(()),
        Err(refusal) => refusal,
    };
    let text = match refusal {
        Refusal::Wrong => "nothing was changed: the current password is wrong".to_owned(),
        Refusal::Wait(time) => format!("too many wrong passwords: try again in {}", duration(time.as_secs().max(1))),
        Refusal::Unavailable(why) => format!("the current password could not be checked: {why}"),
    };
    Err(Failure::new(FailureKind::Denied, text))
}
