//! Requests to etcd's JSON gateway. Each goes to one member at a time: first to the one that answered last, then to the others.
//!
//! A read is sent to the next member after any failure. A change is sent to the next member only if it surely was not sent, since a change that
//! was carried out twice would look like a lost race.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Time to connect: members are on the same network.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Time until an answer begins. A member without quorum would hold a request for 7 s.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time for a whole request.
const REQUEST_MAX: Duration = Duration::from_secs(4);
/// Largest answer: a part of the map and its frame.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The reason of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// Definite: no member has the request.
    Unsent(String),
    /// A member may have the request and may carry it out.
    Unknown(String),
    /// Definite: etcd has dropped revisions that the request names.
    Compacted,
}

impl Failed {
    pub fn why(&self) -> String {
        match self {
            Failed::Unsent(why) | Failed::Unknown(why) => why.clone(),
            Failed::Compacted => "the revision was compacted meanwhile".into(),
        }
    }
}

/// The way to etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// URLs of the members, such as `http://127.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// Begins all keys, such as `/stria/home`.
    pub prefix: String,
    /// PEM files: the CA of etcd's servers, and this client's certificate with its key.
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

pub struct Gateway {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    /// The place of the member that answered last.
    good: AtomicUsize,
}

impl Gateway {
    /// Connects to nothing yet.
    pub fn new(reach: &Reach) -> Result<Gateway, String> {
        if reach.endpoints.is_empty() {
            return Err("no endpoint is given".into());
        }
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_recv_response(Some(ANSWER_MAX))
            .timeout_global(Some(REQUEST_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy of the environment is for the web.
            .proxy(None)
            .tls_config(tls(reach)?)
            .build();
        let endpoints = reach.endpoints.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Ok(Gateway { agent: config.new_agent(), endpoints, good: AtomicUsize::new(0) })
    }

    pub fn describe(&self) -> String {
        self.endpoints.join(", ")
    }

    /// Sends a read until a member answers it.
    pub fn read(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        self.each(path, body, |failed| !matches!(failed, Failed::Compacted))
    }

    /// Sends a change to the first member that takes it.
    pub fn change(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        self.each(path, body, |failed| matches!(failed, Failed::Unsent(_)))
    }

    fn each(&self, path: &str, body: &Value, goes_on: impl Fn(&Failed) -> bool) -> Result<Value, Failed> {
        let (count, begin) = (self.endpoints.len(), self.good.load(Ordering::Relaxed));
        let body = body.to_string();
        let mut last = Failed::Unsent("no endpoint is given".into());
        for at in (0..count).map(|tried| (begin + tried) % count) {
            match self.once(&self.endpoints[at], path, &body) {
                Ok(answer) => {
                    self.good.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(failed) if goes_on(&failed) => last = failed,
                Err(failed) => {
                    // It stood still: the next request begins with another member.
                    self.good.store((at + 1) % count, Ordering::Relaxed);
                    return Err(failed);
                }
            }
        }
        Err(last)
    }

    fn once(&self, endpoint: &str, path: &str, body: &str) -> Result<Value, Failed> {
        let url = format!("{endpoint}{path}");
        let sent = self.agent.post(&url).content_type("application/json").send(body);
        let mut answer = sent.map_err(|e| failed(endpoint, &e))?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|e| Failed::Unknown(format!("{endpoint}: {e}")))?;
        let value: Value = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
        // A stream's error comes with the status of success.
        let error = value.get("error").or_else(|| value.get("result")?.get("error"));
        let said = error.and_then(|e| e.as_str().or_else(|| e.get("message")?.as_str()));
        match (status.is_success(), said) {
            (_, Some(said)) if said.contains("revision has been compacted") => Err(Failed::Compacted),
            (true, None) if value.is_object() => Ok(value),
            (_, Some(said)) => Err(Failed::Unknown(format!("{endpoint}: {said}"))),
            (_, None) => Err(Failed::Unknown(format!("{endpoint}: it answers with status {status}"))),
        }
    }
}

fn failed(endpoint: &str, e: &ureq::Error) -> Failed {
    use std::io::ErrorKind as Kind;
    let why = format!("{endpoint}: {e}");
    let is_unsent = match e {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Rustls(_) => true,
        ureq::Error::Io(e) => {
            matches!(e.kind(), Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable)
        }
        _ => false,
    };
    if is_unsent { Failed::Unsent(why) } else { Failed::Unknown(why) }
}

fn tls(reach: &Reach) -> Result<TlsConfig, String> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let certificates = |path: &PathBuf| -> Result<Vec<Certificate<'static>>, String> {
        let mut found = vec![];
        for item in parse_pem(&read(path)?) {
            if let PemItem::Certificate(one) = item.map_err(|e| format!("{}: {e}", path.display()))? {
                found.push(one);
            }
        }
        match found.is_empty() {
            true => Err(format!("{}: no certificate is in it", path.display())),
            false => Ok(found),
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    // Without a CA no server is believed: roots of the web have no say about a cluster's etcd.
    let roots = reach.ca.as_ref().map_or(Ok(vec![]), &certificates)?;
    tls = tls.root_certs(RootCerts::new_with_certs(&roots));
    match (&reach.cert, &reach.key) {
        (Some(cert), Some(key)) => {
            let bytes = read(key)?;
            let key = PrivateKey::from_pem(&bytes).map_err(|e| format!("{}: {e}", key.display()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(cert)?, key)));
        }
        (None, None) => {}
        _ => return Err("a client certificate needs both its files, certificate and key".into()),
    }
    Ok(tls.build())
}

/// A key or value in JSON.
pub fn b64(bytes: &[u8]) -> Value {
    json!(STANDARD.encode(bytes))
}

/// The bytes of a key or value; an absent field is empty.
pub fn bytes_of(value: &Value, field: &str) -> Option<Vec<u8>> {
    match value.get(field) {
        None => Some(vec![]),
        Some(text) => STANDARD.decode(text.as_str()?).ok(),
    }
}

/// A number, which etcd writes as a string; an absent one is 0.
pub fn number_of(value: &Value, field: &str) -> Option<i64> {
    match value.get(field) {
        None => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_i64(),
    }
}
