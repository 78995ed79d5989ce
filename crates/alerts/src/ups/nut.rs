//! A client of `upsd`: the protocol of Network UPS Tools, a line a question (RFC 9271). Answers are bounded in length and time.

use std::time::Duration;

use larder_facts::power::ups_variable;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::reading::{Reading, Source};

/// A question and its answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
const LINE_BYTES_MAX: u64 = 1024;
/// A large UPS has a hundred variables.
const LINES_MAX: usize = 1000;

/// A connection to a server. It stays, so that a primary waits for this machine before it cuts the power.
#[derive(Debug)]
pub struct Nut {
    stream: BufReader<TcpStream>,
    ups: String,
}

impl Nut {
    /// Connects, and logs in if there is a password.
    pub async fn connect(source: &Source) -> Result<Nut, String> {
        let Source::Nut { address, name, user, password } = source else {
            return Err("it is no server".to_owned());
        };
        let password = match password {
            Some(secret) => Some(secret.read().await.map_err(|e| e.to_string())?),
            None => None,
        };
        let talk = async {
            let stream = TcpStream::connect(address).await.map_err(|e| format!("{address}: {e}"))?;
            let mut nut = Nut { stream: BufReader::new(stream), ups: name.clone() };
            if let (Some(user), Some(password)) = (user, &password) {
                nut.accepted(&format!("USERNAME {}", quoted(user)), "the user").await?;
                nut.accepted(&format!("PASSWORD {}", quoted(password)), "the password").await?;
                nut.accepted(&format!("LOGIN {name}"), "the login").await?;
            }
            Ok(nut)
        };
        within(talk).await
    }

    /// What the UPS says now.
    pub async fn ask(&mut self) -> Result<Reading, String> {
        let question = format!("LIST VAR {}", self.ups);
        within(async {
            self.say(&question).await?;
            let first = self.line().await?;
            if first != format!("BEGIN {question}") {
                return Err(refusal(&first, &self.ups));
            }
            let mut reading = Variables::default();
            for _ in 0..LINES_MAX {
                let line = self.line().await?;
                if line == format!("END {question}") {
                    return reading.reading();
                }
                reading.take(&line);
            }
            Err("it says more than a UPS has to say".to_owned())
        })
        .await
    }

    async fn accepted(&mut self, line: &str, what: &str) -> Result<(), String> {
        self.say(line).await?;
        match self.line().await? {
            answer if answer.starts_with("OK") => Ok(()),
            answer => Err(format!("{what} is refused: {}", refusal(&answer, &self.ups))),
        }
    }

    async fn say(&mut self, line: &str) -> Result<(), String> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await.map_err(|e| e.to_string())
    }

    async fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut line).await.map_err(|e| e.to_string())?;
        match line.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            _ => Err("it ended the connection".to_owned()),
        }
    }
}

async fn within<T>(talk: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(ANSWER_WAIT_MAX, talk).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

fn quoted(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The words of a refusal (RFC 9271 section 4.3).
fn refusal(line: &str, ups: &str) -> String {
    match line.strip_prefix("ERR ").unwrap_or(line) {
        "UNKNOWN-UPS" => format!("there is no UPS '{ups}'"),
        "DATA-STALE" => "its driver has lost the UPS".to_owned(),
        "DRIVER-NOT-CONNECTED" => "its driver does not run".to_owned(),
        "ACCESS-DENIED" => "access denied: see upsd.users".to_owned(),
        other => other.chars().take(100).collect(),
    }
}

/// The variables that count.
#[derive(Default)]
struct Variables {
    reading: Reading,
    has_status: bool,
}

impl Variables {
    fn take(&mut self, line: &str) {
        let Some((name, value)) = ups_variable(line) else { return };
        let number = || value.parse::<f64>().ok().filter(|n| (0.0..1e9).contains(n));
        match name.as_str() {
            "ups.status" => {
                self.has_status = true;
                for word in value.split(' ') {
                    match word {
                        "OB" => self.reading.on_battery = true,
                        "LB" => self.reading.is_low = true,
                        "FSD" => self.reading.is_forced = true,
                        // Its driver knows nothing yet.
                        "WAIT" => self.has_status = false,
                        "RB" => self.reading.replace_battery = true,
                        _ => {}
                    }
                }
            }
            "battery.charge" => self.reading.charge_percent = number().map(|n| n as u32),
            "battery.runtime" => self.reading.runtime_s = number().map(|n| n as u64),
            "ups.load" => self.reading.load_percent = number().map(|n| n as u32),
            "ups.model" | "device.model" => {
                self.reading.model = Some(value.chars().filter(|c| !c.is_control()).take(60).collect());
            }
            _ => {}
        }
    }

    fn reading(self) -> Result<Reading, String> {
        self.has_status.then_some(self.reading).ok_or_else(|| "it does not say whether it is on mains".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpListener;

    /// The answer to a server that says `script` whatever it is asked.
    async fn answer(script: &'static [u8]) -> Result<Reading, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 256];
            let _ = stream.read(&mut question).await;
            let _ = stream.write_all(script).await;
        });
        let source = Source::Nut { address, name: "u".into(), user: None, password: None };
        let said = Nut::connect(&source).await.unwrap().ask().await;
        server.await.unwrap();
        said
    }

    #[tokio::test]
    async fn an_answer_is_read() {
        let said = answer(
            b"BEGIN LIST VAR u\nVAR u battery.charge \"87\"\nVAR u battery.runtime \"1020.5\"\nVAR u ups.status \"OB DISCHRG LB\"\n\
              VAR u ups.model \"Back \\\"UPS\\\"\"\nEND LIST VAR u\n",
        );
        let reading = said.await.unwrap();
        assert_eq!(reading.words(), "on battery, battery low, 87 %, 17 min left");
        assert_eq!(reading.model.as_deref(), Some("Back \"UPS\""));
    }

    #[tokio::test]
    async fn a_server_that_lies_is_a_fault_and_nothing_else() {
        for (script, fault) in [
            (b"ERR UNKNOWN-UPS\n".as_slice(), "there is no UPS 'u'"),
            (b"ERR DATA-STALE\n", "its driver has lost the UPS"),
            (b"BEGIN LIST VAR u\nEND LIST VAR u\n", "it does not say whether it is on mains"),
            (b"BEGIN LIST VAR u\nVAR u ups.status \"OB\"\n", "it ended the connection"),
            (b"", "it ended the connection"),
            (&[b'x'; 5000], "it ended the connection"),
        ] {
            assert_eq!(answer(script).await.unwrap_err(), fault);
        }
    }

    #[test]
    fn secrets_cannot_end_the_line() {
        assert_eq!(quoted("a\"b\\c\nFSD u"), "\"a\\\"b\\\\cFSD u\"");
    }
}
