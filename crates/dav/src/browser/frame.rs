//! What the pages about stored files have in common: crumbs, the menu of the user, failures.

use hyper::Response;
use hyper::StatusCode;

use super::super::context::Body;
use super::super::fail::Fail;
use super::super::path::name;
use super::html::{OWN, Page, escaped, icon, shown};
use super::sessions::Session;
use super::visit::Visit;

pub fn crumbs(visit: &Visit) -> String {
    let mut out = "<nav class=\"crumbs\" aria-label=\"Path\"><ol>".to_owned();
    let mut trail = visit.trail(visit.path());
    trail.insert(0, visit.top());
    let last = trail.len() - 1;
    for (at, path) in trail.iter().enumerate() {
        let text = if at == 0 { shown(&visit.top_name()) } else { shown(name(path)) };
        if at == last {
            out.push_str(&format!("<li><span aria-current=\"page\"><bdi>{text}</bdi></span></li>"));
        } else {
            out.push_str(&format!("<li><a href=\"{}\"><bdi>{text}</bdi></a></li>", visit.href(path, true)));
        }
    }
    out.push_str("</ol></nav>");
    out
}

/// What the guest puts around each page of its sessions: one frame for its pages and these.
#[derive(Default)]
pub struct Around {
    /// The navigation; empty without a guest.
    pub bar: String,
    pub theme: &'static str,
}

pub fn around(name: &str, session: Option<&Session>) -> Around {
    let Some(Session { csrf, guest: Some(guest), .. }) = session else { return Around::default() };
    let mut bar = "<nav aria-label=\"Main\"><ul>".to_owned();
    for place in &guest.places {
        let current = if place.is_files { " aria-current=\"page\"" } else { "" };
        bar.push_str(&format!("<li><a href=\"{}\"{current}>{}</a></li>", place.href, place.name));
    }
    bar.push_str(&format!(
        "</ul></nav><form method=\"post\" action=\"{}\" class=\"out\"><input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">\
         <button>Log out <span class=\"who\">{}</span></button></form>",
        guest.log_out,
        escaped(name),
    ));
    Around { bar, theme: guest.theme }
}

pub fn around_of(visit: &Visit) -> Around {
    match visit.link {
        Some(_) => Around::default(),
        None => around(&visit.context.user.name, visit.session.as_ref()),
    }
}

/// The menu of a user who has a session. The guest's frame has what it says but for the links.
pub fn user_menu(name: &str, session: Option<&Session>) -> String {
    let Some(Session { csrf, guest, .. }) = session else { return String::new() };
    if guest.is_some() {
        return format!("<a class=\"button\" href=\"{OWN}links\">{} My links</a>", icon("link"));
    }
    format!(
        "<details class=\"menu user\"><summary aria-label=\"Menu of {0}\"><span class=\"face\" aria-hidden=\"true\">{1}</span>\
         </summary><div class=\"sheet\"><p class=\"who\">{0}</p><a href=\"{OWN}links\">{2} My links</a>\
         <form method=\"post\" action=\"{OWN}logout\"><input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">\
         <button>{3} Log out</button></form></div></details>",
        escaped(name),
        escaped(&name.chars().next().unwrap_or('?').to_uppercase().to_string()),
        icon("link"),
        icon("out"),
    )
}

pub fn tools(visit: &Visit) -> String {
    match visit.link {
        Some(_) => String::new(),
        None => user_menu(&visit.context.user.name, visit.session.as_ref()),
    }
}

/// A page that says why there is none.
pub fn failure(fail: &Fail, user: Option<(&str, Option<&Session>)>, is_head: bool) -> Response<Body> {
    let (menu, around) = user.map(|(name, own)| (user_menu(name, own), around(name, own))).unwrap_or_default();
    let title = match fail.status {
        StatusCode::NOT_FOUND => "Nothing is here",
        StatusCode::FORBIDDEN => "You may not see this",
        StatusCode::BAD_REQUEST => "This address is not right",
        StatusCode::TOO_MANY_REQUESTS => "Too many wrong passwords",
        _ => "It did not work",
    };
    let mut text = fail.text.to_string();
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    Page {
        status: fail.status,
        title: title.to_owned(),
        tools: menu,
        around,
        main: format!(
            "<div class=\"card centred\"><h1>{title}</h1><p>{}.</p><p><a class=\"button\" href=\"/\">All shares</a></p></div>",
            escaped(text.trim_end_matches('.'))
        ),
        class: "plain",
        ..Page::default()
    }
    .respond(is_head)
}
