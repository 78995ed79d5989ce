//! Sensors of recorded machines, plugs imitated on loopback, and which of them makes the total.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use sha2::Digest;

use super::*;
use crate::machine::fixture::Fixture;

/// How a plug with the password `s3cret & more` wants to hear it.
#[derive(Clone, Copy, PartialEq)]
enum Lock {
    Open,
    /// Shelly Gen1, whose user somebody called `me`: all but `/shelly`.
    Basic,
    /// Shelly Gen2: all but `/shelly`.
    Digest,
    /// Tasmota.
    Query,
}

const PASSWORD: &str = "s3cret & more";

/// Answers GETs of certain paths, as long as the test runs. What it does not know is a 404, as on a plug.
fn plug(answers: &'static [(&'static str, &'static str)]) -> SocketAddr {
    locked_plug(answers, Lock::Open)
}

/// The answer of a plug to a client that has not proved the password: status line and headers.
fn refusal(lock: Lock, path: &str, request: &str) -> Option<String> {
    let authorization = request.lines().find_map(|line| line.strip_prefix("Authorization: ")).unwrap_or_default();
    let unauthorized = |challenge: &str| Some(format!("401 Unauthorized\r\nWWW-Authenticate: {challenge}"));
    match lock {
        _ if path == "/shelly" => None,
        Lock::Open => None,
        // me:s3cret & more
        Lock::Basic if authorization == "Basic bWU6czNjcmV0ICYgbW9yZQ==" => None,
        Lock::Basic => unauthorized("Basic realm=\"shellyplug-s-AABBCC\""),
        Lock::Digest => {
            let field = |name: &str| {
                let (_, rest) = authorization.split_once(&format!("{name}="))?;
                Some(rest.trim_start_matches('"').split(['"', ',']).next()?.to_owned())
            };
            let sha =
                |text: String| sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let cnonce = authorization.split_once("cnonce=\"").and_then(|(_, rest)| rest.split('"').next());
            let a1 = sha(format!("admin:shellyplusplugs-aabbcc:{PASSWORD}"));
            let a2 = sha(format!("GET:{path}"));
            let expected = sha(format!("{a1}:1700000001:00000001:{}:auth:{a2}", cnonce.unwrap_or_default()));
            let named = authorization.starts_with("Digest username=\"admin\"") && cnonce.is_some_and(|c| c.len() >= 16);
            if named && authorization.contains(&format!("uri=\"{path}\"")) && field("response") == Some(expected) {
                return None;
            }
            let realm = "realm=\"shellyplusplugs-aabbcc\"";
            unauthorized(&format!("Digest qop=\"auth\", {realm}, nonce=\"1700000001\", algorithm=SHA-256"))
        }
        Lock::Query if path.starts_with("/cm?user=admin&password=s3cret%20%26%20more&") => None,
        Lock::Query => Some("401 Unauthorized".to_owned()),
    }
}

