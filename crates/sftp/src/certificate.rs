//! SSH certificates of users (PROTOCOL.certkeys of OpenSSH): a key that an authority has signed for
//! some names, for a time, under conditions.
//!
//! - `certificate.named_authority`: the authority is one of those that the configuration names, by
//!   its key. The certificate's own word about its authority counts for nothing.
//! - `certificate.names_the_user`: the user's name is among the certificate's principals. One
//!   without principals, which would be good for every name, is refused.
//! - `certificate.every_condition_known`: each critical option is understood and met, or the
//!   certificate is refused. Extensions grant things that this door has not, and are ignored.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use larder_people::{Network, PeopleError, check_strength, public_key};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg};

/// Networks in one condition.
const NETWORKS_MAX: usize = 256;
/// Why a certificate of an authority that nobody named is refused.
const NO_AUTHORITY: &str = "no authority that the configuration names has signed the certificate";

/// A certificate authority whose certificates let users in.
#[derive(Clone, PartialEq, Eq)]
pub struct CaKey(KeyData);

impl std::str::FromStr for CaKey {
    type Err = PeopleError;

    /// A line of a public key file.
    fn from_str(line: &str) -> Result<Self, PeopleError> {
        public_key(line).map(Self)
    }
}

impl std::fmt::Debug for CaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CaKey({})", self.0.fingerprint(HashAlg::Sha256))
    }
}

/// The authority by whose word `certificate` lets `user` in from `address`, or the reason why it
/// does not. Its owner has proved to have its private key.
pub(crate) fn admit(
    certificate: &Certificate,
    user: &str,
    address: IpAddr,
    now: SystemTime,
    authorities: &[CaKey],
) -> Result<CaKey, String> {
    let signer = certificate.signature_key();
    let authority = authorities.iter().find(|authority| authority.0 == *signer).ok_or(NO_AUTHORITY)?;
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    // ssh-key 0.7 panics at some names of kinds that it does not know.
    if let Algorithm::Other(name) = certificate.public_key().algorithm() {
        return Err(format!("its key is of an unknown kind: {}", larder_doors::door::shown(name.as_str())));
    }
    check_strength(certificate.public_key()).map_err(|why| why.to_string())?;
    if matches!(certificate.signature().algorithm(), Algorithm::Rsa { hash: None } | Algorithm::Dsa) {
        return Err("its authority signed it with SHA-1".to_owned());
    }
    if certificate.cert_type() != CertType::User {
        return Err("it is the certificate of a host".to_owned());
    }
    if !(certificate.valid_after()..certificate.valid_before()).contains(&seconds) {
        return Err("it is not valid now".to_owned());
    }
    certificate
        .validate_at(seconds, [&signer.fingerprint(HashAlg::Sha256)])
        .map_err(|_| "its signature is wrong".to_owned())?;
    if !certificate.valid_principals().iter().any(|name| name == user) {
        return Err(format!("it is for other users: {}", shown(certificate.valid_principals())));
    }
    for (name, value) in certificate.critical_options().iter() {
        condition(name, value, address)?;
    }
    Ok(authority.clone())
}

