//! Smart plugs with a meter. Read only: none is ever switched.
//!
//! Shelly Gen1: `GET /meter/N` (devices that have only `/status` are asked there). Shelly Gen2 and later: `GET
//! /rpc/Switch.GetStatus?id=N`.
//! `GET /shelly` tells which it is, to everybody. Tasmota: `GET /cm?cmnd=Status%208`.
//!
//! Passwords: Gen1 takes HTTP's Basic, later Shellys Digest with SHA-256 and the user `admin`, Tasmota `user` and
//! `password` in the query, always of `admin`.

use serde_json::Value;

use super::error::{HttpError, SourceError};
use super::http::{escaped, get_json};
use super::login::{Credentials, Login, Scheme, USER};
use super::reading::{Basis, Reading, Scope};

pub(super) fn shelly(address: &str, channel: u8, login: &Login) -> Result<Reading, SourceError> {
    let failed = |e: HttpError| fault("Shelly", address, &e);
    let password = login.password(&format!("shelly {address}"))?;
    let about = get_json(address, "/shelly", None).map_err(failed)?;
    let credentials = |scheme, user| password.as_deref().map(|password| Credentials { scheme, user, password });
    // Gen1 devices have a type; later ones say their generation.
    let (watts, energy_wh) = match about["gen"].as_u64() {
        Some(_) => {
            let path = format!("/rpc/Switch.GetStatus?id={channel}");
            let status = get_json(address, &path, credentials(Scheme::Digest, USER).as_ref()).map_err(failed)?;
            (status["apower"].as_f64(), status["aenergy"]["total"].as_f64())
        }
        None => gen1(address, channel, credentials(Scheme::Basic, login.user()).as_ref()).map_err(failed)?,
    };
    reading("shelly", address, watts, energy_wh)
}

/// Counts watt-minutes.
fn gen1(
    address: &str,
    channel: u8,
    credentials: Option<&Credentials>,
) -> Result<(Option<f64>, Option<f64>), HttpError> {
    let meter = match get_json(address, &format!("/meter/{channel}"), credentials) {
        Err(HttpError::Status(404)) => {
            let status = get_json(address, "/status", credentials)?;
            let channel = usize::from(channel);
            // Meters that only measure (Shelly EM) count watt-hours.
            let energy = &status["emeters"][channel];
            if energy.is_object() && !status["meters"][channel].is_object() {
                return Ok((energy["power"].as_f64(), energy["total"].as_f64()));
            }
            Some(status["meters"][channel].clone())
        }
        other => Some(other?),
    };
    let meter = meter.unwrap_or_default();
    if meter["is_valid"].as_bool() == Some(false) {
        return Err(HttpError::NotUnderstood("its meter says that it is not valid"));
    }
    Ok((meter["power"].as_f64(), meter["total"].as_f64().map(|watt_minutes| watt_minutes / 60.0)))
}

pub(super) fn tasmota(address: &str, channel: u8, login: &Login) -> Result<Reading, SourceError> {
    let password = login.password(&format!("tasmota {address}"))?;
    let answer = tasmota_status(address, password.as_deref()).map_err(|e| fault("Tasmota", address, &e))?;
    // Older firmware calls the sensors' part differently.
    let sensors = [&answer["StatusSNS"], &answer["StatusSTS"]].into_iter().find(|s| s["ENERGY"].is_object());
    let energy = sensors.map(|s| s["ENERGY"].clone()).unwrap_or_default();
    let number = |value: &Value| match value {
        // A strip of outlets has a list.
        Value::Array(list) => list.get(usize::from(channel)).and_then(Value::as_f64),
        value => value.as_f64(),
    };
    reading("tasmota", address, number(&energy["Power"]), number(&energy["Total"]).map(|kwh| kwh * 1000.0))
}

/// The password goes into the query only where a plug has refused to answer without.
fn tasmota_status(address: &str, password: Option<&str>) -> Result<Value, HttpError> {
    let ask = |login: &str| match get_json(address, &format!("/cm?{login}cmnd=Status%208"), None) {
        // Older firmware refuses with status 200.
        Ok(answer) if answer["WARNING"].is_string() => Err(HttpError::Locked),
        other => other,
    };
    match (ask(""), password) {
        (Err(HttpError::Locked), Some(password)) => {
            match ask(&format!("user={USER}&password={}&", escaped(password))) {
                Err(HttpError::Locked) => Err(HttpError::WrongPassword),
                other => other,
            }
        }
        (other, _) => other,
    }
}

fn reading(kind: &str, address: &str, watts: Option<f64>, energy_wh: Option<f64>) -> Result<Reading, SourceError> {
    let watts = watts.filter(|w| w.is_finite()).ok_or_else(|| {
        let why = "has no meter on this channel".to_owned();
        SourceError::new(format!("{kind} {address}"), why)
            .action("check channel = in [[power.source]]; not every plug measures")
    })?;
    if watts < 0.0 {
        let why = format!("says that {watts:.1} W are taken, which is less than nothing");
        return Err(SourceError::new(format!("{kind} {address}"), why)
            .action("is it wired the wrong way round, or does something behind it feed in?"));
    }
    Ok(Reading {
        source: format!("{kind} {address}"),
        of: "everything on the plug".to_owned(),
        scope: Scope::Outlet,
        basis: Basis::Measured,
        watts,
        energy_wh,
    })
}

fn fault(kind: &str, address: &str, error: &HttpError) -> SourceError {
    let action = match error {
        HttpError::Unreachable(_) => format!("check address = in [[power.source]], and: curl http://{address}/"),
        HttpError::Locked => {
            "put it into a file that only you can read, and say password_file = \"FILE\" in [[power.source]]".to_owned()
        }
        HttpError::WrongPassword => "check the first line of password_file = in [[power.source]]".to_owned(),
        _ => format!("see what it says: curl http://{address}/"),
    };
    let fault = SourceError::new(format!("{} {address}", kind.to_lowercase()), error.to_string()).action(action);
    SourceError { locked: matches!(error, HttpError::Locked), ..fault }
}
