//! What a person says of a bucket.

use std::fmt;
use std::str::FromStr;

use crate::BucketError;

/// `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUrl {
    /// The bucket.
    pub bucket: String,
    /// The folder in it, without slashes at its ends; empty: the whole bucket.
    pub prefix: String,
}

impl FromStr for BucketUrl {
    type Err = BucketError;

    fn from_str(text: &str) -> Result<Self, BucketError> {
        let wrong = |why: &str| BucketError::Invalid(format!("'{text}' {why}: write s3://BUCKET/PREFIX"));
        let rest = text.strip_prefix("s3://").ok_or_else(|| wrong("is not the URL of a bucket"))?;
        if text.contains(['@', '?', '#']) {
            return Err(wrong("has more than a bucket and a prefix (keys come from the environment or a profile)"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let legal = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(legal) {
            return Err(wrong("names no bucket: 3 to 63 letters, digits, '.', '-' or '_'"));
        }
        let prefix = prefix.trim_matches('/');
        let is_part =
            |part: &str| !part.is_empty() && part != "." && part != ".." && !part.chars().any(char::is_control);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(wrong("has a prefix with an empty part"));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.is_empty() {
            true => write!(f, "s3://{}", self.bucket),
            false => write!(f, "s3://{}/{}", self.bucket, self.prefix),
        }
    }
}

/// A bucket and how it is reached. Keys are not in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// Which bucket, and where in it.
    pub url: BucketUrl,
    /// The address of the server; `None`: AWS, or what the environment says.
    pub endpoint: Option<String>,
    /// `None`: what the environment or the profile says.
    pub region: Option<String>,
    /// Data and names may cross the network in clear.
    pub allow_http: bool,
    /// `BUCKET.server` instead of `server/BUCKET`.
    pub virtual_hosted: bool,
}

impl BucketSettings {
    /// Refuses what would go over the network in clear without anybody having said so.
    pub(crate) fn check_endpoint(&self, endpoint: &str) -> Result<(), BucketError> {
        let (scheme, host) = endpoint.split_once("://").ok_or_else(|| {
            BucketError::Invalid(format!("'{endpoint}' is not an endpoint: write https://HOST or https://HOST:PORT"))
        })?;
        let host = host.split('/').next().unwrap_or("");
        if host.is_empty() || host.contains('@') {
            return Err(BucketError::Invalid(format!(
                "the endpoint '{scheme}://' names no host, or keys: write https://HOST"
            )));
        }
        match scheme {
            "https" => Ok(()),
            "http" if self.allow_http || is_here(host) => Ok(()),
            "http" => Err(BucketError::Invalid(format!(
                "the endpoint {endpoint} is not encrypted: files would cross the network in clear. Use https, or say that it may: --allow-http, or allow_http = true in [[store]]"
            ))),
            _ => Err(BucketError::Invalid(format!("'{endpoint}' is not an endpoint: write https://HOST"))),
        }
    }
}

/// This machine.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls() {
        let parse = |text: &str| text.parse::<BucketUrl>().map(|url| (url.bucket, url.prefix));
        assert_eq!(parse("s3://home").unwrap(), ("home".into(), "".into()));
        assert_eq!(parse("s3://home/a/b/").unwrap(), ("home".into(), "a/b".into()));
        for bad in ["home", "gs://home/x", "s3://", "s3://a", "s3://home//x/../y", "s3://key:secret@home/x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_in_clear_unasked() {
        let url = "s3://home".parse().unwrap();
        let mut said = BucketSettings { url, endpoint: None, region: None, allow_http: false, virtual_hosted: false };
        for fine in ["https://s3.example", "http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"] {
            said.check_endpoint(fine).unwrap();
        }
        let refused = said.check_endpoint("http://nas.example:9000").unwrap_err().to_string();
        assert!(refused.contains("in clear") && refused.contains("--allow-http"), "{refused}");
        for bad in ["nas:9000", "ftp://nas", "https://", "https://key:secret@nas"] {
            assert!(said.check_endpoint(bad).is_err(), "{bad}");
        }
        said.allow_http = true;
        said.check_endpoint("http://nas.example:9000").unwrap();
    }
}
