//! Pages about links: to make one, those of a user, and the door of one that has a password.

use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use larder_base::Timestamp;
use larder_fs::FileKind;
use larder_people::PasswordHash;

use super::super::conditions::text;
use super::super::context::{Answer, Body, Context};
use super::super::fail::Fail;
use super::super::path::{href, name};
use super::form::Form;
use super::frame::{around, around_of, crumbs, tools, user_menu};
use super::html::{OWN, Page, escaped, icon, shown, time};
use super::links::{DAYS_MAX, Link, Which, now};
use super::sessions::Session;
use super::visit::Visit;
use larder_doors::tree::Spot;

/// Where links begin. No share has such a name.
pub const LINK: &str = "/.link/";
const DAY_SECS: i64 = 24 * 3600;
const TERMS: [(i64, &str); 5] = [(1, "1 day"), (7, "7 days"), (30, "30 days"), (90, "90 days"), (DAYS_MAX, "1 year")];
const PASSWORD_BYTES_MAX: usize = 1024;

/// The form that makes a link, or, with `made`, the link.
pub fn share(visit: &Visit, is_folder: bool, made: Option<(&str, i64)>) -> Response<Body> {
    let what = shown(name(visit.path()));
    let back = format!("{}{}", visit.href(visit.path(), is_folder), if is_folder { "" } else { "?view" });
    let mut main = format!("<div class=\"card\"><h1>{} Share “<bdi>{what}</bdi>”</h1>", icon("link"));
    match made {
        Some((url, until)) => main.push_str(&format!(
            "<p>Everybody who has this link can read it until {}. It is shown only now.</p>\
             <label class=\"field\">Link<input id=\"made-link\" class=\"wide\" readonly value=\"{}\"></label>\
             <p class=\"row\"><button class=\"button primary js\" id=\"copy-link\" hidden>Copy link</button>\
             <a class=\"button\" href=\"{OWN}links\">My links</a></p>",
            time(Timestamp::new(until, 0)),
            escaped(url)
        )),
        None => {
            let terms: String = TERMS
                .iter()
                .map(|(days, word)| {
                    let selected = if *days == 7 { " selected" } else { "" };
                    format!("<option value=\"{days}\"{selected}>{word}</option>")
                })
                .collect();
            main.push_str(&format!(
                "<p class=\"dim\">Everybody who has the link can read this, and change nothing. It shows what you may read \
                 yourself, and ends when you lose that right.</p>\
                 <form method=\"post\" action=\"?share\"><input type=\"hidden\" name=\"csrf\" value=\"{}\">\
                 <label class=\"field\">Ends after<select name=\"days\">{terms}</select></label>\
                 <label class=\"field\">Password (optional)\
                 <input type=\"password\" name=\"password\" autocomplete=\"new-password\" maxlength=\"200\"></label>\
                 <p class=\"row\"><button class=\"button primary\">Make a link</button>\
                 <a class=\"button\" href=\"{back}\">Cancel</a></p></form>",
                visit.csrf()
            ));
        }
    }
    main.push_str("</div>");
    Page {
        title: "Share".to_owned(),
        head: crumbs(visit),
        tools: tools(visit),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        ..Page::default()
    }
    .respond(visit.is_head())
}

pub async fn make(visit: &Visit, form: &Form, secure: bool) -> Answer {
    const BAD: Fail = Fail::bad_request("a link lasts 1 to 365 days");
    // What cannot be read cannot be shared.
    if visit.context.place.is_top() {
        return Err(Fail::forbidden("the list of shares has no link: share one of them"));
    }
    let spot = visit.find().await?;
    let is_folder = matches!(spot, Spot::In(_, attr) if attr.kind == FileKind::Directory);
    let days: i64 = form.text("days").and_then(|days| days.parse().ok()).ok_or(BAD)?;
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(BAD);
    }
    let password = match form.text("password").unwrap_or_default() {
        "" => None,
        long if long.len() > PASSWORD_BYTES_MAX => return Err(Fail::bad_request("the password is too long")),
        text => {
            let text = text.to_owned();
            let hashed = tokio::task::spawn_blocking(move || PasswordHash::new(&text)).await;
            let failed = Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the password could not be hashed");
            Some(hashed.ok().and_then(Result::ok).ok_or(failed)?)
        }
    };
    let (user, until) = (&visit.context.user.name, now() + days * DAY_SECS);
    let maker = (user.as_str(), visit.context.user.uid);
    let token = visit.context.shared.links.make(maker, visit.path(), until, password).await?;
    tracing::info!("WebDAV: '{user}' made a link to '{}' for {days} days", visit.path().escape_ascii());
    let url = format!("{}{LINK}{token}", origin(&visit.context.headers, secure));
    Ok(share(visit, is_folder, Some((&url, until))))
}

