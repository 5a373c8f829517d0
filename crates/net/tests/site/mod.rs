//! Certificates and requests for tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use net::conformance::QUICK;
use net::{Call, Fabric, NetError};
use pki::{Authority, Role, Trust};
use types::{Buf, TargetId};
use wire::Header;

/// The target that echoes.
pub const T: TargetId = TargetId(11);

/// A CA directory that goes with its owner.
pub struct Site {
    dir: PathBuf,
    pub authority: Authority,
}

impl Site {
    pub fn new() -> Site {
        Site::named("alpha")
    }
    pub fn named(cluster: &str) -> Site {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stria-net-tls-{}-{number}", std::process::id()));
        let name = |text: &str| text.parse().expect("a name");
        let authority = Authority::init(&dir, &name(cluster), &name("oss1"), SystemTime::now());
        Site { dir, authority: authority.expect("a new directory") }
    }
    pub fn trust(&mut self, role: Role, node: &str) -> Arc<Trust> {
        let name = node.parse().expect("a name");
        self.authority.issue(role, &name, 30, SystemTime::now()).expect("issued");
        Trust::load(&self.authority.node_dir(role, &name)).expect("a good folder")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A short request to the echo at `nid`.
pub fn ask(fabric: &Fabric, nid: &str) -> Result<Vec<u8>, NetError> {
    let head = Header { call: QUICK, ..Header::default() };
    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(10));
    let body = b"abc".to_vec();
    let mut call = Call { head, body, bulk: &[], into: &mut into, back: 0, deadline };
    fabric.peer_at(nid, T).call(&mut call).map(|(_, body)| body)
}

/// The error of such a request.
pub fn refusal(fabric: &Fabric, nid: &str) -> String {
    ask(fabric, nid).expect_err("refused").to_string()
}
