//! One file a page: what it asks, what it shows, and the changes that its forms make.

pub mod account;
pub mod alerts;
pub mod care;
pub mod change;
pub mod charts;
pub mod config;
pub mod connections;
pub mod explain;
pub mod factor;
pub mod found;
pub mod home;
pub mod issuer;
pub mod keys;
pub mod log;
pub mod log_in;
pub mod measure;
pub mod passkey;
pub mod passkey_question;
pub mod password;
pub mod people;
mod pools;
pub mod power;
pub mod sharing;
pub mod storage;
mod tokens;
pub mod volume;
