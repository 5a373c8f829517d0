//! The pages over HTTP. Everything but a look at the door is an answer from memory.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::door::{Asked, Token, Verdict};
use super::state::Shared;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Nothing is loaded from elsewhere, and no other page frames this one.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The pages and their token.
pub struct Pages {
    token: Arc<Token>,
    router: Router,
}

#[derive(Clone)]
struct Door {
    token: Arc<Token>,
    /// The line for a request without the token.
    refusal: Arc<str>,
}

pub fn router(token: Arc<Token>, state_dir: &Path, shared: Arc<Shared>) -> Pages {
    let refusal = format!(
        "stria dash: this page needs its token; open the address that `stria dash` printed, or http://THIS-ADDRESS/?token=TOKEN with the token in {}\n",
        state_dir.join("token").display()
    );
    let door = Door { token: token.clone(), refusal: refusal.into() };
    let router = Router::new()
        .route("/", get(async || typed("text/html; charset=utf-8", PAGE)))
        .route("/page.css", get(async || typed("text/css; charset=utf-8", STYLE)))
        .route("/page.js", get(async || typed("text/javascript; charset=utf-8", SCRIPT)))
        .route("/api/state.json", get(state))
        .route("/api/history.json", get(history))
        .fallback(async || {
            (StatusCode::NOT_FOUND, typed(TEXT, "stria dash: there is no such page; / has all\n"))
        })
        .with_state(shared)
        .layer(middleware::from_fn_with_state(door, guard));
    Pages { token, router }
}

impl Pages {
    pub fn clone_router(&self) -> Router {
        self.router.clone()
    }
    pub fn url(&self, address: SocketAddr) -> String {
        self.token.url(address)
    }
}

fn typed(kind: &'static str, body: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind)], body).into_response()
}

/// Admits requests by cli-DA2, and gives each answer the headers that bound what a page may do.
async fn guard(State(door): State<Door>, request: Request, next: Next) -> Response {
    let verdict = judge(&door.token, request.headers(), request.uri());
    let mut response = match verdict {
        Verdict::Admit => next.run(request).await,
        Verdict::NoToken => (StatusCode::UNAUTHORIZED, typed(TEXT, door.refusal.to_string())).into_response(),
        Verdict::OtherHost => {
            let line = "stria dash: it answers under 127.0.0.1, [::1] and localhost only; use one of these, by `ssh -L` from another host\n";
            (StatusCode::FORBIDDEN, typed(TEXT, line)).into_response()
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn judge(token: &Token, headers: &HeaderMap, uri: &Uri) -> Verdict {
    let all = |name: HeaderName| -> Vec<&str> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    };
    let (hosts, authorization) = (all(HOST), all(AUTHORIZATION));
    token.judge(&Asked { host: only(&hosts), authorization: only(&authorization), path: uri.path() })
}

/// A header that is there twice is none: it says two things.
fn only<'a>(values: &[&'a str]) -> Option<&'a str> {
    (values.len() == 1).then(|| values[0])
}

async fn state(State(shared): State<Arc<Shared>>) -> Response {
    json(shared.json())
}

/// `span`: "hour", "day" or "week".
async fn history(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let span = uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("span=")));
    let span_sec = match span.unwrap_or("hour") {
        "hour" => 3600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        _ => {
            let line = "stria dash: a span is hour, day or week\n";
            return (StatusCode::BAD_REQUEST, typed(TEXT, line)).into_response();
        }
    };
    json(serde_json::to_vec(&shared.points(span_sec)))
}

fn json(body: serde_json::Result<Vec<u8>>) -> Response {
    match body {
        Ok(body) => typed(JSON, body),
        Err(e) => {
            (StatusCode::INTERNAL_SERVER_ERROR, typed(TEXT, format!("stria dash: {e}\n"))).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::cmd::dash::history::History;
    use crate::cmd::dash::state::Health;
    use crate::cmd::status::{Finding, Weight};
    use crate::testdir::TestDir;

    fn get(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn figures_need_the_token_and_every_answer_bounds_what_it_may_load() {
        let dir = TestDir::new("dash-http");
        let token = Arc::new(Token::of(&dir.path().join("token")).unwrap());
        let shared = Arc::new(Shared::new(History::open(&dir.path().join("history")).unwrap(), 10));
        let hint = "<script>alert(1)</script>";
        let finding = Finding { weight: Weight::Error, what: "</title>".into(), hint: hint.into() };
        shared.state.lock().health.see(Health::of("home", vec![finding], (1, 2), 3));
        let pages = router(token, dir.path(), shared);
        let page = watch::Page::of("127.0.0.1:0", "dash", pages.clone_router()).unwrap();
        let address = page.address();
        let (host, url) = (format!("Host: {address}\r\n"), pages.url(address));
        let token = url.rsplit_once('=').unwrap().1;
        let bearer = format!("{host}Authorization: Bearer {token}\r\n");
        for (path, kind, is_open) in [
            ("/", "text/html", true),
            (&format!("/?token={token}"), "text/html", true),
            ("/page.css", "text/css", true),
            ("/page.js", "text/javascript", true),
            ("/api/state.json", JSON, false),
            (&format!("/api/state.json?token={token}"), JSON, false),
            ("/api/history.json?span=week", JSON, false),
        ] {
            // A browser sends cookies to every port of a host, so none counts here, and none is set.
            let without = get(address, path, &format!("{host}Cookie: token={token}; stria-dash={token}\r\n"));
            let status = if is_open { "HTTP/1.0 200" } else { "HTTP/1.0 401" };
            assert!(without.starts_with(status) && without.contains(POLICY), "{path}: {without}");
            let is_public = !without.to_ascii_lowercase().contains("set-cookie") && !without.contains(token);
            assert!(is_public && !without.contains("alert(1)"), "{path}: {without}");
            let answer = get(address, path, &bearer);
            assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
            assert!(
                answer.contains(kind) && answer.contains(POLICY) && answer.contains("nosniff"),
                "{answer}"
            );
        }
        assert!(get(address, "/api/history.json?span=year", &bearer).starts_with("HTTP/1.0 400"));
        assert!(get(address, "/none", &bearer).starts_with("HTTP/1.0 404"));
        // Two hosts are none.
        assert!(get(address, "/", &format!("{bearer}{host}")).starts_with("HTTP/1.0 4"));
        let body = get(address, "/api/state.json", &bearer);
        let body: serde_json::Value = serde_json::from_str(body.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["health"]["seen"]["findings"][0]["hint"], hint);
    }

    #[test]
    fn names_of_users_are_set_as_text_and_nothing_comes_from_elsewhere() {
        for part in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"] {
            assert!(!SCRIPT.contains(part), "{part} would take a name as HTML or as a program");
        }
        let elsewhere = |text: &str| text.replace("http://www.w3.org/2000/svg", "").contains("://");
        assert!(![PAGE, STYLE, SCRIPT].into_iter().any(elsewhere));
        // The policy would refuse these.
        assert!(!PAGE.contains("style=") && !PAGE.contains("onclick") && !PAGE.contains("<style"));
        assert!(!SCRIPT.contains("document.cookie"), "it would go to every port of this host");
    }
}
