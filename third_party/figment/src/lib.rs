//! The items of figment that slatedb names, without any that reads a file or the environment.
//!
//! [`Figment::extract`] and [`providers::Serialized::data`] are the ends of every use. Both return [`Error`].

use std::borrow::Cow;
use std::fmt;

pub use profile::Profile;

mod profile {
    /// Names a set of settings.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Profile(());
}

/// A settings file was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(());

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("larder is built without settings files of slatedb (third_party/figment)")
    }
}

impl std::error::Error for Error {}

/// A source of settings.
pub trait Provider {
    fn metadata(&self) -> Metadata;
    fn data(&self) -> Result<value::Map<Profile, value::Dict>, Error>;
}

/// Describes a source; no error here repeats the description.
#[derive(Clone, Debug, Default)]
pub struct Metadata(());

impl Metadata {
    pub fn named(_: impl Into<Cow<'static, str>>) -> Self {
        Self(())
    }
}

/// Sources, one above the other. None is read.
#[derive(Clone, Debug, Default)]
pub struct Figment(());

impl Figment {
    pub fn from<P: Provider>(_: P) -> Self {
        Self(())
    }

    #[must_use]
    pub fn merge<P: Provider>(self, _: P) -> Self {
        self
    }

    #[must_use]
    pub fn admerge<P: Provider>(self, _: P) -> Self {
        self
    }

    /// Always an error.
    pub fn extract<T>(&self) -> Result<T, Error> {
        Err(Error(()))
    }
}

pub mod value {
    pub type Map<K, V> = std::collections::BTreeMap<K, V>;
    pub type Dict = Map<String, Value>;

    /// A value of a setting: there is none.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Value {}
}

pub mod providers {
    use std::path::Path;

    use super::{Error, Metadata, Profile, Provider, value};

    /// A source that is never read.
    macro_rules! unread {
        ($($name:ident),*) => {$(
            #[derive(Clone, Debug)]
            pub struct $name(());

            impl Provider for $name {
                fn metadata(&self) -> Metadata {
                    Metadata::default()
                }

                fn data(&self) -> Result<value::Map<Profile, value::Dict>, Error> {
                    Err(Error(()))
                }
            }
        )*};
    }

    /// The formats of settings files.
    pub trait Format: Sized {
        fn file<P: AsRef<Path>>(path: P) -> Self;
    }

    macro_rules! formats {
        ($($name:ident),*) => {$(
            impl Format for $name {
                fn file<P: AsRef<Path>>(_: P) -> Self {
                    Self(())
                }
            }
        )*};
    }

    unread!(Env, Json, Serialized, Toml, Yaml);
    formats!(Json, Toml, Yaml);

    impl Env {
        pub fn prefixed(_: &str) -> Self {
            Self(())
        }
    }

    impl Serialized {
        pub fn defaults<T>(_: T) -> Self {
            Self(())
        }
    }
}
