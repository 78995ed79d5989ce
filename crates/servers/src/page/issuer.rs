//! The way to an issuer of OpenID Connect: HTTPS with the machine's authorities, bounded in time and bytes, without redirections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use larder_base::task;
use larder_web::{ANSWER_BYTES_MAX, Fetch, Issuer, is_issuer_address};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};

use larder_config::OidcConfig;

/// A person waits for it.
const TIME_MAX: Duration = Duration::from_secs(10);
const SECRET_BYTES_MAX: u64 = 4096;

struct Https {
    secret_file: Option<PathBuf>,
}

pub(super) fn of(config: &OidcConfig) -> Issuer {
    Issuer::new(config.options.clone(), Arc::new(Https { secret_file: config.secret_file.clone() }))
}

fn plain(error: reqwest::Error) -> String {
    match () {
        () if error.is_timeout() => format!("no answer within {} s", TIME_MAX.as_secs()),
        () if error.is_connect() => "it cannot be reached".to_owned(),
        () => error.without_url().to_string(),
    }
}

fn client() -> Result<Client, String> {
    let builder = Client::builder()
        .redirect(Policy::none())
        .timeout(TIME_MAX)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(plain)
}

async fn sent(request: RequestBuilder) -> Result<Bytes, String> {
    let mut answer = request.header("accept", "application/json").send().await.map_err(plain)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("it answered {status}"));
    }
    let mut all = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(plain)? {
        if all.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err("its answer is too long".to_owned());
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// `oidc.https_alone`
fn checked(url: &str) -> Result<(), String> {
    is_issuer_address(url).then_some(()).ok_or_else(|| "its address is not https://".to_owned())
}

impl Fetch for Https {
    fn get(&self, url: String, bearer: Option<String>) -> BoxFuture<'_, Result<Bytes, String>> {
        Box::pin(async move {
            checked(&url)?;
            let request = client()?.get(url);
            sent(match bearer {
                Some(token) => request.bearer_auth(token),
                None => request,
            })
            .await
        })
    }

    fn post(&self, url: String, form: String, basic: Option<(String, String)>) -> BoxFuture<'_, Result<Bytes, String>> {
        Box::pin(async move {
            checked(&url)?;
            let request = client()?.post(url).header("content-type", "application/x-www-form-urlencoded").body(form);
            sent(match basic {
                Some((name, secret)) => request.basic_auth(name, Some(secret)),
                None => request,
            })
            .await
        })
    }

    /// Read each time: a secret that is replaced needs no start.
    fn client_secret(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async move {
            let Some(file) = self.secret_file.clone() else { return Ok(None) };
            let read = task::blocking(move || {
                use std::io::Read;
                let mut text = String::new();
                let found =
                    std::fs::File::open(&file).and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text));
                found.map_err(|e| format!("the secret in {} cannot be read: {e}", file.display()))?;
                let text = text.trim().to_owned();
                let is_fit = !text.is_empty() && !text.contains(char::is_control);
                is_fit.then_some(text).ok_or_else(|| format!("{} has no secret of one line", file.display()))
            });
            read.await.map_err(|e| e.to_string())?.map(Some)
        })
    }
}
