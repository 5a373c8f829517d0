//! Pages over HTTP: `GET /metrics`, and those of `stria dash`.
//!
//! A thread of its own serves it, one connection's request after another, so a scraper takes no thread of a server.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::sync::oneshot;

use crate::connections::{self, Limits};
use crate::sheet::{self, Sheet};

/// Makes the samples of a page.
pub trait Source: Send + Sync + 'static {
    fn collect(&self, sheet: &mut Sheet);
}

/// Connections that are open still are ended so long after the stop.
const STOP_MAX: Duration = Duration::from_millis(200);

/// A page that is served until this is dropped.
pub struct Page {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// `address`: such as `127.0.0.1:9710`; port 0 is a free one.
    pub fn serve(address: &str, source: Arc<dyn Source>) -> io::Result<Page> {
        let router = Router::new().route("/", get(index)).route("/metrics", get(metrics)).with_state(source);
        Page::of(address, "metrics", router)
    }

    /// The pages of `router`, by a thread of this name.
    pub fn of(address: &str, name: &'static str, router: Router) -> io::Result<Page> {
        Page::limited(address, name, router, Limits::OF_A_PAGE)
    }

    pub(crate) fn limited(
        address: &str,
        name: &'static str,
        router: Router,
        limits: Limits,
    ) -> io::Result<Page> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                // Open connections end with the runtime.
                tokio::select! {
                    () = connections::serve(listener, router, limits) => {}
                    _ = stopped => {}
                }
                io::Result::Ok(())
            });
            runtime.shutdown_timeout(STOP_MAX);
            if let Err(e) = served {
                tracing::error!("the page of {name} is not served any more: {e}; start the process again");
            }
        })?;
        Ok(Page { address, stop: Some(stop), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // An error means that the thread has ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn index() -> Html<&'static str> {
    Html("<title>Stria</title><a href=\"/metrics\">metrics</a>")
}

async fn metrics(State(source): State<Arc<dyn Source>>) -> impl IntoResponse {
    let begin = std::time::Instant::now();
    let mut sheet = Sheet::default();
    source.collect(&mut sheet);
    sheet.add(&crate::family::SCRAPE, &[], begin.elapsed().as_secs_f64());
    ([(CONTENT_TYPE, sheet::CONTENT_TYPE)], sheet.text())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::family::MGS_LEADS;

    struct One;

    impl Source for One {
        fn collect(&self, sheet: &mut Sheet) {
            sheet.add(&MGS_LEADS, &[], 1.0);
        }
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_served_until_it_is_dropped() {
        let page = Page::serve("127.0.0.1:0", Arc::new(One)).unwrap();
        let address = page.address();
        let answer = get(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(sheet::CONTENT_TYPE) && answer.contains("stria_mgs_leads 1.0"), "{answer}");
        assert!(get(address, "/other").starts_with("HTTP/1.1 404"));
        // An idle connection does not keep it.
        let _idle = TcpStream::connect(address).unwrap();
        drop(page);
        TcpStream::connect(address).unwrap_err();
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        let page = Page::serve("127.0.0.1:0", Arc::new(One)).unwrap();
        let again = Page::serve(&page.address().to_string(), Arc::new(One));
        assert_eq!(again.err().map(|e| e.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