/// What the browser calls this server.
fn origin(headers: &HeaderMap, secure: bool) -> String {
    let host = text(headers, header::HOST).unwrap_or_default();
    format!("http{}://{host}", if secure { "s" } else { "" })
}

/// The links of a user.
pub fn list(context: &Context, session: Option<&Session>) -> Response<Body> {
    let csrf = session.map(|session| session.csrf.clone()).unwrap_or_default();
    let links = context.shared.links.of_user(&context.user.name);
    let mut main = "<h1 class=\"title\">My links</h1>".to_owned();
    if links.is_empty() {
        main.push_str("<p class=\"empty\">You have no links. Open a file or folder and choose Share.</p>");
    } else {
        main.push_str(
            "<table class=\"files links\"><thead><tr><th scope=\"col\" class=\"name\">Leads to</th><th scope=\"col\" class=\"time\">Ends\
             </th><th scope=\"col\">Password</th><th scope=\"col\"><span class=\"hidden\">Revoke</span></th></tr></thead><tbody>",
        );
        links.iter().for_each(|link| push_link(&mut main, link, &csrf));
        main.push_str("</tbody></table>");
    }
    Page {
        title: "My links".to_owned(),
        head: "<nav class=\"crumbs\" aria-label=\"Path\"><ol><li><a href=\"/?shares\">Shares</a></li>\
               <li><span aria-current=\"page\">My links</span></li></ol></nav>"
            .to_owned(),
        tools: user_menu(&context.user.name, session),
        around: around(&context.user.name, session),
        main,
        csrf,
        ..Page::default()
    }
    .respond(false)
}

fn push_link(out: &mut String, link: &Link, csrf: &str) {
    let what = shown(name(&link.path));
    let until = time(Timestamp::new(link.until, 0));
    out.push_str(&format!(
        "<tr><td class=\"name\"><a href=\"{}\">{}<span class=\"label\"><bdi>{}</bdi></span></a><span class=\"below dim\">ends {until}\
         </span></td><td class=\"time\">{until}</td><td class=\"dim\">{}</td><td>\
         <form method=\"post\" action=\"{OWN}links\"><input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">\
         <button class=\"button\" name=\"revoke\" value=\"{}\" aria-label=\"Revoke the link to {what}\">Revoke</button></form></td></tr>\n",
        href(&link.path, false),
        icon("link"),
        shown(&link.path),
        if link.password.is_some() { "yes" } else { "no" },
        link.id()
    ));
}

pub async fn revoke(context: &Context, form: &Form) -> Answer {
    let id = form.text("revoke").ok_or(Fail::bad_request("the form names no link"))?;
    context.shared.links.end(Which::Own { maker: &context.user.name, id }).await?;
    Ok(super::html::redirect(&format!("{OWN}links")))
}

/// The door of a link with a password.
pub fn door(action: &str, is_wrong: bool) -> Response<Body> {
    let wrong = if is_wrong { "<p class=\"wrong\" role=\"alert\">The password is wrong.</p>" } else { "" };
    Page {
        status: if is_wrong { StatusCode::FORBIDDEN } else { StatusCode::OK },
        title: "Password".to_owned(),
        main: format!(
            "<div class=\"card centred login\"><h1>This link has a password</h1>{wrong}\
             <form method=\"post\" action=\"{}\"><label class=\"field\">Password\
             <input type=\"password\" name=\"password\" autocomplete=\"off\" required autofocus></label>\
             <button class=\"button primary wide\">Open</button></form></div>",
            escaped(action)
        ),
        class: "plain",
        ..Page::default()
    }
    .respond(false)
}

/// The cookie of somebody who knew the password.
pub fn cookie(token: &str, prefix: &str, secure: bool) -> Option<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    HeaderValue::from_str(&format!("{COOKIE}={token}; Path={prefix}; HttpOnly; SameSite=Strict{secure}")).ok()
}

pub const COOKIE: &str = "larder_link";
