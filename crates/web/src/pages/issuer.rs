//! Logging in by an issuer of OpenID Connect: to it, and back.
//!
//! The issuer's redirection is a request of another site, to which a browser adds no cookie of ours (`SameSite=Strict`). So [`back`] looks
//! at nothing, and leads to [`finish`] from a page of this site. Who comes for the first time goes on to [`first`].

use askama::Template;
use hyper::StatusCode;
use larder_api::Failure;
use serde::{Deserialize, Serialize};

use super::{factor, log_in};
use crate::form::encoded;
use crate::login::Standing;
use crate::note::Note;
use crate::oidc::{Bound, Issuer, Person, Trouble};
use crate::ticket::Tickets;
use crate::visit::{Answer, Frame, Local, Outcome, Visit, page as show, rendered};

const PURPOSE: &str = "issuer";
const FIRST: &str = "issuer first";
const NONCE: &str = "issuer nonce";
const PROOF: &str = "issuer proof";

fn redirect_address(visit: &Visit<'_>) -> String {
    let scheme = if visit.server.options.is_secure { "https" } else { "http" };
    format!("{scheme}://{}{}", visit.host, Local::of("/login/back").path())
}

fn refused(visit: &Visit<'_>, issuer: &Issuer, next: Local, trouble: &Trouble) -> Answer {
    let label = issuer.label();
    let (status, text) = match trouble {
        Trouble::Away(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{label} does not answer as it should: {why}. Your password here works."),
        ),
        Trouble::Refused(why) => (StatusCode::UNAUTHORIZED, format!("{label} did not let you in: {why}.")),
        Trouble::KeyUnknown => (StatusCode::UNAUTHORIZED, format!("{label} signed with an unknown key.")),
    };
    log_in::again(visit, status, next, "", Some(Note::fault(text)))
}

fn without(visit: &Visit<'_>, next: Local) -> Answer {
    let text = "This box knows no issuer of log-ins.";
    log_in::again(visit, StatusCode::NOT_FOUND, next, "", Some(Note::fault(text)))
}

/// Sends the browser to the issuer.
pub async fn begin(visit: &Visit<'_>) -> Answer {
    let next = Local::after_log_in(visit.query.text("next"));
    let Some(issuer) = &visit.server.issuer else { return without(visit, next) };
    let token = log_in::token_before(visit);
    let state = visit.server.tickets.draw(PURPOSE, &token, next.path(), visit.now());
    let ticket = Tickets::nonce_of(&state);
    let (nonce, proof) = (visit.server.tickets.derived(NONCE, &ticket), visit.server.tickets.derived(PROOF, &ticket));
    let redirect = redirect_address(visit);
    let bound = Bound { redirect: &redirect, state: &state, nonce: &nonce, proof: &proof };
    match issuer.way(&bound, visit.now()).await {
        Ok(way) => Ok(Outcome::Away(way, token)),
        Err(trouble) => refused(visit, issuer, next, &trouble),
    }
}

#[derive(Template)]
#[template(path = "issuer.html")]
struct BackPage {
    frame: Frame,
    href: String,
}

pub async fn back(visit: &Visit<'_>) -> Answer {
    let fields = ["code", "state", "error"].map(|name| format!("{name}={}", encoded(visit.query.text(name))));
    let href = format!("{}?{}", Local::of("/login/finish").path(), fields.join("&"));
    show(&BackPage { frame: visit.frame("", "Log in"), href })
}

/// Lets the person in whom the issuer's code is for.
pub async fn finish(visit: &Visit<'_>) -> Answer {
    let none = || Local::of("/");
    let Some(issuer) = &visit.server.issuer else { return without(visit, none()) };
    let (token, given) = (visit.token.as_deref().unwrap_or_default(), visit.query.text("state"));
    let tickets = &visit.server.tickets;
    // `tickets.bound`
    let Some(ticket) = tickets.check(given, PURPOSE, token, visit.now()) else { return over(visit) };
    let next = Local::after_log_in(&ticket.text);
    if visit.server.factors.is_damaged() {
        // `factors.damage_opens_nothing`
        return Ok(Outcome::Go(Local::of("/login")));
    }
    let code = visit.query.text("code");
    if code.is_empty() {
        // Core 3.1.2.6. The word is of a stranger: it is not shown.
        let trouble = Trouble::Refused("it gave no code".to_owned());
        return refused(visit, issuer, next, &trouble);
    }
    let (nonce, proof) = (tickets.derived(NONCE, &ticket.nonce), tickets.derived(PROOF, &ticket.nonce));
    let redirect = redirect_address(visit);
    let bound = Bound { redirect: &redirect, state: given, nonce: &nonce, proof: &proof };
    match issuer.person(code, &bound, visit.now(), visit.server.clock.now().secs).await {
        // `tickets.once`
        Ok(_) if !tickets.use_up(&ticket, visit.peer.addr, visit.now()) => over(visit),
        Ok(person) => came(visit, issuer, person, next).await,
        Err(trouble) => refused(visit, issuer, next, &trouble),
    }
}

fn over(visit: &Visit<'_>) -> Answer {
    let text = "This log-in was begun in another browser, is too old, or is over already. Begin again.";
    log_in::again(visit, StatusCode::UNAUTHORIZED, Local::of("/"), "", Some(Note::fault(text)))
}

