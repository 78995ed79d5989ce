//! Answers of meters and UPSs on the network, fed with anything. Driven by the tests below, and with coverage by `fuzz/`.

pub use crate::power::fuzz::{meter_answer, ups_line};

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_meter_answer() {
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"apower\": 42}";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n";
        let locked = "HTTP/1.1 401 No\r\nWWW-Authenticate: Digest qop=\"auth\", realm=\"shelly\", nonce=\"6\", algorithm=SHA-256\r\n\r\n";
        drive("meter_answer", &[plain, chunked, locked].map(|seed| seed.as_bytes().to_vec()), super::meter_answer);
    }

    #[test]
    fn fuzz_ups_line() {
        let seeds = ["VAR ups ups.realpower \"42\"", "VAR ups battery.charge \"1\\\"0\"", "END LIST VAR ups"];
        drive("ups_line", &seeds.map(|seed| seed.as_bytes().to_vec()), super::ups_line);
    }
}
