//! Who sits before the browser, asked once more before a way in is made or ended.

use larder_api::Failure;

use crate::factor::Tried;
use crate::login::Refusal;
use crate::note::Note;
use crate::session::PROVED_FOR;
use crate::text::duration;
use crate::visit::{Answer, Local, Visit};

/// `browsers.password_again`
pub async fn proved_again(visit: &Visit<'_>) -> Result<(), Failure> {
    let Some(session) = &visit.session else { return Err(denied("nobody is logged in")) };
    let given = visit.form.get("current").unwrap_or_default().to_owned();
    let sessions = &visit.server.sessions;
    let is_proved = sessions.is_proved(session, visit.now());
    if given.is_empty() && is_proved {
        return Ok(());
    }
    let standing = visit.server.log_in.standing(visit.user());
    if standing.is_some_and(|standing| !standing.has_password) {
        return match is_proved {
            true => Ok(()),
            false => Err(log_in_again("you have no password")),
        };
    }
    if given.is_empty() {
        return Err(denied("nothing was changed: it was not confirmed that it is you")
            .action("Confirm it at the top of the page, then do it again"));
    }
    match visit.server.log_in.check(visit.user().to_owned(), given, visit.peer.addr).await {
        Ok(_) => {}
        Err(Refusal::Wrong) => return Err(denied("nothing was changed: the current password is wrong")),
        Err(Refusal::Wait(time)) => {
            let wait = duration(time.as_secs().max(1));
            return Err(denied(format!("too many wrong passwords: try again in {wait}")));
        }
        Err(Refusal::Unavailable(why)) => {
            return Err(denied(format!("the current password could not be checked: {why}")));
        }
    }
    if !is_proved {
        second_factor(visit).await?;
        sessions.prove(session, visit.now());
    }
    Ok(())
}

/// The form that asks for it. The router has looked at the answer.
pub async fn prove(visit: &Visit<'_>) -> Answer {
    let back = Local::read(visit.form.text("back")).unwrap_or(Local::of("/me"));
    visit.back(back, Ok(Note::done("It is you: for five minutes you may change how people come in.")))
}

async fn second_factor(visit: &Visit<'_>) -> Result<(), Failure> {
    let (factors, user) = (&visit.server.factors, visit.user());
    if !factors.has(user) {
        return Ok(());
    }
    if !factors.has_codes(user) {
        return Err(log_in_again("your second factor is a passkey"));
    }
    let code = visit.form.text("code");
    match factors.try_code(user, code, visit.now(), visit.server.clock.now().secs) {
        Tried::Right => {
            // As at the log-in: a full disk keeps nobody out.
            let _ = factors.keep_step(async |bytes| visit.server.log_in.keep_factors(bytes).await).await;
            Ok(())
        }
        Tried::Recovery => {
            factors.use_up(user, code, async |bytes| visit.server.log_in.keep_factors(bytes).await).await
        }
        Tried::Wrong => {
            Err(denied("nothing was changed: the code is wrong, or was used already").action(clock_of_box(visit)))
        }
        Tried::Wait(time) => {
            Err(denied(format!("too many wrong codes: try again in {}", duration(time.as_secs().max(1)))))
        }
    }
}

fn denied(text: impl Into<String>) -> Failure {
    Failure::denied(text)
}

fn log_in_again(why: &str) -> Failure {
    let lately = duration(PROVED_FOR.as_secs());
    denied(format!("nothing was changed: {why}, so this takes a log-in of the last {lately}"))
        .action("Log out and in, then do it again")
}

/// Nobody changes the own way in as if it were somebody else's.
pub fn somebody_else(visit: &Visit<'_>, user: &str) -> Result<(), Failure> {
    match user == visit.user() {
        true => Err(Failure::invalid("nothing was changed: that is you").action("Change what is yours under Account")),
        false => Ok(()),
    }
}

/// Codes are right for a minute: a clock that is wrong refuses all of them.
pub fn clock_of_box(visit: &Visit<'_>) -> String {
    let now = chrono::DateTime::from_timestamp(visit.server.clock.now().secs, 0).unwrap_or_default();
    let local = now.with_timezone(&chrono::Local);
    format!("Codes go by the time: the clock of this box says {}.", local.format("%Y-%m-%d %H:%M"))
}
