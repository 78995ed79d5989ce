//! The API over HTTPS: the endpoints of the socket below `/api`, for tokens of bounded scope.
//!
//! - `https_api.token_on_each_request`: a request carries a token of the API (RFC 6750). Cookies count for nothing here,
//!   so no page of another site asks in somebody's name.
//! - `https_api.scope_by_declaration`: what a scope opens follows from the declarations in `larder_api`: `read` has the
//!   endpoints that change nothing, `admin` all that answer once. Streams are the socket's alone.

use std::net::IpAddr;
use std::sync::LazyLock;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use larder_api::endpoint::{Declared, status_of};
use larder_api::{ApiScope, Failure};
use larder_base::passed;
use larder_dav::GuestBody;
use serde_json::json;

use super::in_process::InProcess;
use super::{full, guarded};
use crate::remote::Remote;
use larder_document::entitled::{Entitled, Grant};

/// Of each path of it.
pub(super) const ROOT: &str = "/api";
const SCHEMA: &str = "/openapi.json";

static ENDPOINTS: LazyLock<Vec<Declared>> = LazyLock::new(larder_api::endpoints::of_socket);

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut document = larder_api::openapi::document();
    document["info"]["description"] =
        json!("The API of larder's daemon over HTTPS. Endpoints that stream are on its socket alone. See docs/api.md.");
    document["servers"] = json!([{ "url": ROOT }]);
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["security"] = json!([{ "token": [] }]);
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.retain(|path, _| ENDPOINTS.iter().any(|one| one.is_over_https() && one.path.replace("{*", "{") == *path));
        for one in ENDPOINTS.iter().filter(|one| !one.is_over_https()) {
            let operations = paths.get_mut(&one.path.replace("{*", "{")).and_then(|path| path.as_object_mut());
            operations.map(|operations| operations.remove(&one.method.as_str().to_ascii_lowercase()));
        }
    }
    Bytes::from(format!("{document:#}\n"))
});

/// The token that a request carries.
pub(super) fn grant(headers: &HeaderMap, entitled: &Entitled) -> Option<Grant> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| entitled.grant(token.trim(), passed::latest()))?
}

/// `https_api.scope_by_declaration`
fn admit(grant: Option<&Grant>, method: &Method, path: &str) -> Result<(), (StatusCode, Failure)> {
    let Some(grant) = grant else {
        let failure = Failure::denied("this needs a token of the API, one that has not ended");
        let failure =
            failure.action("make one: larder token create USER --scope read; send it as: Authorization: Bearer TOKEN");
        return Err((StatusCode::UNAUTHORIZED, failure));
    };
    let found = ENDPOINTS.iter().find(|one| one.matches(method, path));
    let Some(endpoint) = found else {
        let failure = Failure::not_found(format!("there is no endpoint {method} {ROOT}{path}"));
        return Err((StatusCode::NOT_FOUND, failure.action(format!("see which there are at {ROOT}{SCHEMA}"))));
    };
    if !endpoint.is_over_https() {
        let failure = Failure::denied(format!("{} streams, and is on the daemon's socket alone", endpoint.name));
        return Err((StatusCode::FORBIDDEN, failure));
    }
    if grant.scope == ApiScope::Read && endpoint.changes() {
        let failure = Failure::denied(format!("a token of scope read changes nothing: {} may", endpoint.name));
        let failure = failure.action(format!("larder token create {} --scope admin", grant.user));
        return Err((StatusCode::FORBIDDEN, failure));
    }
    Ok(())
}

pub(super) async fn answer(
    head: Parts,
    body: Bytes,
    from: IpAddr,
    entitled: &Entitled,
    daemon: &InProcess,
) -> Response<GuestBody> {
    let path = head.uri.path().strip_prefix(ROOT).unwrap_or_default();
    if path == SCHEMA && matches!(head.method, Method::GET | Method::HEAD) {
        let document = if head.method == Method::GET { DOCUMENT.clone() } else { Bytes::new() };
        return json_answer(StatusCode::OK, document);
    }
    let grant = grant(&head.headers, entitled);
    if let Err((status, failure)) = admit(grant.as_ref(), &head.method, path) {
        return refused(status, &failure);
    }
    let asker = grant.map(|Grant { id, user, .. }| Remote { who: format!("{user} (token {id})"), from, by: "api" });
    if let Some(Remote { who, .. }) = asker.as_ref().filter(|_| head.method != Method::GET) {
        tracing::info!("API: {who} asks for {} {path}", head.method);
    }
    match daemon.ask(asker, head.method.clone(), path, body).await {
        Ok((status, kind, bytes)) => {
            let mut response = json_answer(status, bytes);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(failure) => refused(status_of(failure.kind), &failure),
    }
}

fn json_answer(status: StatusCode, bytes: Bytes) -> Response<GuestBody> {
    let mut response = guarded(Response::new(full(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(status: StatusCode, failure: &Failure) -> Response<GuestBody> {
    let mut response = json_answer(status, Bytes::from(serde_json::to_vec(failure).unwrap_or_default()));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"larder\""));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(scope: Option<ApiScope>, method: &Method, path: &str) -> StatusCode {
        let grant = scope.map(|scope| Grant { id: "1".to_owned(), user: "ann".to_owned(), scope });
        admit(grant.as_ref(), method, path).err().map_or(StatusCode::OK, |(status, _)| status)
    }

    /// Each declaration, by each scope.
    #[test]
    fn a_scope_opens_what_the_declarations_say() {
        for one in ENDPOINTS.iter() {
            let path = one.path.replace("{*name}", "tank/files").replace("{name}", "ann%20b");
            assert_eq!(status(None, &one.method, &path), StatusCode::UNAUTHORIZED);
            let expected = |is_open| if is_open { StatusCode::OK } else { StatusCode::FORBIDDEN };
            let reads = one.method == Method::GET && one.is_over_https();
            assert_eq!(status(Some(ApiScope::Read), &one.method, &path), expected(reads), "{}", one.name);
            assert_eq!(
                status(Some(ApiScope::Admin), &one.method, &path),
                expected(one.is_over_https()),
                "{}",
                one.name
            );
        }
        let read = |method: &Method, path: &str| status(Some(ApiScope::Read), method, path);
        assert_eq!(read(&Method::GET, "/v1/pools"), StatusCode::OK);
        assert_eq!(read(&Method::DELETE, "/v1/users/ann"), StatusCode::FORBIDDEN);
        for path in ["/v1/nothing", "", "/", "/v1/users/", "/v1/pools//scrub", "/v1//info", "/v1/info/"] {
            assert_eq!(read(&Method::GET, path), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn the_schema_has_what_is_served() {
        let document: serde_json::Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert!(
            paths.contains_key("/v1/info") && !paths.contains_key("/v1/send/{name}") && !paths.contains_key("/v1/pair")
        );
        let receive = paths["/v1/receive/{name}"].as_object().unwrap();
        assert!(receive.contains_key("get") && !receive.contains_key("post"));
    }
}
