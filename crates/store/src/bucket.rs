//! A bucket, opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::BucketError;
use crate::credentials::{Profile, ProfileKeys};
use crate::health::Health;
use crate::requests::{CountedConnector, Requests};
use crate::retried::Retried;
use crate::settings::{BucketSettings, BucketUrl};

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A folder of a bucket as an object store.
#[derive(Clone)]
pub struct Bucket {
    /// Which one.
    pub url: BucketUrl,
    /// All objects below the prefix.
    pub store: Arc<dyn ObjectStore>,
    /// Whether it answers.
    pub health: Arc<Health>,
    /// What it has been asked.
    pub requests: Arc<Requests>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.url)
    }
}

impl Bucket {
    /// Reads keys and asks nobody yet.
    pub fn open(settings: &BucketSettings) -> Result<Bucket, BucketError> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::open_in(settings, AmazonS3Builder::from_env(), var)
    }

    /// With keys, in an empty environment.
    #[cfg(test)]
    pub(crate) fn open_with_keys(settings: &BucketSettings, key: &str, secret: &str) -> Result<Bucket, BucketError> {
        let builder = AmazonS3Builder::new().with_access_key_id(key).with_secret_access_key(secret);
        Self::open_in(settings, builder, |_| None)
    }

    fn open_in(
        settings: &BucketSettings,
        builder: AmazonS3Builder,
        var: impl Fn(&str) -> Option<String>,
    ) -> Result<Bucket, BucketError> {
        let (health, requests) = (Arc::<Health>::default(), Arc::<Requests>::default());
        let client = client_of(settings, Arc::clone(&requests), builder, var)?;
        let retried = Retried::new(client, Arc::clone(&health), Arc::clone(&requests));
        let store: Arc<dyn ObjectStore> = match settings.url.prefix.is_empty() {
            true => Arc::new(retried),
            false => Arc::new(PrefixStore::new(retried, settings.url.prefix.as_str())),
        };
        Ok(Bucket { url: settings.url.clone(), store, health, requests })
    }
}

/// What is said beats the environment, which beats the profile.
fn client_of(
    settings: &BucketSettings,
    requests: Arc<Requests>,
    builder: AmazonS3Builder,
    var: impl Fn(&str) -> Option<String>,
) -> Result<AmazonS3, BucketError> {
    let profile = Profile::load(&var);
    let said = |name: &str| profile.get(name).map(str::to_owned);
    let mut builder = builder.with_bucket_name(&settings.url.bucket);
    let environment = || var("AWS_REGION").or_else(|| var("AWS_DEFAULT_REGION"));
    if let Some(region) = settings.region.clone().or_else(environment).or_else(|| said("region")) {
        builder = builder.with_region(region);
    }
    let environment = || var("AWS_ENDPOINT_URL_S3").or_else(|| var("AWS_ENDPOINT_URL")).or_else(|| var("AWS_ENDPOINT"));
    let endpoint = settings.endpoint.clone().or_else(environment).or_else(|| said("endpoint_url"));
    if let Some(endpoint) = &endpoint {
        settings.check_endpoint(endpoint)?;
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    if var("AWS_ACCESS_KEY_ID").is_none()
        && let Some(keys) = ProfileKeys::new(profile)
    {
        builder = builder.with_credentials(Arc::new(keys));
    }
    let is_clear = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    // Tries are ours: a client that tries by itself does not know what it has done already.
    let no_tries = RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: CONNECT_MAX };
    let client =
        ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_MAX).with_allow_http(is_clear);
    builder
        .with_client_options(client)
        .with_config(AmazonS3ConfigKey::VirtualHostedStyleRequest, settings.virtual_hosted.to_string())
        .with_allow_http(is_clear)
        .with_retry(no_tries)
        .with_http_connector(CountedConnector(requests))
        .build()
        .map_err(|source| BucketError::Store { what: format!("the bucket {}", settings.url), source })
}
