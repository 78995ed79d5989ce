//! Answers of meters and UPSs.

/// What a smart plug answers: with a body, in chunks, or asking for a login.
pub fn meter_answer(data: &[u8]) {
    super::source::fuzz::meter_answer(data);
}

/// A line of `LIST VAR` of a UPS.
pub fn ups_line(data: &[u8]) {
    super::source::fuzz::ups_line(data);
}
