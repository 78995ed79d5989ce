//! `[[store]]`: a store of volumes in a bucket.

use std::path::PathBuf;

use super::spanned::Spanned;
use larder_base::Seat;
use larder_base::units::ByteSize;
use larder_store::{BucketSettings, BucketUrl, CACHE_BYTES_MIN, Nanos, Prices};
use serde::Deserialize;
use toml_edit::{InlineTable, Table, value};

use larder_keep::{CacheSettings, StoreSettings, check_name};

/// How far a read-only replica may be behind, unless the file says otherwise.
pub const BEHIND_SECONDS: u64 = 10;
const BEHIND_SECONDS_MIN: u64 = 2;
/// Less than the time for which the writer keeps what it needs no more (`maintain.grace_of_replicas`).
const BEHIND_SECONDS_MAX: u64 = 20;
const BEHIND_SECONDS_ALLOWED: std::ops::RangeInclusive<u64> = BEHIND_SECONDS_MIN..=BEHIND_SECONDS_MAX;

const CURRENCY: &str = "USD";
const CURRENCY_BYTES_MAX: usize = 16;

/// The size of a cache that somebody wants.
pub fn parse_cache_bytes(text: &str) -> Result<ByteSize, String> {
    let bytes: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    match bytes.0 >= CACHE_BYTES_MIN {
        true => Ok(bytes),
        false => Err(format!("a cache of {bytes} is too small: give it {} or more", ByteSize(CACHE_BYTES_MIN))),
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawCache {
    /// Its folder.
    dir: PathBuf,
    /// Its size, such as "100GiB".
    bytes: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawPrices {
    /// 1,000 requests that write or list.
    put: Spanned<f64>,
    /// 1,000 requests that read.
    get: Spanned<f64>,
    /// A GiB kept for a month.
    gib_month: Option<Spanned<f64>>,
    /// A GiB that leaves the cloud.
    egress_gib: Option<Spanned<f64>>,
    /// USD when it is not given.
    currency: Option<Spanned<String>>,
}

impl RawPrices {
    fn parse(self) -> Result<Prices, Wrong> {
        let price = |raw: Spanned<f64>| {
            Nanos::of_units(*raw.get_ref()).ok_or_else(|| {
                (
                    raw.span(),
                    format!("{} is not a price: write one such as 0.005, of 1,000 requests or of a GiB", raw.get_ref()),
                )
            })
        };
        let currency = match self.currency {
            None => CURRENCY.to_owned(),
            Some(raw) if raw.get_ref().len() <= CURRENCY_BYTES_MAX && raw.get_ref().chars().all(is_of_currency) => {
                raw.into_inner()
            }
            Some(raw) => {
                return Err((raw.span(), format!("'{}' is not a currency: write one such as USD", raw.get_ref())));
            }
        };
        Ok(Prices {
            put: price(self.put)?,
            get: price(self.get)?,
            gib_month: self.gib_month.map(price).transpose()?,
            egress_gib: self.egress_gib.map(price).transpose()?,
            currency,
        })
    }
}

/// As power has it, a letter or a sign.
fn is_of_currency(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    /// No pool and no other store has it.
    pub(super) name: Spanned<String>,
    /// s3://BUCKET/PREFIX.
    url: Spanned<String>,
    /// AWS, or AWS_ENDPOINT_URL, when it is not given.
    endpoint: Option<String>,
    /// AWS_REGION, or the profile's, when it is not given.
    region: Option<String>,
    /// Files may cross the network in clear.
    #[serde(default)]
    allow_http: bool,
    /// BUCKET.HOST instead of HOST/BUCKET.
    #[serde(default)]
    virtual_hosted: bool,
    /// Other machines sit at the same store and serve other volumes; the first when it is not given.
    seat: Option<Spanned<String>>,
    /// On two machines: one serves, the other takes over when it ends or is silent.
    #[serde(default)]
    standby: bool,
    /// Another machine writes the store; its volumes are served read-only.
    #[serde(default)]
    read_only: bool,
    /// With read_only: how old a state an answer may show, 2 to 20; 10 when it is not given.
    behind_seconds: Option<Spanned<u64>>,
    /// A cache on a local disk.
    cache: Option<RawCache>,
    /// journal: answers come from the journal of a local pool, and the bucket follows within seconds.
    #[cfg_attr(test, schemars(extend("enum" = ["bucket", "journal"])))]
    #[cfg_attr(test, schemars(extend("default" = "bucket")))]
    durability: Option<Spanned<String>>,
    /// That pool; the only one when it is not given.
    journal: Option<Spanned<String>>,
    /// Of 1,000 requests and of a GiB.
    prices: Option<RawPrices>,
}

/// A place in the file, and what is wrong there.
pub(super) type Wrong = (std::ops::Range<usize>, String);

/// What an answer waits for: the bucket, or the journal of a pool, which is the only one there is where none is named.
fn parse_journal(raw: &RawStore, pools: &[&str]) -> Result<Option<String>, Wrong> {
    let known = || if pools.is_empty() { "none".to_owned() } else { pools.join(", ") };
    let durability = match &raw.durability {
        Some(durability) => durability,
        None => {
            let alone = raw.journal.clone();
            return alone.map_or(Ok(None), |place| {
                Err((place.span(), "journal is for durability = \"journal\", which is not there".to_owned()))
            });
        }
    };
    let wrong = |what: String| Err((durability.span(), what));
    match (durability.get_ref().as_str(), &raw.journal, pools) {
        ("bucket", None, _) => Ok(None),
        ("bucket", Some(place), _) => Err((place.span(), "journal is for durability = \"journal\"".to_owned())),
        ("journal", ..) if raw.read_only => wrong(
            "a store that is only read has nothing to answer for: leave out durability, or read_only = true".to_owned(),
        ),
        ("journal", Some(pool), _) if pools.contains(&pool.get_ref().as_str()) => Ok(Some(pool.get_ref().clone())),
        ("journal", Some(pool), _) => {
            Err((pool.span(), format!("there is no pool '{}' in this file (pools: {})", pool.get_ref(), known())))
        }
        ("journal", None, [pool]) => Ok(Some((*pool).to_owned())),
        ("journal", None, _) => {
            wrong(format!("a journal lies on a pool: name it with journal = \"POOL\" (pools: {})", known()))
        }
        (other, ..) => wrong(format!("'{other}' is no durability: write \"bucket\" or \"journal\"")),
    }
}

/// What is wrong comes with its place.
pub(super) fn parse(raw: RawStore, pools: &[&str]) -> Result<StoreSettings, Wrong> {
    if let Err(what) = check_name(raw.name.get_ref()) {
        return Err((raw.name.span(), what));
    }
    let url = match raw.url.get_ref().parse::<BucketUrl>() {
        Ok(url) => url,
        Err(error) => return Err((raw.url.span(), error.to_string())),
    };
    let journal = parse_journal(&raw, pools)?;
    let RawStore {
        endpoint,
        region,
        allow_http,
        virtual_hosted,
        seat,
        standby,
        read_only,
        behind_seconds,
        cache,
        prices,
        ..
    } = raw;
    let cache = match cache.map(|cache| (parse_cache_bytes(cache.bytes.get_ref()), cache)) {
        None => None,
        Some((Ok(bytes), cache)) => Some(CacheSettings { dir: cache.dir, bytes }),
        Some((Err(what), cache)) => return Err((cache.bytes.span(), what)),
    };
    let seat = match seat {
        None => Seat::default(),
        Some(raw) if read_only => {
            return Err((
                raw.span(),
                "a store that is only read has no seat: leave out seat, or read_only = true".to_owned(),
            ));
        }
        Some(raw) => match raw.get_ref().parse::<Seat>() {
            Ok(seat) => seat,
            Err(error) => return Err((raw.span(), error.to_string())),
        },
    };
    let behind = match behind_seconds {
        None => BEHIND_SECONDS,
        Some(raw) if !BEHIND_SECONDS_ALLOWED.contains(raw.get_ref()) => {
            let what = format!("{} s: write {BEHIND_SECONDS_MIN} to {BEHIND_SECONDS_MAX}", raw.get_ref());
            return Err((raw.span(), what));
        }
        Some(raw) if !read_only => {
            return Err((raw.span(), "behind_seconds is for read_only = true".to_owned()));
        }
        Some(raw) => raw.into_inner(),
    };
    if read_only && standby {
        let what = "read_only and standby exclude each other: one never takes the store, the other waits for it";
        return Err((raw.url.span(), what.to_owned()));
    }
    let read_only = read_only.then_some(behind);
    let prices = prices.map(RawPrices::parse).transpose()?;
    let bucket = BucketSettings { url, endpoint, region, allow_http, virtual_hosted };
    Ok(StoreSettings { name: raw.name.into_inner(), bucket, seat, standby, read_only, cache, journal, prices })
}

/// Options of the command line for this run.
pub fn set(store: &mut StoreSettings, standby: bool, read_only: bool) {
    store.standby = (store.standby || standby) && !read_only;
    if read_only && store.read_only.is_none() {
        store.read_only = Some(BEHIND_SECONDS);
    }
}

/// As the file has it.
pub(super) fn table(store: &StoreSettings) -> Table {
    let mut table = Table::new();
    table.insert("name", value(&store.name));
    table.insert("url", value(store.bucket.url.to_string()));
    for (name, said) in [("endpoint", &store.bucket.endpoint), ("region", &store.bucket.region)] {
        if let Some(said) = said {
            table.insert(name, value(said));
        }
    }
    if let Some(seat) = store.seat.name() {
        table.insert("seat", value(seat));
    }
    let flags = [
        ("allow_http", store.bucket.allow_http),
        ("virtual_hosted", store.bucket.virtual_hosted),
        ("standby", store.standby),
        ("read_only", store.read_only.is_some()),
    ];
    for (name, said) in flags {
        if said {
            table.insert(name, value(true));
        }
    }
    if let Some(pool) = &store.journal {
        table.insert("durability", value("journal"));
        table.insert("journal", value(pool));
    }
    if let Some(seconds) = store.read_only.filter(|seconds| *seconds != BEHIND_SECONDS) {
        table.insert("behind_seconds", value(seconds.cast_signed()));
    }
    if let Some(cache) = &store.cache {
        let mut inline = InlineTable::new();
        inline.insert("dir", cache.dir.display().to_string().into());
        inline.insert("bytes", cache.bytes.to_string().into());
        table.insert("cache", value(inline));
    }
    if let Some(prices) = &store.prices {
        table.insert("prices", value(table_of(prices)));
    }
    table
}

fn table_of(prices: &Prices) -> InlineTable {
    let mut inline = InlineTable::new();
    let known = [
        ("put", Some(prices.put)),
        ("get", Some(prices.get)),
        ("gib_month", prices.gib_month),
        ("egress_gib", prices.egress_gib),
    ];
    for (name, price) in known {
        if let Some(price) = price {
            inline.insert(name, price.units().into());
        }
    }
    inline.insert("currency", prices.currency.as_str().into());
    inline
}
