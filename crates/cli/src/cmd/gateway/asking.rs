//! Requests to a running gateway server: whether it answers, what it serves, and that it reads its configuration again.

use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::Signal;

use super::host::{self, address};
use super::model::{Export, MOUNTD_PORT, Nfs, Reread, Seen, Share, Smb};
use super::places::Places;
use super::{probe, words};
use crate::exit::Failure;
use crate::serve::bounded;

/// Longest wait until NFS-Ganesha has read its exports again; it takes milliseconds.
const REREAD_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at its log.
const LOOK_EACH: Duration = Duration::from_millis(50);
/// Longest run of a program that queries the server.
const TOOL_MAX: Duration = Duration::from_secs(10);

pub fn nfs_answers(nfs: &Nfs) -> Result<()> {
    let server = address(&nfs.server, nfs.server.port);
    nfs.protocols.iter().try_for_each(|version| probe::answers(server, u32::from(*version)))
}

/// A server shows an export only to hosts that it allows. So each is queried from an address of this host that it allows, if there is one.
pub fn nfs_served(nfs: &Nfs) -> Result<Vec<Seen>> {
    let lists = |at: IpAddr| probe::exports(SocketAddr::new(at, MOUNTD_PORT));
    let usual = address(&nfs.server, nfs.server.port).ip();
    // An error here concerns the server as a whole.
    let usually_listed = if nfs.has_v3() { lists(usual)? } else { vec![] };
    let state = |export: &Export| -> Result<Seen> {
        let from =
            if nfs.server.bind.is_some() { None } else { export.hosts.iter().find_map(|h| own_address(h)) };
        let at = from.unwrap_or(usual);
        let server = SocketAddr::new(at, nfs.server.port);
        if !nfs.has_v3() {
            return Ok(seen(probe::root_by_v4(server, &export.path)?, export));
        }
        let listed = if at == usual { usually_listed.clone() } else { lists(at)? };
        match (listed.contains(&export.path), export.hosts.is_empty()) {
            (true, _) => {
                let status = probe::root_by_v3(server, SocketAddr::new(at, MOUNTD_PORT), &export.path)?;
                Ok(seen(status, export))
            }
            (false, true) => Ok(Seen::Not("the server does not export it".to_owned())),
            (false, false) => Ok(Seen::Hidden),
        }
    };
    nfs.exports.iter().map(state).collect()
}

fn seen(status: u32, export: &Export) -> Seen {
    match status {
        0 => Seen::Served,
        probe::ACCESS | NO_ENTRY if !export.hosts.is_empty() => Seen::Hidden,
        _ => Seen::Not(refused(status)),
    }
}

/// The source address of this host towards an address or network, if it is allowed, too. No packet is sent.
fn own_address(host: &str) -> Option<IpAddr> {
    let (network, bits) = host.split_once('/').map_or((host, None), |(n, b)| (n, b.parse().ok()));
    let network: IpAddr = network.parse().ok()?;
    let any = if network.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((words::first_of(network, bits), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    let is_in = match bits {
        Some(bits) => words::network(own, bits) == Some(network),
        None => own == network,
    };
    is_in.then_some(own)
}

const NO_ENTRY: u32 = 2;

fn refused(status: u32) -> String {
    let meaning = match status {
        NO_ENTRY => "no such directory",
        5 => "input/output error",
        70 => "stale handle",
        10_008 => "it waits for clients after its start: try again in two minutes",
        _ => "see its log",
    };
    format!("the server refuses it with status {status}: {meaning}")
}

/// Asks NFS-Ganesha to read its exports again, and waits until its log says that it did: SIGHUP alone only begins it. Until then clients
/// can still write to an export that has become read-only.
pub fn nfs_reload(at: &Places) -> anyhow::Result<Reread> {
    let log_begin = std::fs::metadata(at.log()).map_or(0, |m| m.len());
    host::signal(at, Signal::HUP)?;
    let begin = Instant::now();
    while begin.elapsed() < REREAD_MAX {
        if has_reread(&host::log_behind(&at.log(), log_begin)) {
            return Ok(Reread::Seen);
        }
        std::thread::sleep(LOOK_EACH);
    }
    Ok(Reread::Unseen)
}

/// Whether a reread has begun and ended in these lines. The end alone may be that of an earlier one.
fn has_reread(log: &str) -> bool {
    log.split_once("SIGHUP_HANDLER").is_some_and(|(_, behind)| behind.contains("Reread exports complete"))
}

pub fn nfs_serves_more(nfs: &Nfs) -> bool {
    let listed = probe::exports(address(&nfs.server, MOUNTD_PORT)).unwrap_or_default();
    listed.iter().any(|path| nfs.exports.iter().all(|e| e.path != *path))
}

pub fn smb_answers(smb: &Smb) -> Result<()> {
    TcpStream::connect_timeout(&address(&smb.server, smb.server.port), Duration::from_secs(1)).map(drop)
}

/// The shares that smbclient lists to an anonymous client. Without smbclient, an open port must suffice.
pub fn smb_served(smb: &Smb, at: &Places) -> Result<Vec<Seen>> {
    smb_answers(smb)?;
    let listed = smb_shares(smb, at)?;
    let state = |share: &Share| {
        let is_there =
            listed.as_ref().is_none_or(|l| l.iter().any(|name| name.eq_ignore_ascii_case(&share.name)));
        if is_there { Seen::Served } else { Seen::Not("the server does not list it".to_owned()) }
    };
    Ok(smb.shares.iter().map(state).collect())
}

pub fn smb_serves_more(smb: &Smb, at: &Places) -> bool {
    let listed = smb_shares(smb, at).ok().flatten().unwrap_or_default();
    listed.iter().any(|name| smb.shares.iter().all(|s| !s.name.eq_ignore_ascii_case(name)))
}

fn smb_shares(smb: &Smb, at: &Places) -> Result<Option<Vec<String>>> {
    let server = address(&smb.server, smb.server.port);
    let mut command = Command::new("smbclient");
    command.arg("-s").arg(at.config()).args(["-g", "-N", "-p", &server.port().to_string(), "-L"]);
    command.arg(format!("//{}", server.ip()));
    let out = match output(command) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let text = String::from_utf8_lossy(&out.stdout);
    // `Disk|NAME|COMMENT`
    let shares = text.lines().filter_map(|l| l.strip_prefix("Disk|")?.split('|').next().map(str::to_owned));
    let shares: Vec<String> = shares.collect();
    // A server that refuses anonymous clients gives no list.
    Ok((out.status.success() || !shares.is_empty()).then_some(shares))
}

/// Makes Samba read its configuration again, and ends connections to shares that are gone or have changed.
pub fn smb_reload(at: &Places, gone: &[String]) -> anyhow::Result<()> {
    let tell = |words: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new("smbcontrol");
        command.arg("-s").arg(at.config()).arg("smbd").args(words);
        let out = output(command).context("smbcontrol")?;
        if out.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&out.stderr).trim().replace('\n', " ");
        let next = format!("its log is {}", at.log().display());
        Err(Failure::failed("smbcontrol", format!("the server did not take it: {said}"), next).into())
    };
    tell(&["reload-config"])?;
    gone.iter().try_for_each(|name| tell(&["close-share", name]))
}

