//! Who sits before the browser, asked once more before a lasting way in is made or ended.

use std::time::Duration;

use larder_api::{Failure, FailureKind};

use crate::login::Refusal;
use crate::text::duration;
use crate::visit::Visit;

/// A log-in of so long ago stands for the password of somebody who has none.
const FRESH_FOR: Duration = Duration::from_secs(5 * 60);

/// `browsers.password_again`
pub async fn proved_again(visit: &Visit<'_>) -> Result<(), Failure> {
    let standing = visit.server.log_in.standing(visit.user());
    if standing.is_some_and(|standing| !standing.has_password) {
        return came_lately(visit);
    }
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

fn came_lately(visit: &Visit<'_>) -> Result<(), Failure> {
    let age = visit.session.as_ref().and_then(|session| visit.server.sessions.age(session, visit.now()));
    if age.is_some_and(|age| age <= FRESH_FOR) {
        return Ok(());
    }
    let text = format!(
        "nothing was changed: you have no password, so this takes a log-in of the last {}",
        duration(FRESH_FOR.as_secs())
    );
    Err(Failure::new(FailureKind::Denied, text).action("Log out and in, then do it again"))
}
