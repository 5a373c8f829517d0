//! Members of a real etcd on loopback, for tests.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Reach;

/// Longest wait until all members answer.
const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EACH: Duration = Duration::from_millis(20);

/// Members that end with this value.
pub struct Etcd {
    dir: PathBuf,
    members: Vec<Member>,
    tls: Option<Files>,
}

/// PEM files of members and of their client. The members' certificate is for servers and clients on 127.0.0.1.
#[derive(Clone, Debug)]
pub struct Files {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

/// False: no `etcd` is on the path. The line says why the caller skips its test.
pub fn is_installed(test: &str) -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: {test} needs etcd (package etcd-server), which is not installed here");
    }
    is_there
}

impl Etcd {
    /// Starts `count` members, and waits until they answer.
    pub fn start(count: usize) -> Etcd {
        Etcd::start_with(count, None)
    }

    /// `tls`: members take only clients with a certificate of this CA.
    pub fn start_with(count: usize, tls: Option<Files>) -> Etcd {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stria-etcd-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory for etcd");
        // All at once, so that no port is given twice.
        let free: Vec<_> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let port = |n: usize| free[n].local_addr().expect("an address").port();
        let members =
            (0..count).map(|m| Member { client: port(2 * m), peer: port(2 * m + 1), child: None }).collect();
        drop(free);
        let mut etcd = Etcd { dir, members, tls };
        (0..count).for_each(|m| etcd.spawn(m));
        etcd.wait();
        etcd
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|m| self.url(m.client)).collect()
    }

    fn url(&self, port: u16) -> String {
        format!("{}://127.0.0.1:{port}", if self.tls.is_some() { "https" } else { "http" })
    }

    pub fn reach(&self, prefix: &str) -> Reach {
        let file = |of: fn(&Files) -> &PathBuf| self.tls.as_ref().map(|files| of(files).clone());
        let (ca, cert, key) = (file(|f| &f.ca), file(|f| &f.cert), file(|f| &f.key));
        Reach { endpoints: self.endpoints(), prefix: prefix.into(), ca, cert, key }
    }

    /// Kills a member, as a lost host does.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a killed member again, with what it had. Does not wait.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.spawn(member);
    }

    /// Waits until the members have a leader.
    pub fn wait(&self) {
        let begin = Instant::now();
        let gateway = super::Gateway::new(&self.reach("/wait")).expect("a gateway");
        let asked = serde_json::json!({ "key": super::b64(b"/wait") });
        while gateway.read("/v3/kv/range", &asked).is_err() {
            assert!(
                begin.elapsed() < START_MAX,
                "etcd did not start; its logs are in {}",
                self.dir.display()
            );
            std::thread::sleep(LOOK_EACH);
        }
    }

    fn spawn(&mut self, member: usize) {
        let name = |n: usize| format!("m{n}");
        let peer = |m: &Member| format!("http://127.0.0.1:{}", m.peer);
        let all: Vec<_> =
            self.members.iter().enumerate().map(|(n, m)| format!("{}={}", name(n), peer(m))).collect();
        let me = &self.members[member];
        let client = self.url(me.client);
        let log =
            std::fs::File::options().create(true).append(true).open(self.dir.join(name(member) + ".log"));
        let log = log.expect("a log file");
        let mut command = Command::new("etcd");
        if let Some(Files { ca, cert, key }) = &self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            command.arg("--cert-file").arg(cert).arg("--key-file").arg(key);
        }
        let child = command
            .args(["--name", &name(member), "--data-dir"])
            .arg(self.dir.join(name(member)))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(me), "--initial-advertise-peer-urls", &peer(me)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .spawn()
            .expect("etcd started");
        self.members[member].child = Some(child);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|m| self.kill(m));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
