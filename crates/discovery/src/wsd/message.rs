//! Messages: SOAP 1.2 with WS-Addressing 2004/08. Requests are read with a bounded parser without DTD; answers are text.

use std::net::Ipv4Addr;

use roxmltree::{Document, Node, ParsingOptions};
use uuid::Uuid;

use super::computer::{Computer, HTTP_PORT};

const SOAP: &str = "http://www.w3.org/2003/05/soap-envelope";
const WSA: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
const WSD: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
const WSX: &str = "http://schemas.xmlsoap.org/ws/2004/09/mex";
const WSDP: &str = "http://schemas.xmlsoap.org/ws/2006/02/devprof";
const PNPX: &str = "http://schemas.microsoft.com/windows/pnpx/2005/10";
const PUB: &str = "http://schemas.microsoft.com/windows/pub/2005/07";
const TRANSFER: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer";
const EVERYBODY: &str = "urn:schemas-xmlsoap-org:ws:2005:04:discovery";
const ANONYMOUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous";

/// More elements than any request has.
/// Requests have a dozen, most of them namespaces.
const ATTRIBUTES_MAX: usize = 128;
const NODES_MAX: u32 = 500;
/// An id is a URN; it comes back in the answer.
const ID_BYTES_MAX: usize = 256;

/// A request that concerns us, with the id that its answer relates to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Who is a computer?
    Probe,
    /// Where is this one?
    Resolve,
    /// What is it? Over HTTP.
    Get,
}

/// `None` for anything else, including requests about other devices.
pub(crate) fn parse(bytes: &[u8], own: &str) -> Option<Request> {
    let text = std::str::from_utf8(bytes).ok()?;
    // The parser compares attributes with each other, and elements with namespaces.
    if text.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX {
        return None;
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok()?;
    let envelope = document.root_element();
    envelope.has_tag_name((SOAP, "Envelope")).then_some(())?;
    let (header, body) = (child(envelope, SOAP, "Header")?, child(envelope, SOAP, "Body")?);
    let id = child(header, WSA, "MessageID")?.text()?.trim().to_owned();
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return None;
    }
    let action = child(header, WSA, "Action")?.text()?.trim();
    let what = match action.strip_prefix(WSD) {
        Some("/Probe") => is_about_computers(child(body, WSD, "Probe")?).then_some(What::Probe)?,
        Some("/Resolve") => {
            let reference = child(child(body, WSD, "Resolve")?, WSA, "EndpointReference")?;
            let address = child(reference, WSA, "Address")?.text()?.trim();
            address.eq_ignore_ascii_case(own).then_some(What::Resolve)?
        }
        _ if action.strip_prefix(TRANSFER) == Some("/Get") => What::Get,
        _ => return None,
    };
    Some(Request { id, what })
}

fn child<'a, 'input>(node: Node<'a, 'input>, namespace: &str, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name((namespace, name)))
}

/// A probe names types that a device must all have; one without types is for every device. One with scopes is for others: we
/// have none.
fn is_about_computers(probe: Node<'_, '_>) -> bool {
    let scopes = child(probe, WSD, "Scopes").and_then(|scopes| scopes.text()).unwrap_or_default();
    let Some(types) = child(probe, WSD, "Types") else { return scopes.trim().is_empty() };
    let is_ours = |name: &str| {
        let (prefix, local) = name.split_once(':').map_or((None, name), |(prefix, local)| (Some(prefix), local));
        let namespace = types.lookup_namespace_uri(prefix);
        (namespace == Some(WSDP) && local == "Device") || (namespace == Some(PUB) && local == "Computer")
    };
    scopes.trim().is_empty() && types.text().unwrap_or_default().split_whitespace().all(is_ours)
}

/// Says that it is there.
pub(crate) fn hello(computer: &Computer, from: Ipv4Addr) -> String {
    announcement(computer, "Hello", &format!("<wsd:Hello>{}</wsd:Hello>", about(computer, from)))
}

/// Says that it goes.
pub(crate) fn bye(computer: &Computer) -> String {
    let reference = reference(computer);
    announcement(computer, "Bye", &format!("<wsd:Bye>{reference}</wsd:Bye>"))
}

fn announcement(computer: &Computer, action: &str, body: &str) -> String {
    envelope(&format!("{WSD}/{action}"), EVERYBODY, "", &sequence(computer), body)
}

