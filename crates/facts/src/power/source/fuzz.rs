//! Answers of meters and UPSs.

pub(in super::super) fn meter_answer(data: &[u8]) {
    super::http::fuzz_answer(data);
}

pub(in super::super) fn ups_line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    super::ups::fuzz_lines(text);
}
