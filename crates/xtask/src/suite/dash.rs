//! `stria dash`: the door, the figures, a server that is away, and a restart.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, set_stripe};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("dash::a_page_shows_the_file_system", shown))];

const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A running `stria dash`, until it is dropped.
struct Dash {
    child: Child,
    address: String,
    token: String,
}

impl Dash {
    fn start(b: &Bench, state: &Path) -> Result<Dash> {
        let tls = b.cluster.certificate(pki::Role::Admin).unwrap_or("off".into());
        let mut command = Command::new(b.cluster.bin());
        command.args([
            "dash",
            "--mgs",
            &b.cluster.mgs(),
            "--listen",
            "127.0.0.1:0",
            "--every",
            "1",
            "--state",
        ]);
        let log = std::fs::File::options().create(true).append(true).open(b.cluster.dir.join("dash.log"))?;
        let command = command.arg(state).env("STRIA_TLS", tls).stdin(Stdio::null()).stderr(log);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
        let url = line.trim().strip_prefix("http://").and_then(|rest| rest.split_once("/?token="));
        let Some((address, token)) = url else {
            let _ = child.kill();
            let _ = child.wait();
            anyhow::bail!("no address: {line}");
        };
        Ok(Dash { address: address.into(), token: token.into(), child })
    }

    /// Status, headers and body. HTTP 1.0 has no pieces.
    fn ask(&self, path: &str, headers: &[String]) -> Result<(u16, String, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        write!(stream, "GET {path} HTTP/1.0\r\n{}\r\n\r\n", headers.join("\r\n"))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        Ok((status, head.to_owned(), body.to_owned()))
    }

    fn host(&self) -> String {
        format!("Host: {}", self.address)
    }

    fn json(&self, path: &str) -> Result<Value> {
        let bearer = format!("Authorization: Bearer {}", self.token);
        let (status, _, body) = self.ask(path, &[self.host(), bearer])?;
        ensure_eq(status, 200, path)?;
        serde_json::from_str(&body).with_context(|| body.clone())
    }

    fn has_written(&self) -> Result<bool> {
        let hour = self.json("/api/history.json?span=hour")?;
        let written = hour["written"].as_array().context("written")?;
        Ok(written.iter().any(|rate| rate.as_f64() > Some(0.0)))
    }
}

impl Drop for Dash {
    fn drop(&mut self) {
        // As `kill -9`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shown(b: &mut Bench) -> Result<()> {
    let state = b.cluster.dir.join("dash");
    let dash = Dash::start(b, &state)?;
    // 1. Without the token in its header there are no figures, nor under another name of this host. A cookie is sent to other ports, too.
    let cookie = format!("Cookie: token={0}; stria-dash={0}", dash.token);
    for path in ["/api/state.json", "/api/history.json", "/none"] {
        let with_token = format!("{path}?token={}", dash.token);
        for (path, headers) in [
            (path, vec![dash.host()]),
            (path, vec![dash.host(), cookie.clone()]),
            (&with_token, vec![dash.host()]),
        ] {
            let (status, _, body) = dash.ask(path, &headers)?;
            ensure_eq(status, 401, path)?;
            ensure!(body.contains("needs its token") && !body.contains(&dash.token), "{body}");
        }
    }
    let bearer = format!("Authorization: Bearer {}", dash.token);
    let other = "Host: stria.example:80".to_owned();
    ensure_eq(dash.ask("/", &[other, bearer])?.0, 403, "another name")?;
    // 2. The page itself is the same for all; its script takes the token from the address.
    let first = format!("/?token={}", dash.token);
    for path in [&first, "/", "/page.js", "/page.css"] {
        let (status, head, body) = dash.ask(path, &[dash.host()])?;
        ensure_eq(status, 200, path)?;
        ensure!(head.contains("default-src 'self'") && !body.contains(&dash.token), "{path}: {head}");
        ensure!(!head.to_ascii_lowercase().contains("set-cookie"), "{path}: {head}");
    }
    ensure!(dash.ask(&first, &[dash.host()])?.2.contains("<title>Stria</title>"), "the page");
    // 3. Health, space and throughput.
    wait_until("all targets are seen", || {
        let state = dash.json("/api/state.json")?;
        let health = &state["health"]["seen"];
        Ok(health["targets"].is_u64()
            && health["targets"] == health["targets_up"]
            && !state["rates"]["seen"].is_null())
    })?;
    let seen = dash.json("/api/state.json")?;
    ensure_eq(&seen["health"]["seen"]["word"], &"ok".into(), "health")?;
    ensure!(seen["capacity"]["seen"]["summary"]["bytes_total"].as_u64() > Some(0), "{seen}");
    let dir = b.dir("dash")?;
    set_stripe(b, &["-c", "2", "--inline", "0"], &dir)?;
    ensure!(!dash.has_written()?, "nothing was written yet");
    std::fs::write(dir.join("big"), vec![7; 8 << 20])?;
    std::fs::File::open(dir.join("big"))?.sync_all()?;
    wait_until("the throughput rises", || dash.has_written())?;
    // 4. One process writes a history.
    let mgs = b.cluster.mgs();
    let words = ["dash", "--mgs", &mgs, "--listen", "127.0.0.1:0", "--state", &state.display().to_string()];
    let (code, text) = b.cluster.stria(&words)?;
    ensure!(code == 2 && text.contains("another `stria dash` uses this state directory"), "{code}: {text}");
    // 5. The targets of a server that is killed are named, with the next step. The order of registration gave them their indices.
    b.cluster.kill(Role::Oss(0))?;
    wait_until("health names the server", || {
        let state = dash.json("/api/state.json")?;
        let findings = state["health"]["seen"]["findings"].as_array().context("findings")?.clone();
        let is_named = |f: &Value| {
            let text = f["what"].as_str().unwrap_or_default();
            text.contains("-OST")
                && text.contains(" is down (")
                && f["hint"].as_str().is_some_and(|hint| !hint.is_empty())
        };
        Ok(state["health"]["seen"]["word"] == "error" && findings.iter().any(is_named))
    })?;
    // 6. After a kill the history and the token are those of before, also while no server answers.
    let token = dash.token.clone();
    drop(dash);
    b.cluster.kill(Role::Mgs)?;
    let dash = Dash::start(b, &state)?;
    ensure_eq(&dash.token, &token, "the token after a restart")?;
    ensure!(dash.has_written()?, "the history is lost");
    wait_until("it says what it cannot reach", || {
        let state = dash.json("/api/state.json")?;
        Ok(state["health"]["seen"]["findings"][0]["what"]
            .as_str()
            .is_some_and(|what| what.contains("management service")))
    })
}
