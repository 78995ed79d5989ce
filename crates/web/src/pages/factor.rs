//! The second factor: asked for after the password, set up and ended by its user, demanded by the owner.

use askama::Template;
use hyper::StatusCode;
use larder_api::Failure;

use super::passkey_question;
use super::password::{clock_of_box, somebody_else};
use crate::edit;
use crate::factor::{PENDING_FOR, Shown, Tried};
use crate::login::Standing;
use crate::note::Note;
use crate::oidc::Subject;
use crate::text::duration;
use crate::visit::{Answer, Frame, Local, Outcome, Visit, rendered};

#[derive(Template)]
#[template(path = "code.html")]
struct CodePage {
    frame: Frame,
    next: String,
    refusal: Option<Note>,
    /// The question to the user's passkeys for this name.
    passkey: Option<String>,
}

#[derive(Template)]
#[template(path = "factor.html")]
struct FactorPage {
    frame: Frame,
    shown: Shown,
    refusal: Option<Note>,
}

#[derive(Template)]
#[template(path = "recovery_codes.html")]
pub struct RecoveryPage {
    pub frame: Frame,
    pub codes: Vec<String>,
}

/// The form for the code, bound to a token that opens nothing else.
pub fn ask(visit: &Visit<'_>, status: StatusCode, next: &Local, token: String, refusal: Option<Note>) -> Answer {
    let mut frame = visit.frame("", "Log in");
    frame.csrf = visit.server.sessions.csrf_before_log_in(&token);
    let user = visit.server.factors.waits(&token, visit.now()).map(|(user, _)| user);
    let passkey = user.and_then(|user| passkey_question::second_question(visit, &user, &token));
    let page = CodePage { frame, next: next.path().to_owned(), refusal, passkey };
    Ok(Outcome::Form(status, rendered(&page)?, token))
}

/// Somebody who gave the right password gives a code.
pub async fn enter(visit: &Visit<'_>) -> Answer {
    let (next, token) = (Local::after_log_in(visit.form.text("next")), visit.token.clone().unwrap_or_default());
    let factors = &visit.server.factors;
    let found = factors.waits(&token, visit.now());
    // The password, the user and the factor are still those of the first step.
    let standing = found.as_ref().and_then(|(user, _)| visit.server.log_in.standing(user));
    let (Some((user, generation)), Some(standing)) = (found, standing) else {
        return Ok(Outcome::Go(Local::of("/login")));
    };
    if standing.generation != generation {
        return Ok(Outcome::Go(Local::of("/login")));
    }
    let given = visit.form.text("code");
    let refused = |status, text: String| ask(visit, status, &next, token.clone(), Some(Note::fault(text)));
    match factors.try_code(&user, given, visit.now(), visit.server.clock.now().secs) {
        Tried::Right => {
            // A disk that is full must not lock out those who can make room: then the step is in memory alone.
            let _ = factors.keep_step(async |bytes| visit.server.log_in.keep_factors(bytes).await).await;
        }
        Tried::Recovery => {
            let kept = factors.use_up(&user, given, async |bytes| visit.server.log_in.keep_factors(bytes).await).await;
            if let Err(failure) = kept {
                return refused(StatusCode::SERVICE_UNAVAILABLE, failure.message);
            }
        }
        Tried::Wrong => {
            let text = format!("The code is wrong, or was used already. {}", clock_of_box(visit));
            return refused(StatusCode::UNAUTHORIZED, text);
        }
        Tried::Wait(time) => {
            let text = format!("Too many wrong codes. Try again in {}.", duration(time.as_secs().max(1)));
            return refused(StatusCode::TOO_MANY_REQUESTS, text);
        }
    }
    bind(visit, (&user, standing.uid), factors.came(&token)).await?;
    begin_session(visit, &user, generation, next)
}

/// `oidc.bound_once`, where somebody came by the issuer and showed all else.
pub async fn bind(visit: &Visit<'_>, user: (&str, u32), subject: Option<Subject>) -> Result<(), Failure> {
    let Some(subject) = subject else { return Ok(()) };
    visit.server.factors.bind(user, &subject, async |bytes| visit.server.log_in.keep_factors(bytes).await).await
}

/// `browsers.renewed_at_log_in`
pub fn begin_session(visit: &Visit<'_>, user: &str, generation: u64, next: Local) -> Answer {
    if let Some(session) = &visit.session {
        visit.server.sessions.end(session);
    }
    let session = visit.server.sessions.begin(user, generation, Some(visit.peer.addr), &visit.agent, visit.now());
    Ok(Outcome::GoAs(next, session))
}

