//! Faults of a description.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDescription {
    #[error("{0}")]
    Toml(String),
    #[error("'{0}' is not a rate: write 450MB/s, 4GiB/s or 935Mbit/s")]
    Rate(String),
    #[error("'{0}': bits or bytes? Write Mbit/s or MB/s, they are eight apart")]
    BitsOrBytes(String),
    #[error("'{0}' is not a size: write 8GiB or 32GB")]
    Size(String),
    #[error("'{0}' is not a time: write 80us, 5ms or 1.5s")]
    Time(String),
    #[error(
        "'{0}' names no wire: write PCIe 3.0 x4, USB 3.0, USB 2.0 BOT, SATA 6G, 2.5 GbE or Wi-Fi 5, or give limit ="
    )]
    Wire(String),
    #[error("there is no {kind} '{name}' in the description")]
    Missing { kind: &'static str, name: String },
    #[error("{0}")]
    Senseless(String),
}