/// The answer to a request by UDP.
pub(crate) fn answer(computer: &Computer, request: &Request, from: Ipv4Addr) -> String {
    let (action, outer, inner) = match request.what {
        What::Probe => ("ProbeMatches", "ProbeMatches", "ProbeMatch"),
        _ => ("ResolveMatches", "ResolveMatches", "ResolveMatch"),
    };
    let about = about(computer, from);
    let body = format!("<wsd:{outer}><wsd:{inner}>{about}</wsd:{inner}></wsd:{outer}>");
    envelope(&format!("{WSD}/{action}"), ANONYMOUS, &related(&request.id), &sequence(computer), &body)
}

/// The answer to a request by HTTP: what Explorer shows.
pub(crate) fn metadata(computer: &Computer, request: &Request) -> String {
    let (address, name) = (computer.address(), escaped(&computer.name));
    let section = |dialect: &str, body: &str| {
        format!("<wsx:MetadataSection Dialect=\"{WSDP}/{dialect}\">{body}</wsx:MetadataSection>")
    };
    let device = format!(
        "<wsdp:ThisDevice><wsdp:FriendlyName>{name}</wsdp:FriendlyName>\
         <wsdp:FirmwareVersion>1.0</wsdp:FirmwareVersion><wsdp:SerialNumber>1</wsdp:SerialNumber></wsdp:ThisDevice>"
    );
    let model = "<wsdp:ThisModel><wsdp:Manufacturer>larder</wsdp:Manufacturer><wsdp:ModelName>larder</wsdp:ModelName>\
                 <pnpx:DeviceCategory>Computers</pnpx:DeviceCategory></wsdp:ThisModel>";
    let host = format!(
        "<wsdp:Relationship Type=\"{WSDP}/host\"><wsdp:Host>{}<wsdp:Types>pub:Computer</wsdp:Types>\
         <wsdp:ServiceId>{address}</wsdp:ServiceId><pub:Computer>{name}/Workgroup:WORKGROUP</pub:Computer>\
         </wsdp:Host></wsdp:Relationship>",
        reference(computer)
    );
    let body = [("ThisDevice", device.as_str()), ("ThisModel", model), ("Relationship", &host)];
    let body: String = body.iter().map(|(dialect, body)| section(dialect, body)).collect();
    let body = format!("<wsx:Metadata>{body}</wsx:Metadata>");
    envelope(&format!("{TRANSFER}/GetResponse"), ANONYMOUS, &related(&request.id), "", &body)
}

fn reference(computer: &Computer) -> String {
    format!("<wsa:EndpointReference><wsa:Address>{}</wsa:Address></wsa:EndpointReference>", computer.address())
}

fn about(computer: &Computer, from: Ipv4Addr) -> String {
    format!(
        "{}<wsd:Types>wsdp:Device pub:Computer</wsd:Types><wsd:XAddrs>http://{from}:{HTTP_PORT}/{}</wsd:XAddrs>\
         <wsd:MetadataVersion>1</wsd:MetadataVersion>",
        reference(computer),
        computer.uuid
    )
}

fn sequence(computer: &Computer) -> String {
    let (instance, message) = computer.sequence();
    format!("<wsd:AppSequence InstanceId=\"{instance}\" MessageNumber=\"{message}\"/>")
}

fn related(id: &str) -> String {
    format!("<wsa:RelatesTo>{}</wsa:RelatesTo>", escaped(id))
}

