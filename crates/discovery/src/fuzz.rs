//! Entry functions for fuzzing: bytes from a network.

/// A message of WS-Discovery or of its metadata exchange.
pub fn wsd_message(bytes: &[u8]) {
    let own = "urn:uuid:00000000-0000-4000-8000-000000000007";
    let _ = crate::wsd::message::parse(bytes, own);
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::driver::drive;

    #[test]
    fn fuzz_wsd_message() {
        let probe = "<e:Envelope xmlns:e=\"http://www.w3.org/2003/05/soap-envelope\" \
            xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" \
            xmlns:d=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\"><e:Header>\
            <a:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action><a:MessageID>urn:1</a:MessageID>\
            </e:Header><e:Body><d:Probe><d:Types>d:Device</d:Types></d:Probe></e:Body></e:Envelope>";
        drive("wsd_message", &[probe.as_bytes().to_vec()], super::wsd_message);
    }
}
