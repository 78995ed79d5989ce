//! Passkeys: added, named and removed by their user; a second factor after the password, or the whole log-in where the authenticator
//! knows its person.

use askama::Template;
use hyper::StatusCode;
use larder_api::Failure;
use serde_json::json;

use super::factor::{self, RecoveryPage};
use super::log_in;
use super::passkey_question::{ADD, FIRST, SECOND, listed, millis};
use crate::factor::Passkey;
use crate::note::Note;
use crate::passkey::{self, ALGORITHMS, Party};
use crate::ticket::{GOOD_FOR, Ticket, Tickets};
use crate::visit::{Answer, Frame, Local, Outcome, Visit, page as show, rendered};

const NAME_CHARS_MAX: usize = 60;

struct Answered {
    party: Party,
    client: Vec<u8>,
    challenge: String,
    ticket: Ticket,
}

fn refused(text: &str) -> Failure {
    Failure::denied(text.to_owned())
}

/// The answer to a question that was asked of this browser for one of `purposes`, and for which one.
fn answered(visit: &Visit<'_>, purposes: &[&'static str]) -> Result<(Answered, &'static str), Failure> {
    let party = visit.server.party(&visit.host);
    let party = party.ok_or_else(|| refused("passkeys are for the name of this box, not for its address"))?;
    let client = passkey::field(visit.form.text("client")).unwrap_or_default();
    let challenge = passkey::challenge_of(&client).ok_or_else(|| refused("the browser's answer is damaged"))?;
    let token = visit.token.as_deref().unwrap_or_default();
    let found = purposes.iter().find_map(|purpose| {
        visit.server.tickets.check(&challenge, purpose, token, visit.now()).map(|ticket| (ticket, *purpose))
    });
    let (ticket, purpose) = found.ok_or_else(|| refused("the question was answered already, or too late"))?;
    Ok((Answered { party, client, challenge, ticket }, purpose))
}

/// The user behind a signature that is right. It counts once that is on disk.
async fn signed(visit: &Visit<'_>, answer: &Answered, is_first: bool) -> Result<String, Failure> {
    let field = |name: &str| passkey::field(visit.form.text(name)).unwrap_or_default();
    let factors = &visit.server.factors;
    let found = factors.passkey(visit.form.text("id"), &answer.party.id);
    let (user, known) = found.ok_or_else(|| refused("this passkey is not known here"))?;
    // WebAuthn 7.2 step 6.
    let handle = visit.form.text("handle");
    let is_gone = visit.server.log_in.standing(&user).is_none_or(|standing| standing.uid != known.uid);
    let is_other = is_gone || (is_first || !handle.is_empty()) && handle != known.handle;
    if is_other || (!is_first && user != answer.ticket.text) {
        return Err(refused("this passkey is of another user"));
    }
    let parts = (answer.client.as_slice(), field("data"), field("signature"));
    let key = passkey::field(&known.key).unwrap_or_default();
    let found = passkey::signed((parts.0, &parts.1, &parts.2), &key, &answer.challenge, &answer.party, is_first);
    let found = found.map_err(refused)?;
    // `tickets.once`
    if !visit.server.tickets.use_up(&answer.ticket, visit.peer.addr, visit.now()) {
        return Err(refused("the question was answered already"));
    }
    let now = (found.count, visit.server.clock.now().secs);
    let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
    factors.passkey_signed(&user, &known.id, now, keep).await?;
    Ok(user)
}

/// Logs in by a passkey: after the password, or instead of it.
pub async fn enter(visit: &Visit<'_>) -> Answer {
    let next = Local::after_log_in(visit.form.text("next"));
    if visit.server.factors.is_damaged() {
        // `factors.damage_opens_nothing`
        return Ok(Outcome::Go(Local::of("/login")));
    }
    let token = visit.token.clone().unwrap_or_default();
    let waiting = visit.server.factors.waits(&token, visit.now());
    let entered = async {
        let (answer, purpose) = answered(visit, &[FIRST, SECOND])?;
        let is_first = purpose == FIRST;
        let user = signed(visit, &answer, is_first).await?;
        let standing = visit.server.log_in.standing(&user).ok_or_else(|| refused("there is no such user any more"))?;
        let is_second = waiting.as_ref().is_some_and(|one| *one == (user.clone(), standing.generation));
        if !is_first && !is_second {
            return Err(refused("the password was given too long ago"));
        }
        Ok((user, standing, is_first))
    };
    match entered.await {
        Ok((user, standing, is_first)) => {
            let subject = visit.server.factors.came(&token).filter(|_| !is_first);
            factor::bind(visit, (&user, standing.uid), subject).await?;
            // The password before a second factor was recorded.
            if is_first {
                visit.server.log_in.entered(&user, visit.peer.addr, "passkey");
            }
            factor::begin_session(visit, &user, standing.generation, next)
        }
        Err(failure) => {
            let note = Note::from(Failure { message: format!("{}.", failure.message), ..failure });
            match waiting {
                Some(_) => factor::ask(visit, StatusCode::UNAUTHORIZED, &next, token, Some(note)),
                None => log_in::again(visit, StatusCode::UNAUTHORIZED, next, "", Some(note)),
            }
        }
    }
}