fn output(mut command: Command) -> Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    bounded("ask the server", TOOL_MAX, move || child.wait_with_output())
        .unwrap_or_else(|| Err(Error::other(format!("no answer after {} s", TOOL_MAX.as_secs()))))
}

#[cfg(test)]
mod tests {
    use super::super::model::{Kind, Mount, Server};
    use super::*;
    use std::path::Path;

    #[test]
    fn a_server_that_is_not_there_is_an_error_and_no_answer() {
        // A port that was free just now.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mount = Mount { point: "/m".into(), source: None, options: vec![] };
        let server = Server { port, bind: None, include: None };
        let smb = Smb { workgroup: "W".into(), mount: mount.clone(), server: server.clone(), shares: vec![] };
        assert!(smb_answers(&smb).is_err());
        let exports = vec![words::export("/a", Path::new("/m")).unwrap()];
        let nfs = Nfs { protocols: vec![4], last_id: 0, grace_sec: 90, mount, server, exports };
        assert!(nfs_answers(&nfs).is_err() && nfs_served(&nfs).is_err());
    }

    #[test]
    fn a_reread_of_the_exports_is_seen_when_it_has_begun_and_ended() {
        let (begin, end) =
            ("SIGHUP_HANDLER: Received SIGHUP....\n", "reread_exports :Reread exports complete\n");
        assert!(has_reread(&format!("{begin}{end}")));
        for log in ["", begin, end, &format!("{end}{begin}")] {
            assert!(!has_reread(log), "{log}");
        }
    }

    #[test]
    fn an_export_is_asked_from_an_address_that_it_allows() {
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        for (host, own) in [
            ("127.0.0.0/8", loopback),
            ("127.0.0.1", loopback),
            ("127.0.0.0/30", loopback),
            ("127.9.0.0/16", None),
            ("*.site", None),
            ("@group", None),
        ] {
            assert_eq!(own_address(host), own, "{host}");
        }
        let export = |text| words::export(text, Path::new("/m")).unwrap();
        assert!(matches!(seen(0, &export("/a")), Seen::Served));
        assert!(matches!(seen(probe::ACCESS, &export("/a:hosts=10.0.0.0/8")), Seen::Hidden));
        assert!(matches!(seen(probe::ACCESS, &export("/a")), Seen::Not(_)), "every host may have it");
        assert!(matches!(seen(70, &export("/a:hosts=10.0.0.0/8")), Seen::Not(_)));
    }

    #[test]
    fn where_the_global_part_ends_is_found() {
        assert_eq!(Nfs::ends_global("a\nEXPORT_DEFAULTS {\n}\nEXPORT {\n"), 21);
        assert_eq!(Smb::ends_global("# [x]\n[global]\n a\n[b]\n"), 17);
        assert_eq!(Smb::ends_global("[global]\n a"), 11);
    }
}
