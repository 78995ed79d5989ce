//! A volume on its way from one machine of a store to another, as its entry in the registry says (`seats`).

use larder_base::Seat;
use serde::{Deserialize, Serialize};

/// How far a volume is on its way to another seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoverStage {
    /// The giver asks whether somebody sits there.
    Offered,
    /// The taker has answered, and looks often.
    Accepted,
    /// It is the taker's, who has not opened it yet.
    Given,
}

/// A volume on its way to another seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Whose it was.
    pub from: Seat,
    /// Whose it will be.
    pub to: Seat,
    /// See [`HandoverStage`].
    pub stage: HandoverStage,
    /// What the taker says to whoever asked for this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}