/// `oidc.known_here`, `oidc.bound_once`
async fn came(visit: &Visit<'_>, issuer: &Issuer, person: Person, next: Local) -> Answer {
    let standing = |user: &str| visit.server.log_in.standing(user);
    let bound = visit.server.factors.issued(&person.subject);
    let bound = bound.and_then(|(user, uid)| Some((standing(&user).filter(|now| now.uid == uid)?, user)));
    let (user, label) = (person.user.clone(), issuer.label());
    let (standing, user) = match bound {
        Some(found) => found,
        None => match standing(&user) {
            None => return refused(visit, issuer, next, &Trouble::Refused(format!("there is no user {user} here"))),
            // They are the user whom the claim names, who is never another.
            Some(standing) if issuer.names_by_subject() => (standing, user),
            Some(standing) => return comes_first(visit, issuer, (standing, person), next),
        },
    };
    visit.server.log_in.entered(&user, visit.peer.addr, label);
    factor::after_first(visit, (&user, standing), None, next).await
}

/// Somebody who is bound to no user comes by the name of one.
fn comes_first(visit: &Visit<'_>, issuer: &Issuer, (standing, person): (Standing, Person), next: Local) -> Answer {
    let (user, label) = (&person.user, issuer.label());
    let why = match visit.server.factors.knows(user, standing.uid) {
        true => {
            format!("{user} is somebody else at {label}. An owner of this box can end that, on the page of its people")
        }
        false if !standing.has_password => format!(
            "{user} never came from {label} before, and has no password here to show that it is the same person. An owner \
             of this box can give {user} one"
        ),
        false => {
            let first = First { person, next: next.path().to_owned() };
            let text = serde_json::to_string(&first).map_err(|e| Failure::internal(e.to_string()))?;
            let token = log_in::token_before(visit);
            let ticket = visit.server.tickets.draw(FIRST, &token, &text, visit.now());
            return ask(visit, StatusCode::OK, (&first, ticket), None);
        }
    };
    refused(visit, issuer, next, &Trouble::Refused(why))
}

/// Somebody who comes for the first time, as a ticket carries it.
#[derive(Serialize, Deserialize)]
struct First {
    person: Person,
    next: String,
}

#[derive(Template)]
#[template(path = "issued.html")]
struct FirstPage {
    frame: Frame,
    label: String,
    user: String,
    ticket: String,
    refusal: Option<Note>,
}

fn ask(visit: &Visit<'_>, status: StatusCode, (first, ticket): (&First, String), refusal: Option<Note>) -> Answer {
    let Some(issuer) = &visit.server.issuer else { return without(visit, Local::of("/")) };
    let token = log_in::token_before(visit);
    let mut frame = visit.frame("", "Log in");
    frame.csrf = visit.server.sessions.csrf_before_log_in(&token);
    let (label, user) = (issuer.label().to_owned(), first.person.user.clone());
    Ok(Outcome::Form(status, rendered(&FirstPage { frame, label, user, ticket, refusal })?, token))
}

/// The password of somebody whom the issuer showed (`oidc.bound_once`).
pub async fn first(visit: &Visit<'_>) -> Answer {
    let (token, given) = (visit.token.as_deref().unwrap_or_default(), visit.form.text("ticket"));
    let tickets = &visit.server.tickets;
    let ticket = tickets.check(given, FIRST, token, visit.now());
    let first = ticket.as_ref().and_then(|ticket| serde_json::from_str::<First>(&ticket.text).ok());
    let (Some(ticket), Some(first)) = (ticket, first) else { return over(visit) };
    if visit.server.factors.is_damaged() {
        // `factors.damage_opens_nothing`
        return Ok(Outcome::Go(Local::of("/login")));
    }
    let (user, password) = (first.person.user.clone(), visit.form.get("password").unwrap_or_default().to_owned());
    match visit.server.log_in.check(user.clone(), password, visit.peer.addr).await {
        // `tickets.once`
        Ok(_) if !tickets.use_up(&ticket, visit.peer.addr, visit.now()) => over(visit),
        Ok(standing) => {
            let next = Local::after_log_in(&first.next);
            factor::after_first(visit, (&user, standing), Some(first.person.subject), next).await
        }
        Err(refusal) => {
            let (status, text) = log_in::told(refusal);
            ask(visit, status, (&first, given.to_owned()), Some(Note::fault(text)))
        }
    }
}

/// The owner ends who somebody is at the issuer: the next log-in by it asks for the password again.
pub async fn end_of(visit: &Visit<'_>) -> Answer {
    let change = async {
        let user = visit.required("user", "the user")?;
        let factors = &visit.server.factors;
        if !factors.is_issued(&user) {
            return Err(Failure::not_found(format!("{user} is nobody at the issuer yet")));
        }
        factors.unbind(&user, async |bytes| visit.server.log_in.keep_factors(bytes).await).await?;
        visit.server.sessions.end_others(&user, visit.session.as_ref().filter(|own| own.user == user));
        Ok(Note::done(format!("The next log-in of {user} by the issuer asks for the password here.")))
    };
    visit.back(Local::of("/people"), change.await)
}
