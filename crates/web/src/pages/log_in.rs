//! Coming in and going out.

use askama::Template;
use hyper::StatusCode;
use larder_api::Failure;
use larder_base::hex;

use super::{factor, passkey_question};
use crate::asset as assets;
use crate::login::Refusal;
use crate::note::Note;
use crate::session::secret;
use crate::text::duration;
use crate::visit::{Answer, Frame, Local, Outcome, UNSENT_FIELD, Visit, rendered};

/// Digits of a token.
const TOKEN_DIGITS: usize = 64;

#[derive(Template)]
#[template(path = "log_in.html")]
pub struct LogInPage {
    pub frame: Frame,
    /// The address that the form is sent to.
    pub action: &'static str,
    /// The field of the page to go to afterwards, and that page.
    pub next: (&'static str, String),
    pub name: String,
    pub refusal: Option<Note>,
    /// The question to passkeys.
    pub passkey: Option<String>,
    /// What the issuer is called, and the way there.
    pub issuer: Option<(String, String)>,
}

pub async fn asset(visit: &Visit<'_>) -> Answer {
    let found = assets::find(&visit.param).ok_or_else(|| Failure::not_found("there is no such part of the page"))?;
    Ok(Outcome::Asset(found))
}

pub async fn form(visit: &Visit<'_>) -> Answer {
    let next = Local::after_log_in(visit.query.text("next"));
    if visit.session.is_some() {
        // The files are shut to somebody who owes a second factor: the way there would lead back
        // here.
        let owes = visit.server.factors.owes(visit.user());
        return Ok(Outcome::Go(if owes { Local::of("/me") } else { next }));
    }
    let unsent = visit.query.is_checked(UNSENT_FIELD).then(|| {
        Note::fault("Your session had ended before the form was sent: nothing was done. Log in, then send it again.")
    });
    again(visit, StatusCode::OK, next, "", unsent)
}

pub async fn enter(visit: &Visit<'_>) -> Answer {
    let next = Local::after_log_in(visit.form.text("next"));
    if visit.server.factors.is_damaged() {
        // `factors.damage_opens_nothing`
        let text = "Nobody logs in: the second factors cannot be read. Restore the file page_factors of the data folder, or \
                    remove it, so that nobody has one; then start larder again.";
        return again(visit, StatusCode::SERVICE_UNAVAILABLE, next, "", Some(Note::fault(text)));
    }
    let (name, password) = (visit.form.text("name"), visit.form.get("password").unwrap_or_default());
    match visit.server.log_in.check(name.to_owned(), password.to_owned(), visit.peer.addr).await {
        Ok(standing) => factor::after_first(visit, (name, standing), None, next).await,
        Err(refusal) => {
            let (status, text) = told(refusal);
            again(visit, status, next, name, Some(Note::fault(text)))
        }
    }
}

/// Why a password lets nobody in.
pub fn told(refusal: Refusal) -> (StatusCode, String) {
    match refusal {
        Refusal::Wrong => (StatusCode::UNAUTHORIZED, "The name or the password is wrong.".to_owned()),
        Refusal::Wait(time) => {
            let text = format!("Too many wrong passwords. Try again in {}.", duration(time.as_secs().max(1)));
            (StatusCode::TOO_MANY_REQUESTS, text)
        }
        Refusal::Unavailable(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("The password could not be checked: {why}"))
        }
    }
}

pub async fn leave(visit: &Visit<'_>) -> Answer {
    if let Some(session) = &visit.session {
        visit.server.sessions.end(session);
    }
    Ok(Outcome::GoAs(Local::of("/login"), String::new()))
}

/// The browser's token, or a new one: it opens nothing, and forms and tickets are bound to it.
pub fn token_before(visit: &Visit<'_>) -> String {
    let is_token = |token: &&String| token.len() == TOKEN_DIGITS && hex::decode(token).is_some();
    visit.token.as_ref().filter(is_token).cloned().unwrap_or_else(|| hex::encode(&secret::<32>()))
}

/// The form, bound to a token that is no session.
pub fn again(visit: &Visit<'_>, status: StatusCode, next: Local, name: &str, refusal: Option<Note>) -> Answer {
    let token = token_before(visit);
    let mut frame = visit.frame("", "Log in");
    frame.csrf = visit.server.sessions.csrf_before_log_in(&token);
    let page = LogInPage {
        frame,
        passkey: passkey_question::first_question(visit, &token),
        issuer: visit.server.issuer.as_ref().map(|issuer| (issuer.label().to_owned(), issuer_href(&next))),
        action: "/+/login",
        next: ("next", next.path().to_owned()),
        name: name.to_owned(),
        refusal,
    };
    Ok(Outcome::Form(status, rendered(&page)?, token))
}

fn issuer_href(next: &Local) -> String {
    Local::with("/login/issuer", "next", next.path()).path().to_owned()
}
