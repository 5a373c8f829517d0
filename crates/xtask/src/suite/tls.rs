//! A cluster whose processes have certificates: it works like another one, and takes in no process without one.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use testkit::{Cluster, Role, Shape, Stranger, Wiring};
use types::{Code, SessionId, Uuid};
use wire::object::Mac;
use wire::session::{Attach, Claims, Detach, Flush, KeepAlive};

use super::sys::ensure_eq;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("tls::a_cluster_with_certificates_takes_in_no_other_process", certified)),
    (Needs::Only(Wiring::Tcp), ("tls::a_session_is_its_certificates_also_after_restarts", sessions)),
    (Needs::Only(Wiring::Tcp), ("tls::destructive_commands_need_an_administrators_certificate", commands)),
];

/// A command's exit code and words.
fn run(bin: &Path, args: &[&str], tls: &Path) -> Result<(i32, String)> {
    let out = Command::new(bin).args(args).env("STRIA_TLS", tls).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok((out.status.code().unwrap_or(-1), text))
}

/// A cluster whose processes have certificates.
fn start(b: &Bench) -> Result<Cluster> {
    let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
    let shape = Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true, etcd: vec![] };
    Cluster::start(b.cluster.bin(), &parent, shape)
}

/// The folder of a new certificate.
fn issue(cluster: &Cluster, role: pki::Role, node: &str) -> Result<PathBuf> {
    let mut authority = pki::Authority::open(&cluster.dir.join("ca"))?;
    let node = node.parse()?;
    authority.issue(role, &node, 30, SystemTime::now())?;
    Ok(authority.node_dir(role, &node))
}

/// [SECURITY] A client with a certificate of its own claims the session of the mount.
fn sessions(b: &mut Bench) -> Result<()> {
    let mut cluster = start(b)?;
    let mgs = cluster.mgs();
    let large = cluster.mount.join("large");
    fs::write(&large, vec![7; 3_000_000])?;
    let open = fs::File::open(&large)?;
    let admin = Stranger::at(&mgs, &cluster.certificate(pki::Role::Admin).context("it has certificates")?)?;
    let own = issue(&cluster, pki::Role::Client, "login7")?;
    for round in ["at first", "after a kill of all servers", "after a stop of the OSS"] {
        let other = Stranger::at(&mgs, &own)?;
        ensure!(admin.has_key() && !other.has_key(), "{round}: the key is for servers and administrators");
        let (session, name) = match &*admin.sessions()? {
            [one] => one.clone(),
            many => bail!("{round}: the mount alone has a session: {many:?}"),
        };
        // 1. At the MDT and at an OST, whatever it asks for.
        for is_mdt in [true, false] {
            let at = other.target(is_mdt)?;
            let alive = KeepAlive { session, mode: 1 };
            let none = SessionId(0);
            let answers = [
                other.refused(at, session, &alive)?,
                other.refused(at, session, &Flush {})?,
                other.refused(at, session, &Detach { session })?,
                other.refused(at, none, &alive)?,
                other.refused(at, none, &Detach { session })?,
            ];
            for fault in answers {
                let is_good = fault.code == Code::Access && fault.detail.contains("another certificate");
                // An OST that has restarted asks each client for its ticket first.
                ensure!(is_good || (!is_mdt && fault.code == Code::Moved), "{round}: {fault}");
            }
        }
        let fs_uuid = other.map.file_systems[0].uuid;
        let attach = Attach {
            fs_uuid,
            client: Uuid([1; 16]),
            session,
            name,
            observer: false,
            claims: Claims::All,
            own_locks: false,
            ticket: Mac::default(),
        };
        let fault = other.refused(other.target(false)?, session, &attach)?;
        ensure!(fault.code == Code::Access, "{round}: an attach without a ticket: {fault}");
        // 2. The log has both names, and the mount goes on.
        let log = fs::read_to_string(cluster.dir.join("mds.log"))?;
        let told = "stria://suite/client/login7 may not use session";
        ensure!(log.contains(told) && log.contains("stria://suite/client/host"), "{round}: the log: {log}");
        ensure_eq(admin.sessions()?.len(), 1, "sessions")?;
        fs::write(cluster.mount.join("after"), round)?;
        ensure_eq(fs::read(&large)?.len(), 3_000_000, "content")?;
        // 3. Servers start anew, and the mount comes back with its session.
        match round {
            "at first" => {
                for role in [Role::Mds, Role::Oss(0), Role::Mgs] {
                    cluster.kill(role)?;
                }
                for role in [Role::Mgs, Role::Mds, Role::Oss(0)] {
                    cluster.start_role(role)?;
                }
            }
            // The OSTs keep their incarnation, and ask for the ticket nevertheless.
            "after a kill of all servers" => {
                cluster.terminate(Role::Oss(0), Duration::from_secs(10))?;
                cluster.start_role(Role::Oss(0))?;
            }
            _ => break,
        }
        fs::write(cluster.mount.join("back"), "again")?;
        fs::write(cluster.mount.join(round), vec![9; 2_000_000])?;
        let mut byte = [0];
        open.read_at(&mut byte, 0)?;
    }
    Ok(())
}

