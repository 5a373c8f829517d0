//! The connections of a page.
//!
//! watch-M4: the port of a page takes few descriptors of its process, however many connections others open and leave idle. At the bound, the
//! oldest connection of the address with most of them gives way, so a host that holds many does not keep a scraper out.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Pause after an `accept` that failed, such as at the process's bound of descriptors: at once it would fail again.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub struct Limits {
    /// Connections at a time.
    pub count: usize,
    /// Time of a connection until the head of its request is there.
    pub head: Duration,
    /// Time of a connection in all.
    pub whole: Duration,
}

impl Limits {
    /// A page has few readers: some scrapers, and browsers with 6 connections each. A scraper waits for at most 10 s by default.
    pub const OF_A_PAGE: Limits =
        Limits { count: 32, head: Duration::from_secs(5), whole: Duration::from_secs(30) };
}

/// Serves `router` until this is dropped.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let mut open = Open { limits, all: Vec::new() };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                open.make_room();
                let task = tokio::spawn(talk(stream, router.clone(), limits));
                open.all.push((peer.ip(), task.abort_handle()));
                // Connections that are there go on before the next one: a burst does not end them unread.
                tokio::task::yield_now().await;
            }
            Err(e) if is_of_the_peer(&e) => {}
            Err(e) => {
                tracing::warn!("a connection to a page was not accepted: {e}; the next try is in {PAUSE:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer. Errors are the peer's: it has gone, or sent no request.
fn talk(stream: TcpStream, router: Router, limits: Limits) -> impl Future<Output = ()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    async move {
        let _ = tokio::time::timeout(limits.whole, connection).await;
    }
}

fn is_of_the_peer(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Open {
    limits: Limits,
    /// The oldest first.
    all: Vec<(IpAddr, AbortHandle)>,
}

impl Open {
    fn make_room(&mut self) {
        self.all.retain(|(_, task)| !task.is_finished());
        if self.all.len() >= self.limits.count {
            let addresses: Vec<IpAddr> = self.all.iter().map(|(ip, _)| *ip).collect();
            self.all.remove(victim(&addresses)).1.abort();
        }
    }
}

/// The place of the first connection of the address that has most.
fn victim(addresses: &[IpAddr]) -> usize {
    let count = |ip: &IpAddr| addresses.iter().filter(|other| *other == ip).count();
    let most = addresses.iter().map(count).max().unwrap_or(0);
    addresses.iter().position(|ip| count(ip) == most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use axum::routing::get;

    use super::*;
    use crate::http::Page;

    /// Longer than a test, so that only the number of connections decides.
    const LONG: Duration = Duration::from_secs(3600);

    fn page(limits: Limits) -> Page {
        let router = Router::new().route("/", get(async || "the page"));
        Page::limited("127.0.0.1:0", "test", router, limits).unwrap()
    }

    fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // No word about the end of the connection, as Prometheus.
        write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until the page has closed it.
    fn is_closed_unanswered(mut stream: TcpStream) -> bool {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).map_or_else(|e| e.kind() == io::ErrorKind::ConnectionReset, |n| n == 0)
    }

    #[test]
    fn m4_idle_and_half_sent_connections_beyond_the_bound_keep_no_scrape_out() {
        let limits = Limits { count: 8, head: LONG, whole: LONG };
        let page = page(limits);
        let mut held: Vec<TcpStream> = (0..5 * limits.count)
            .map(|n| {
                let mut stream = TcpStream::connect(page.address()).unwrap();
                if n % 2 == 0 {
                    stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
                }
                stream
            })
            .collect();
        for _ in 0..3 {
            let answer = ask(page.address());
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("the page"), "{answer}");
        }
        let rest = held.split_off(held.len() - limits.count + 1);
        assert!(held.into_iter().all(is_closed_unanswered), "older ones have given way");
        drop(rest);
    }

    #[test]
    fn m4_a_head_that_does_not_come_ends_its_connection() {
        let page = page(Limits { count: 8, head: Duration::from_millis(1), whole: LONG });
        let idle = TcpStream::connect(page.address()).unwrap();
        let mut half = TcpStream::connect(page.address()).unwrap();
        half.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert!(is_closed_unanswered(idle));
        let mut said = String::new();
        half.read_to_string(&mut said).unwrap();
        assert!(!said.contains("the page"), "{said}");
    }

    #[test]
    fn m4_an_answer_that_is_not_read_ends_its_connection() {
        let router = Router::new().route("/", get(async || "x".repeat(64 << 20)));
        let limits = Limits { count: 8, head: LONG, whole: Duration::from_millis(1) };
        let page = Page::limited("127.0.0.1:0", "test", router, limits).unwrap();
        let mut stream = TcpStream::connect(page.address()).unwrap();
        // It may have ended before the request.
        let _ = write!(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        // While nothing is read, the whole answer does not fit into the sockets. Later connections end later.
        for _ in 0..2 {
            assert!(is_closed_unanswered(TcpStream::connect(page.address()).unwrap()));
        }
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 64 << 20, "{}", said.len());
    }

    #[test]
    fn m4_the_address_with_most_connections_gives_way() {
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(victim(&[ip(1), ip(2), ip(2), ip(3), ip(2)]), 1);
        assert_eq!(victim(&[ip(1), ip(2)]), 0, "of equals the oldest");
    }
}