fn locked_plug(answers: &'static [(&'static str, &'static str)], lock: Lock) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let refused = refusal(lock, path, &request);
            let path = path.replace("user=admin&password=s3cret%20%26%20more&", "");
            let (status, body) = match answers.iter().find(|(p, _)| *p == path) {
                _ if refused.is_some() => (refused.as_deref().unwrap_or_default(), ""),
                Some((_, body)) => ("200 OK", *body),
                None => ("404 Not Found", "Not Found"),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nServer: Mongoose/6.18\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

const GEN1: &[(&str, &str)] = &[
    (
        "/shelly",
        r#"{"type":"SHPLG-S","mac":"E868E7000000","auth":false,"fw":"20230913-113421/v1.14.0","num_meters":1}"#,
    ),
    (
        "/meter/0",
        r#"{"power":17.35,"overpower":0.00,"is_valid":true,"timestamp":1700000000,"counters":[17.3,17.2,17.4],"total":600000}"#,
    ),
];
const GEN1_STATUS: &[(&str, &str)] = &[
    ("/shelly", r#"{"type":"SHEM","auth":false}"#),
    (
        "/status",
        r#"{"emeters":[{"power":1.5,"is_valid":true,"total":60.0},{"power":26.25,"is_valid":true,"total":120.0}]}"#,
    ),
];
const TURNED: &[(&str, &str)] = &[
    ("/shelly", r#"{"type":"SHPLG-S","auth":false}"#),
    ("/meter/0", r#"{"power":-17.35,"is_valid":true,"total":600000}"#),
];
const GEN2: &[(&str, &str)] = &[
    ("/shelly", r#"{"id":"shellyplusplugs-aabbcc","model":"SNPL-00112EU","gen":2,"app":"PlusPlugS","auth_en":false}"#),
    (
        "/rpc/Switch.GetStatus?id=0",
        r#"{"id":0,"source":"init","output":true,"apower":44.2,"voltage":231.1,"current":0.31,
            "aenergy":{"total":12345.678,"by_minute":[0,0,0],"minute_ts":1700000000},"temperature":{"tC":31.2,"tF":88.1}}"#,
    ),
];
const TASMOTA: &[(&str, &str)] = &[(
    "/cm?cmnd=Status%208",
    r#"{"StatusSNS":{"Time":"2022-01-11T21:57:38","ENERGY":{"TotalStartTime":"2020-10-21T22:15:00","Total":3.705,"Yesterday":0.028,
        "Today":0.026,"Power":63,"ApparentPower":70,"ReactivePower":0,"Factor":0.90,"Voltage":233,"Current":0.3}}}"#,
)];
const STRIP: &[(&str, &str)] = &[("/cm?cmnd=Status%208", r#"{"StatusSNS":{"ENERGY":{"Total":1.0,"Power":[5,7.5]}}}"#)];
const NO_METER: &[(&str, &str)] =
    &[("/shelly", r#"{"gen":3}"#), ("/rpc/Switch.GetStatus?id=0", r#"{"id":0,"output":true}"#)];
/// Refuses with status 200, as old firmware does.
const OLD_TASMOTA: &[(&str, &str)] =
    &[("/cm?cmnd=Status%208", r#"{"WARNING":"Need user=<username>&password=<password>"}"#)];

#[test]
fn plugs_of_all_kinds_are_read() {
    let check = |reading: Result<Reading, SourceError>, watts: f64, energy_wh: Option<f64>| {
        let reading = reading.unwrap();
        assert_eq!((reading.watts, reading.energy_wh, reading.scope), (watts, energy_wh, Scope::Outlet));
    };
    check(plug::shelly(&plug(GEN1).to_string(), 0, &Login::default()), 17.35, Some(10_000.0));
    check(plug::shelly(&plug(GEN1_STATUS).to_string(), 1, &Login::default()), 26.25, Some(120.0));
    check(plug::shelly(&plug(GEN2).to_string(), 0, &Login::default()), 44.2, Some(12_345.678));
    check(plug::tasmota(&plug(TASMOTA).to_string(), 0, &Login::default()), 63.0, Some(3705.0));
    check(plug::tasmota(&plug(STRIP).to_string(), 1, &Login::default()), 7.5, Some(1000.0));
}

/// By a file, which lives as long as the first half.
fn login(password: &str) -> (tempfile::NamedTempFile, Login) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{password}").unwrap();
    let path = file.path().to_owned();
    (file, Login::new(None, Some(path)))
}

#[test]
fn plugs_with_passwords_are_read() {
    let (file, admin) = login(PASSWORD);
    let me = Login::new(Some("me".to_owned()), Some(file.path().to_owned()));
    let gen1 = locked_plug(GEN1, Lock::Basic).to_string();
    let gen2 = locked_plug(GEN2, Lock::Digest).to_string();
    let tasmota = locked_plug(TASMOTA, Lock::Query).to_string();
    assert_eq!(plug::shelly(&gen1, 0, &me).unwrap().watts, 17.35);
    assert_eq!(plug::shelly(&gen2, 0, &admin).unwrap().watts, 44.2);
    assert_eq!(plug::tasmota(&tasmota, 0, &admin).unwrap().watts, 63.0);
    // A plug that wants none does not hear it.
    assert_eq!(plug::tasmota(&plug(TASMOTA).to_string(), 0, &admin).unwrap().watts, 63.0);
    // Typed, for as long as the program runs.
    let fixture = Fixture::new(SENSORS);
    let spec = |address: &String| SourceSpec::Shelly { address: address.clone(), channel: 0, login: Login::default() };
    let mut sources = Sources::new(&fixture.machine, &[spec(&gen2)], &[], None);
    let before = sources.read(Duration::ZERO);
    assert!(before.faults.len() == 1 && before.faults[0].locked, "{before:?}");
    sources.unlock(&before.faults[0].source_name, PASSWORD);
    let after = sources.read(Duration::ZERO);
    assert_eq!(after.total.as_ref().map(|t| t.watts), Some(44.2));
    let all = format!("{sources:?}{after:?}{before:?}{}", serde_json::to_string(&after).unwrap());
    assert!(!all.contains("s3cret"), "{all}");
}

#[test]
fn plugs_that_do_not_tell_say_why() {
    let check = |reading: Result<Reading, SourceError>, why: &str| {
        let error = reading.unwrap_err();
        assert!(error.why.contains(why) && error.action.is_some(), "{error:?}");
    };
    check(plug::shelly(&plug(NO_METER).to_string(), 0, &Login::default()), "no meter");
    check(plug::shelly(&plug(TURNED).to_string(), 0, &Login::default()), "less than nothing");
    for (answers, lock) in [(GEN1, Lock::Basic), (GEN2, Lock::Digest)] {
        let address = locked_plug(answers, lock).to_string();
        check(plug::shelly(&address, 0, &Login::default()), "asks for a password");
        check(plug::shelly(&address, 0, &login("wrong").1), "does not take this user and password");
    }
    for address in [locked_plug(TASMOTA, Lock::Query), plug(OLD_TASMOTA)] {
        check(plug::tasmota(&address.to_string(), 0, &Login::default()), "asks for a password");
    }
    check(plug::tasmota(&locked_plug(TASMOTA, Lock::Query).to_string(), 0, &login("wrong").1), "does not take this");
    // A device of a later generation that suddenly wants the password itself does not get it.
    check(plug::shelly(&locked_plug(GEN2, Lock::Basic).to_string(), 0, &login(PASSWORD).1), "another kind of login");
    check(plug::tasmota(&plug(GEN1).to_string(), 0, &Login::default()), "status 404");
    check(plug::tasmota("127.0.0.1:1", 0, &Login::default()), "cannot be reached");
}

const SENSORS: &str = "\
/sys/class/powercap/intel-rapl:0/name = package-0
/sys/class/powercap/intel-rapl:0/energy_uj = 1000000
/sys/class/powercap/intel-rapl:0/max_energy_range_uj = 262143328850
/sys/class/powercap/intel-rapl:0:0/name = core
/sys/class/powercap/intel-rapl:0:0/energy_uj = 500000
/sys/class/powercap/intel-rapl:0:1/name = dram
/sys/class/powercap/intel-rapl:0:1/energy_uj = 100000
/sys/class/powercap/intel-rapl-mmio:0/name = package-0
/sys/class/powercap/intel-rapl-mmio:0/energy_uj = 7
/sys/class/hwmon/hwmon0/name = coretemp
/sys/class/hwmon/hwmon0/temp1_input = 45000
/sys/class/hwmon/hwmon1/name = amdgpu
/sys/class/hwmon/hwmon1/power1_average = 9000000
/sys/class/hwmon/hwmon1/power1_label = PPT
/proc/stat = cpu 100 0 100 700 100 0 0 0 0 0
/proc/device-tree/model = Raspberry Pi Compute Module 4 Rev 1.0
";

#[test]
fn parts_are_measured_and_the_whole_is_estimated() {
    let fixture = Fixture::new(SENSORS);
    let mut sources = Sources::new(&fixture.machine, &[], &[], None);
    let first = sources.read(Duration::ZERO);
    assert_eq!(first.readings.iter().filter(|r| r.source == "rapl").count(), 0, "a counter needs two looks");
    fixture.write("/sys/class/powercap/intel-rapl:0/energy_uj", "21000000");
    fixture.write("/sys/class/powercap/intel-rapl:0:1/energy_uj", "2100000");
    // Of 1000 more ticks 500 were busy.
    fixture.write("/proc/stat", "cpu 400 0 300 1200 100 0 0 0 0 0");
    let second = sources.read(Duration::from_secs(2));
    let found: Vec<(String, f64, Scope)> = second.readings.iter().map(|r| (r.of.clone(), r.watts, r.scope)).collect();
    assert_eq!(found[0], ("processor (package-0)".to_owned(), 10.0, Scope::Part));
    assert_eq!(found[1], ("memory".to_owned(), 1.0, Scope::Part));
    assert_eq!(found[2], ("amdgpu PPT".to_owned(), 9.0, Scope::Part));
    let total = second.total.unwrap();
    assert_eq!((total.basis, total.source.as_str()), (Basis::Estimated, "model"));
    assert!((total.watts - (2.7 + (6.0 - 2.7) * 0.5) / 0.85).abs() < 1e-9, "{total:?}");
}

#[test]
fn the_best_source_makes_the_total() {
    let fixture = Fixture::new(&format!(
        "{SENSORS}/sys/class/hwmon/hwmon2/name = ina226\n/sys/class/hwmon/hwmon2/power1_input = 15200000\n\
         /sys/class/hwmon/hwmon3/name = ina3221\n/sys/class/hwmon/hwmon3/in1_input = 5000\n/sys/class/hwmon/hwmon3/curr1_input = 300\n"
    ));
    let check = |specs: &[SourceSpec], watts: f64, source: &str, basis: Basis| {
        let total = Sources::new(&fixture.machine, specs, &[], None).read(Duration::ZERO).total.unwrap();
        assert_eq!((total.watts, total.source.as_str(), total.basis), (watts, source, basis), "{specs:?}");
    };
    check(&[], 15.2, "hwmon", Basis::Measured);
    check(&[SourceSpec::Typed { watts: 17.0 }], 15.2, "hwmon", Basis::Measured);
    let address = plug(TASMOTA).to_string();
    let named = format!("tasmota {address}");
    let tasmota = SourceSpec::Tasmota { address, channel: 0, login: Login::default() };
    check(&[SourceSpec::Typed { watts: 17.0 }, tasmota], 63.0, &named, Basis::Measured);
    // One that fails is named, and the others go on.
    let gone = SourceSpec::Shelly { address: "127.0.0.1:1".to_owned(), channel: 0, login: Login::default() };
    let readout = Sources::new(&fixture.machine, &[gone], &[], None).read(Duration::ZERO);
    assert_eq!((readout.faults.len(), readout.total.unwrap().watts), (1, 15.2));
    assert!(readout.readings.iter().any(|r| r.watts == 1.5 && r.scope == Scope::Part), "{:?}", readout.readings);
}

#[test]
fn a_number_typed_in_beats_a_guess() {
    let fixture = Fixture::new(SENSORS);
    let total =
        Sources::new(&fixture.machine, &[SourceSpec::Typed { watts: 17.0 }], &[], None).read(Duration::ZERO).total;
    assert_eq!(total.map(|t| (t.watts, t.basis)), Some((17.0, Basis::Typed)));
}

#[test]
fn counters_that_only_root_may_read_are_named() {
    let fixture = Fixture::new("/sys/class/powercap/intel-rapl:0/name = package-0\n");
    let readout = Sources::new(&fixture.machine, &[], &[], None).read(Duration::ZERO);
    assert_eq!(readout.faults[0].action.as_deref(), Some("run it as root"));
}

#[test]
fn a_virtual_machine_has_no_watts_but_those_of_named_parts() {
    let fixture = Fixture::new(include_str!("../../../fixtures/virtual-machine.txt"));
    assert_eq!(Sources::new(&fixture.machine, &[], &[], None).read(Duration::ZERO).total, None);
    let parts = [PartSpec { name: "share of the host".to_owned(), count: 2, idle_watts: 4.0, load_watts: 10.0 }];
    let sources = Sources::new(&fixture.machine, &[], &parts, Some(0.8));
    assert_eq!(sources.estimate().map(|p| (p.idle_watts, p.load_watts, p.estimated)), Some((10.0, 25.0, true)));
}

#[test]
fn plugs_that_are_gone_are_waited_for_together() {
    let silent: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let plugs: Vec<SourceSpec> = silent
        .iter()
        .map(|listener| {
            let address = listener.local_addr().unwrap().to_string();
            SourceSpec::Tasmota { address, channel: 0, login: Login::default() }
        })
        .collect();
    let mut sources = Sources::new(&Fixture::new("").machine, &plugs, &[], None);
    let begun = std::time::Instant::now();
    sources.begin();
    let found = sources.read(Duration::from_millis(500));
    assert_eq!(found.faults.len(), 3, "{:#?}", found.faults);
    assert!(found.faults.iter().all(|fault| fault.why.contains("does not answer in time")), "{:#?}", found.faults);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}