/// [SECURITY] Commands that end or change things of others, with the certificate of each role.
fn commands(b: &mut Bench) -> Result<()> {
    let cluster = start(b)?;
    let (bin, mgs) = (cluster.bin().to_path_buf(), cluster.mgs());
    let of = |role| issue(&cluster, role, "other");
    let (admin, server) = (of(pki::Role::Admin)?, of(pki::Role::Server)?);
    let (client, router) = (of(pki::Role::Client)?, of(pki::Role::Router)?);
    fs::write(cluster.mount.join("file"), "content")?;
    let file = fs::File::open(cluster.mount.join("file"))?;
    let stranger = Stranger::at(&mgs, &admin)?;
    let (session, _) = stranger.sessions()?.pop().context("the mount has a session")?;
    let copy = cluster.dir.join("copy").display().to_string();
    let evict = format!("client evict --session {session} --yes --mgs {mgs}");
    let lines = [
        &*evict,
        &format!("fsck --repair --yes --mgs {mgs}"),
        &format!("scrub start --mgs {mgs}"),
        &format!("damage clear --mgs {mgs}"),
        &format!("changelog register one {}", cluster.mount.display()),
        &format!("mdt backup {copy} --mgs {mgs}"),
    ];
    for line in lines {
        for (role, folder) in [("client", &client), ("server", &server), ("router", &router)] {
            // A server checks and reports as an administrator does; only the repair is not its own.
            if role == "server" && line.starts_with("fsck") {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let (code, text) = run(&bin, &words, folder)?;
            ensure!(code != 0, "{line} as {role}: {text}");
            // A router's may not even attach, for which a client's is needed.
            let is_router = role == "router" && text.contains("it needs a client's certificate");
            let is_told =
                text.contains("an administrator's certificate") && text.contains("STRIA_TLS") || is_router;
            ensure!(is_told, "{line} as {role} tells what it needs: {text}");
        }
    }
    ensure_eq(stranger.sessions()?.len(), 1, "nothing was ended")?;
    ensure!(!Path::new(&copy).exists() || fs::read(&copy)?.is_empty(), "nothing was copied");
    // All may look whether the cluster is up, but a router.
    for (folder, may) in [(&admin, true), (&server, true), (&client, true), (&router, false)] {
        let (code, text) = run(&bin, &["status", "--mgs", &mgs], folder)?;
        ensure!((code == 0) == may, "status with {}: {code}: {text}", folder.display());
        ensure!(text.contains("TLS"), "status tells that connections use TLS: {text}");
    }
    // The administrator ends the session: what the mount has open is an error there, and it goes on with a new one.
    let words: Vec<&str> = evict.split(' ').collect();
    let (code, text) = run(&bin, &words, &admin)?;
    ensure!(code == 0, "evict as administrator: {code}: {text}");
    ensure!(stranger.sessions()?.iter().all(|(id, _)| *id != session), "the session is gone");
    drop(file);
    Ok(())
}

/// [SECURITY] Processes without a certificate of a server, and a revoked one.
fn certified(b: &mut Bench) -> Result<()> {
    let cluster = start(b)?;
    let (bin, mgs) = (cluster.bin().to_path_buf(), cluster.mgs());
    let folder = |role| cluster.certificate(role).context("it has certificates");
    let (admin, client) = (folder(pki::Role::Admin)?, folder(pki::Role::Client)?);

    // 1. Names, small content and large content.
    let dir = cluster.mount.join("d");
    fs::create_dir(&dir)?;
    for n in 0..50 {
        fs::write(dir.join(n.to_string()), vec![n as u8; n * 997])?;
    }
    let large: Vec<u8> = (0..9_000_017u32).map(|n| ((n * 7) >> 3) as u8).collect();
    fs::write(dir.join("large"), &large)?;
    ensure!(fs::read(dir.join("large"))? == large, "content comes back");
    ensure_eq(fs::read_dir(&dir)?.count(), 51, "names")?;

    // 2. A command with an administrator's certificate, and one without any.
    let status = ["status", "--mgs", &*mgs];
    let (code, text) = run(&bin, &status, &admin)?;
    ensure!(code == 0, "status as administrator: {code}: {text}");
    let (code, text) = run(&bin, &status, Path::new("off"))?;
    ensure!(code != 0 && text.contains("does not answer"), "status without a certificate: {code}: {text}");

    // 3. A client's certificate registers no target.
    let device = cluster.dir.join("stranger.img");
    let config = cluster.dir.join("stranger.toml");
    let text = format!(
        "mgs = [\"{mgs}\"]\nfsname = \"stria\"\ndevices = [\"{}\"]\nsize = \"1G\"\ntls = \"{}\"\n",
        device.display(),
        client.display()
    );
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?;
    let (code, text) = run(&bin, &["oss", "--config", config, "--format"], &client)?;
    ensure!(code != 0 && text.contains("may not send Register"), "a client as a server: {code}: {text}");
    ensure!(text.contains("a server's certificate"), "it tells what is needed: {text}");
    let map = Stranger::at(&mgs, &admin)?.map;
    ensure_eq(map.targets.len(), 3, "targets in the map: the stranger is not there")?;

    // 4. The cluster map is changed by administrators only.
    let remove = ["target", "remove", "stria-OST0001", "--dry-run", "--mgs", &*mgs];
    let create = ["fs", "create", "strange", "--mgs", &*mgs];
    for folder in [&client, &cluster.certificate(pki::Role::Server).context("it has certificates")?] {
        for words in [&remove[..], &create] {
            let (code, text) = run(&bin, words, folder)?;
            ensure!(
                code == 1 && text.contains("needs an administrator's certificate"),
                "{words:?}: {code}: {text}"
            );
        }
    }
    let (code, text) = run(&bin, &remove, &admin)?;
    ensure!(code == 1 && text.contains("is up; stop its server first"), "as administrator: {code}: {text}");

    // 5. Revoked, the mount loses its connections, and a file that stays open is an error soon. The servers look for the list each second.
    let file = fs::File::open(dir.join("large"))?;
    let mut authority = pki::Authority::open(&cluster.dir.join("ca"))?;
    let client = Some(pki::Role::Client);
    authority.revoke("host", client, pki::Reason::KeyCompromise, SystemTime::now())?;
    let until = Instant::now() + Duration::from_secs(20);
    let said = |log: &str| -> Result<bool> {
        Ok(fs::read_to_string(cluster.dir.join(log))?.contains("refused: its certificate is refused"))
    };
    while !(said("mds.log")? && said("oss0.log")?) {
        ensure!(Instant::now() < until, "the servers did not close a revoked client's connections");
        // So that it has connections to all.
        let (mut byte, file) = ([0], &file);
        _ = file.read_at(&mut byte, 0);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (code, text) = run(&bin, &status, &admin)?;
    ensure!(code == 0, "others are not disturbed: {code}: {text}");
    Ok(())
}
