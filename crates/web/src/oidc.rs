//! OpenID Connect: people whom another server knows log in by it (OpenID Connect Core 1.0 and Discovery 1.0; RFC 6749, 7517, 7519, 7636).
//!
//! - `oidc.known_here`: a person needs a user here by the name that a claim gives. Nobody is created, and roles and second factors stay here.
//! - `oidc.bound_once`: names are not a person's for good (Core 5.7). Whoever comes for the first time by a claim that may be given again
//!   shows the password here, too; from then on the user is bound to (`iss`, `sub`), whatever the other claims say.
//! - `oidc.code_and_proof`: the code flow alone, with PKCE, state and nonce. Each is bound to the browser that began (`tickets.bound`) and
//!   good once.
//! - `oidc.signed`: an identity token is believed with a signature by a key of the issuer, of an algorithm with public keys. `none` and
//!   algorithms with shared keys are never.
//! - `oidc.https_alone`: the issuer and its endpoints are asked over TLS; without it on loopback alone.
//! - `oidc.bounded`: documents, tokens and keys have bounds. Documents are asked for again after [`FRESH_FOR`], keys where a token names one
//!   that is not there.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64ct::{Base64UrlUnpadded, Encoding};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::form::encoded;

/// Of a document or an answer.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
const TOKEN_BYTES_MAX: usize = 64 << 10;
const KEYS_MAX: usize = 64;
const FRESH_FOR: Duration = Duration::from_secs(600);
/// Clocks differ.
const SKEW_SECS: i64 = 60;

/// What the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// Its address, as its tokens name it.
    pub issuer: String,
    pub client_id: String,
    /// The claim that is a user's name here.
    pub user_claim: String,
    /// On the button of the log-in.
    pub label: String,
}

/// The way to the issuer.
pub trait Fetch: Send + Sync + 'static {
    /// The body of an answer with a status of success, [`ANSWER_BYTES_MAX`] at most.
    /// With an access token, where one is given (RFC 6750 2.1).
    fn get(&self, url: String, bearer: Option<String>) -> BoxFuture<'_, Result<Bytes, String>>;
    fn post(&self, url: String, form: String, basic: Option<(String, String)>) -> BoxFuture<'_, Result<Bytes, String>>;
    /// The secret of this client; `None`: a public client has none.
    fn client_secret(&self) -> BoxFuture<'_, Result<Option<String>, String>>;
}

/// Discovery 3.
#[derive(Clone, Debug, Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    /// `client_secret_basic` where nothing is said.
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// RFC 7517 4.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: String,
    x: String,
    y: String,
    n: String,
    e: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Keys {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// RFC 7515 4.1.11: extensions that a reader must know. None is known here.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: f64,
    iat: f64,
    #[serde(default)]
    nbf: Option<f64>,
    nonce: String,
    #[serde(flatten)]
    more: Facts,
}

#[derive(Serialize, Deserialize)]
struct Tokens {
    id_token: String,
    #[serde(default)]
    access_token: String,
}

/// Core 5.3.2.
#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(flatten)]
    more: Facts,
}

type Facts = serde_json::Map<String, serde_json::Value>;

/// A person as the issuer knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub iss: String,
    /// Never given to another person there (Core 8).
    pub sub: String,
}

/// Who came, and the user that the claim names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub subject: Subject,
    pub user: String,
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The issuer does not answer, or not as the standard says.
    Away(String),
    /// The issuer's answer is no log-in.
    Refused(String),
    /// A token names a key that the issuer did not have when it was asked.
    KeyUnknown,
}

fn refused(text: &str) -> Trouble {
    Trouble::Refused(text.to_owned())
}

#[derive(Default)]
struct Known {
    document: Option<(Document, Duration)>,
    keys: Option<Keys>,
}

#[derive(Clone)]
pub struct Issuer(Arc<Inner>);

struct Inner {
    options: IssuerOptions,
    fetch: Arc<dyn Fetch>,
    known: Mutex<Known>,
}

/// What one log-in is bound to.
pub struct Bound<'a> {
    pub redirect: &'a str,
    pub state: &'a str,
    pub nonce: &'a str,
    /// RFC 7636 4.1.
    pub proof: &'a str,
}