fn name(visit: &Visit<'_>) -> Result<String, Failure> {
    let name = visit.required("name", "the name of the passkey")?;
    match name.chars().count() <= NAME_CHARS_MAX && !name.contains(char::is_control) {
        true => Ok(name),
        false => Err(Failure::invalid(format!("a name is one line of {NAME_CHARS_MAX} characters at most"))),
    }
}

#[derive(Template)]
#[template(path = "passkey.html")]
struct PasskeyPage {
    frame: Frame,
    name: String,
    question: String,
}

/// Asks the browser to make one. An open browser alone gives nobody a passkey (`browsers.password_again`).
pub async fn begin(visit: &Visit<'_>) -> Answer {
    let asked = async {
        let name = name(visit)?;
        let party = visit.server.party(&visit.host);
        let party = party.ok_or_else(|| {
            Failure::invalid("browsers keep passkeys for names alone").action("Open the page by the name of the box")
        })?;
        let token = visit.token.as_deref().unwrap_or_default();
        let challenge = visit.server.tickets.draw(ADD, token, visit.user(), visit.now());
        let own = visit.server.factors.passkeys(visit.user());
        let handle = handle(visit, &Tickets::nonce_of(&challenge));
        let algorithms: Vec<_> = ALGORITHMS.iter().map(|alg| json!({"type": "public-key", "alg": alg})).collect();
        let question = json!({
            "challenge": challenge, "rp": {"id": party.id, "name": "larder"},
            "user": {"id": handle, "name": visit.user(), "displayName": visit.user()},
            "pubKeyCredParams": algorithms, "attestation": "none", "timeout": millis(GOOD_FOR),
            "excludeCredentials": listed(own.iter().filter(|one| one.party == party.id)),
            "authenticatorSelection": {"residentKey": "preferred", "userVerification": "preferred"},
        });
        Ok((name, question.to_string()))
    };
    match asked.await {
        Ok((name, question)) => show(&PasskeyPage { frame: visit.frame("me", "Add a passkey"), name, question }),
        Err(failure) => visit.back(Local::of("/me"), Err(failure)),
    }
}

/// Of the user's other passkeys, or drawn with the ticket.
fn handle(visit: &Visit<'_>, nonce: &[u8; 16]) -> String {
    let own = visit.server.factors.passkeys(visit.user());
    own.first().map_or_else(|| visit.server.tickets.derived("handle", nonce), |one| one.handle.clone())
}

/// Keeps the passkey that the browser made.
pub async fn add(visit: &Visit<'_>) -> Answer {
    let added = async {
        let name = name(visit)?;
        let (answer, _) = answered(visit, &[ADD])?;
        if answer.ticket.text != visit.user() {
            return Err(refused("the question was for another user"));
        }
        let attestation = passkey::field(visit.form.text("attestation")).unwrap_or_default();
        let made = passkey::made(&answer.client, &attestation, &answer.challenge, &answer.party).map_err(refused)?;
        if !visit.server.tickets.use_up(&answer.ticket, visit.peer.addr, visit.now()) {
            return Err(refused("the question was answered already"));
        }
        let standing = visit.server.log_in.standing(visit.user());
        let standing = standing.ok_or_else(|| refused("there is no such user any more"))?;
        let kept = Passkey {
            uid: standing.uid,
            id: passkey::base64(&made.id),
            key: passkey::base64(&made.key),
            handle: handle(visit, &answer.ticket.nonce),
            party: answer.party.id,
            name: name.clone(),
            count: made.count,
            made_secs: visit.server.clock.now().secs,
            used_secs: None,
        };
        let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
        let codes = visit.server.factors.add_passkey(visit.user(), kept, keep).await?;
        Ok((name, codes))
    };
    match added.await {
        Ok((_, Some(codes))) => {
            // Sessions that a password alone began.
            visit.server.sessions.end_others(visit.user(), visit.session.as_ref());
            let page = RecoveryPage { frame: visit.frame("me", "Recovery codes"), codes };
            Ok(Outcome::Page(StatusCode::OK, rendered(&page)?))
        }
        Ok((name, None)) => visit.back(Local::of("/me"), Ok(Note::done(format!("The passkey {name} lets you in.")))),
        Err(failure) => visit.back(Local::of("/me"), Err(failure)),
    }
}

pub async fn rename(visit: &Visit<'_>) -> Answer {
    let change = async {
        let (id, name) = (visit.required("passkey", "the passkey")?, name(visit)?);
        let change = |one: &mut Passkey| {
            one.name.clone_from(&name);
            false
        };
        let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
        visit.server.factors.change_passkey(visit.user(), &id, change, keep).await?;
        Ok(Note::done(format!("The passkey is called {name}.")))
    };
    visit.back(Local::of("/me"), change.await)
}

pub async fn remove(visit: &Visit<'_>) -> Answer {
    let change = async {
        let id = visit.required("passkey", "the passkey")?;
        let keep = async |bytes| visit.server.log_in.keep_factors(bytes).await;
        visit.server.factors.change_passkey(visit.user(), &id, |_| true, keep).await?;
        Ok(Note::done(match visit.server.factors.has(visit.user()) {
            true => "The passkey opens nothing any more.",
            false => "The passkey opens nothing any more: the password alone lets you in.",
        }))
    };
    visit.back(Local::of("/me"), change.await)
}