fn envelope(action: &str, to: &str, related: &str, sequence: &str, body: &str) -> String {
    let id = Uuid::new_v4();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
         <soap:Envelope xmlns:soap=\"{SOAP}\" xmlns:wsa=\"{WSA}\" xmlns:wsd=\"{WSD}\" xmlns:wsx=\"{WSX}\" \
         xmlns:wsdp=\"{WSDP}\" xmlns:pnpx=\"{PNPX}\" xmlns:pub=\"{PUB}\"><soap:Header><wsa:To>{to}</wsa:To>\
         <wsa:Action>{action}</wsa:Action><wsa:MessageID>urn:uuid:{id}</wsa:MessageID>{related}{sequence}\
         </soap:Header><soap:Body>{body}</soap:Body></soap:Envelope>"
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no way to write these.
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OWN: &str = "urn:uuid:00000000-0000-4000-8000-000000000007";

    fn computer() -> Computer {
        Computer::new("pantry & <co>", Uuid::parse_str(&OWN[9..]).unwrap())
    }

    /// A probe as Windows sends it.
    fn probe(types: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><soap:Envelope xmlns:soap=\"{SOAP}\" xmlns:wsa=\"{WSA}\" \
             xmlns:wsd=\"{WSD}\"><soap:Header><wsa:To>{EVERYBODY}</wsa:To><wsa:Action>{WSD}/Probe</wsa:Action>\
             <wsa:MessageID>urn:uuid:5</wsa:MessageID></soap:Header><soap:Body><wsd:Probe>{types}</wsd:Probe>\
             </soap:Body></soap:Envelope>"
        )
    }

    fn what(text: &str) -> Option<What> {
        parse(text.as_bytes(), OWN).map(|request| request.what)
    }

    #[test]
    fn probes_for_computers_are_ours_and_others_are_not() {
        let device = format!("<wsd:Types xmlns:wsdp=\"{WSDP}\">wsdp:Device</wsd:Types>");
        let declared_above = format!("<wsd:Types xmlns:x=\"{PUB}\">x:Computer</wsd:Types>");
        for (types, ours) in [
            ("", true),
            ("<wsd:Types/>", true),
            (device.as_str(), true),
            (&declared_above, true),
            ("<wsd:Types xmlns:p=\"urn:printers\">p:Device</wsd:Types>", false),
            ("<wsd:Types>undeclared:Device</wsd:Types>", false),
            ("<wsd:Scopes>urn:here</wsd:Scopes>", false),
        ] {
            assert_eq!(what(&probe(types)), ours.then_some(What::Probe), "{types}");
        }
    }

    #[test]
    fn a_resolve_is_for_one_address() {
        let text = |address: &str| {
            let reference =
                format!("<wsa:EndpointReference><wsa:Address>{address}</wsa:Address></wsa:EndpointReference>");
            probe(&reference).replace("/Probe<", "/Resolve<").replace("wsd:Probe>", "wsd:Resolve>")
        };
        assert_eq!(what(&text(OWN)), Some(What::Resolve));
        assert_eq!(what(&text("urn:uuid:other")), None);
    }

    #[test]
    fn answers_are_well_formed_and_name_the_computer() {
        let computer = computer();
        let request = Request { id: "urn:<id>".into(), what: What::Probe };
        let from = Ipv4Addr::new(192, 168, 1, 2);
        let get = Request { what: What::Get, ..request.clone() };
        let resolve = Request { what: What::Resolve, ..request.clone() };
        let texts = [
            hello(&computer, from),
            bye(&computer),
            answer(&computer, &request, from),
            answer(&computer, &resolve, from),
            metadata(&computer, &get),
        ];
        for text in &texts {
            let document = Document::parse(text).unwrap();
            let address = document.descendants().find(|node| node.has_tag_name((WSA, "Address"))).unwrap();
            assert_eq!(address.text(), Some(OWN));
            assert_eq!(parse(text.as_bytes(), OWN), None, "an answer is no request");
        }
        let document = Document::parse(&texts[4]).unwrap();
        let name = document.descendants().find(|node| node.has_tag_name((PUB, "Computer"))).unwrap();
        assert_eq!(name.text(), Some("pantry & <co>/Workgroup:WORKGROUP"));
        let related = document.descendants().find(|node| node.has_tag_name((WSA, "RelatesTo"))).unwrap();
        assert_eq!(related.text(), Some("urn:<id>"));
        let document = Document::parse(&texts[2]).unwrap();
        let place = document.descendants().find(|node| node.has_tag_name((WSD, "XAddrs"))).unwrap();
        assert_eq!(place.text(), Some(format!("http://192.168.1.2:5357/{}", &OWN[9..]).as_str()));
    }

    #[test]
    fn hostile_messages_are_no_requests() {
        let whole = probe("");
        for end in (0..whole.len() - 1).step_by(7) {
            assert_eq!(what(&whole[..end]), None);
        }
        let deep = "<a>".repeat(100_000);
        let many = probe(&"<x/>".repeat(1000));
        let dtd = whole.replace("<soap:Envelope", "<!DOCTYPE x [<!ENTITY a \"b\">]><soap:Envelope");
        let long_id = whole.replace("urn:uuid:5", &"i".repeat(300));
        for text in [&deep, &many, &dtd, &long_id, "\u{0}", "<soap:Envelope/>"] {
            assert_eq!(what(text), None);
        }
    }
}