/// A certificate as a client sends it, and its conditions alone: the signature would keep mutations out.
#[cfg(any(test, fuzzing))]
pub fn ssh_certificate(data: &[u8]) {
    let address = IpAddr::from([192, 168, 1, 7]);
    if let Ok(certificate) = Certificate::from_bytes(data) {
        let own = CaKey(certificate.signature_key().clone());
        let _ = admit(&certificate, "ann", address, SystemTime::UNIX_EPOCH, &[own]);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if condition(name, value, address).is_ok() {
        assert!(matches!(name, "source-address" | "force-command"), "{name}");
    }
}

fn shown(names: &[String]) -> String {
    const NAMES_MAX: usize = 4;
    match names {
        [] => "none".to_owned(),
        names => {
            names.iter().take(NAMES_MAX).map(|name| larder_doors::door::shown(name)).collect::<Vec<_>>().join(", ")
        }
    }
}

/// `certificate.every_condition_known`.
fn condition(name: &str, value: &str, address: IpAddr) -> Result<(), String> {
    match name {
        "source-address" => {
            let networks: Result<Vec<Network>, _> = value.split(',').take(NETWORKS_MAX).map(str::parse).collect();
            let networks = networks.map_err(|_| "its source-address is not a list of networks".to_owned())?;
            match networks.iter().any(|network| network.contains(address)) {
                true => Ok(()),
                false => Err("it is for other addresses (source-address)".to_owned()),
            }
        }
        // What this door does anyway.
        "force-command" if value == "internal-sftp" => Ok(()),
        _ => Err(format!("it has a condition that larder cannot meet: {}", larder_doors::door::shown(name))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::AlgorithmName;
    use russh::keys::ssh_key::certificate::Builder;
    use russh::keys::ssh_key::public::OpaquePublicKey;

    use super::*;

    const NOW: u64 = 1_000_000;

    struct Case {
        principals: &'static [&'static str],
        valid: (u64, u64),
        option: Option<(&'static str, &'static str)>,
        kind: CertType,
    }

    impl Default for Case {
        fn default() -> Self {
            Self { principals: &["ann", "bob"], valid: (NOW - 1, NOW + 1), option: None, kind: CertType::User }
        }
    }

    fn key(seed: u8) -> PrivateKey {
        let pair = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[seed; 32]);
        PrivateKey::new(pair.into(), "").unwrap()
    }

    fn signed(case: &Case, by: &PrivateKey) -> Certificate {
        signed_of(key(1).public_key().key_data().clone(), case, by)
    }

    fn signed_of(key: KeyData, case: &Case, by: &PrivateKey) -> Certificate {
        let mut builder = Builder::new(vec![0; 16], key, case.valid.0, case.valid.1).unwrap();
        for name in case.principals {
            builder.valid_principal(*name).unwrap();
        }
        if case.principals.is_empty() {
            builder.all_principals_valid().unwrap();
        }
        builder.cert_type(case.kind).unwrap();
        if let Some((name, value)) = case.option {
            builder.critical_option(name, value).unwrap();
        }
        builder.extension("permit-pty", "").unwrap();
        builder.sign(by).unwrap()
    }

    #[track_caller]
    fn check(case: Case, refused: Option<&str>) {
        let authority = key(2);
        let authorities = [CaKey(authority.public_key().key_data().clone())];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let address = "192.168.1.5".parse().unwrap();
        let admitted = admit(&signed(&case, &authority), "ann", address, now, &authorities);
        match refused {
            None => assert!(admitted.is_ok(), "{admitted:?}"),
            Some(why) => assert!(admitted.as_ref().is_err_and(|text| text.contains(why)), "{admitted:?}"),
        }
    }

    #[test]
    fn certificates_are_judged_by_everything_in_them() {
        let with = |name, value| Case { option: Some((name, value)), ..Case::default() };
        check(Case::default(), None);
        check(Case { principals: &["bob"], ..Case::default() }, Some("other users: bob"));
        check(Case { principals: &[], ..Case::default() }, Some("other users: none"));
        check(Case { valid: (NOW - 9, NOW), ..Case::default() }, Some("not valid now"));
        check(Case { valid: (NOW + 1, NOW + 9), ..Case::default() }, Some("not valid now"));
        check(Case { kind: CertType::Host, ..Case::default() }, Some("of a host"));
        check(with("source-address", "10.0.0.0/8,192.168.1.0/24"), None);
        check(with("source-address", "192.168.1.5"), None);
        check(with("source-address", "10.0.0.0/8"), Some("other addresses"));
        check(with("source-address", "10.0.0.0/8,here"), Some("not a list"));
        check(with("force-command", "internal-sftp"), None);
        check(with("force-command", "/bin/false"), Some("force-command"));
        check(with("verify-required", ""), Some("verify-required"));
    }

    #[test]
    fn kinds_of_keys_that_nobody_knows_are_refused() {
        let kind = Algorithm::Other(AlgorithmName::new("kind@example.com").unwrap());
        let authority = key(2);
        let opaque = KeyData::Other(OpaquePublicKey::new(vec![8; 32], kind));
        let certificate = signed_of(opaque, &Case::default(), &authority);
        let (now, here) = (SystemTime::UNIX_EPOCH + Duration::from_secs(NOW), "192.168.1.5".parse().unwrap());
        let authorities = [CaKey(authority.public_key().key_data().clone())];
        let refused = admit(&certificate, "ann", here, now, &authorities).unwrap_err();
        assert_eq!(refused, "its key is of an unknown kind: kind@example.com");
    }

    #[test]
    fn another_authority_is_nobody() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let authorities = [CaKey(key(2).public_key().key_data().clone())];
        let forged = signed(&Case::default(), &key(3));
        let refused = admit(&forged, "ann", "10.0.0.1".parse().unwrap(), now, &authorities);
        assert_eq!(refused.unwrap_err(), NO_AUTHORITY);
    }
}