/// Somebody showed who they are, by a password or by the issuer; a second factor is asked for where the user has one. Then the user
/// is bound to `subject`.
pub async fn after_first(
    visit: &Visit<'_>,
    (user, standing): (&str, Standing),
    subject: Option<Subject>,
    next: Local,
) -> Answer {
    let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
    visit.server.factors.end_of_another((user, standing.uid), keep).await?;
    let generation = standing.generation;
    if !visit.server.factors.has(user) {
        bind(visit, (user, standing.uid), subject).await?;
        return begin_session(visit, user, generation, next);
    }
    if let Some(session) = &visit.session {
        visit.server.sessions.end(session);
    }
    // `factors.password_first`
    let token = visit.server.factors.wait_for_code(user, generation, subject, visit.now());
    ask(visit, StatusCode::OK, &next, token, None)
}

fn setting_up(visit: &Visit<'_>, shown: Shown, refusal: Option<Note>) -> Answer {
    let status = if refusal.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let page = FactorPage { frame: visit.frame("me", "Second factor"), shown, refusal };
    Ok(Outcome::Page(status, rendered(&page)?))
}

/// Draws a secret and shows it. An open browser alone gives nobody a factor (`browsers.password_again`).
pub async fn begin(visit: &Visit<'_>) -> Answer {
    if visit.server.factors.has_codes(visit.user()) {
        let failure = Failure::exists("you have codes of a telephone").action("End them first");
        return visit.back(Local::of("/me"), Err(failure));
    }
    setting_up(visit, visit.server.factors.begin(visit.user()), None)
}

pub async fn confirm(visit: &Visit<'_>) -> Answer {
    let (factors, user) = (&visit.server.factors, visit.user());
    let secs = visit.server.clock.now().secs;
    let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
    let standing = visit.server.log_in.standing(user);
    let uid = standing.ok_or_else(|| Failure::not_found("there is no such user any more"))?.uid;
    match factors.confirm((user, uid), visit.form.text("code"), secs, keep).await {
        Ok(codes) => {
            // Sessions that a password alone began.
            visit.server.sessions.end_others(user, visit.session.as_ref());
            let page = RecoveryPage { frame: visit.frame("me", "Recovery codes"), codes };
            Ok(Outcome::Page(StatusCode::OK, rendered(&page)?))
        }
        Err(failure) => match factors.begun(user) {
            Some(shown) => setting_up(visit, shown, Some(Note::from(failure))),
            None => visit.back(Local::of("/me"), Err(failure)),
        },
    }
}

/// Ends the own codes (`browsers.password_again`).
pub async fn end(visit: &Visit<'_>) -> Answer {
    let change = async {
        let (factors, user) = (&visit.server.factors, visit.user());
        factors.end_codes(user, async |bytes| visit.server.log_in.keep_factors(bytes).await).await?;
        Ok(Note::done(match factors.has(user) {
            true => "The codes have ended. Your passkeys stay.",
            false => "Your second factor has ended: the password alone lets you in.",
        }))
    };
    visit.back(Local::of("/me"), change.await)
}

/// The owner demands a second factor of everybody, or no longer.
pub async fn demand(visit: &Visit<'_>) -> Answer {
    let change = async {
        let is_demanded = visit.form.is_checked("demanded");
        let factors = &visit.server.factors;
        // `edit.only_changes_sent`
        if is_demanded == edit::shown::<bool>(&visit.form)? {
            return Ok(Note::done("Nothing was changed."));
        }
        if is_demanded && !factors.has(visit.user()) {
            let failure = Failure::invalid("nothing was changed: you have no second factor yourself");
            return Err(failure.action("Set up your own first, on the page of your account"));
        }
        factors.demand(is_demanded, async |bytes| visit.server.log_in.keep_factors(bytes).await).await?;
        let text = match is_demanded {
            true => "Everybody needs a second factor from now on, and is asked to set one up.",
            false => "A second factor is everybody's own choice.",
        };
        Ok(Note::done(text))
    };
    visit.back(Local::of("/people"), change.await)
}

/// The owner ends the factor of somebody whose telephone is lost.
pub async fn end_of(visit: &Visit<'_>) -> Answer {
    let change = async {
        let user = visit.required("user", "the user")?;
        somebody_else(visit, &user)?;
        visit.typed(&user)?;
        let factors = &visit.server.factors;
        if !factors.has(&user) {
            return Err(Failure::not_found(format!("{user} has no second factor")));
        }
        factors.end(&user, async |bytes| visit.server.log_in.keep_factors(bytes).await).await?;
        Ok(Note::done(format!("The second factor of {user} has ended.")))
    };
    visit.back(Local::of("/people"), change.await)
}

/// For the page: how long the form for a code is good.
pub fn minutes() -> u64 {
    PENDING_FOR.as_secs() / 60
}
