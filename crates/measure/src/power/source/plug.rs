//! Smart plugs with a meter. Read only: none is ever switched.
//!
//! Shelly Gen1: `GET /meter/N` (devices that have only `/status` are asked there). Shelly Gen2 and later: `GET
//! /rpc/Switch.GetStatus?id=N`.
//! `GET /shelly` tells which it is. Tasmota: `GET /cm?cmnd=Status%208`.

use serde_json::Value;

use super::http::{HttpError, get_json};
use super::{Basis, Reading, Scope, SourceError};

pub(super) fn shelly(address: &str, channel: u8) -> Result<Reading, SourceError> {
    let failed = |e: HttpError| fault("Shelly", address, &e);
    let about = get_json(address, "/shelly").map_err(failed)?;
    // Gen1 devices have a type; later ones say their generation.
    let (watts, energy_wh) = match about["gen"].as_u64() {
        Some(_) => {
            let status = get_json(address, &format!("/rpc/Switch.GetStatus?id={channel}")).map_err(failed)?;
            (status["apower"].as_f64(), status["aenergy"]["total"].as_f64())
        }
        None => gen1(address, channel).map_err(failed)?,
    };
    reading("shelly", address, watts, energy_wh)
}

/// Counts watt-minutes.
fn gen1(address: &str, channel: u8) -> Result<(Option<f64>, Option<f64>), HttpError> {
    let meter = match get_json(address, &format!("/meter/{channel}")) {
        Err(HttpError::Status(404)) => {
            let status = get_json(address, "/status")?;
            let channel = usize::from(channel);
            [&status["meters"][channel], &status["emeters"][channel]].into_iter().find(|m| m.is_object()).cloned()
        }
        other => Some(other?),
    };
    let meter = meter.unwrap_or_default();
    if meter["is_valid"].as_bool() == Some(false) {
        return Err(HttpError::NotUnderstood("its meter says that it is not valid"));
    }
    Ok((meter["power"].as_f64(), meter["total"].as_f64().map(|watt_minutes| watt_minutes / 60.0)))
}

pub(super) fn tasmota(address: &str, channel: u8) -> Result<Reading, SourceError> {
    let answer = get_json(address, "/cm?cmnd=Status%208").map_err(|e| fault("Tasmota", address, &e))?;
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

fn reading(kind: &str, address: &str, watts: Option<f64>, energy_wh: Option<f64>) -> Result<Reading, SourceError> {
    let watts = watts.filter(|w| w.is_finite()).ok_or_else(|| {
        let why = "has no meter on this channel".to_owned();
        SourceError::new(format!("{kind} {address}"), why)
            .action("check channel = in [[power.source]]; not every plug measures")
    })?;
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
        HttpError::Status(401) => {
            "switch its password off; larder only reads, and the plug should be in a network of your own".to_owned()
        }
        _ => format!("see what it says: curl http://{address}/"),
    };
    SourceError::new(format!("{} {address}", kind.to_lowercase()), error.to_string()).action(action)
}
