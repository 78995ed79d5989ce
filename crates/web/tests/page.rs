//! The page against recorded answers: routes, roles, forms, escaping, sessions.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode};
use larder_api::Failure;
use larder_base::{Clock, SystemClock};
use larder_web::{
    Act, Ask, Asker, BASE, Body, Fetch, Issuer, IssuerOptions, LogIn, Options, Peer, ROUTES, Refusal, Role, Standing,
    Web, may,
};
use serde_json::{Value, json};

const CONFIG: &str = "[listen]\nnfs = \"<b>\"\n";

/// A name with markup, an attribute's end, and marks that turn the text around them.
const EVIL: &str = "<script>alert(1)</script>\"'&\u{202e}x";

/// Answers as the daemon gives them, by method and path.
#[derive(Default)]
struct Recorded {
    answers: Mutex<HashMap<String, Value>>,
    asked: Mutex<Vec<(String, Value)>>,
}

impl Ask for Recorded {
    fn carry(
        &self,
        asker: Option<Asker>,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Failure>> {
        let key = format!("{method} {path}");
        if method != Method::GET {
            assert!(asker.is_some_and(|asker| !asker.user.is_empty()), "{key}: a change has somebody who asks for it");
        }
        self.asked.lock().unwrap().push((key.clone(), serde_json::from_slice(&body).unwrap_or(Value::Null)));
        let answer = self.answers.lock().unwrap().get(&key).cloned();
        Box::pin(async move {
            match answer {
                Some(answer) if answer.get("refused").is_some() => {
                    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
                    Err(Failure::invalid(text("refused")).action(text("action")))
                }
                Some(answer) => Ok(Bytes::from(answer.to_string())),
                None => Err(Failure::not_found(format!("nothing recorded for {key}"))),
            }
        })
    }
}

impl Recorded {
    fn set(&self, key: &str, answer: Value) {
        self.answers.lock().unwrap().insert(key.to_owned(), answer);
    }

    /// Requests that would have changed something.
    fn changes(&self) -> Vec<(String, Value)> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|(key, _)| {
                !key.starts_with("GET ")
                    && ![
                        "POST /v1/explain",
                        "POST /v1/audit",
                        "POST /v1/config/read",
                        "POST /v1/config/plan",
                        "POST /v1/power/what-if",
                        "POST /v1/benches/compare",
                    ]
                    .contains(&key.as_str())
                    && !key.starts_with("POST /v1/diff/")
            })
            .filter(|(_, body)| body["dry_run"] != json!(true))
            .cloned()
            .collect()
    }
}

/// Everybody's password is `right`; a name is a role.
#[derive(Default)]
struct People {
    /// The file of second factors.
    factors: Mutex<Vec<u8>>,
    /// The file of sessions.
    sessions: Mutex<Vec<u8>>,
    uid: Mutex<u32>,
    /// Log-ins without the password.
    entered: Mutex<Vec<String>>,
    is_disk_full: std::sync::atomic::AtomicBool,
    generation: Mutex<u64>,
    gone: Mutex<Vec<String>>,
}

impl LogIn for People {
    fn check(&self, name: String, password: String, _: IpAddr) -> BoxFuture<'_, Result<Standing, Refusal>> {
        Box::pin(async move {
            match password.as_str() {
                "right" => self.standing(&name).ok_or(Refusal::Wrong),
                "often" => Err(Refusal::Wait(Duration::from_secs(90))),
                _ => Err(Refusal::Wrong),
            }
        })
    }

    fn standing(&self, name: &str) -> Option<Standing> {
        let role = match name {
            "owner" => Role::Owner,
            "looker" => Role::Looker,
            _ => Role::User,
        };
        let generation = *self.generation.lock().unwrap();
        (!self.gone.lock().unwrap().iter().any(|gone| gone == name)).then_some(Standing {
            role,
            generation,
            uid: *self.uid.lock().unwrap(),
            has_password: name != "guest",
        })
    }

    fn entered(&self, name: &str, _: IpAddr, by: &str) {
        self.entered.lock().unwrap().push(format!("{name} by {by}"));
    }

    fn keep_factors(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>> {
        let is_full = self.is_disk_full.load(std::sync::atomic::Ordering::Relaxed);
        Box::pin(async move {
            if is_full {
                return Err(Failure::invalid("no space left"));
            }
            *self.factors.lock().unwrap() = bytes;
            Ok(())
        })
    }

    fn keep_sessions(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>> {
        let is_full = self.is_disk_full.load(std::sync::atomic::Ordering::Relaxed);
        Box::pin(async move {
            if is_full {
                return Err(Failure::invalid("no space left"));
            }
            *self.sessions.lock().unwrap() = bytes;
            Ok(())
        })
    }
}

struct Trial {
    web: Web,
    daemon: Arc<Recorded>,
    people: Arc<People>,
}

struct Seen {
    status: StatusCode,
    headers: hyper::HeaderMap,
    text: String,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The cookie's value; empty where it is taken away.
    fn cookie(&self) -> String {
        let cookie = self.header("set-cookie");
        let (name, rest) = cookie.split_once('=').unwrap_or_default();
        assert_eq!(name, "larder-page");
        rest.split(';').next().unwrap().to_owned()
    }

    fn csrf(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }
}

async fn seen(response: Response<Body>) -> Seen {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Seen { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

/// A browser with at most one cookie.
#[derive(Clone, Default)]
struct Browser {
    token: String,
    csrf: String,
}

/// The address of a path of the page.
fn at(path: &str) -> String {
    if path.starts_with(BASE) { path.to_owned() } else { format!("{BASE}{path}") }
}

impl Trial {
    fn new() -> Self {
        let daemon = Arc::new(Recorded::default());
        healthy(&daemon);
        let people = Arc::new(People::default());
        let web = Web::new(
            daemon.clone(),
            people.clone(),
            Arc::new(SystemClock::default()),
            Options { is_secure: false, files: Some("/?shares") },
        );
        Self { web, daemon, people }
    }

    async fn send(&self, request: hyper::http::request::Builder, token: &str, body: String) -> Seen {
        let has_host = request.headers_ref().is_some_and(|headers| headers.contains_key("host"));
        let request = if has_host { request } else { request.header("host", "nas.local:10443") };
        let request = match token {
            "" => request,
            token => request.header("cookie", format!("other=1; larder-page={token}")),
        };
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        seen(self.web.answer(request, Peer { addr: Ipv4Addr::LOCALHOST.into() }).await).await
    }

    async fn get(&self, browser: &Browser, path: &str) -> Seen {
        self.send(Request::get(at(path)), &browser.token, String::new()).await
    }

    async fn post_raw(&self, token: &str, path: &str, body: String) -> Seen {
        let request = Request::post(at(path)).header("content-type", "application/x-www-form-urlencoded");
        self.send(request, token, body).await
    }

    async fn post(&self, browser: &Browser, path: &str, fields: &[(&str, &str)]) -> Seen {
        let mut body = format!("csrf={}", browser.csrf);
        for (name, value) in fields {
            let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            body.push_str(&format!("&{name}={value}"));
        }
        self.post_raw(&browser.token, path, body).await
    }

    /// The state that the form of a page says it shows.
    async fn shown(&self, browser: &Browser, page: &str, action: &str) -> String {
        let text = self.get(browser, page).await.text;
        let (_, form) = text.split_once(&format!("action=\"{}\"", at(action))).expect("the form");
        let (_, value) = form.split_once("name=\"shown\" value=\"").expect("a state");
        value.split('"').next().unwrap().replace("&quot;", "\"").replace("&#34;", "\"")
    }

    /// Sends the form that a page has now.
    async fn post_shown(&self, browser: &Browser, page: &str, action: &str, fields: &[(&str, &str)]) -> Seen {
        let shown = self.shown(browser, page, action).await;
        self.post(browser, action, &[fields, &[("shown", shown.as_str())]].concat()).await
    }

    async fn log_in(&self, name: &str) -> Browser {
        let form = self.get(&Browser::default(), "/login").await;
        let before = Browser { token: form.cookie(), csrf: form.csrf() };
        let entered = self.post(&before, "/login", &[("name", name), ("password", "right")]).await;
        assert_eq!(entered.status, StatusCode::SEE_OTHER);
        let token = entered.cookie();
        let page = self.get(&Browser { token: token.clone(), csrf: String::new() }, "/me").await;
        Browser { token, csrf: page.csrf() }
    }
}

fn bench_state(name: &str) -> Value {
    let running = json!({"title": name, "preset": "quick", "elapsed_s": 61.0, "left_s": 59.0, "percent": 51, "workload": name,
        "repeat": 1, "repeats": 3, "bytes_per_s": 123_400_000.0, "operations_per_s": 118.0, "stopping": false,
        "results": [name], "notes": [name]});
    json!({"running": running, "ended": {"title": name, "at_ms": 1, "id": name, "fault": name, "action": name}})
}

fn disk(name: &str, state: &str, errors: u64) -> Value {
    json!({"path": format!("/mnt/{name}"), "id": name, "state": state, "read_errors": errors, "write_errors": 0,
        "checksum_errors": 0, "size_bytes": 4_000_000_000_000u64, "used_bytes": 1_000_000_000_000u64,
        "free_bytes": 3_000_000_000_000u64, "note": null})
}

fn pool(state: &str, disks: &[Value]) -> Value {
    json!({"name": "tank", "id": "p1", "layout": "raidz1", "state": state, "status": null, "action": null, "scan": null,
        "total_bytes": 12_000_000_000_000u64, "used_bytes": 3_000_000_000_000u64, "available_bytes": 9_000_000_000_000u64,
        "disks": disks})
}

fn scrub(phase: &str) -> Value {
    json!({"phase": phase, "why": "asked for", "started_ms": 1_700_000_000_000u64, "ended_ms": null, "elapsed_ms": 60_000,
        "objects_done": 10, "objects_total": 40, "bytes_done": 1u64 << 30, "bytes_total": 4u64 << 30, "errors": 0,
        "repaired": 0, "repaired_bytes": 0, "unrepaired": 0, "bytes_per_second": 200u64 << 20, "seconds_left": 900})
}

fn volume(name: &str) -> Value {
    json!({"pool": "tank", "name": name, "id": "v1", "record_bytes": 131_072, "compression": "lz4", "quota_bytes": null,
        "sync": "standard", "used_bytes": 1u64 << 40, "available_bytes": 9u64 << 40, "compression_ratio": 1.31})
}

fn sealed(name: &str, locked: bool) -> Value {
    let mut volume = volume(name);
    volume["encryption"] = json!("aes-256-gcm");
    volume["locked"] = json!(locked);
    volume
}

fn keys(name: &str, slots: &[&str]) -> Value {
    let slot =
        |name: &&str| json!({"id": format!("id-{name}"), "kind": "passphrase", "name": name, "created": 1_700_000_000});
    json!({"pool": "tank", "volume": name, "cipher": "aes-256-gcm", "locked": false, "opened_with": "id-first",
        "slots": slots.iter().map(slot).collect::<Vec<_>>()})
}

fn plan() -> Value {
    let worth = |layout: &str, survived: u8| json!({"layout": layout, "width": 3, "disks": 3, "usable_bytes": 2u64 << 40, "failures_survived": survived});
    json!({"before": worth("raidz1", 1), "after": worth("raidz2", 2), "move_bytes": 1u64 << 40, "seconds": 7200,
        "warnings": ["the new disk is slower"]})
}

fn found() -> Value {
    let folder = |path: &str, refused: Value| {
        json!({"path": path, "mount": path, "filesystem": "xfs", "size_bytes": 4u64 << 40, "available_bytes": 4u64 << 40,
            "disks": ["WDC WD40 (sdc)"], "notes": [], "refused": refused, "pool": null})
    };
    let device = json!({"device": "/dev/sdd", "model": "ST8000", "serial": "ZA1", "size_bytes": 8u64 << 40, "kind": null,
        "bus": "SATA", "rotational": true, "removable": false, "is_system": false, "used": [], "holds": [],
        "is_contents_known": true, "notes": [], "refused": null, "is_proposed": true, "token": "ZA1"});
    json!({"disks": [device], "pools": [],
        "folders": [folder("/mnt/c/larder", Value::Null), folder("/mnt/full", json!("it is full"))]})
}

fn health(folder: &str, serial: &str) -> Value {
    json!({"name": "sda", "path": "/dev/sda", "model": "WDC WD40", "serial": serial, "size_bytes": 4u64 << 40,
        "medium": "HDD", "pool": "tank", "folders": [folder], "verdict": "well", "text": "well", "asleep": false})
}

fn share(name: &str) -> Value {
    json!({"name": name, "volume": "tank/files", "nfs": "/files", "smb": "files", "read_only": false, "squash": "root",
        "networks": [], "users": ["ann"], "everybody": true, "nfs_rule": "this machine", "smb_rule": "all users",
        "fault": null})
}

fn snapshot(name: &str, at: u64) -> Value {
    json!({"name": name, "created_ms": at, "used_bytes": 4096, "referenced_bytes": 1u64 << 30, "written_bytes": 1u64 << 20})
}

fn user(name: &str) -> Value {
    json!({"name": name, "uid": 1000, "gid": 1000, "groups": [], "has_password": true, "keys": 1, "group_names": ["family"]})
}

fn token(id: &str, user: &str) -> Value {
    json!({"id": id, "name": "phone", "user": user, "share": null, "read_only": true, "created_secs": 1_700_000_000,
        "expires_secs": null, "expired": false})
}

fn link(id: &str, user: &str) -> Value {
    json!({"id": id, "user": user, "share": "files", "path": "files/a.jpg", "has_password": false,
        "created_secs": 1_700_000_000, "expires_secs": 1_800_000_000})
}

fn healthy(daemon: &Recorded) {
    let info = json!({"pid": 7, "version": "0.1.0", "data": "/var/lib/larder", "uptime_secs": 90_000, "nfs": "0.0.0.0:2049",
        "smb": "0.0.0.0:445", "memory_bytes": 300u64 << 20, "pools": ["tank"]});
    daemon.set("GET /v1/info", info);
    daemon.set("GET /v1/pools/known", json!([pool("ONLINE", &[disk("a", "ONLINE", 0), disk("b", "ONLINE", 0)])]));
    daemon.set(
        "GET /v1/pools/tank/scrub",
        json!({"pool": "tank", "scrub": null, "damage": {"files": [], "metadata": [], "more": 0}}),
    );
    daemon.set(
        "GET /v1/pools/tank/history",
        json!({"pool": "tank", "events": [{"number": 1, "at_ms": 1_700_000_000_000u64, "kind": "created",
            "text": "raidz1 of 2"}]}),
    );
    let volumes = json!([volume("files"), sealed("secret", false), sealed("locked", true)]);
    daemon.set("GET /v1/volumes", volumes);
    daemon.set("GET /v1/keys/tank/secret", keys("secret", &["first", "second"]));
    daemon.set("GET /v1/keys/tank/locked", keys("locked", &["first"]));
    daemon.set("POST /v1/config/read", json!({"text": CONFIG, "name": "/etc/larder.toml"}));
    daemon.set("GET /v1/disks", found());
    daemon.set("POST /v1/pools/tank/change", plan());
    daemon.set(
        "GET /v1/owners/tank/files",
        json!([{"kind": "user", "id": 1000, "name": "ann", "used_bytes": 1u64 << 30, "inodes": 6, "quota_bytes": 4u64 << 30}]),
    );
    daemon.set(
        "GET /v1/snapshots/tank/files",
        json!({"pool": "tank", "volume": "files",
        "snapshots": [snapshot("monday", 1_700_000_000_000), snapshot("tuesday", 1_700_086_400_000)]}),
    );
    daemon.set(
        "POST /v1/diff/tank/files",
        json!([{"change": "renamed", "kind": "file", "path": "b.txt", "from": "a.txt"}, {"change": "created",
            "kind": "directory", "path": "new"}]),
    );
    daemon.set("GET /v1/snapshot-schedules", json!([]));
    daemon.set("GET /v1/replications", json!({"replications": []}));
    daemon.set("GET /v1/alerts", json!({"open": [], "past": [], "receivers": []}));
    care(daemon);
    daemon.set("GET /v1/top", top(&[connection("ann", "client"), connection("bob", "nothing")]));
    daemon.set("GET /v1/opens", json!({"opens": [opened()], "more": 2}));
    daemon.set("GET /v1/top/worst", json!([worst()]));
    daemon.set("GET /v1/disks/health", json!([]));
    daemon.set("POST /v1/audit", json!([record(1)]));
    daemon.set("GET /v1/shares", json!([share("files")]));
    daemon.set("GET /v1/users", json!([user("ann"), user("owner")]));
    daemon.set("GET /v1/groups", json!([{"name": "family", "gid": 2000, "members": ["ann"], "shares": ["files"]}]));
    daemon.set("GET /v1/tokens", json!([token("t-ann", "ann"), token("t-bob", "bob")]));
    daemon.set("GET /v1/links", json!([link("l-ann", "ann"), link("l-bob", "bob")]));
    for name in ["ann", "owner", "looker"] {
        daemon.set(&format!("GET /v1/users/{name}/keys"), json!([]));
    }
}

fn care(daemon: &Recorded) {
    let line = |level: &str, text: &str| json!({"at_ms": 1_700_000_000_000u64, "level": level, "text": text});
    daemon.set("GET /v1/log", json!({"lines": [line("info", "an old line"), line("warn", "a warning")], "dropped": 3}));
    let cost = json!({"watts": 17.0, "kwh": 149.0, "cost": 58.08});
    let meter = json!({"source": "plug", "of": "the whole machine", "basis": "measured", "watts": 17.04});
    daemon.set(
        "GET /v1/power",
        json!({"total": meter, "readings": [meter], "faults": [{"text": "ups: silent", "action": "look at it"}],
            "year": {"basis": "measured now by plug", "estimated": false, "currency": "EUR", "price_per_kwh": 0.39,
                "load_hours_per_day": 2.0, "idle": cost, "load": cost, "used": cost, "watts_per_tb": 1.5}}),
    );
    daemon.set(
        "GET /v1/ups",
        json!({"name": "rack", "model": "Back-UPS", "says": "OL", "on_battery": true, "on_battery_seconds": 90,
            "charge_percent": 80, "runtime_seconds": 600, "plan": "larder stops in order when the battery is low."}),
    );
    let report = json!({"text": "  'b' costs least\n  <b>"});
    for key in ["POST /v1/power/what-if", "GET /v1/power/awake", "GET /v1/benches/b1", "POST /v1/benches/compare"] {
        daemon.set(key, report.clone());
    }
    daemon.set("GET /v1/doctor", json!({"verdict": "The wire is the limit.", "text": "text", "why": "chain"}));
    let bench = |id: &str| {
        json!({"id": id, "title": "disk", "preset": "quick", "started_ms": 0, "seconds": 60.5, "runs": 4,
        "interrupted": false})
    };
    daemon.set("GET /v1/benches", json!([bench("b1"), bench("b2")]));
    daemon.set("GET /v1/bench", bench_state("disk /mnt/a"));
    daemon.set("GET /v1/mounts", json!([{"dir": "/mnt/files", "volume": "tank/files", "read_only": false}]));
    let sample = |at_s: u64| {
        json!({"at_s": at_s, "read_bytes_per_s": 8e6, "written_bytes_per_s": 1e3, "disk_calls_per_s": 4.5,
            "disk_latency_us": 120.0, "watts": null, "disk_celsius": 41.0})
    };
    let span = |name: &str, step_s: u64| json!({"span": name, "step_s": step_s, "samples": [sample(60), sample(120)]});
    daemon.set("GET /v1/charts", json!({"spans": [span("hour", 60), span("year", 86_400)]}));
    daemon.set("GET /v1/scrub-schedules", json!([{"pool": "tank", "schedule": "weekly"}]));
}

fn top(connections: &[Value]) -> Value {
    json!({"at_ms": 1_700_000_000_000u64, "window_ms": 1000, "connections": connections})
}

fn connection(user: &str, limited_by: &str) -> Value {
    json!({"id": 1, "door": "sftp", "user": user, "address": "192.168.1.7", "port": 50_000, "since_ms": 0, "does": "read",
        "read_bytes_per_s": 8_000_000, "written_bytes_per_s": 0, "requests_per_s": 244.0, "request_bytes": 32_768,
        "latency_us": 120, "under_way": 0.03, "rtt_us": 4000, "lost_percent": 0.0, "limited_by": limited_by,
        "cause": "one-request", "confidence": "certain", "sentence": "SFTP asks for 32 KiB at a time",
        "help": "SMB and NFS read ahead", "figures": serde_json::to_value(larder_api::TopFigures::default()).unwrap(),
        "time": serde_json::to_value(larder_api::TopTime::default()).unwrap()})
}

fn opened() -> Value {
    json!({"id": "smb-7", "door": "smb", "user": "ann", "address": "192.168.1.7", "share": "files", "path": "/a.docx",
        "does": ["read", "write"], "denies": ["write"], "locks": 1, "caches": true})
}

fn worst() -> Value {
    json!({"at_ms": 1_700_000_000_000u64, "lasted_ms": 90_000, "looks": 3, "door": "smb", "address": "192.168.1.8",
        "does": "write", "bytes_per_s": 31_000_000, "lost_percent": 2.0, "limited_by": "wire", "cause": "loss",
        "sentence": "the wire loses 2.0 % of the packets"})
}

fn record(number: u64) -> Value {
    json!({"number": number, "at_ms": 1_700_000_000_000u64, "kind": "act", "who": "ann", "from": "192.168.1.7", "by": "page",
        "what": "the last change", "result": "done"})
}

/// Pages that a person opens.
const PAGES: &[&str] = &[
    "/",
    "/connections",
    "/storage",
    "/storage/change?pool=tank&change=replace",
    "/storage/change?pool=tank&change=replace&disk=a&new=/mnt/c/larder",
    "/storage/change?pool=tank&change=layout&layout=raidz2&width=4",
    "/volume?name=tank/secret",
    "/volume?name=tank/locked",
    "/volume?name=tank/files",
    "/snapshot?volume=tank/files&name=monday&compare=1",
    "/sharing",
    "/people",
    "/explain",
    "/alerts",
    "/care",
    "/care/config",
    "/care/charts",
    "/care/charts?span=year",
    "/care/log?level=warn",
    "/care/power?awake=1&settings=a%3D98W:10m+b%3D85W:11m",
    "/care/doctor",
    "/care/doctor?run=1",
    "/care/bench",
    "/care/bench?id=b1",
    "/care/bench?a=b1&b=b2",
    "/storage/found",
    "/me",
];

#[tokio::test]
async fn every_page_is_whole_and_protected() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let mut nonces = std::collections::BTreeSet::new();
    for path in PAGES.iter().copied() {
        let page = trial.get(&owner, path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text);
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let (_, nonce) = policy.split_once("script-src 'nonce-").unwrap();
        let nonce = nonce.split('\'').next().unwrap();
        assert!(nonces.insert(nonce.to_owned()), "a nonce serves one answer");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("referrer-policy"), "no-referrer");
        assert_eq!(page.header("cache-control"), "no-store");
        // Each script has the nonce and none has a body; nothing is styled or handled in place.
        assert_eq!(page.text.matches("<script ").count(), page.text.matches("</script>").count());
        for script in page.text.split("<script ").skip(1) {
            assert!(script.split('>').next().unwrap().contains(&format!("nonce=\"{nonce}\"")), "{path}");
            assert!(script.split_once('>').unwrap().1.starts_with("</script>"), "{path}");
        }
        for inline in [" style=", " onclick=", " onload=", "javascript:", "http://", "https://"] {
            assert!(!page.text.contains(inline), "{path} has {inline}");
        }
        // Landmarks, one heading of the first rank, and a name for whatever takes input.
        for part in ["<html lang=\"en\"", "<main id=\"main\"", "<nav aria-label=\"Main\"", "class=\"skip\""] {
            assert_eq!(page.text.matches(part).count(), 1, "{path}: {part}");
        }
        assert_eq!(page.text.matches("<h1").count(), 1, "{path}");
        labelled(path, &page.text);
        if path != "/me" {
            assert!(page.text.contains("aria-current=\"page\""), "{path}");
        }
        assert!(page.text.len() < 64 << 10, "{path}: {} bytes", page.text.len());
        println!("{path}: {} bytes", page.text.len());
    }
}

/// Each field has a label by `for`, by lying within one, or is hidden; each id is there once; headers of tables have a
/// scope.
fn labelled(path: &str, page: &str) {
    let ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let once: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), once.len(), "{path}: an id is there twice: {ids:?}");
    for (at, _) in page.match_indices("<input ").chain(page.match_indices("<select ")) {
        let field = page[at..].split('>').next().unwrap();
        if field.contains("type=\"hidden\"") {
            continue;
        }
        let inside = page[..at].rfind("<label").is_some_and(|label| !page[label..at].contains("</label>"));
        let id = field.split(" id=\"").nth(1).map(|rest| rest.split('"').next().unwrap());
        let named = id.is_some_and(|id| page.contains(&format!("<label for=\"{id}\"")));
        assert!(inside || named || field.contains("aria-label="), "{path}: {field} has no label");
    }
    for header in page.split("<th").skip(1).filter(|rest| rest.starts_with([' ', '>'])) {
        assert!(header.split('>').next().unwrap().contains("scope="), "{path}: a header without scope");
    }
    for by in page.split("aria-labelledby=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.contains(&by), "{path}: nothing has the id {by}");
    }
}