/// `oidc.https_alone`
pub fn is_issuer_address(url: &str) -> bool {
    let (is_secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        _ => return false,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_clean = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>#@".contains(&byte));
    let is_near = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    is_clean && !host.is_empty() && (is_secure || is_near)
}

fn parsed<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Trouble> {
    serde_json::from_slice(bytes).map_err(|e| Trouble::Away(format!("its {what} cannot be read: {e}")))
}

fn query(pairs: &[(&str, &str)]) -> String {
    // Fields of forms and queries, RFC 3986 2.3: everything else is written out.
    let strict = |text: &str| encoded(text).replace('/', "%2F");
    pairs.iter().map(|(name, value)| format!("{name}={}", strict(value))).collect::<Vec<_>>().join("&")
}

impl Issuer {
    pub fn new(options: IssuerOptions, fetch: Arc<dyn Fetch>) -> Self {
        Self(Arc::new(Inner { options, fetch, known: Mutex::default() }))
    }

    pub fn label(&self) -> &str {
        &self.0.options.label
    }

    /// Discovery 4.
    async fn document(&self, now: Duration) -> Result<Document, Trouble> {
        let known = self.0.known.lock().document.clone();
        if let Some((document, since)) = known
            && now.saturating_sub(since) < FRESH_FOR
        {
            return Ok(document);
        }
        let issuer = &self.0.options.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let bytes = self.0.fetch.get(url, None).await.map_err(Trouble::Away)?;
        let document: Document = parsed(&bytes, "description")?;
        // 4.3: or another server speaks for it.
        if document.issuer != *issuer {
            return Err(Trouble::Away(format!("it calls itself {}, and the configuration {issuer}", document.issuer)));
        }
        let endpoints = [&document.authorization_endpoint, &document.token_endpoint, &document.jwks_uri];
        let bad = endpoints.into_iter().chain(&document.userinfo_endpoint).find(|url| !is_issuer_address(url)).cloned();
        if let Some(bad) = bad {
            return Err(Trouble::Away(format!("its address {bad} is not https://")));
        }
        self.0.known.lock().document = Some((document.clone(), now));
        Ok(document)
    }

    async fn keys(&self, document: &Document, again: bool) -> Result<Keys, Trouble> {
        let known = self.0.known.lock().keys.clone().filter(|_| !again);
        if let Some(keys) = known {
            return Ok(keys);
        }
        let bytes = self.0.fetch.get(document.jwks_uri.clone(), None).await.map_err(Trouble::Away)?;
        let mut keys: Keys = parsed(&bytes, "keys")?;
        keys.keys.truncate(KEYS_MAX);
        self.0.known.lock().keys = Some(keys.clone());
        Ok(keys)
    }

    /// Where a browser goes to log in (Core 3.1.2.1).
    pub async fn way(&self, bound: &Bound<'_>, now: Duration) -> Result<String, Trouble> {
        let document = self.document(now).await?;
        let challenge =
            Base64UrlUnpadded::encode_string(digest::digest(&digest::SHA256, bound.proof.as_bytes()).as_ref());
        let asked = query(&[
            ("response_type", "code"),
            ("scope", "openid profile email"),
            ("client_id", &self.0.options.client_id),
            ("redirect_uri", bound.redirect),
            ("state", bound.state),
            ("nonce", bound.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let sign = if document.authorization_endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{}{sign}{asked}", document.authorization_endpoint))
    }

    /// Whether the claim that names users is given to one person for good (Core 5.7).
    pub fn names_by_subject(&self) -> bool {
        self.0.options.user_claim == "sub"
    }

    /// The person that the issuer's code is for (Core 3.1.3).
    pub async fn person(&self, code: &str, bound: &Bound<'_>, now: Duration, secs: i64) -> Result<Person, Trouble> {
        let document = self.document(now).await?;
        let secret = self.0.fetch.client_secret().await.map_err(Trouble::Away)?;
        let client = self.0.options.client_id.as_str();
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", bound.redirect),
            ("code_verifier", bound.proof),
        ];
        let methods = document.token_endpoint_auth_methods_supported.clone().unwrap_or_default();
        let has = |method: &str| methods.iter().any(|one| one == method);
        // RFC 6749 2.3.1: name and secret are encoded as fields of a form first.
        let basic = match &secret {
            Some(secret) if methods.is_empty() || has("client_secret_basic") || !has("client_secret_post") => {
                Some((query(&[("", client)]).split_off(1), query(&[("", secret)]).split_off(1)))
            }
            Some(secret) => {
                form.extend([("client_id", client), ("client_secret", secret)]);
                None
            }
            None => {
                form.push(("client_id", client));
                None
            }
        };
        let answer = self.0.fetch.post(document.token_endpoint.clone(), query(&form), basic).await;
        let tokens: Tokens = parsed(&answer.map_err(Trouble::Away)?, "answer to the code")?;
        let check = |keys: &Keys| believed(&tokens.id_token, keys, &self.0.options, bound.nonce, secs);
        let mut claims = match check(&self.keys(&document, false).await?) {
            // Keys change (Core 10.1.1).
            Err(Trouble::KeyUnknown) => match check(&self.keys(&document, true).await?) {
                Err(Trouble::KeyUnknown) => Err(refused("its token is signed by a key that it does not have")),
                outcome => outcome,
            },
            outcome => outcome,
        }?;
        self.ask_more(&document, &tokens, &mut claims).await?;
        named(claims, &self.0.options)
    }

    /// The token may have the subject alone: the rest is asked for (Core 5.3, 5.4).
    async fn ask_more(&self, document: &Document, tokens: &Tokens, claims: &mut Claims) -> Result<(), Trouble> {
        let claim = self.0.options.user_claim.as_str();
        let Some(url) = document.userinfo_endpoint.clone().filter(|_| !tokens.access_token.is_empty()) else {
            return Ok(());
        };
        if claim == "sub" || (claims.more.contains_key(claim) && (claim != "email" || is_verified(&claims.more))) {
            return Ok(());
        }
        let bytes = self.0.fetch.get(url, Some(tokens.access_token.clone())).await.map_err(Trouble::Away)?;
        let info: UserInfo = parsed(&bytes, "answer about the person")?;
        // 5.3.2: or it is about somebody else.
        if info.sub != claims.sub {
            return Err(refused("its answer about you is about somebody else"));
        }
        // An address and whether it is verified are of one source.
        claims.more = info.more;
        Ok(())
    }
}

fn decoded<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&Base64UrlUnpadded::decode_vec(part).ok()?).ok()
}

/// What an identity token says that is right (Core 3.1.3.7; the numbers are its steps).
fn believed(token: &str, keys: &Keys, options: &IssuerOptions, nonce: &str, secs: i64) -> Result<Claims, Trouble> {
    const DAMAGED: &str = "its token is damaged";
    if token.len() > TOKEN_BYTES_MAX {
        return Err(refused("its token is too long"));
    }
    let (message, signature) = token.rsplit_once('.').ok_or_else(|| refused(DAMAGED))?;
    let (head, body) = message.split_once('.').ok_or_else(|| refused(DAMAGED))?;
    let header: Header = decoded(head).ok_or_else(|| refused(DAMAGED))?;
    if header.crit.is_some() {
        return Err(refused("its token has parts that are not known here"));
    }
    let signature = Base64UrlUnpadded::decode_vec(signature).map_err(|_| refused(DAMAGED))?;
    // 6 to 8 (`oidc.signed`)
    verify(&header, keys, message.as_bytes(), &signature)?;
    let claims: Claims = decoded(body).ok_or_else(|| refused(DAMAGED))?;
    let many = match &claims.aud {
        Audience::One(one) => std::slice::from_ref(one),
        Audience::Many(many) => many.as_slice(),
    };
    let client = &options.client_id;
    let now = secs as f64;
    // A time that is no number is on neither side.
    let (has_begun, lasts) = (|at: f64| at < now + SKEW_SECS as f64, claims.exp > now - SKEW_SECS as f64);
    match () {
        // 2
        () if claims.iss != options.issuer => Err(refused("its token is of another issuer")),
        // 3
        () if !many.contains(client) => Err(refused("its token is for another program")),
        // 4, 5
        () if many.len() > 1 && claims.azp.is_none() => Err(refused("its token is for several programs")),
        () if claims.azp.as_ref().is_some_and(|azp| azp != client) => Err(refused("its token is for another program")),
        // 9
        () if !lasts => Err(refused("its token is over: compare the clocks")),
        // 10
        () if !has_begun(claims.iat) || claims.nbf.is_some_and(|nbf| !has_begun(nbf)) => {
            Err(refused("its token is of the future: compare the clocks"))
        }
        // 11
        () if !crate::session::is_same(&claims.nonce, nonce) => Err(refused("its token is for another log-in")),
        () if claims.sub.is_empty() => Err(refused("its token names nobody")),
        () => Ok(claims),
    }
}

fn is_verified(facts: &Facts) -> bool {
    facts.get("email_verified").is_some_and(|value| *value == true || *value == "true")
}

/// The user whom the claim names.
fn named(claims: Claims, options: &IssuerOptions) -> Result<Person, Trouble> {
    let claim = options.user_claim.as_str();
    if claim == "email" && !is_verified(&claims.more) {
        return Err(refused("it has not verified your address of mail"));
    }
    let name = match claim {
        "sub" => Some(claims.sub.as_str()),
        claim => claims.more.get(claim).and_then(|value| value.as_str()),
    };
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    let user = name.ok_or_else(|| Trouble::Refused(format!("it says no '{claim}' of you")))?;
    Ok(Person { subject: Subject { iss: claims.iss, sub: claims.sub }, user })
}

/// By each key that the token may mean (RFC 7518 3.1, RFC 8037 3.1).
fn verify(header: &Header, keys: &Keys, message: &[u8], signature: &[u8]) -> Result<(), Trouble> {
    let (kind, curve) = match header.alg.as_str() {
        "RS256" | "PS256" => ("RSA", ""),
        "ES256" => ("EC", "P-256"),
        "EdDSA" => ("OKP", "Ed25519"),
        _ => return Err(Trouble::Refused(format!("its token is signed by '{}', which is not believed", header.alg))),
    };
    let all = keys.keys.iter().filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
    let fits = |key: &Jwk| {
        key.kty == kind
            && (curve.is_empty() || key.crv == curve)
            && key.usage.as_deref().is_none_or(|usage| usage == "sig")
            && key.alg.as_deref().is_none_or(|alg| alg == header.alg)
            && (header.kid.is_none() || key.kid == header.kid)
    };
    let fitting: Vec<Jwk> = all.filter(fits).collect();
    if fitting.is_empty() {
        return Err(Trouble::KeyUnknown);
    }
    match fitting.iter().any(|key| is_signed(&header.alg, key, message, signature).is_some()) {
        true => Ok(()),
        // A key without a name may have been replaced.
        false if header.kid.is_none() => Err(Trouble::KeyUnknown),
        false => Err(refused("the signature of its token is wrong")),
    }
}

fn is_signed(alg: &str, key: &Jwk, message: &[u8], signature: &[u8]) -> Option<()> {
    let part = |text: &str| Base64UrlUnpadded::decode_vec(text).ok();
    let rsa = |parameters| {
        let key = RsaPublicKeyComponents { n: part(&key.n)?, e: part(&key.e)? };
        key.verify(parameters, message, signature).ok()
    };
    match alg {
        "RS256" => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
        "PS256" => rsa(&signature::RSA_PSS_2048_8192_SHA256),
        "ES256" => {
            let point = [vec![4], part(&key.x).filter(|x| x.len() == 32)?, part(&key.y).filter(|y| y.len() == 32)?];
            UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point.concat()).verify(message, signature).ok()
        }
        _ => UnparsedPublicKey::new(&signature::ED25519, part(&key.x)?).verify(message, signature).ok(),
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn options(claim: &str) -> IssuerOptions {
        IssuerOptions {
            issuer: "https://id.example.org".to_owned(),
            client_id: "larder".to_owned(),
            user_claim: claim.to_owned(),
            label: "Office".to_owned(),
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://id.example.org", "sub": "17", "aud": "larder", "exp": NOW + 300, "iat": NOW,
            "nonce": "n", "preferred_username": "ann", "email": "ann@example.org"})
    }

    fn part(value: &Value) -> String {
        Base64UrlUnpadded::encode_string(value.to_string().as_bytes())
    }

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let message = format!("{}.{}", part(header), part(claims));
            let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", Base64UrlUnpadded::encode_string(signature.as_ref()))
        }

        fn keys(&self, kid: &str) -> Keys {
            let point = self.0.public_key().as_ref();
            let text = Base64UrlUnpadded::encode_string;
            Keys {
                keys: vec![json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig",
                "x": text(&point[1..33]), "y": text(&point[33..])})],
            }
        }
    }

    fn with(change: impl FnOnce(&mut Value)) -> Value {
        let mut all = claims();
        change(&mut all);
        all
    }

    #[test]
    fn a_token_names_its_user() {
        let signer = Signer::new();
        let header = json!({"alg": "ES256", "kid": "a"});
        let check = |claims: &Value, claim: &str| {
            let believed = believed(&signer.token(&header, claims), &signer.keys("a"), &options(claim), "n", NOW);
            believed.and_then(|claims| named(claims, &options(claim))).map(|person| person.user)
        };
        assert_eq!(check(&claims(), "preferred_username").unwrap(), "ann");
        assert_eq!(check(&claims(), "sub").unwrap(), "17");
        assert_eq!(check(&with(|all| all["aud"] = json!(["larder"])), "sub").unwrap(), "17");
        assert!(matches!(check(&claims(), "email"), Err(Trouble::Refused(why)) if why.contains("verified")));
        assert_eq!(check(&with(|all| all["email_verified"] = json!(true)), "email").unwrap(), "ann@example.org");
        for (wrong, why) in [
            (with(|all| all["iss"] = json!("https://evil.test")), "another issuer"),
            (with(|all| all["aud"] = json!("other")), "another program"),
            (with(|all| all["aud"] = json!(["larder", "other"])), "several"),
            (with(|all| all["azp"] = json!("other")), "another program"),
            (with(|all| all["exp"] = json!(NOW - 61)), "over"),
            (with(|all| all["iat"] = json!(NOW + 61)), "future"),
            (with(|all| all["nbf"] = json!(NOW + 61)), "future"),
            (with(|all| all["nonce"] = json!("m")), "another log-in"),
            (with(|all| all["sub"] = json!("")), "nobody"),
            (with(|all| all["preferred_username"] = json!(7)), "no 'preferred_username'"),
            (with(|all| drop(all.as_object_mut().unwrap().remove("sub"))), "damaged"),
            (with(|all| drop(all.as_object_mut().unwrap().remove("nonce"))), "damaged"),
            (with(|all| all["exp"] = json!("soon")), "damaged"),
        ] {
            let found = check(&wrong, "preferred_username");
            assert!(matches!(&found, Err(Trouble::Refused(text)) if text.contains(why)), "{why}: {found:?}");
        }
    }

    #[test]
    fn signatures_are_by_keys_of_the_issuer() {
        let (signer, other) = (Signer::new(), Signer::new());
        let check =
            |token: &str, keys: &Keys| believed(token, keys, &options("sub"), "n", NOW).map(|claims| claims.sub);
        let header = |alg: &str| json!({"alg": alg, "kid": "a"});
        let fine = signer.token(&header("ES256"), &claims());
        assert_eq!(check(&fine, &signer.keys("b")), Err(Trouble::KeyUnknown));
        assert!(matches!(check(&fine, &other.keys("a")), Err(Trouble::Refused(why)) if why.contains("signature")));
        for alg in ["none", "None", "HS256", "ES512", "RS1", ""] {
            let found = check(&signer.token(&header(alg), &claims()), &signer.keys("a"));
            assert!(matches!(&found, Err(Trouble::Refused(why)) if why.contains("not believed")), "{alg}");
        }
        let unsigned = format!("{}.{}.", part(&header("none")), part(&claims()));
        assert!(matches!(check(&unsigned, &signer.keys("a")), Err(Trouble::Refused(_))));
        assert_eq!(check(&signer.token(&header("RS256"), &claims()), &signer.keys("a")), Err(Trouble::KeyUnknown));
        let critical = signer.token(&json!({"alg": "ES256", "kid": "a", "crit": ["x"]}), &claims());
        assert!(check(&critical, &signer.keys("a")).is_err());
        let swapped = fine.replacen(&part(&claims()), &part(&with(|all| all["sub"] = json!("18"))), 1);
        assert!(check(&swapped, &signer.keys("a")).is_err());
        for strange in ["", ".", "..", "a.b.c", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(matches!(check(strange, &signer.keys("a")), Err(Trouble::Refused(_))), "{strange:.9}");
        }
        // Without names each key may be meant.
        let nameless = signer.token(&json!({"alg": "ES256"}), &claims());
        assert_eq!(check(&nameless, &signer.keys("x")).unwrap(), "17");
        assert_eq!(check(&nameless, &other.keys("x")), Err(Trouble::KeyUnknown));
    }

    #[test]
    fn addresses_are_secure_or_here() {
        for fine in ["https://id.example.org/realm", "http://127.0.0.1:8080", "http://localhost/x?y", "http://[::1]:1/"]
        {
            assert!(is_issuer_address(fine), "{fine}");
        }
        for bad in [
            "http://id.example.org",
            "ftp://localhost",
            "https://",
            "",
            "https://a b",
            "http://localhost@evil.test/",
            "http://127.0.0.1.evil.test",
            "https://a\r\nb",
        ] {
            assert!(!is_issuer_address(bad), "{bad}");
        }
        assert_eq!(query(&[("a", "b c&/"), ("d", "")]), "a=b%20c%26%2F&d=");
    }
}