#[tokio::test]
async fn each_route_obeys_the_table_of_roles() {
    for route in ROUTES {
        let is_form = route.path.starts_with("/login") || route.path.starts_with("/assets/");
        assert_eq!(route.act == Act::Enter, is_form, "{} is open to strangers", route.path);
        assert_eq!(route.method == Method::GET, may(Some(Role::Looker), route.act) && route.method == Method::GET);
        // What changes something of the box is a POST, and a POST that a looker may send is about the looker alone.
        let changes_box = !may(Some(Role::Looker), route.act);
        assert!(!changes_box || route.method == Method::POST, "{} changes by GET", route.path);
        if route.method == Method::POST && !changes_box && !is_form {
            assert!(
                route.path.starts_with("/me/") || ["/logout", "/theme", "/prove"].contains(&route.path),
                "{}",
                route.path
            );
        }
    }
    for (name, role) in
        [("", None), ("ann", Some(Role::User)), ("looker", Some(Role::Looker)), ("owner", Some(Role::Owner))]
    {
        for route in ROUTES.iter().filter(|route| route.path != "/assets/{name}") {
            let trial = Trial::new();
            let browser = if name.is_empty() { Browser::default() } else { trial.log_in(name).await };
            let seen = match route.method {
                Method::GET if route.path.ends_with("/live") => {
                    let request =
                        Request::get(at(route.path)).header("cookie", format!("larder-page={}", browser.token));
                    let request = request.body(Full::new(Bytes::new())).unwrap();
                    let response = trial.web.answer(request, Peer { addr: Ipv4Addr::LOCALHOST.into() }).await;
                    let expected = match role {
                        None => StatusCode::UNAUTHORIZED,
                        Some(role) if may(Some(role), route.act) => StatusCode::OK,
                        Some(_) => StatusCode::FORBIDDEN,
                    };
                    assert_eq!(response.status(), expected, "{name} {}", route.path);
                    continue;
                }
                Method::GET => trial.get(&browser, route.path).await,
                _ => trial.post(&browser, route.path, &[]).await,
            };
            let label = format!("{name:?} {} {}: {}", route.method, route.path, seen.status);
            if may(role, route.act) {
                assert!(seen.status != StatusCode::FORBIDDEN || route.path.starts_with("/login"), "{label}");
            } else {
                let expected = match role {
                    None => StatusCode::SEE_OTHER,
                    Some(Role::User) if route.path == "/" => StatusCode::SEE_OTHER,
                    Some(_) => StatusCode::FORBIDDEN,
                };
                assert_eq!(seen.status, expected, "{label}");
                assert!(trial.daemon.changes().is_empty(), "{label} asked {:?}", trial.daemon.changes());
                assert!(!seen.text.contains("tank"), "{label} tells of the box");
            }
        }
    }
}

#[tokio::test]
async fn changes_need_the_token_of_the_session() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let other = trial.log_in("owner").await;
    trial.daemon.set(
        "POST /v1/pools/tank/scrub",
        json!({"pool": "tank", "scrub": null, "damage": {"files": [], "metadata": [], "more": 0}}),
    );
    let fields = "&pool=tank&action=start";
    for csrf in ["", "0", other.csrf.as_str(), owner.token.as_str()] {
        let refused = trial.post_raw(&owner.token, "/storage/scrub", format!("csrf={csrf}{fields}")).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{csrf}");
    }
    let form = Request::post("/+/storage/scrub").header("content-type", "application/x-www-form-urlencoded");
    let cross = form.header("sec-fetch-site", "cross-site");
    let refused = trial.send(cross, &owner.token, format!("csrf={}{fields}", owner.csrf)).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let text = Request::post("/+/storage/scrub").header("content-type", "text/plain");
    let refused = trial.send(text, &owner.token, format!("csrf={}{fields}", owner.csrf)).await;
    assert_eq!(refused.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let long = trial.post_raw(&owner.token, "/storage/scrub", "a".repeat(70_000)).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    let by_get = trial.get(&owner, &format!("/storage/scrub?csrf={}{fields}", owner.csrf)).await;
    assert_eq!(by_get.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(trial.daemon.changes().is_empty());

    let done = trial.post(&owner, "/storage/scrub", &[("pool", "tank"), ("action", "start")]).await;
    assert_eq!((done.status, done.header("location")), (StatusCode::SEE_OTHER, "/+/storage"));
    assert_eq!(trial.daemon.changes(), [("POST /v1/pools/tank/scrub".to_owned(), json!({"action": "start"}))]);
    assert!(trial.get(&owner, "/storage").await.text.contains("The scrub runs."), "the outcome is on the next page");
    assert!(!trial.get(&owner, "/storage").await.text.contains("The scrub runs."), "and on no other");
}

/// `words.at_the_way_in`
#[tokio::test]
async fn a_refusal_names_places_of_the_page_and_no_commands() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let action = "see who there is with: larder user list; or: larder user add ann";
    trial.daemon.set("POST /v1/users/ann/password", json!({"refused": "there is no user 'ann'", "action": action}));
    trial.post(&owner, "/people/set-password", &[("user", "ann"), ("password", "new")]).await;
    let page = trial.get(&owner, "/people").await.text;
    assert!(page.contains("see who there is under: People; or: People, New user"), "{page}");
    assert!(!page.contains("larder user"), "{page}");
}

#[tokio::test]
async fn a_log_in_renews_the_session() {
    let trial = Trial::new();
    // A token that somebody else gave the browser.
    let fixed = "a".repeat(64);
    let form = trial.get(&Browser { token: fixed.clone(), csrf: String::new() }, "/login").await;
    let before = Browser { token: form.cookie(), csrf: form.csrf() };
    let entered = trial.post(&before, "/login", &[("name", "owner"), ("password", "right")]).await;
    let token = entered.cookie();
    assert!(token != fixed && token.len() == 64);
    let cookie = entered.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/"), "{cookie}");
    let old = trial.get(&before, "/storage").await;
    assert_eq!(old.status, StatusCode::SEE_OTHER, "the old token opens nothing");

    // Logging in anew ends the session before.
    let first = trial.log_in("owner").await;
    let entered = trial.post(&first, "/login", &[("name", "ann"), ("password", "right")]).await;
    assert_ne!(entered.cookie(), first.token);
    assert_eq!(trial.get(&first, "/me").await.status, StatusCode::SEE_OTHER);

    // A form of nobody's browser logs nobody in.
    let stray = trial
        .post(
            &Browser { token: String::new(), csrf: before.csrf },
            "/login",
            &[("name", "owner"), ("password", "right")],
        )
        .await;
    assert_eq!(stray.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn wrong_passwords_are_told_alike() {
    let trial = Trial::new();
    let form = trial.get(&Browser::default(), "/login?next=/care").await;
    let before = Browser { token: form.cookie(), csrf: form.csrf() };
    let wrong = trial.post(&before, "/login", &[("name", EVIL), ("password", "no"), ("next", "/care")]).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.text.contains("The name or the password is wrong.") && wrong.text.contains("value=\"/care\""));
    assert!(!wrong.text.contains("<script>alert"));
    let often = trial.post(&before, "/login", &[("name", "ann"), ("password", "often")]).await;
    assert_eq!(often.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(often.text.contains("1 min"));
}

#[tokio::test]
async fn redirects_stay_on_the_page() {
    let trial = Trial::new();
    let stranger = trial.get(&Browser::default(), "/volume?name=tank/files").await;
    assert_eq!(stranger.header("location"), "/+/login?next=/%2B/volume%3Fname%3Dtank/files");
    for (next, to) in [
        ("/care", "/care"),
        ("//evil.test", "/+/"),
        ("/\\evil.test", "/+/"),
        ("https://evil.test/", "/+/"),
        ("javascript:1", "/+/"),
        ("/a\r\nx: y", "/+/"),
        ("/\tevil", "/+/"),
        ("", "/+/"),
        ("/+/login", "/+/"),
        ("/+/logout", "/+/"),
    ] {
        let form = trial.get(&Browser::default(), "/login").await;
        let before = Browser { token: form.cookie(), csrf: form.csrf() };
        let entered = trial.post(&before, "/login", &[("name", "owner"), ("password", "right"), ("next", next)]).await;
        assert_eq!(entered.header("location"), to, "{next:?}");
    }
    let owner = trial.log_in("owner").await;
    let chosen = trial.post(&owner, "/theme", &[("theme", "dark"), ("back", "//evil.test")]).await;
    assert_eq!(chosen.header("location"), "/+/");
    for (back, to) in
        [("/+/care/log?level=warn", "/+/care/log?level=warn"), ("/+/me/passkey", "/+/me"), ("/files/", "/files/")]
    {
        let chosen = trial.post(&owner, "/theme", &[("theme", "dark"), ("back", back)]).await;
        assert_eq!(chosen.header("location"), to, "what answered a form has no address");
    }
}

#[tokio::test]
async fn sessions_end_with_password_and_user() {
    let trial = Trial::new();
    let ann = trial.log_in("ann").await;
    let again = trial.log_in("ann").await;
    assert_eq!(trial.get(&ann, "/me").await.status, StatusCode::OK);
    *trial.people.generation.lock().unwrap() += 1;
    assert_eq!(trial.get(&ann, "/me").await.status, StatusCode::SEE_OTHER);
    assert_eq!(trial.get(&again, "/me").await.status, StatusCode::SEE_OTHER);
    let ann = trial.log_in("ann").await;
    trial.people.gone.lock().unwrap().push("ann".to_owned());
    assert_eq!(trial.get(&ann, "/me").await.status, StatusCode::SEE_OTHER);

    let owner = trial.log_in("owner").await;
    let left = trial.post(&owner, "/logout", &[]).await;
    assert_eq!(left.cookie(), "");
    assert_eq!(trial.get(&owner, "/").await.header("location"), "/+/login");
}

/// The sessions of a trial, as if they had begun so long ago.
fn aged(trial: &Trial, seconds: i64) -> Vec<u8> {
    let mut kept: Vec<serde_json::Value> = serde_json::from_slice(&trial.web.sessions()).unwrap();
    for session in &mut kept {
        session["began_secs"] = (session["began_secs"].as_i64().unwrap() - seconds).into();
    }
    serde_json::to_vec(&kept).unwrap()
}

/// `browsers.password_again`: a browser that was left open changes nobody's way in.
#[tokio::test]
async fn ways_in_ask_who_sits_there() {
    let before = Trial::new();
    let owner = before.log_in("owner").await;
    let trial = Trial::new();
    trial.web.take_sessions(&aged(&before, 400));
    trial.daemon.set("POST /v1/users/ann/password", json!({"links": []}));
    let forms: [(&str, &[(&str, &str)]); 13] = [
        ("/people/add-user", &[("name", "eve"), ("password", "x"), ("role", "owner")]),
        ("/people/set-role", &[("user", "ann"), ("role", "owner")]),
        ("/people/set-password", &[("user", "ann"), ("password", "x")]),
        ("/people/remove-user", &[("user", "ann"), ("typed", "ann")]),
        ("/people/create-token", &[("user", "ann")]),
        ("/people/revoke-token", &[("token", "t-ann")]),
        ("/people/end-factor", &[("user", "ann"), ("typed", "ann")]),
        ("/people/end-issued", &[("user", "ann")]),
        ("/volume/add-key", &[("volume", "files"), ("name", "x"), ("passphrase", "x")]),
        ("/care/accept", &[("volume", "x")]),
        ("/care/config/apply", &[("text", "x"), ("base", "x")]),
        ("/me/create-token", &[("name", "x")]),
        ("/me/password", &[("password", "x"), ("again", "x")]),
    ];
    for (path, fields) in forms {
        for current in [&[][..], &[("current", "")], &[("current", "wrong")]] {
            let refused = trial.post(&owner, path, &[fields, current].concat()).await;
            assert_eq!(refused.status, StatusCode::SEE_OTHER, "{path}");
            let note = trial.get(&owner, refused.header("location")).await.text;
            assert!(note.contains("nothing was changed"), "{path}: {note}");
            assert!(trial.daemon.changes().is_empty(), "{path}");
        }
    }
    // Once it was confirmed, the forms of the next minutes go through.
    let page = trial.get(&owner, "/people").await.text;
    assert!(page.contains("action=\"/+/prove\""), "{page}");
    let wrong = trial.post(&owner, "/prove", &[("current", "wrong"), ("back", "/+/people")]).await;
    assert_eq!(wrong.header("location"), "/+/people");
    trial.post(&owner, "/prove", &[("current", "right"), ("back", "/+/people")]).await;
    assert!(!trial.get(&owner, "/people").await.text.contains("action=\"/+/prove\""));
    trial.post(&owner, "/people/set-password", &[("user", "ann"), ("password", "x")]).await;
    assert_eq!(trial.daemon.changes().len(), 1);
    // The own way in is changed under Account, not as if it were somebody else's.
    for path in ["/people/set-password", "/people/remove-user", "/people/create-token", "/people/end-factor"] {
        trial.post(&owner, path, &[("user", "owner"), ("password", "x"), ("typed", "owner")]).await;
        assert!(trial.get(&owner, "/people").await.text.contains("that is you"), "{path}");
    }
    assert_eq!(trial.daemon.changes().len(), 1);
}

/// Somebody who has codes needs one, too.
#[tokio::test]
async fn a_second_factor_is_part_of_who_sits_there() {
    let before = Trial::new();
    let owner = before.log_in("owner").await;
    let (secret, _) = before.with_factor(&owner).await;
    let trial = Trial::new();
    trial.web.take_sessions(&aged(&before, 400));
    trial.web.take_factors(Some(&before.people.factors.lock().unwrap().clone()));
    assert!(trial.get(&owner, "/people").await.text.contains("prove-code"));
    for code in ["", "1"] {
        trial.post(&owner, "/people/revoke-token", &[("token", "t-ann"), ("current", "right"), ("code", code)]).await;
        assert!(trial.daemon.changes().is_empty(), "{code}");
    }
    trial.post(&owner, "/prove", &[("current", "right"), ("code", &code_of(&secret, 1))]).await;
    trial.daemon.set("DELETE /v1/tokens/t-ann", token("t-ann", "ann"));
    trial.post(&owner, "/people/revoke-token", &[("token", "t-ann")]).await;
    assert_eq!(trial.daemon.changes().len(), 1);
}

/// `browsers.end_before_the_answer`
#[tokio::test]
async fn a_session_that_was_ended_is_out_of_the_file_before_the_answer() {
    let trial = Trial::new();
    let kept =
        || serde_json::from_slice::<Vec<serde_json::Value>>(&trial.people.sessions.lock().unwrap()).unwrap().len();
    let [first, second, third] = [trial.log_in("ann").await, trial.log_in("ann").await, trial.log_in("ann").await];
    trial.web.keep_sessions().await.unwrap();
    assert_eq!(kept(), 3);
    trial.post(&first, "/logout", &[]).await;
    assert_eq!(kept(), 2);
    trial.post(&second, "/me/end-others", &[]).await;
    assert_eq!(kept(), 1);
    assert_eq!(trial.get(&third, "/me").await.status, StatusCode::SEE_OTHER);
    trial.people.is_disk_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let left = trial.post(&second, "/logout", &[]).await;
    assert!(left.text.contains("would go on after a restart of larder: no space left"), "{}", left.text);
    assert_eq!(trial.get(&second, "/me").await.status, StatusCode::SEE_OTHER, "it has ended all the same");
    assert_eq!(kept(), 1);
}

#[tokio::test]
async fn users_touch_what_is_theirs_alone() {
    let trial = Trial::new();
    trial.daemon.set("DELETE /v1/tokens/t-ann", token("t-ann", "ann"));
    trial.daemon.set("DELETE /v1/tokens/t-bob", token("t-bob", "bob"));
    trial.daemon.set("DELETE /v1/links/l-bob", json!({"links": []}));
    let ann = trial.log_in("ann").await;
    let page = trial.get(&ann, "/me").await.text;
    assert!(page.contains("t-ann") && !page.contains("t-bob") && page.contains("l-ann") && !page.contains("l-bob"));
    for hidden in ["/storage", "/people", "/care"] {
        assert!(!page.contains(&format!("href=\"/+{hidden}\"")));
    }
    trial.post(&ann, "/me/revoke-token", &[("token", "t-bob")]).await;
    trial.post(&ann, "/me/revoke-link", &[("link", "l-bob")]).await;
    assert!(trial.daemon.changes().is_empty());
    trial.post(&ann, "/me/revoke-token", &[("token", "t-ann")]).await;
    assert_eq!(trial.daemon.changes().len(), 1);
    assert!(trial.get(&ann, "/me").await.text.contains("The token opens nothing any more."));

    // Neither a key nor a token is made for somebody who does not know the password of now.
    for (path, field) in [("/me/add-key", "key"), ("/me/create-token", "name")] {
        trial.post(&ann, path, &[(field, "x"), ("current", "wrong")]).await;
        assert!(trial.get(&ann, "/me").await.text.contains("the current password is wrong"), "{path}");
        assert_eq!(trial.daemon.changes().len(), 1, "{path}");
    }
    trial.daemon.set("POST /v1/tokens", json!({"token": "lt_secret", "status": token("t-new", "ann")}));
    let made = trial.post(&ann, "/me/create-token", &[("name", "x"), ("days", "30"), ("current", "right")]).await;
    assert!(made.status == StatusCode::OK && made.text.contains("lt_secret"));
    let asked = trial.daemon.changes();
    assert_eq!((&asked[1].1["user"], &asked[1].1["name"]), (&json!("ann"), &json!("x")));

    // A password changes only for somebody who knows the one of now.
    trial.daemon.set("POST /v1/users/ann/password", json!({"links": []}));
    let fields = |current| [("current", current), ("password", "new"), ("again", "new")];
    trial.post(&ann, "/me/password", &fields("wrong")).await;
    trial.post(&ann, "/me/password", &[("current", "right"), ("password", "new"), ("again", "other")]).await;
    assert_eq!(trial.daemon.changes().len(), 2);
    trial.post(&ann, "/me/password", &fields("right")).await;
    assert_eq!(trial.daemon.changes().last().unwrap().0, "POST /v1/users/ann/password");
}

#[tokio::test]
async fn alerts_are_answered_by_the_owner_and_told_on_the_first_page() {
    let trial = Trial::new();
    let alert = |event: &str, text: &str| {
        json!({"id": 7, "event": event, "subject": "sda", "severity": "warning", "text": text, "action": "Cool it.",
            "since_ms": 1_700_000_000_000u64})
    };
    let hot = alert("disk-hot", "The disk sda has 61 degrees.");
    let receivers = json!([{"name": "mail", "kind": "mail", "waiting": 2}]);
    // What a pool says itself is not said twice.
    let missing = alert("disk-missing", "The disk sdb is missing.");
    trial.daemon.set("GET /v1/alerts", json!({"open": [hot, missing], "past": [], "receivers": receivers}));
    trial.daemon.set("POST /v1/alerts", hot.clone());
    trial.daemon.set("POST /v1/alerts/test", json!([{"name": "mail", "kind": "mail", "fault": "no such host"}]));
    let owner = trial.log_in("owner").await;
    let home = trial.get(&owner, "/").await.text;
    assert!(home.contains("1 thing needs your attention.") && home.contains("61 degrees") && home.contains("Cool it."));
    assert!(!home.contains("sdb is missing"));
    let page = trial.get(&owner, "/alerts").await.text;
    for words in ["61 degrees", "sdb is missing", "2 messages on the way", "the last change"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let looker = trial.log_in("looker").await;
    assert!(!trial.get(&looker, "/alerts").await.text.contains("/alerts/acknowledge"));
    let before = trial.daemon.changes().len();
    trial.post(&owner, "/alerts/acknowledge", &[("id", "7")]).await;
    trial.post(&owner, "/alerts/silence", &[("id", "7")]).await;
    trial.post(&owner, "/alerts/silence", &[("id", "x")]).await;
    let asked: Vec<Value> = trial.daemon.changes().into_iter().skip(before).map(|(_, body)| body).collect();
    let silence = json!({"action": "silence", "id": 7, "seconds": 28800});
    assert_eq!(asked, [json!({"action": "acknowledge", "id": 7}), silence]);
    // The guard's answer is offered for a client alone.
    assert!(!page.contains("/alerts/release"));
    let ruined = alert("files-ruined", "keeper at 127.0.0.1 ruins files.");
    trial.daemon.set("GET /v1/alerts", json!({"open": [ruined], "past": [], "receivers": []}));
    assert!(trial.get(&owner, "/alerts").await.text.contains("/+/alerts/release"));
    assert!(!trial.get(&looker, "/alerts").await.text.contains("/alerts/release"));
    trial.post(&owner, "/alerts/release", &[("id", "7")]).await;
    assert_eq!(trial.daemon.changes().last().unwrap().1, json!({"action": "release", "id": 7}));
    trial.post(&owner, "/alerts/test", &[]).await;
    assert!(trial.get(&owner, "/alerts").await.text.contains("mail: not delivered: no such host"));
}

#[tokio::test]
async fn pages_of_care_say_what_the_commands_say() {
    let trial = Trial::new();
    let (owner, looker) = (trial.log_in("owner").await, trial.log_in("looker").await);
    let log = trial.get(&looker, "/care/log").await.text;
    assert!(log.contains("an old line") && log.find("a warning") < log.find("an old line"), "the newest first");
    let log = trial.get(&looker, "/care/log?level=warn&since=x").await.text;
    assert!(log.contains("a warning") && !log.contains("an old line"));
    assert!(trial.get(&looker, "/care/log?since=1").await.text.contains("No line fits."));
    let power = trial.get(&looker, "/care/power?settings=a%3D1W:1m+b%3D2W:1m").await.text;
    for words in ["17.0 W", "58.08 EUR", "on battery", "80 %", "ups: silent", "look at it", "&lt;b&gt;", "<pre", "\n  "]
    {
        assert!(power.contains(words) || power.contains("&#60;b&#62;") && words == "&lt;b&gt;", "{words}: {power}");
    }
    assert!(trial.get(&looker, "/care/doctor?run=1").await.text.contains("The wire is the limit."));
    assert!(!trial.get(&looker, "/care/doctor").await.text.contains("The wire is the limit."));

    for key in ["POST /v1/snapshot-schedules", "POST /v1/scrub-schedules"] {
        trial.daemon.set(key, json!([]));
    }
    let fields = [("volume", "tank/files"), ("hourly", "24"), ("daily", ""), ("weekly", "0"), ("monthly", "1")];
    trial.post_shown(&owner, "/care", "/care/snapshots", &fields).await;
    trial.post_shown(&owner, "/care", "/care/snapshots", &[("volume", "tank/files")]).await;
    let wrong = [("volume", "tank/files"), ("hourly", "-1")];
    let refused = trial.post_shown(&owner, "/care", "/care/snapshots", &wrong).await.text;
    assert!(refused.contains("value=\"-1\"") && refused.contains("is not a number"), "{refused}");
    trial.post_shown(&owner, "/care", "/care/scrubs", &[("pool", "tank"), ("schedule", "daily")]).await;
    let asked: Vec<Value> = trial.daemon.changes().into_iter().map(|(_, body)| body).collect();
    let keep = json!({"hourly": 24, "daily": 0, "weekly": 0, "monthly": 1});
    let want = [
        json!({"volume": "tank/files", "keep": keep}),
        json!({"volume": "tank/files"}),
        json!({"pool": "tank", "schedule": "daily"}),
    ];
    assert_eq!(asked, want);
    assert_eq!(trial.post(&looker, "/care/scrubs", &[("pool", "tank")]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_user_sees_the_own_room() {
    let trial = Trial::new();
    let ann = trial.log_in("ann").await;
    let page = trial.get(&ann, "/me").await.text;
    assert!(
        page.contains("1.00 GiB</b> of your 4.00 GiB used on files") && page.contains("aria-valuenow=\"25\""),
        "{page}"
    );
    let owner = trial.log_in("owner").await;
    assert!(!trial.get(&owner, "/me").await.text.contains("used on files"), "the room of another user");
}

#[tokio::test]
async fn open_files_are_seen_and_closed() {
    let trial = Trial::new();
    trial.daemon.set("DELETE /v1/opens/smb-7", json!({}));
    let (owner, looker) = (trial.log_in("owner").await, trial.log_in("looker").await);
    let page = trial.get(&owner, "/connections").await.text;
    for words in
        ["/a.docx", "192.168.1.7, SMB", "read, write", "caches it", "And 2 older ones.", "SMB and NFS read ahead"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!trial.get(&looker, "/connections").await.text.contains("/connections/end-open"));
    assert_eq!(trial.post(&looker, "/connections/end-open", &[("id", "smb-7")]).await.status, StatusCode::FORBIDDEN);
    trial.post(&owner, "/connections/end-open", &[("id", "smb-7")]).await;
    assert_eq!(trial.daemon.changes().last().unwrap().0, "DELETE /v1/opens/smb-7");
    assert!(trial.get(&owner, "/connections").await.text.contains("closed for that client"));
}

#[tokio::test]
async fn what_destroys_needs_the_name_typed() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let victims = [
        ("/volume/destroy", "volume", "tank/files"),
        ("/volume/destroy-snapshot", "snapshot", "monday"),
        ("/volume/rollback", "snapshot", "monday"),
        ("/sharing/remove", "share", "files"),
        ("/people/remove-user", "user", "ann"),
        ("/people/remove-group", "group", "family"),
        ("/volume/encrypt", "volume", "tank/files"),
    ];
    for (path, field, name) in victims {
        for typed in ["", "no", &name.to_uppercase()] {
            let new = [("passphrase", "long enough"), ("again", "long enough")];
            let fields = [("volume", "tank/files"), (field, name), ("typed", typed), new[0], new[1]];
            let seen = trial.post(&owner, path, &fields).await;
            assert_eq!(seen.status, StatusCode::SEE_OTHER, "{path}");
        }
        assert!(trial.daemon.changes().is_empty(), "{path}");
        let page = trial.get(&owner, "/storage").await.text;
        assert!(page.contains("role=\"alert\"") && page.contains("nothing was destroyed"), "{path}");
    }
    for names in ["a%z", "a,b", "%"] {
        let fields = [("volume", "tank/files"), ("snapshot", names), ("typed", names)];
        trial.post(&owner, "/volume/destroy-snapshot", &fields).await;
    }
    assert!(trial.daemon.changes().is_empty(), "a range is no name");
    for (path, field, name) in victims {
        let new = [("passphrase", "long enough"), ("again", "long enough")];
        let fields = [("volume", "tank/files"), (field, name), ("typed", name), new[0], new[1]];
        trial.post(&owner, path, &fields).await;
    }
    assert_eq!(trial.daemon.changes().len(), victims.len());
}

/// `change.dry_run_first`, `change.named_by_serial`, `page.name_typed`
#[tokio::test]
async fn disks_change_after_a_dry_run() {
    let trial = Trial::new();
    trial.daemon.set("GET /v1/disks/health", json!([health("/mnt/a", "WD-1234")]));
    let owner = trial.log_in("owner").await;
    let asked = |trial: &Trial| -> Vec<Value> {
        let all = trial.daemon.asked.lock().unwrap();
        all.iter().filter(|(key, _)| key == "POST /v1/pools/tank/change").map(|(_, body)| body.clone()).collect()
    };
    let storage = trial.get(&owner, "/storage").await.text;
    assert!(storage.contains("href=\"/+/storage/change?pool=tank&#38;change=replace\""), "{storage}");
    let begun = trial.get(&owner, "/storage/change?pool=tank&change=replace").await.text;
    assert!(
        begun.contains("/mnt/c/larder")
            && !begun.contains("/mnt/full")
            && begun.contains("larder disk prepare /dev/sdd")
    );
    assert!(!begun.contains("method=\"post\" action=\"/+/storage/change\"") && asked(&trial).is_empty());

    let chosen = "/storage/change?pool=tank&change=replace&disk=a&new=/mnt/c/larder";
    let shown = trial.get(&owner, chosen).await.text;
    for words in
        ["serial number WD-1234", "<b>raidz2, 3 wide</b>", "1.00 TiB move between disks, about 2 h", "is slower"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let change = json!({"change": "replace", "old": "a", "new": "/mnt/c/larder", "dry_run": true});
    assert_eq!(asked(&trial), [change]);

    let fields = [("pool", "tank"), ("change", "replace"), ("disk", "a"), ("new", "/mnt/c/larder")];
    for typed in ["", "tank", "/mnt/b"] {
        trial.post(&owner, "/storage/change", &[&fields[..], &[("typed", typed)]].concat()).await;
    }
    assert!(trial.daemon.changes().is_empty(), "the disk's name was not typed");
    trial.post(&owner, "/storage/change", &[&fields[..], &[("typed", "/mnt/a")]].concat()).await;
    assert_eq!(trial.daemon.changes().last().unwrap().1["dry_run"], json!(false));
    assert!(trial.get(&owner, "/storage").await.text.contains("Replace a disk: begun."));

    let expected = [
        ("change=add&new=/x&new=/y", json!({"change": "add", "disks": ["/x", "/y"], "spare": false})),
        ("change=spare&other=%20/z%20", json!({"change": "add", "disks": ["/z"], "spare": true})),
        ("change=remove&disk=b", json!({"change": "remove", "disk": "b"})),
        ("change=keep&disk=b", json!({"change": "keep", "disk": "b"})),
        ("change=offline&disk=b", json!({"change": "offline", "disk": "b"})),
        ("change=online&disk=b", json!({"change": "online", "disk": "b"})),
        ("change=layout&layout=raidz2&width=4", json!({"change": "rebalance", "layout": "raidz2", "width": 4})),
    ];
    for (query, mut change) in expected {
        trial.get(&owner, &format!("/storage/change?pool=tank&{query}")).await;
        change["dry_run"] = json!(true);
        assert_eq!(asked(&trial).last().unwrap(), &change, "{query}");
    }
    let before = asked(&trial).len();
    for (query, words) in [
        ("change=replace&disk=nobody&new=/x", "no such disk"),
        ("change=replace&disk=a&new=/x&new=/y", "single new disk"),
        ("change=layout&layout=raidz2&width=x", "no number of disks"),
        ("change=burn&disk=a", "no change of a pool"),
    ] {
        let page = trial.get(&owner, &format!("/storage/change?pool=tank&{query}")).await.text;
        assert!(page.contains(words), "{query}: {page}");
    }
    assert_eq!(asked(&trial).len(), before);
}

#[tokio::test]
async fn keys_open_lock_and_change() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let locked = trial.get(&owner, "/volume?name=tank/locked").await.text;
    assert!(locked.contains("/+/volume/unlock") && !locked.contains("/+/volume/lock\""), "{locked}");
    let open = trial.get(&owner, "/volume?name=tank/secret").await.text;
    assert!(open.contains("/+/volume/lock\"") && !open.contains("/+/volume/unlock") && open.contains("opened it"));
    trial.daemon.set("POST /v1/keys/tank/locked", keys("locked", &["first"]));
    let of = |fields: &[(&'static str, &'static str)]| [&[("volume", "tank/locked")], fields].concat();
    trial.post(&owner, "/volume/unlock", &of(&[("kind", "passphrase"), ("secret", "s3")])).await;
    trial.post(&owner, "/volume/unlock", &of(&[("kind", "recovery"), ("secret", "r-k")])).await;
    trial.post(&owner, "/volume/lock", &of(&[])).await;
    let add = [("secret", "s3"), ("name", "two"), ("passphrase", "n"), ("again", "n")];
    trial.post(&owner, "/volume/add-key", &of(&add)).await;
    let remove = [("secret", "s3"), ("slot", "id-first"), ("slot_name", "first"), ("typed", "first")];
    trial.post(&owner, "/volume/remove-key", &of(&remove)).await;
    let secret = json!({"passphrase": "s3"});
    let asked: Vec<Value> = trial.daemon.changes().into_iter().map(|(_, body)| body).collect();
    let expected = [
        json!({"unlock": {"secret": secret}}),
        json!({"unlock": {"secret": {"recovery": "r-k"}}}),
        json!({"lock": {"force": false}}),
        json!({"add": {"secret": secret, "new": {"passphrase": "n"}, "name": "two"}}),
        json!({"remove": {"secret": secret, "slot": "id-first"}}),
    ];
    assert_eq!(asked, expected);
    for (path, fields) in [
        ("/volume/unlock", of(&[("secret", "")])),
        ("/volume/add-key", of(&[("secret", "s3"), ("name", "two"), ("passphrase", "n"), ("again", "m")])),
        ("/volume/remove-key", of(&[("secret", "s3"), ("slot", "id-first"), ("slot_name", "first"), ("typed", "")])),
    ] {
        trial.post(&owner, path, &fields).await;
        assert_eq!(trial.daemon.changes().len(), expected.len(), "{path}");
    }
    // A recovery key is on the answer, and on no page after it.
    let mut made = keys("locked", &["first"]);
    made["recovery_key"] = json!("AAAA-BBBB");
    trial.daemon.set("POST /v1/keys/tank/locked", made);
    let shown = trial.post(&owner, "/volume/add-recovery", &of(&[("secret", "s3")])).await;
    assert!(shown.status == StatusCode::OK && shown.text.contains("AAAA-BBBB"));
    assert_eq!(shown.header("cache-control"), "no-store");
    assert!(!trial.get(&owner, "/volume?name=tank/locked").await.text.contains("AAAA-BBBB"));

    let mut created = volume("new");
    created["recovery_key"] = json!("CCCC");
    trial.daemon.set("POST /v1/volumes", created);
    let fields = [("pool", "tank"), ("name", "new"), ("encrypt", "on"), ("passphrase", "n"), ("again", "n")];
    let shown = trial.post(&owner, "/storage/create", &[&fields[..], &[("recovery", "on")]].concat()).await;
    assert!(shown.text.contains("CCCC") && shown.text.contains("/+/volume?name=tank/new"));
    let asked = trial.daemon.changes().pop().unwrap().1;
    assert_eq!(asked["encrypt"], json!({"cipher": null, "secret": {"passphrase": "n"}, "recovery": true}));

    trial.daemon.set("PATCH /v1/volumes/tank/files", volume("files"));
    let quota = [("volume", "tank/files"), ("kind", "group"), ("owner", "family"), ("quota", "2G")];
    trial.post(&owner, "/volume/quota", &quota).await;
    assert_eq!(trial.daemon.changes().pop().unwrap().1, json!({"group_quotas": {"family": 2u64 << 30}}));
}

/// `config.diff_first`
#[tokio::test]
async fn a_configuration_is_applied_after_its_differences() {
    let trial = Trial::new();
    let change = json!({"entry": "[listen]", "how": "changed", "keys": [{"key": "nfs", "before": "\":2049\"", "after": EVIL}],
        "interrupts": ["ann, over NFS"], "at_next_start": true});
    let plan = json!({"file": "/etc/larder.toml", "base": "b-1", "changes": [change], "notes": [EVIL]});
    trial.daemon.set("POST /v1/config/plan", plan.clone());
    trial.daemon.set("POST /v1/config/apply", json!({"plan": plan, "notes": []}));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/care/config").await.text;
    assert!(page.contains("&#60;b&#62;") && !page.contains("<b>\"") && !page.contains("/config/apply"), "{page}");
    let planned = trial.post(&owner, "/care/config/plan", &[("text", "a\r\nb = \"</textarea><script>\"\r\n")]).await;
    assert_eq!(planned.status, StatusCode::OK);
    for words in ["ann, over NFS", "name=\"base\" value=\"b-1\"", "/+/care/config/apply", "at the next start"] {
        assert!(planned.text.contains(words), "{words}: {}", planned.text);
    }
    assert!(!planned.text.contains("</textarea><script>") && !planned.text.contains("<script>"));
    labelled("/care/config/plan", &planned.text);
    assert!(trial.daemon.changes().is_empty());
    trial.post(&owner, "/care/config/apply", &[("text", "a\r\nb"), ("base", "b-1")]).await;
    assert_eq!(trial.daemon.changes().pop().unwrap().1, json!({"text": "a\nb", "base": "b-1", "at_next_start": false}));
    assert!(trial.get(&owner, "/care/config").await.text.contains("At the next start: [listen]"));
    // What no file changes is not offered.
    let mut refused = plan.clone();
    refused["changes"][0]["refused"] = json!({"kind": "invalid", "message": "not by a file"});
    trial.daemon.set("POST /v1/config/plan", refused);
    let planned = trial.post(&owner, "/care/config/plan", &[("text", "a")]).await.text;
    assert!(planned.contains("not by a file") && !planned.contains("/+/care/config/apply"));
    let looker = trial.log_in("looker").await;
    assert!(!trial.get(&looker, "/care/config").await.text.contains("listen"), "the file is the owner's to read");
}

#[tokio::test]
async fn jobs_are_listed_and_ended() {
    let trial = Trial::new();
    let mut working = pool("ONLINE", &[disk("a", "ONLINE", 0)]);
    working["scrub"] = scrub("running");
    working["disks"][0]["leaving"] = json!(true);
    working["moving"] = json!({"why": "removing /mnt/a", "objects": 40, "objects_done": 10, "moved_bytes": 1, "seconds": 60,
        "seconds_left": 180, "stuck": "no room"});
    trial.daemon.set("GET /v1/pools/known", json!([working]));
    let mut volume = sealed("secret", false);
    volume["sealing"] = json!({"rekey": true, "running": true, "done_bytes": 1, "total_bytes": 4});
    trial.daemon.set("GET /v1/volumes", json!([volume]));
    let sending = json!({"volume": "tank/files", "to": "far:tank/copy", "sending": "monday", "sent_bytes": 1, "total_bytes": 2,
        "late": false});
    trial.daemon.set("GET /v1/replications", json!({"replications": [sending]}));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/care").await.text;
    for words in [
        "Scrub of tank",
        "removing /mnt/a",
        "no room",
        "change=keep&#38;disk=a",
        "New key: 1 B of 4 B",
        "Replica of tank/files to far:tank/copy: monday",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[tokio::test]
async fn boxes_are_paired_by_a_code() {
    let trial = Trial::new();
    trial
        .daemon
        .set("POST /v1/accept", json!({"code": "larder-CODE", "addr": "10.0.0.2:12070", "replica": "tank/copy"}));
    trial.daemon.set("POST /v1/replications", json!({"replications": []}));
    let owner = trial.log_in("owner").await;
    let shown = trial.post(&owner, "/care/accept", &[("replica", "tank/copy")]).await;
    assert!(
        shown.status == StatusCode::OK && shown.text.contains("larder-CODE") && shown.text.contains("10.0.0.2:12070")
    );
    assert!(!trial.get(&owner, "/care").await.text.contains("larder-CODE"));
    let fields = [("volume", "tank/files"), ("to", "far:12070/tank/copy"), ("code", "larder-CODE"), ("limit", "")];
    trial.post(&owner, "/care/replicate", &fields).await;
    let end = [("volume", "tank/files"), ("to", "far:12070/tank/copy"), ("typed", "tank")];
    trial.post(&owner, "/care/end-replication", &end).await;
    let added =
        json!({"add": {"volume": "tank/files", "to": "far:12070/tank/copy", "limit": null, "code": "larder-CODE"}});
    assert_eq!(trial.daemon.changes().pop().unwrap().1, added, "the name was not typed");
    let end = [("volume", "tank/files"), ("to", "far:12070/tank/copy"), ("typed", "tank/files")];
    trial.post(&owner, "/care/end-replication", &end).await;
    let removed = json!({"remove": {"volume": "tank/files", "to": "far:12070/tank/copy"}});
    assert_eq!(trial.daemon.changes().pop().unwrap().1, removed);
}

#[tokio::test]
async fn the_past_is_a_link_away() {
    let trial = Trial::new();
    let mut served = share("fi les");
    served["webdav"] = json!(true);
    trial.daemon.set("GET /v1/shares", json!([served]));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/snapshot?volume=tank/files&name=monday").await.text;
    assert!(page.contains("href=\"/fi%20les/.snapshots/monday/\""), "{page}");
    for (with, request) in [
        ("", json!({"earlier": "monday", "later": null})),
        ("tuesday", json!({"earlier": "monday", "later": "tuesday"})),
    ] {
        trial.get(&owner, &format!("/snapshot?volume=tank/files&name=monday&compare=1&with={with}")).await;
        assert_eq!(
            trial.daemon.asked.lock().unwrap().iter().rfind(|(key, _)| key.contains("diff")).unwrap().1,
            request
        );
    }
    trial.get(&owner, "/snapshot?volume=tank/files&name=tuesday&compare=1&with=monday").await;
    let asked = trial.daemon.asked.lock().unwrap().iter().rfind(|(key, _)| key.contains("diff")).unwrap().1.clone();
    assert_eq!(asked, json!({"earlier": "monday", "later": "tuesday"}), "the older one is first");
    let ann = trial.log_in("ann").await;
    let page = trial.get(&ann, "/me").await.text;
    assert!(
        page.contains("href=\"/fi%20les/.snapshots/tuesday/\"><time")
            && page.contains(">Wednesday</time></a>")
            && page.contains(">Tuesday</time></a>"),
        "{page}"
    );
    // A share that does not list the user is none of the user's business.
    let mut foreign = share("fi les");
    (foreign["webdav"], foreign["everybody"], foreign["users"]) = (json!(true), json!(false), json!(["bob"]));
    trial.daemon.set("GET /v1/shares", json!([foreign]));
    assert!(!trial.get(&ann, "/me").await.text.contains(".snapshots"));
}

/// A code of the clock, as a telephone shows it (RFC 6238).
fn code_of(secret: &str, step_offset: i64) -> String {
    use aws_lc_rs::hmac;
    let bits: String = secret
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric())
        .map(|letter| format!("{:05b}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".find(letter).unwrap()))
        .collect();
    let bytes: Vec<u8> = bits
        .as_bytes()
        .chunks_exact(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect();
    let step = (SystemClock::default().now().secs / 30 + step_offset) as u64;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes), &step.to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

impl Trial {
    /// The answer to name and password, and a browser with what it sets.
    async fn password(&self, name: &str) -> (Seen, Browser) {
        let form = self.get(&Browser::default(), "/login").await;
        let before = Browser { token: form.cookie(), csrf: form.csrf() };
        let seen = self.post(&before, "/login", &[("name", name), ("password", "right"), ("next", "/care")]).await;
        let csrf = if seen.status == StatusCode::OK { seen.csrf() } else { String::new() };
        let browser = Browser { token: seen.cookie(), csrf };
        (seen, browser)
    }

    /// Sets up a second factor; its secret and recovery codes.
    async fn with_factor(&self, browser: &Browser) -> (String, Vec<String>) {
        let begun = self.post(browser, "/me/factor", &[("current", "right")]).await.text;
        let secret = between(&begun, "<p class=\"secret\"><code>", "<").to_owned();
        assert!(begun.contains("<svg class=\"qr\"") && !begun.contains(" style="), "{begun}");
        let wrong = self.post(browser, "/me/factor/confirm", &[("code", "000")]).await;
        assert!(wrong.status == StatusCode::BAD_REQUEST && wrong.text.contains(&secret), "the same is shown again");
        let codes = self.post(browser, "/me/factor/confirm", &[("code", &code_of(&secret, -1))]).await.text;
        let codes = codes.split("<li><code>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()).collect();
        (secret, codes)
    }
}

#[tokio::test]
async fn a_second_factor_is_asked_for_after_the_password() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let refused = trial.post(&owner, "/me/factor", &[("current", "wrong")]).await;
    assert_eq!(refused.header("location"), "/+/me", "an open browser alone sets none up");
    let other = trial.log_in("owner").await;
    let (secret, codes) = trial.with_factor(&owner).await;
    assert_eq!(codes.len(), 10);
    assert_eq!(trial.get(&other, "/care").await.status, StatusCode::SEE_OTHER, "sessions of a password alone end");
    assert_eq!(trial.get(&owner, "/care").await.status, StatusCode::OK);
    let kept = String::from_utf8(trial.people.factors.lock().unwrap().clone()).unwrap();
    assert!(kept.contains("owner") && !codes.iter().any(|code| kept.contains(&code.replace('-', ""))));

    // The token between password and code opens nothing, and neither does the form without it.
    let (seen, half) = trial.password("owner").await;
    assert!(seen.status == StatusCode::OK && seen.text.contains("/+/login/code"));
    for path in ["/", "/care", "/me"] {
        assert_eq!(trial.get(&half, path).await.status, StatusCode::SEE_OTHER, "{path}");
    }
    let form = trial.get(&Browser::default(), "/login").await;
    let stranger = Browser { token: form.cookie(), csrf: form.csrf() };
    let stray = trial.post(&stranger, "/login/code", &[("code", &code_of(&secret, 0))]).await;
    assert_eq!((stray.status, stray.header("location")), (StatusCode::SEE_OTHER, "/+/login"));

    let wrong = trial.post(&half, "/login/code", &[("code", "123"), ("next", "/care")]).await;
    assert!(wrong.status == StatusCode::UNAUTHORIZED && wrong.text.contains("value=\"/care\""));
    let entered = trial.post(&half, "/login/code", &[("code", &code_of(&secret, 0)), ("next", "/care")]).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/care"));
    assert_ne!(entered.cookie(), half.token);
    let session = Browser { token: entered.cookie(), csrf: String::new() };
    assert_eq!(trial.get(&session, "/care").await.status, StatusCode::OK);
    let again = trial.post(&half, "/login/code", &[("code", &code_of(&secret, 1))]).await;
    assert_eq!(again.header("location"), "/+/login", "the password counts once");

    // The same code does not open twice; a recovery code opens once, and only once that is on disk.
    let (_, half) = trial.password("owner").await;
    let twice = trial.post(&half, "/login/code", &[("code", &code_of(&secret, 0))]).await;
    assert_eq!(twice.status, StatusCode::UNAUTHORIZED);
    trial.people.is_disk_full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(trial.post(&half, "/login/code", &[("code", &codes[0])]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    trial.people.is_disk_full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(trial.post(&half, "/login/code", &[("code", &codes[0])]).await.status, StatusCode::SEE_OTHER);
    let (_, half) = trial.password("owner").await;
    assert_eq!(trial.post(&half, "/login/code", &[("code", &codes[0])]).await.status, StatusCode::UNAUTHORIZED);

    // It survives a restart; damage of its file opens nothing.
    let after = Trial::new();
    after.web.take_factors(Some(kept.as_bytes()));
    assert!(after.password("owner").await.0.text.contains("/+/login/code"));
    let damaged = Trial::new();
    damaged.web.take_factors(Some(b"{"));
    assert_eq!(damaged.password("ann").await.0.status, StatusCode::SERVICE_UNAVAILABLE);

    // Its user ends it, and has shown who that is.
    trial.post(&owner, "/me/factor/end", &[("current", "wrong")]).await;
    assert!(trial.password("owner").await.0.text.contains("/+/login/code"));
    trial.post(&owner, "/me/factor/end", &[]).await;
    assert_eq!(trial.password("owner").await.0.status, StatusCode::SEE_OTHER);
}

/// `factors.end_with_a_reset`
#[tokio::test]
async fn a_password_set_by_the_owner_ends_second_factors_unless_they_are_kept() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    trial.daemon.set("POST /v1/users/ann/password", json!({"links": [], "passkeys": ["<b>phone"], "codes": true}));
    assert!(trial.get(&owner, "/people").await.text.contains("name=\"keep_factors\""));
    for (kept, fields) in [(false, vec![]), (true, vec![("keep_factors", "on")])] {
        let fields = [vec![("user", "ann"), ("password", "new")], fields].concat();
        trial.post(&owner, "/people/set-password", &fields).await;
        assert_eq!(trial.daemon.changes().last().unwrap().1["keep_factors"], json!(kept));
    }
    let page = trial.get(&owner, "/people").await.text;
    assert!(page.contains("The passkey &#60;b&#62;phone of ann has ended."), "{page}");
    assert!(page.contains("The codes of ann&#39;s telephone have ended."), "{page}");
    // A user's own new password keeps them.
    let ann = trial.log_in("ann").await;
    trial.post(&ann, "/me/password", &[("current", "right"), ("password", "new"), ("again", "new")]).await;
    assert_eq!(trial.daemon.changes().last().unwrap().1["keep_factors"], json!(true));

    trial.with_factor(&ann).await;
    trial.post(&ann, "/me/factor", &[("current", "right")]).await;
    let file = trial.people.factors.lock().unwrap().clone();
    let (rest, ended) = larder_web::factors_without(&file, "ann").unwrap();
    assert!(ended.has_codes && ended.passkeys.is_empty() && !String::from_utf8(rest).unwrap().contains("ann"));
    assert!(larder_web::factors_without(b"{", "ann").is_err());
    trial.people.is_disk_full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(trial.web.end_factors("ann").await.is_err());
    assert!(trial.password("ann").await.0.text.contains("/+/login/code"), "nothing ends before that is on disk");
    trial.people.is_disk_full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(trial.web.end_factors("ann").await.unwrap(), ended);
    assert_eq!(trial.password("ann").await.0.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_second_factor_may_be_demanded() {
    let trial = Trial::new();
    let (owner, ann) = (trial.log_in("owner").await, trial.log_in("ann").await);
    trial.post_shown(&owner, "/people", "/people/demand-factor", &[("demanded", "on")]).await;
    assert!(trial.get(&owner, "/people").await.text.contains("you have no second factor yourself"));
    trial.with_factor(&owner).await;
    trial.post_shown(&owner, "/people", "/people/demand-factor", &[("demanded", "on")]).await;
    assert_eq!(trial.get(&owner, "/people").await.status, StatusCode::OK);
    // Whoever has none yet sets one up, and does nothing else; files are shut, too.
    let page = trial.get(&ann, "/me").await.text;
    assert!(page.contains("demands a second factor"));
    for path in ["/me/password", "/me/create-token", "/me/add-key", "/me/revoke-link"] {
        let seen = trial.post(&ann, path, &[("current", "right"), ("key", "x"), ("name", "x")]).await;
        assert_eq!(seen.header("location"), "/+/me", "{path}");
    }
    assert!(trial.daemon.changes().is_empty());
    let mut headers = hyper::HeaderMap::new();
    headers.insert("cookie", format!("larder-page={}", ann.token).parse().unwrap());
    assert!(trial.web.known(&headers, true).is_none());
    let back = trial.get(&ann, "/login?next=/%3Fshares").await;
    assert_eq!(back.header("location"), "/+/me", "the files would send the browser back here");
    trial.with_factor(&ann).await;
    assert!(trial.web.known(&headers, true).is_some());
    // The owner helps whoever lost a telephone.
    trial.post(&owner, "/people/end-factor", &[("user", "ann"), ("typed", "x")]).await;
    assert!(trial.web.known(&headers, true).is_some());
    trial.post(&owner, "/people/end-factor", &[("user", "ann"), ("typed", "ann")]).await;
    assert!(trial.web.known(&headers, true).is_none());
}

/// An authenticator with one key of P-256.
struct Soft {
    pair: EcdsaKeyPair,
    count: u32,
    verifies: bool,
}

fn url64(bytes: &[u8]) -> String {
    use base64ct::Encoding;
    base64ct::Base64UrlUnpadded::encode_string(bytes)
}

impl Soft {
    fn new() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        Self { pair, count: 0, verifies: true }
    }

    fn id(&self) -> &[u8] {
        &self.pair.public_key().as_ref()[1..17]
    }

    fn data(&self, flags: u8) -> Vec<u8> {
        let hash = digest::digest(&digest::SHA256, b"nas.local");
        let flags = flags | 1 | u8::from(self.verifies) << 2;
        [hash.as_ref(), &[flags], &self.count.to_be_bytes()].concat()
    }

    fn client(kind: &str, question: &Value) -> Vec<u8> {
        json!({"type": kind, "challenge": question["challenge"], "origin": "http://nas.local:10443"})
            .to_string()
            .into_bytes()
    }

    fn make(&self, question: &Value) -> Vec<(&'static str, String)> {
        let point = self.pair.public_key().as_ref();
        let key = [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..], &point[1..33], &[0x22, 0x58, 32], &point[33..]];
        let data = [&self.data(64)[..], &[0; 16], &[0, 16], self.id(), &key.concat()].concat();
        let object =
            [b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58", &[u8::try_from(data.len()).unwrap()][..], &data]
                .concat();
        vec![("client", url64(&Self::client("webauthn.create", question))), ("attestation", url64(&object))]
    }

    fn sign(&self, question: &Value, handle: &str) -> Vec<(&'static str, String)> {
        let (client, data) = (Self::client("webauthn.get", question), self.data(0));
        let message = [&data[..], digest::digest(&digest::SHA256, &client).as_ref()].concat();
        let signature = self.pair.sign(&SystemRandom::new(), &message).unwrap();
        vec![
            ("id", url64(self.id())),
            ("client", url64(&client)),
            ("data", url64(&data)),
            ("signature", url64(signature.as_ref())),
            ("handle", handle.to_owned()),
            ("next", "/care".to_owned()),
        ]
    }
}

/// The question that a page has for the browser.
fn question(page: &str) -> Value {
    let text = between(page, "data-question value=\"", "\"").replace("&#34;", "\"").replace("&quot;", "\"");
    serde_json::from_str(&text).unwrap()
}

impl Trial {
    async fn post_owned(&self, browser: &Browser, path: &str, fields: &[(&'static str, String)]) -> Seen {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(browser, path, &fields).await
    }

    /// Adds a passkey; the user's handle.
    async fn with_passkey(&self, browser: &Browser, soft: &Soft) -> String {
        let page = self.post(browser, "/me/passkey", &[("current", "right"), ("name", "stick")]).await.text;
        let question = question(&page);
        let mut fields = soft.make(&question);
        fields.push(("name", "stick".to_owned()));
        let added = self.post_owned(browser, "/me/passkey/add", &fields).await;
        assert!(added.status == StatusCode::OK && added.text.contains("<li><code>"), "recovery codes: {}", added.text);
        let again = self.post_owned(browser, "/me/passkey/add", &fields).await;
        assert_eq!(again.status, StatusCode::SEE_OTHER, "a question is answered once");
        question["user"]["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_passkey_is_a_second_factor_and_a_first_one() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let refused = trial.post(&owner, "/me/passkey", &[("current", "wrong"), ("name", "stick")]).await;
    assert_eq!(refused.header("location"), "/+/me", "an open browser alone adds none");
    let other = trial.log_in("owner").await;
    let mut soft = Soft::new();
    let handle = trial.with_passkey(&owner, &soft).await;
    assert_eq!(trial.get(&other, "/care").await.status, StatusCode::SEE_OTHER, "sessions of a password alone end");
    assert!(trial.get(&owner, "/me").await.text.contains("stick"));

    // After the password.
    let (seen, half) = trial.password("owner").await;
    let asked = question(&seen.text);
    assert_eq!(asked["allowCredentials"][0]["id"], json!(url64(soft.id())));
    let stranger = trial.post_owned(&half, "/login/passkey", &Soft::new().sign(&asked, &handle)).await;
    assert!(stranger.status == StatusCode::UNAUTHORIZED && stranger.text.contains("not known here"));
    soft.verifies = false;
    soft.count = 1;
    let entered = trial.post_owned(&half, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/care"), "{}", entered.text);
    let replayed = trial.post_owned(&half, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert_eq!(replayed.status, StatusCode::UNAUTHORIZED);

    // In place of it, where the authenticator knows its person.
    let form = trial.get(&Browser::default(), "/login").await;
    let before = Browser { token: form.cookie(), csrf: form.csrf() };
    let asked = question(&form.text);
    soft.count = 2;
    let unknown = trial.post_owned(&before, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert!(unknown.status == StatusCode::UNAUTHORIZED && unknown.text.contains("who you are"));
    soft.verifies = true;
    for wrong in ["", "another"] {
        assert_eq!(
            trial.post_owned(&before, "/login/passkey", &soft.sign(&asked, wrong)).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    let form = trial.get(&Browser::default(), "/login").await;
    let thief = Browser { token: form.cookie(), csrf: form.csrf() };
    let moved = trial.post_owned(&thief, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert_eq!(moved.status, StatusCode::UNAUTHORIZED, "a question of another browser");
    let entered = trial.post_owned(&before, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/care"), "{}", entered.text);
    assert_ne!(entered.cookie(), before.token);
    assert_eq!(*trial.people.entered.lock().unwrap(), ["owner by passkey"]);

    // A counter that goes back is a copy's.
    let asked = question(&form.text);
    soft.count = 1;
    let copied = trial.post_owned(&thief, "/login/passkey", &soft.sign(&asked, &handle)).await;
    assert!(copied.status == StatusCode::UNAUTHORIZED && copied.text.contains("copy"), "{}", copied.text);

    // Another user of that name is another user.
    *trial.people.uid.lock().unwrap() = 7;
    let form = trial.get(&Browser::default(), "/login").await;
    let thief = Browser { token: form.cookie(), csrf: form.csrf() };
    soft.count = 9;
    let other = trial.post_owned(&thief, "/login/passkey", &soft.sign(&question(&form.text), &handle)).await;
    assert!(other.status == StatusCode::UNAUTHORIZED && other.text.contains("another user"), "{}", other.text);
    *trial.people.uid.lock().unwrap() = 0;

    // It has a name, and ends by the password.
    let id = url64(soft.id());
    trial.post(&owner, "/me/passkey/rename", &[("passkey", &id), ("name", "<b>ring")]).await;
    assert!(trial.get(&owner, "/me").await.text.contains("&#60;b&#62;ring"));
    trial.post(&owner, "/me/passkey/remove", &[("passkey", &id), ("current", "wrong")]).await;
    assert!(trial.password("owner").await.0.status == StatusCode::OK);
    trial.post(&owner, "/me/passkey/remove", &[("passkey", &id), ("current", "right")]).await;
    assert_eq!(trial.password("owner").await.0.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn an_address_has_no_passkeys() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let at_address = |path: &str| {
        let request = Request::get(at(path)).header("host", "192.168.1.2:10443");
        trial.send(request, &owner.token, String::new())
    };
    assert!(at_address("/me").await.text.contains("Browsers keep passkeys for names alone"));
    let form = trial.send(Request::get(at("/login")).header("host", "[fd00::1]:10443"), "", String::new()).await;
    assert!(!form.text.contains("data-passkey"));
    assert!(trial.get(&Browser::default(), "/login").await.text.contains("data-passkey"));
}

/// A form, and the name and password with it.
type Posted = (String, Option<(String, String)>);

/// An issuer in memory: what it answers by address.
#[derive(Default)]
struct Office {
    answers: Mutex<HashMap<String, Value>>,
    posted: Mutex<Vec<Posted>>,
    /// Access tokens that were shown.
    shown: Mutex<Vec<String>>,
    sub: Mutex<String>,
}

impl Fetch for Office {
    fn get(&self, url: String, bearer: Option<String>) -> BoxFuture<'_, Result<Bytes, String>> {
        self.shown.lock().unwrap().extend(bearer);
        let answer = self.answers.lock().unwrap().get(&url).cloned();
        Box::pin(async move {
            answer.map(|answer| Bytes::from(answer.to_string())).ok_or("it cannot be reached".to_owned())
        })
    }

    fn post(&self, url: String, form: String, basic: Option<(String, String)>) -> BoxFuture<'_, Result<Bytes, String>> {
        self.posted.lock().unwrap().push((form, basic));
        self.get(url, None)
    }

    fn client_secret(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async { Ok(Some("s e:cret".to_owned())) })
    }
}

const ISSUER: &str = "https://id.test";

impl Office {
    fn set(&self, path: &str, answer: Value) {
        self.answers.lock().unwrap().insert(format!("{ISSUER}{path}"), answer);
    }

    fn new(pair: &EcdsaKeyPair) -> Arc<Self> {
        let office = Arc::new(Self { sub: Mutex::new("1".to_owned()), ..Self::default() });
        office.set(
            "/.well-known/openid-configuration",
            json!({"issuer": ISSUER, "authorization_endpoint": "https://id.test/in", "token_endpoint": "https://id.test/token",
                "jwks_uri": "https://id.test/keys"}),
        );
        office.turn_keys(pair, "a");
        office
    }

    fn turn_keys(&self, pair: &EcdsaKeyPair, kid: &str) {
        let point = pair.public_key().as_ref();
        let key = json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": url64(&point[1..33]), "y": url64(&point[33..])});
        self.set("/keys", json!({"keys": [key]}));
    }

    /// Without a user: the token has the subject alone.
    fn answer(&self, pair: &EcdsaKeyPair, kid: &str, user: &str, nonce: &str) {
        let now = SystemClock::default().now().secs;
        let part = |value: Value| url64(value.to_string().as_bytes());
        let mut claims = json!({"iss": ISSUER, "aud": "nas", "sub": *self.sub.lock().unwrap(), "exp": now + 60,
            "iat": now, "nonce": nonce});
        if !user.is_empty() {
            claims["preferred_username"] = json!(user);
        }
        let message = format!("{}.{}", part(json!({"alg": "ES256", "kid": kid})), part(claims));
        let signature = pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        self.set(
            "/token",
            json!({"id_token": format!("{message}.{}", url64(signature.as_ref())), "access_token": "x"}),
        );
    }
}

fn pair() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

/// A box whose people may come from the office.
fn with_office(office: &Arc<Office>, claim: &str) -> Trial {
    let mut trial = Trial::new();
    let options = IssuerOptions {
        issuer: ISSUER.to_owned(),
        client_id: "nas".to_owned(),
        user_claim: claim.to_owned(),
        label: "Office".to_owned(),
    };
    let clock = (Arc::new(SystemClock::default()) as Arc<dyn Clock>, Options { is_secure: false, files: None });
    let issuer = Some(Issuer::new(options, office.clone()));
    trial.web = Web::with_issuer(trial.daemon.clone(), trial.people.clone(), clock, issuer);
    trial
}

/// Somebody comes from the office; returns the browser, too.
async fn comes(trial: &Trial, office: &Office, by: (&EcdsaKeyPair, &str), user: &str) -> (Seen, Browser) {
    let seen = trial.get(&Browser::default(), "/login/issuer?next=/%2B/care").await;
    let way = seen.header("location").to_owned();
    let part = |name: &str| way.split_once(&format!("&{name}=")).unwrap().1.split('&').next().unwrap().to_owned();
    office.answer(by.0, by.1, user, &part("nonce"));
    let browser = Browser { token: seen.cookie(), csrf: String::new() };
    let finish = format!("/login/finish?code=c&state={}&error=", part("state"));
    (trial.get(&browser, &finish).await, browser)
}

/// The form that asks for the password of somebody who comes for the first time, filled in.
async fn shows(trial: &Trial, (form, browser): &(Seen, Browser), password: &str) -> Seen {
    assert!(form.status != StatusCode::SEE_OTHER && form.text.contains("action=\"/+/login/issuer\""), "{}", form.text);
    let ticket = between(&form.text, "name=\"ticket\" value=\"", "\"").to_owned();
    let csrf = between(&form.text, "name=\"csrf\" value=\"", "\"").to_owned();
    let browser = Browser { token: browser.token.clone(), csrf };
    trial.post(&browser, "/login/issuer", &[("ticket", &ticket), ("password", password)]).await
}

fn is_in(seen: &Seen) -> bool {
    seen.status == StatusCode::SEE_OTHER && seen.header("location") == "/+/care"
}

/// `oidc.bound_once`
#[tokio::test]
async fn names_at_an_issuer_are_bound_to_a_person_once() {
    let key = pair();
    let (office, by) = (Office::new(&key), (&key, "a"));
    let trial = with_office(&office, "preferred_username");
    let is = |sub: &str| *office.sub.lock().unwrap() = sub.to_owned();
    let come = async |user: &str| comes(&trial, &office, by, user).await;

    // Somebody calls himself by the name of another.
    is("4711");
    let eve = come("ann").await;
    assert!(eve.0.text.contains("You come from Office as ann for the first time"), "{}", eve.0.text);
    let wrong = shows(&trial, &eve, "guess").await;
    assert!(wrong.status == StatusCode::UNAUTHORIZED && wrong.text.contains("password is wrong"), "{}", wrong.text);
    assert!(!is_in(&come("ann").await.0), "and nothing is bound");
    // The password, which nothing else takes the place of, is asked for once.
    is("1");
    let ann = come("ann").await;
    trial.people.is_disk_full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(!is_in(&shows(&trial, &ann, "right").await), "nobody is bound before that is on disk");
    trial.people.is_disk_full.store(false, std::sync::atomic::Ordering::Relaxed);
    let ann = come("ann").await;
    assert!(is_in(&shows(&trial, &ann, "right").await));
    assert_eq!(shows(&trial, &ann, "right").await.status, StatusCode::UNAUTHORIZED, "a ticket is good once");
    assert!(is_in(&come("ann").await.0));
    // She is known by whatever name she has there; another is nobody under hers.
    assert!(is_in(&come("anna").await.0) && is_in(&come("owner").await.0));
    assert_eq!(trial.people.entered.lock().unwrap().last().unwrap(), "ann by Office");
    is("4711");
    let eve = come("ann").await.0;
    assert!(
        eve.status == StatusCode::UNAUTHORIZED && eve.text.contains("ann is somebody else at Office"),
        "{}",
        eve.text
    );
    // Nobody gives a password that there is not.
    let guest = come("guest").await.0;
    assert!(guest.status == StatusCode::UNAUTHORIZED && guest.text.contains("has no password here"), "{}", guest.text);
    // It outlives a restart, and ends with the user, by whatever number the next has, or when the owner says so.
    let file = trial.people.factors.lock().unwrap().clone();
    let again = with_office(&office, "preferred_username");
    again.web.take_factors(Some(&file));
    is("1");
    assert!(is_in(&comes(&again, &office, by, "ann").await.0));
    assert!(larder_web::factors_without(&file, "ann").unwrap().1.was_issued);
    *again.people.uid.lock().unwrap() += 1;
    assert!(!is_in(&comes(&again, &office, by, "ann").await.0));
    let owner = trial.log_in("owner").await;
    assert!(trial.get(&owner, "/people").await.text.contains("/+/people/end-issued"));
    trial.post(&owner, "/people/end-issued", &[("user", "ann")]).await;
    assert!(!is_in(&come("ann").await.0));
    let ann = come("ann").await;
    assert!(is_in(&shows(&trial, &ann, "right").await));
    assert!(trial.web.end_factors("ann").await.unwrap().was_issued);
    assert!(!is_in(&come("ann").await.0));
    // A second factor comes before it, too.
    let browser = trial.log_in("ann").await;
    trial.with_factor(&browser).await;
    let ann = come("ann").await;
    let asked = shows(&trial, &ann, "right").await;
    assert!(asked.status == StatusCode::OK && asked.text.contains("/+/login/code"), "{}", asked.text);
    assert!(come("ann").await.0.text.contains("for the first time"), "no code, nobody is bound");
    // Subjects are names for good: they need no other proof.
    let trial = with_office(&office, "sub");
    is("guest");
    assert!(is_in(&comes(&trial, &office, by, "").await.0));
}

/// Core 5.3.2, 5.4: issuers whose tokens have the subject alone.
#[tokio::test]
async fn what_a_token_does_not_say_is_asked_for() {
    let key = pair();
    let (office, by) = (Office::new(&key), (&key, "a"));
    let trial = with_office(&office, "preferred_username");
    let none = comes(&trial, &office, by, "").await.0;
    assert!(none.text.contains("it says no &#39;preferred_username&#39; of you"), "{}", none.text);
    let document = json!({"issuer": ISSUER, "authorization_endpoint": "https://id.test/in",
        "token_endpoint": "https://id.test/token", "jwks_uri": "https://id.test/keys",
        "userinfo_endpoint": "https://id.test/me"});
    office.set("/.well-known/openid-configuration", document);
    let trial = with_office(&office, "preferred_username");
    office.set("/me", json!({"sub": "1", "preferred_username": "ann"}));
    assert!(comes(&trial, &office, by, "").await.0.text.contains("You come from Office as ann"));
    assert_eq!(*office.shown.lock().unwrap(), ["x"]);
    for (answer, why) in [
        (json!({"sub": "2", "preferred_username": "ann"}), "about somebody else"),
        (json!({"preferred_username": "ann"}), "cannot be read"),
        (json!({"sub": "1", "preferred_username": ["ann"]}), "it says no"),
    ] {
        office.set("/me", answer);
        let seen = comes(&trial, &office, by, "").await.0;
        assert!(seen.status != StatusCode::SEE_OTHER && seen.text.contains(why), "{why}: {}", seen.text);
    }
}

#[tokio::test]
async fn people_log_in_by_an_issuer() {
    let (first, second) = (pair(), pair());
    let office = Office::new(&first);
    let trial = with_office(&office, "preferred_username");
    let bound = comes(&trial, &office, (&first, "a"), "ann").await;
    assert!(is_in(&shows(&trial, &bound, "right").await));
    office.posted.lock().unwrap().clear();
    assert!(trial.get(&Browser::default(), "/login").await.text.contains("Log in with Office"));

    // There: the way, and what the browser keeps.
    let begin = async || {
        let seen = trial.get(&Browser::default(), "/login/issuer?next=/%2B/care").await;
        let way = seen.header("location").to_owned();
        assert!(way.starts_with("https://id.test/in?response_type=code&"), "{way}");
        assert!(way.contains("redirect_uri=http%3A%2F%2Fnas.local%3A10443%2F%2B%2Flogin%2Fback"), "{way}");
        assert!(way.contains("code_challenge_method=S256"));
        let part = |name: &str| way.split_once(&format!("&{name}=")).unwrap().1.split('&').next().unwrap().to_owned();
        (Browser { token: seen.cookie(), csrf: String::new() }, part("state"), part("nonce"), part("code_challenge"))
    };
    let finish = async |browser: &Browser, state: &str| {
        let back = trial.get(&Browser::default(), &format!("/login/back?code=c&state={state}&error=")).await;
        let href = between(&back.text, "content=\"0;url=", "\"").replace("&#38;", "&").replace("&amp;", "&");
        trial.get(browser, &href).await
    };
    let (browser, state, nonce, challenge) = begin().await;
    office.answer(&first, "a", "ann", &nonce);
    let entered = finish(&browser, &state).await;
    assert_eq!((entered.status, entered.header("location")), (StatusCode::SEE_OTHER, "/+/care"), "{}", entered.text);
    let session = Browser { token: entered.cookie(), csrf: String::new() };
    assert_eq!(trial.get(&session, "/me").await.status, StatusCode::OK);
    assert_eq!(*trial.people.entered.lock().unwrap(), ["ann by Office"]);
    let (form, basic) = office.posted.lock().unwrap().pop().unwrap();
    assert_eq!(basic, Some(("nas".to_owned(), "s%20e%3Acret".to_owned())));
    let proof = form.split_once("code_verifier=").unwrap().1;
    assert_eq!(url64(digest::digest(&digest::SHA256, proof.as_bytes()).as_ref()), challenge);

    // A state is good once, and in its browser.
    assert_eq!(finish(&browser, &state).await.status, StatusCode::UNAUTHORIZED);
    let (_, state, nonce, _) = begin().await;
    office.answer(&first, "a", "ann", &nonce);
    assert_eq!(finish(&browser, &state).await.status, StatusCode::UNAUTHORIZED);

    // Another log-in's token, somebody who is not here, keys that turned.
    let (browser, state, _, _) = begin().await;
    let other = finish(&browser, &state).await;
    assert!(other.status == StatusCode::UNAUTHORIZED && other.text.contains("another log-in"), "{}", other.text);
    trial.people.gone.lock().unwrap().push("eve".to_owned());
    let (browser, state, nonce, _) = begin().await;
    *office.sub.lock().unwrap() = "2".to_owned();
    office.answer(&first, "a", "eve", &nonce);
    *office.sub.lock().unwrap() = "1".to_owned();
    assert!(finish(&browser, &state).await.text.contains("there is no user eve here"));
    let (browser, state, nonce, _) = begin().await;
    office.answer(&second, "b", "ann", &nonce);
    assert!(finish(&browser, &state).await.text.contains("a key that it does not have"));
    office.turn_keys(&second, "b");
    let (browser, state, nonce, _) = begin().await;
    office.answer(&second, "b", "ann", &nonce);
    assert_eq!(finish(&browser, &state).await.status, StatusCode::SEE_OTHER);

    // Second factors stay here.
    let ann = trial.log_in("ann").await;
    trial.with_factor(&ann).await;
    let (browser, state, nonce, _) = begin().await;
    office.answer(&second, "b", "ann", &nonce);
    let asked = finish(&browser, &state).await;
    assert!(asked.status == StatusCode::OK && asked.text.contains("/+/login/code"));

    // It is away: the password works.
    office.answers.lock().unwrap().remove(&format!("{ISSUER}/token"));
    let (browser, state, _, _) = begin().await;
    let away = finish(&browser, &state).await;
    assert!(
        away.status == StatusCode::SERVICE_UNAVAILABLE && away.text.contains("Your password here works"),
        "{}",
        away.text
    );
    trial.log_in("owner").await;
    // A browser that was refused shows nothing of what the issuer's address said.
    let strange = trial.get(&browser, "/login/back?error=%3Cb%3E&state=%22%3E%3Cscript%3E").await.text;
    assert!(!strange.contains("<b>") && !strange.contains("<script>\""));
}

#[tokio::test]
async fn a_bench_is_started_watched_and_stopped() {
    let trial = Trial::new();
    trial.daemon.set("POST /v1/bench", json!({}));
    trial.daemon.set("DELETE /v1/bench", json!({}));
    trial.daemon.set("DELETE /v1/benches/b1", json!({}));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/care/bench").await.text;
    assert!(page.contains("51 %") && page.contains("123 MB/s, 118 IOPS") && page.contains("value=\"/mnt/files\""));
    let fields = [
        ("kind", "disk"),
        ("path", "/mnt/a"),
        ("more", "/mnt/b\r\n\r\n /dev/sdc "),
        ("preset", "quick"),
        ("size", "1G"),
    ];
    trial.post(&owner, "/care/bench/start", &fields).await;
    let share = [("kind", "share"), ("target", "smb://nas/x"), ("user", "me"), ("password", " p "), ("preset", "iops")];
    trial.post(&owner, "/care/bench/start", &share).await;
    trial.post(&owner, "/care/bench/start", &[("kind", "everything"), ("preset", "quick")]).await;
    trial.post(&owner, "/care/bench/stop", &[]).await;
    trial.post(&owner, "/care/bench/remove", &[("id", "b1")]).await;
    let asked = trial.daemon.changes();
    let disk = json!({"kind": "disk", "paths": ["/mnt/a", "/mnt/b", "/dev/sdc"]});
    assert_eq!(asked[0].1, json!({"subject": disk, "preset": "quick", "size_bytes": 1u64 << 30}));
    let share = json!({"kind": "share", "target": "smb://nas/x", "user": "me", "password": " p "});
    assert_eq!(asked[1].1["subject"], share);
    let keys: Vec<&str> = asked.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys[2..], ["DELETE /v1/bench", "DELETE /v1/benches/b1"]);
}

#[tokio::test]
async fn a_pool_on_other_disks_is_shown_before_it_is_opened() {
    let trial = Trial::new();
    let mut found = found();
    let old = |missing: usize| {
        json!({"name": "old", "id": "p2", "layout": "mirror", "folders": ["/mnt/x/larder"], "missing": missing,
        "is_importable": true})
    };
    found["pools"] = json!([old(1), {"name": "tank", "id": "p1", "layout": "raidz1", "folders": ["/media/a"], "missing": 0, "is_importable": true},
        {"name": "closed", "id": "p3", "layout": "mirror", "folders": ["/mnt/a"], "missing": 0, "is_importable": true}]);
    trial.daemon.set("GET /v1/disks", found);
    trial.daemon.set("GET /v1/pools/known", json!([pool("ONLINE", &[disk("a", "ONLINE", 0)])]));
    trial.daemon.set("POST /v1/pools/import", pool("ONLINE", &[disk("x", "ONLINE", 0)]));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/storage/found").await.text;
    assert!(
        page.contains("These disks hold a larder: old")
            && page.contains("1 disk is missing")
            && !page.contains("larder: tank")
            && !page.contains("larder: closed")
    );
    for (typed, folder) in [("x", "/mnt/x/larder"), ("old", "/etc")] {
        trial.post(&owner, "/storage/import", &[("pool", "old"), ("folder", folder), ("typed", typed)]).await;
    }
    assert!(trial.daemon.changes().is_empty());
    let yes = [("pool", "old"), ("folder", "/mnt/x/larder"), ("typed", "old"), ("degraded", "on")];
    trial.post(&owner, "/storage/import", &yes).await;
    let asked = trial.daemon.changes();
    assert_eq!(asked[0].1, json!({"disks": ["/mnt/x/larder"], "force": false, "degraded": true, "pool": "old"}));
}

#[tokio::test]
async fn codes_are_not_guessed() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let (secret, _) = trial.with_factor(&owner).await;
    for _ in 0..5 {
        let (_, half) = trial.password("owner").await;
        assert_eq!(trial.post(&half, "/login/code", &[("code", "1")]).await.status, StatusCode::UNAUTHORIZED);
    }
    let (_, half) = trial.password("owner").await;
    let refused = trial.post(&half, "/login/code", &[("code", &code_of(&secret, 0))]).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "a new password gives no new guesses");
}

#[tokio::test]
async fn no_name_brings_markup_into_a_page() {
    let trial = Trial::new();
    let d = &trial.daemon;
    d.set("GET /v1/bench", bench_state(EVIL));
    d.set("GET /v1/mounts", json!([{"dir": EVIL, "volume": EVIL, "read_only": false}]));
    let mut evil_disk = disk(EVIL, "DEGRADED", 3);
    evil_disk["note"] = json!(EVIL);
    let mut evil_pool = pool("DEGRADED", &[evil_disk]);
    for field in ["name", "layout", "status", "action", "scan"] {
        evil_pool[field] = json!(EVIL);
    }
    evil_pool["notes"] = json!([EVIL]);
    evil_pool["spares"] = json!([EVIL]);
    evil_pool["moving"] = json!({"why": EVIL, "objects": 9, "objects_done": 3, "moved_bytes": 5, "seconds": 6,
        "seconds_left": 7, "stuck": EVIL});
    evil_pool["damage"] =
        json!({"files": [{"volume": EVIL, "inode": 1, "paths": [EVIL], "ranges": []}], "metadata": [], "more": 2});
    d.set("GET /v1/pools/known", json!([evil_pool]));
    let mut evil_share = share(EVIL);
    for field in ["volume", "folder", "fault", "action", "nfs_rule", "smb_rule"] {
        evil_share[field] = json!(EVIL);
    }
    evil_share["users"] = json!([EVIL]);
    evil_share["options"] = json!([EVIL]);
    d.set("GET /v1/shares", json!([evil_share, share("files")]));
    let volumes = json!([volume("files"), volume(EVIL), sealed("secret", false), sealed("locked", true)]);
    d.set("GET /v1/volumes", volumes);
    d.set("GET /v1/keys/tank/secret", keys("secret", &[EVIL, "second"]));
    d.set("GET /v1/keys/tank/locked", keys("locked", &[EVIL]));
    let mut evil_plan = plan();
    evil_plan["warnings"] = json!([EVIL]);
    evil_plan["after"]["layout"] = json!(EVIL);
    d.set("POST /v1/pools/tank/change", evil_plan);
    let mut evil_found = found();
    for pointer in ["/disks/0/model", "/disks/0/serial", "/disks/0/device", "/folders/0/path", "/folders/0/disks/0"] {
        *evil_found.pointer_mut(pointer).unwrap() = json!(EVIL);
    }
    evil_found["pools"] =
        json!([{"name": EVIL, "id": EVIL, "layout": EVIL, "folders": [EVIL], "missing": 1, "is_importable": true}]);
    d.set("GET /v1/disks", evil_found);
    let mut evil_snapshot = snapshot(EVIL, 1_700_000_000_000);
    evil_snapshot["holds"] = json!([{"reason": EVIL}]);
    evil_snapshot["clones"] = json!([EVIL]);
    d.set("GET /v1/snapshots/tank/files", json!({"pool": "tank", "volume": "files", "snapshots": [evil_snapshot]}));
    let mut busy = connection(EVIL, "client");
    busy["sentence"] = json!(EVIL);
    d.set("GET /v1/top", top(&[busy, connection(EVIL, "nothing")]));
    let mut open = opened();
    (open["path"], open["user"], open["share"]) = (json!(EVIL), json!(EVIL), json!(EVIL));
    d.set("GET /v1/opens", json!({"opens": [open], "more": 0}));
    d.set("GET /v1/log", json!({"lines": [{"at_ms": 1, "level": "error", "text": EVIL}], "dropped": 0}));
    let meter = json!({"source": EVIL, "of": EVIL, "basis": EVIL, "watts": 1.0});
    d.set("GET /v1/power", json!({"total": meter, "readings": [meter], "faults": [{"text": EVIL, "action": EVIL}]}));
    d.set("GET /v1/doctor", json!({"verdict": EVIL, "text": EVIL, "why": EVIL}));
    for key in ["POST /v1/power/what-if", "GET /v1/power/awake", "GET /v1/benches/b1", "POST /v1/benches/compare"] {
        d.set(key, json!({"text": EVIL}));
    }
    let bench = json!({"id": "b1", "title": EVIL, "preset": EVIL, "started_ms": 0, "seconds": 1.0, "runs": 1,
        "interrupted": false});
    d.set("GET /v1/benches", json!([bench]));
    d.set("GET /v1/owners/tank/files", json!([{"kind": "group", "id": 1, "name": EVIL, "used_bytes": 5, "inodes": 6}]));
    d.set("GET /v1/users", json!([user(EVIL)]));
    d.set("GET /v1/groups", json!([{"name": EVIL, "gid": 1, "members": [EVIL], "shares": [EVIL]}]));
    let mut evil_token = token(EVIL, "owner");
    evil_token["name"] = json!(EVIL);
    evil_token["share"] = json!(EVIL);
    d.set("GET /v1/tokens", json!([evil_token]));
    let mut evil_link = link(EVIL, "owner");
    evil_link["path"] = json!(EVIL);
    d.set("GET /v1/links", json!([evil_link]));
    d.set("GET /v1/users/owner/keys", json!([{"kind": EVIL, "fingerprint": EVIL, "comment": EVIL}]));
    d.set(
        "GET /v1/pools/tank/history",
        json!({"pool": "tank", "events": [{"number": 1, "at_ms": 1, "kind": EVIL, "text": EVIL}]}),
    );
    d.set(
        "GET /v1/snapshot-schedules",
        json!([{"pool": EVIL, "volume": EVIL, "keep": {"hourly": 1, "daily": 0,
        "weekly": 0, "monthly": 0},
        "kept": {"hourly": 1, "daily": 0, "weekly": 0, "monthly": 0}, "newest": EVIL, "next_ms": 1, "changed": true,
            "fault": EVIL}]),
    );
    d.set(
        "GET /v1/replications",
        json!({"replications": [{"volume": EVIL, "to": EVIL, "newest": EVIL, "sent_bytes": 1,
        "sending": EVIL, "late": true, "fault": EVIL}]}),
    );
    let bad = |id: u64| {
        json!({"id": id, "event": EVIL, "subject": EVIL, "severity": "critical", "text": EVIL, "action": EVIL, "since_ms": 1,
            "ended_ms": 2})
    };
    d.set(
        "GET /v1/alerts",
        json!({"open": [bad(1)], "past": [bad(2)],
            "receivers": [{"name": EVIL, "kind": EVIL, "waiting": 1, "fault": EVIL}]}),
    );
    d.set(
        "GET /v1/disks/health",
        json!([{"name": EVIL, "path": EVIL, "folders": ["/mnt/a"], "model": EVIL, "serial": EVIL, "size_bytes": 1, "medium": EVIL, "pool": EVIL,
            "verdict": EVIL, "text": EVIL, "asleep": true}]),
    );
    d.set(
        "POST /v1/audit",
        json!([{"number": 1, "at_ms": 1, "kind": EVIL, "who": EVIL, "from": EVIL, "by": EVIL, "what": EVIL, "target": EVIL,
            "result": EVIL}]),
    );
    d.set(
        "POST /v1/explain",
        json!({"user": EVIL, "uid": 1, "gid": 1, "gids": [], "groups": [EVIL], "volume": EVIL,
        "path": EVIL,
        "object": {"kind": EVIL, "mode": 420, "uid": 1, "gid": 1, "owner": EVIL, "group": EVIL, "has_list": false,
            "attributes": []}, "fault": EVIL,
        "doors": [{"door": EVIL, "share": EVIL, "acts_as": [1, 1], "operations": [{"name": EVIL, "allowed": true}],
            "reasons": [{"effect": "opens", "text": EVIL}]}]}),
    );
    let owner = trial.log_in("owner").await;
    for path in PAGES.iter().copied().chain([
        "/explain?user=ann&path=%3Cscript%3Ealert(1)%22&from=",
        "/volume?name=%3Cscript%3Ealert",
        "/%3Cscript%3E",
    ]) {
        let page = trial.get(&owner, path).await;
        assert!(!page.text.contains("<script>") && !page.text.contains("\"'&"), "{path}: {}", page.text);
        // Marks that turn text are written out; only a form that sends a name back has them.
        for (at, _) in page.text.match_indices('\u{202e}') {
            assert!(
                page.text[..at].rfind(" value=\"").is_some_and(|value| !page.text[value + 8..at].contains('"')),
                "{path}"
            );
        }
        // The page of a change has no name but those of what was chosen.
        let is_nameless = path.starts_with("/care/charts") || path == "/care/doctor" || path == "/care/config";
        let has_name = !path.starts_with("/storage/change") && !is_nameless;
        if has_name && PAGES.contains(&path) && path != "/explain" && path != "/me" && !path.starts_with("/snapshot") {
            assert!(page.text.contains("\\u{202e}x"), "{path} shows no name");
        }
        labelled(path, &page.text);
    }
    d.set("POST /v1/diff/tank/files", json!([{"change": EVIL, "kind": EVIL, "path": EVIL, "from": EVIL}]));
    let name: String = EVIL.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let page = trial.get(&owner, &format!("/snapshot?volume=tank/files&name={name}&compare=1")).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(
        !page.text.contains("<script>") && !page.text.contains("\"'&") && page.text.contains("was &#60;script&#62;")
    );
    // A failure of the daemon tells of the name, too.
    trial.post(&owner, "/sharing/remove", &[("share", EVIL), ("typed", "x")]).await;
    assert!(!trial.get(&owner, "/sharing").await.text.contains("<script>"));
}

#[tokio::test]
async fn the_state_of_the_box_is_one_sentence() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let home = trial.get(&owner, "/").await.text;
    assert!(home.contains("Everything is healthy.") && home.contains("2.73 TiB of 10.9 TiB used, 25 %."), "{home}");
    assert!(home.contains("ONLINE") && home.contains("raidz1, 2 disks"));

    let mut degraded = pool("DEGRADED", &[disk("a", "ONLINE", 0), disk("b", "MISSING", 4)]);
    degraded["status"] = json!("One disk is missing.");
    degraded["action"] = json!("larder pool replace tank /mnt/b NEW");
    trial.daemon.set("GET /v1/pools/known", json!([degraded]));
    let home = trial.get(&owner, "/").await.text;
    for text in [
        "1 thing needs your attention.",
        "The pool tank is DEGRADED",
        "One disk is missing.",
        "Storage, Replace a disk",
        "MISSING",
    ] {
        assert!(home.contains(text), "{text}");
    }
    let storage = trial.get(&owner, "/storage").await.text;
    assert!(storage.contains("Clear error counters") && storage.contains("number hot\">4<"));

    let mut working = pool("ONLINE", &[disk("a", "ONLINE", 0), disk("b", "ONLINE", 0)]);
    working["scrub"] = scrub("running");
    working["moving"] = json!({"why": "resilvering /mnt/b", "objects": 40, "objects_done": 10,
        "moved_bytes": 1u64 << 30, "seconds": 60,
        "seconds_left": 180, "stuck": null});
    trial.daemon.set("GET /v1/pools/known", json!([working]));
    let storage = trial.get(&owner, "/storage").await.text;
    for text in [
        "Pause scrub",
        "Stop scrub",
        "1.00 GiB of 4.00 GiB at 200 MiB/s, 15 min left; no errors",
        "resilvering /mnt/b",
        "3 min left",
    ] {
        assert!(storage.contains(text), "{text}: {storage}");
    }
    assert!(!storage.contains("Start scrub"));

    for (path, answer) in [("/v1/pools/known", json!([])), ("/v1/volumes", json!([])), ("/v1/shares", json!([]))] {
        trial.daemon.set(&format!("GET {path}"), answer);
    }
    assert!(trial.get(&owner, "/").await.text.contains("There is no pool yet."));
    assert!(trial.get(&owner, "/storage").await.text.contains("There is no volume yet."));
    assert!(trial.get(&owner, "/sharing").await.text.contains("Nothing is shared yet."));
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_named() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    trial.daemon.answers.lock().unwrap().clear();
    let page = trial.get(&owner, "/").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(page.text.contains("nothing recorded for GET /v1/info"));
}

#[tokio::test]
async fn lookers_see_no_forms_of_the_box() {
    let trial = Trial::new();
    let looker = trial.log_in("looker").await;
    for path in PAGES.iter().filter(|path| **path != "/me") {
        let page = trial.get(&looker, path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        let forms: Vec<&str> = page.text.split("<form method=\"post\" action=\"").skip(1).collect();
        for form in forms {
            let action = form.split('"').next().unwrap();
            assert!(["/+/logout", "/+/theme"].contains(&action), "{path} offers {action}");
        }
    }
}

/// Every form of a page leads to a route, and every route of a change has its form: nothing needs a script.
#[tokio::test]
async fn forms_and_routes_meet() {
    let trial = Trial::new();
    let mut held = snapshot("monday", 1_700_000_000_000);
    held["holds"] = json!([{"reason": "keep"}]);
    trial.daemon.set("GET /v1/snapshots/tank/files", json!({"pool": "tank", "volume": "files", "snapshots": [held]}));
    trial.daemon.set("GET /v1/pools/known", json!([pool("ONLINE", &[disk("a", "ONLINE", 1)])]));
    trial.daemon.set("GET /v1/tokens", json!([token("t", "owner")]));
    trial.daemon.set("GET /v1/links", json!([link("l", "owner")]));
    let open = json!([{"id": 7, "event": "files-ruined", "subject": "sda", "severity": "warning", "text": "hot", "action": "cool",
        "since_ms": 1}]);
    let receivers = json!([{"name": "mail", "kind": "mail", "waiting": 0}]);
    trial.daemon.set("GET /v1/alerts", json!({"open": open, "past": [], "receivers": receivers}));
    trial
        .daemon
        .set("GET /v1/users/owner/keys", json!([{"kind": "ssh-ed25519", "fingerprint": "SHA256:x", "comment": "c"}]));
    let sent = json!({"volume": "tank/files", "to": "far:tank/copy", "sent_bytes": 0, "late": false});
    trial.daemon.set("GET /v1/replications", json!({"replications": [sent]}));
    let mut disks = found();
    disks["pools"] = json!([{"name": "old", "id": "p2", "layout": "mirror", "folders": ["/mnt/x"], "missing": 1, "is_importable": true}]);
    trial.daemon.set("GET /v1/disks", disks);
    trial.log_in("owner").await;
    let owner = trial.log_in("owner").await;
    let mut actions = std::collections::BTreeSet::from(["/+/login".to_owned()]);
    for path in PAGES.iter().copied() {
        let page = trial.get(&owner, path).await.text;
        for form in page.split("<form ").skip(1) {
            let tag = form.split('>').next().unwrap();
            let Some((_, action)) = tag.split_once("action=\"") else { panic!("{tag}") };
            if tag.contains("method=\"post\"") {
                actions.insert(action.split('"').next().unwrap().to_owned());
                let body = form.split("</form>").next().unwrap();
                assert!(body.contains(&format!("name=\"csrf\" value=\"{}\"", owner.csrf)), "{path}: {tag}");
                assert!(body.contains("type=\"submit\""), "{path}: {tag}");
                // A form says of which volume it is, by its whole name.
                for volume in body.split("name=\"volume\" value=\"").skip(1) {
                    assert!(volume.starts_with("tank/"), "{path}: {tag}: {}", volume.split('"').next().unwrap());
                }
            }
        }
    }
    // These are on the page of the differences, on those of a second factor or an issuer, where somebody has one, and of older sessions.
    for action in [
        "/care/config/apply",
        "/login/code",
        "/login/passkey",
        "/me/factor/confirm",
        "/me/factor/end",
        "/me/passkey",
        "/me/passkey/add",
        "/me/passkey/remove",
        "/me/passkey/rename",
        "/people/end-factor",
        "/people/end-issued",
        "/login/issuer",
        "/prove",
    ] {
        actions.insert(at(action));
    }
    let routes: std::collections::BTreeSet<String> =
        ROUTES.iter().filter(|route| route.method == Method::POST).map(|route| at(route.path)).collect();
    assert_eq!(actions, routes);
}

#[tokio::test]
async fn a_form_without_a_session_says_that_nothing_was_done() {
    let trial = Trial::new();
    let sent = trial.post(&Browser::default(), "/people/add-user", &[("name", "late")]).await;
    assert_eq!(sent.header("location"), "/+/login?unsent=1&next=/%2B/people");
    let form = trial.get(&Browser::default(), sent.header("location")).await.text;
    assert!(form.contains("nothing was done") && form.contains("name=\"next\" value=\"/+/people\""), "{form}");
    let left = trial.post(&Browser::default(), "/logout", &[]).await;
    assert_eq!(left.header("location"), "/+/login");
    for route in ROUTES.iter().filter(|route| route.method == Method::POST) {
        let sent = trial.post(&Browser::default(), route.path, &[]).await;
        if let Some((_, next)) = sent.header("location").split_once("unsent=1&next=") {
            let owner = trial.log_in("owner").await;
            let page = trial.get(&owner, &next.replace("%2B", "+")).await;
            assert_eq!(page.status, StatusCode::OK, "{}: {next}", route.path);
        }
    }
    assert!(trial.daemon.changes().is_empty());
}

#[tokio::test]
async fn a_user_who_is_refused_is_typed_once() {
    let trial = Trial::new();
    trial.daemon.set("POST /v1/users", json!({"refused": "'a b' is not a user name"}));
    let owner = trial.log_in("owner").await;
    let fields = [("name", "a b"), ("password", "Pantry-Shelf-43"), ("role", "looker")];
    let page = trial.post(&owner, "/people/add-user", &fields).await.text;
    assert!(page.contains("is not a user name"), "{page}");
    assert!(page.contains("name=\"name\" value=\"a b\"") && page.contains("value=\"looker\" selected"), "{page}");
    assert!(!page.contains("Pantry-Shelf"), "{page}");
}

#[tokio::test]
async fn a_volume_of_many_shares_is_asked_once_for_its_past() {
    let trial = Trial::new();
    let shares: Vec<Value> = ["one", "two", "three"].map(share).into_iter().collect();
    trial.daemon.set("GET /v1/shares", json!(shares));
    let ann = trial.log_in("ann").await;
    trial.daemon.asked.lock().unwrap().clear();
    trial.get(&ann, "/me").await;
    let asked = trial.daemon.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().filter(|(key, _)| key == "GET /v1/snapshots/tank/files").count(), 1);
}

/// The fields of a change that say something.
fn set(change: &Value) -> Vec<(String, Value)> {
    let fields = change.as_object().unwrap().iter();
    let is_set = |value: &Value| !value.is_null() && *value != json!(false) && *value != json!([]);
    let mut set: Vec<_> = fields.filter(|(_, v)| is_set(v)).map(|(k, v)| (k.clone(), v.clone())).collect();
    set.sort_by(|a, b| a.0.cmp(&b.0));
    set
}

const READERS: &str = "Users and @groups who may only read";

#[tokio::test]
async fn who_may_only_read_stays_so() {
    let trial = Trial::new();
    let mut before = share("files");
    (before["everybody"], before["users"]) = (json!(false), json!(["ann", "bob"]));
    before["read_only_users"] = json!(["bob"]);
    trial.daemon.set("GET /v1/shares", json!([before]));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/sharing").await.text;
    assert!(
        page.contains("name=\"writers\" value=\"ann\"") && page.contains("name=\"readers\" value=\"bob\""),
        "{page}"
    );
    assert_eq!(page.matches(READERS).count(), 2);
    let base = [("share", "files"), ("nfs", "on"), ("smb", "on")];
    let check = async |fields: &[(&str, &str)], want: Value, readers: Value| {
        let fields = [&base[..], fields].concat();
        trial.post_shown(&owner, "/sharing", "/sharing/set", &fields).await;
        let change = trial.daemon.changes().pop().unwrap().1;
        assert_eq!((&change["users"], &change["read_only_users"]), (&want, &readers), "{fields:?}");
    };
    let listed = |names: &[&str]| json!({"listed": names});
    check(&[("writers", "ann"), ("readers", "bob"), ("read_only", "on")], Value::Null, Value::Null).await;
    check(&[("writers", "ann, carla"), ("readers", "bob")], listed(&["ann", "carla"]), json!(["bob"])).await;
    check(&[("writers", "ann"), ("readers", "")], listed(&["ann"]), json!([])).await;
    check(&[("writers", ""), ("readers", "bob")], listed(&[]), json!(["bob"])).await;
    check(&[("everybody", "on"), ("readers", "bob")], json!("all"), json!(["bob"])).await;
    let count = trial.daemon.changes().len();
    let both = [&base[..], &[("writers", "ann, bob"), ("readers", "bob")]].concat();
    let refused = trial.post_shown(&owner, "/sharing", "/sharing/set", &both).await.text;
    assert!(refused.contains("bob is in both lists") && refused.contains("value=\"ann, bob\""), "{refused}");
    assert_eq!(trial.daemon.changes().len(), count);
    trial.daemon.set("POST /v1/shares", json!({"share": share("new"), "notes": []}));
    trial.post(&owner, "/sharing/add", &[("name", "new"), ("writers", "ann"), ("readers", "bob")]).await;
    let made = trial.daemon.changes().pop().unwrap().1;
    assert_eq!(made["change"]["read_only_users"], json!(["bob"]));
}

#[tokio::test]
async fn a_stale_form_undoes_no_change_of_somebody_else() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    // The form shows a share for everybody; meanwhile it is for ann alone.
    let shown = trial.shown(&owner, "/sharing", "/sharing/set").await;
    let mut now = share("files");
    (now["everybody"], now["recycle_days"]) = (json!(false), json!(3));
    trial.daemon.set("GET /v1/shares", json!([now]));
    let stale =
        [("share", "files"), ("nfs", "on"), ("smb", "on"), ("everybody", "on"), ("writers", "ann"), ("shown", &shown)];
    trial.post(&owner, "/sharing/set", &[&stale[..], &[("read_only", "on")]].concat()).await;
    assert_eq!(set(&trial.daemon.changes()[0].1), [("read_only".to_owned(), json!(true))]);
    let refused = trial.post(&owner, "/sharing/set", &[&stale[..], &[("recycle_days", "7")]].concat()).await.text;
    assert!(refused.contains("the share files was changed meanwhile"), "{refused}");
    assert!(refused.contains("name=\"recycle_days\" type=\"number\" min=\"1\" max=\"36500\" value=\"7\""), "{refused}");
    assert!(
        !refused.contains("name=\"everybody\" checked> Every user may come in</label>\n<label for=\"writers-"),
        "{refused}"
    );
    assert_eq!(trial.daemon.changes().len(), 1);

    let path = "/volume?name=tank/files";
    let shown = trial.shown(&owner, path, "/volume/set").await;
    let mut larger = volume("files");
    larger["quota_bytes"] = json!(5u64 << 30);
    trial.daemon.set("GET /v1/volumes", json!([larger]));
    trial.daemon.set("PATCH /v1/volumes/tank/files", larger);
    let stale = [("volume", "tank/files"), ("sync", "standard"), ("shown", shown.as_str())];
    trial.post(&owner, "/volume/set", &[&stale[..], &[("quota", ""), ("compression", "zstd")]].concat()).await;
    let asked = trial.daemon.changes().pop().unwrap().1;
    assert_eq!((&asked["quota_bytes"], &asked["compression"]), (&Value::Null, &json!("zstd")));
    let count = trial.daemon.changes().len();
    let other = [&stale[..], &[("quota", "9G"), ("compression", "lz4")]].concat();
    let refused = trial.post(&owner, "/volume/set", &other).await.text;
    assert!(refused.contains("was changed meanwhile") && refused.contains("value=\"9G\""), "{refused}");
    assert_eq!(trial.daemon.changes().len(), count);

    let shown = trial.shown(&owner, "/care", "/care/snapshots").await;
    let keep = json!({"hourly": 12, "daily": 0, "weekly": 0, "monthly": 0});
    let schedule =
        json!({"pool": "tank", "volume": "files", "keep": keep, "kept": keep, "next_ms": 1, "changed": false});
    trial.daemon.set("GET /v1/snapshot-schedules", json!([schedule]));
    let stale = |field| [("volume", "tank/files"), (field, "5"), ("shown", shown.as_str())];
    trial.post(&owner, "/care/snapshots", &stale("daily")).await;
    let asked = trial.daemon.changes().pop().unwrap().1;
    assert_eq!(asked["keep"], json!({"hourly": 12, "daily": 5, "weekly": 0, "monthly": 0}));
    let refused = trial.post(&owner, "/care/snapshots", &stale("hourly")).await.text;
    assert!(
        refused.contains("was changed meanwhile")
            && refused.contains("name=\"hourly\" type=\"number\" min=\"0\" max=\"2500\" value=\"5\""),
        "{refused}"
    );

    let shown = trial.shown(&owner, "/people", "/people/set-role").await;
    let mut looker = user("ann");
    looker["role"] = json!("looker");
    trial.daemon.set("GET /v1/users", json!([looker]));
    let count = trial.daemon.changes().len();
    trial.post(&owner, "/people/set-role", &[("user", "ann"), ("role", "user"), ("shown", &shown)]).await;
    assert!(trial.get(&owner, "/people").await.text.contains("the role of ann was changed meanwhile"));
    assert_eq!(trial.daemon.changes().len(), count);
}

#[tokio::test]
async fn a_share_changes_by_what_differs() {
    let trial = Trial::new();
    let mut before = share("files");
    before["networks"] = json!(["10.0.0.0/8"]);
    trial.daemon.set("GET /v1/shares", json!([before]));
    let owner = trial.log_in("owner").await;
    let same = [("share", "files"), ("nfs", "on"), ("smb", "on"), ("everybody", "on"), ("networks", "10.0.0.0/8")];
    trial.post_shown(&owner, "/sharing", "/sharing/set", &same).await;
    let other = [("share", "files"), ("smb", "on"), ("read_only", "on"), ("writers", "ann, @family"), ("networks", "")];
    trial.post_shown(&owner, "/sharing", "/sharing/set", &other).await;
    let asked = trial.daemon.changes();
    assert_eq!(set(&asked[0].1), []);
    let users = json!({"listed": ["ann", "@family"]});
    assert_eq!(
        set(&asked[1].1),
        [
            ("read_only".to_owned(), json!(true)),
            ("users".to_owned(), users),
            ("usual_networks".to_owned(), json!(true))
        ]
    );
    assert_eq!(asked[1].1["nfs"], json!(false));
}

#[tokio::test]
async fn a_thousand_snapshots_are_pages_of_a_hundred() {
    let trial = Trial::new();
    let many: Vec<Value> =
        (0..1000).map(|at| snapshot(&format!("s{at:04}"), 1_700_000_000_000 + at * 3_600_000)).collect();
    trial.daemon.set("GET /v1/snapshots/tank/files", json!({"pool": "tank", "volume": "files", "snapshots": many}));
    let owner = trial.log_in("owner").await;
    let page = trial.get(&owner, "/volume?name=tank/files").await.text;
    assert!(page.contains(">s0999<") && page.contains(">s0900<") && !page.contains(">s0899<"));
    assert!(page.contains("/+/volume?name=tank/files&amp;skip=100") && page.len() < 128 << 10, "{} bytes", page.len());
    let last = trial.get(&owner, "/volume?name=tank/files&skip=900").await.text;
    assert!(last.contains(">s0000<") && !last.contains("skip=1000"));
    let beyond = trial.get(&owner, &format!("/volume?name=tank/files&skip={}", u64::MAX)).await;
    assert_eq!(beyond.status, StatusCode::OK);
}

#[tokio::test]
async fn assets_are_kept_for_good() {
    let trial = Trial::new();
    let page = trial.get(&Browser::default(), "/login").await.text;
    let (_, rest) = page.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let path = rest.split('"').next().unwrap();
    let style = trial.get(&Browser::default(), path).await;
    assert_eq!(style.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(style.header("content-type"), "text/css; charset=utf-8");
    assert!(style.headers.get("set-cookie").is_none());
    let again =
        trial.send(Request::get(at(path)).header("if-none-match", style.header("etag")), "", String::new()).await;
    assert_eq!((again.status, again.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let head = trial.send(Request::head(at(path)), "", String::new()).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    let none = trial.get(&Browser::default(), "/assets/style.css").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn streams_tell_what_changes_and_look_at_no_disk() {
    let trial = Trial::new();
    let owner = trial.log_in("owner").await;
    let open = || {
        let request = Request::get("/+/storage/live").header("cookie", format!("larder-page={}", owner.token));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        trial.web.answer(request, Peer { addr: Ipv4Addr::LOCALHOST.into() })
    };
    let response = open().await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut events = Vec::new();
    for _ in 0..15 {
        events.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert!(events[0].starts_with(b"data: ") && events[1..].iter().all(|event| &event[..] == b":\n\n"));

    let mut working = pool("ONLINE", &[disk("a", "ONLINE", 0)]);
    working["scrub"] = scrub("running");
    trial.daemon.set("GET /v1/pools/known", json!([working]));
    let event = loop {
        let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
        if event.starts_with(b"data: ") {
            break String::from_utf8(event.to_vec()).unwrap();
        }
    };
    assert!(event.contains("Pause scrub") && event.ends_with("\n\n"));
    let asked = trial.daemon.asked.lock().unwrap().clone();
    assert!(!asked.iter().any(|(key, _)| key == "GET /v1/pools"), "that looks at disks");

    // A session has few of them, each until it ends.
    let others = [open().await, open().await, open().await];
    assert!(others.iter().all(|other| other.status() == StatusCode::OK));
    assert_eq!(open().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(others);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(open().await.status(), StatusCode::OK);

    // The stream ends with its session.
    trial.post(&owner, "/logout", &[]).await;
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
    let owner = trial.log_in("owner").await;
    let request = Request::get("/+/live").header("cookie", format!("larder-page={}", owner.token));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let mut body = trial.web.answer(request, Peer { addr: Ipv4Addr::LOCALHOST.into() }).await.into_body();
    body.frame().await.unwrap().unwrap();
    // So it does with a server that stops.
    trial.web.end_streams();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
}

/// `browsers.password_again`: the name of the trial's user without a password is `guest`.
#[tokio::test]
async fn without_a_password_a_fresh_log_in_counts() {
    let trial = Trial::new();
    let guest = trial.log_in("guest").await;
    trial.daemon.set("GET /v1/users/guest/keys", json!([]));
    let page = trial.get(&guest, "/me").await.text;
    assert!(page.contains("Set a password") && !page.contains("name=\"current\""), "{page}");
    trial.with_factor(&guest).await;

    for (seconds, may) in [(200, true), (400, false)] {
        let older = Trial::new();
        older.daemon.set("GET /v1/users/guest/keys", json!([]));
        older.web.take_sessions(&aged(&trial, seconds));
        let answer = older.post(&guest, "/me/factor", &[("current", "")]).await;
        assert_eq!(answer.text.contains("<svg class=\"qr\""), may, "{seconds}");
        if !may {
            assert!(older.get(&guest, "/me").await.text.contains("a log-in of the last 5 min"));
        }
    }
}

/// `factors.of_one`
#[tokio::test]
async fn the_next_user_of_a_name_is_asked_for_no_code() {
    let trial = Trial::new();
    let ann = trial.log_in("ann").await;
    trial.with_factor(&ann).await;
    assert!(trial.password("ann").await.0.text.contains("/+/login/code"));
    *trial.people.uid.lock().unwrap() = 1234;
    assert_eq!(trial.password("ann").await.0.status, StatusCode::SEE_OTHER);
    let kept = String::from_utf8(trial.people.factors.lock().unwrap().clone()).unwrap();
    assert!(!kept.contains("ann"), "{kept}");
}
