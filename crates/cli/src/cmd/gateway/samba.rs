//! Writes `smb.conf` for Samba 4.17, and gives the command line of the server. Pure.

use std::fmt::Write;

use super::model::{Daemon, Share, Smb, directory};
use super::places::Places;

pub fn daemon(at: &Places) -> Daemon {
    let config = vec!["-s".to_owned(), at.config().display().to_string()];
    let foreground =
        [vec!["--foreground".to_owned(), "--no-process-group".to_owned()], config.clone()].concat();
    Daemon { program: "smbd", foreground, background: [vec!["-D".to_owned()], config].concat() }
}

pub fn config(smb: &Smb, at: &Places) -> String {
    let mut text = String::new();
    let (state, run) = (at.state(), at.run());
    let guests = if smb.shares.iter().any(|s| s.guest) { "bad user" } else { "never" };
    let _ = write!(
        text,
        "\
# Written by `stria gateway smb enable`, anew each time: what is changed here is lost. `stria gateway smb list` shows the shares.
[global]
    server role = standalone server
    workgroup = {workgroup}
    server string = Stria
    smb ports = {port}
    disable netbios = yes
    load printers = no
    printcap name = /dev/null
    disable spoolss = yes
    map to guest = {guests}
    private dir = {state}/private
    state directory = {state}/state
    cache directory = {state}/cache
    lock directory = {run}
    pid directory = {run}
    ncalrpc dir = {run}/ncalrpc
    log file = {log}
    max log size = 10000
    # NT access lists and named streams are kept in extended attributes.
    vfs objects = acl_xattr streams_xattr
    ea support = yes
    store dos attributes = yes
    # Locks of SMB clients are locks of the file system, which all its clients see.
    posix locking = yes
    kernel share modes = no
    kernel oplocks = no
    use sendfile = no
    # A flush is fsync, and nothing less.
    strict sync = yes
",
        workgroup = smb.workgroup,
        port = smb.server.port,
        state = state.display(),
        run = run.display(),
        log = at.log().display(),
    );
    if let Some(ip) = smb.server.bind {
        let _ = write!(text, "    interfaces = {ip}\n    bind interfaces only = yes\n");
    }
    if let Some(include) = &smb.server.include {
        let _ = writeln!(text, "    include = {}", include.display());
    }
    if smb.shares.iter().flat_map(|s| &s.hosts).any(|h| super::words::is_name(h)) {
        text.push_str("    hostname lookups = yes\n");
    }
    smb.shares.iter().for_each(|s| share(&mut text, smb, s));
    text
}

fn share(text: &mut String, smb: &Smb, share: &Share) {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let _ = writeln!(text, "[{}]", share.name);
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "    {key} = {value}");
    };
    line("path", &directory(&smb.mount.point, &share.path).display().to_string());
    line("read only", yes(share.read_only));
    if !share.hosts.is_empty() {
        // `.site` means every host of that domain.
        let hosts: Vec<&str> = share.hosts.iter().map(|h| h.strip_prefix('*').unwrap_or(h)).collect();
        line("hosts allow", &hosts.join(" "));
        // Otherwise Samba would admit the gateway's own host, too.
        line("hosts deny", "ALL");
    }
    if !share.users.is_empty() {
        line("valid users", &share.users.join(" "));
    }
    if let Some(user) = &share.squash {
        line("force user", user);
    }
    line("guest ok", yes(share.guest));
    // A client with an oplock caches its reads and writes. Nothing would revoke the oplock when another Stria mount writes.
    line("oplocks", yes(share.exclusive));
    line("level2 oplocks", yes(share.exclusive));
}

impl Smb {
    /// Adds shares. One with the name of an existing share replaces it.
    pub fn put(&mut self, shares: Vec<Share>) {
        for new in shares {
            // Names of shares are case-insensitive.
            match self.shares.iter_mut().find(|old| old.name.to_lowercase() == new.name.to_lowercase()) {
                Some(old) => *old = new,
                None => self.shares.push(new),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::model::{Kind, Mount, Server};
    use super::super::words;
    use super::*;

    fn smb(shares: &[&str]) -> Smb {
        let point = Path::new("/mnt/stria");
        let mut smb = Smb {
            workgroup: "WORKGROUP".into(),
            mount: Mount { point: point.into(), source: None, options: vec![] },
            server: Server { port: 445, bind: None, include: None },
            shares: vec![],
        };
        smb.put(shares.iter().map(|s| words::share(s, point).unwrap()).collect());
        smb
    }

    #[test]
    fn the_configuration_of_two_shares_is_this_text() {
        let smb = smb(&[
            "all=/",
            "team=/team:ro,squash=svc,hosts=10.0.0.0/8,hosts=*.site,users=ann,users=@staff,guest,exclusive",
        ]);
        let want = "\
# Written by `stria gateway smb enable`, anew each time: what is changed here is lost. `stria gateway smb list` shows the shares.
[global]
    server role = standalone server
    workgroup = WORKGROUP
    server string = Stria
    smb ports = 445
    disable netbios = yes
    load printers = no
    printcap name = /dev/null
    disable spoolss = yes
    map to guest = bad user
    private dir = /var/lib/stria/gateway/smb/private
    state directory = /var/lib/stria/gateway/smb/state
    cache directory = /var/lib/stria/gateway/smb/cache
    lock directory = /run/stria/gateway/smb
    pid directory = /run/stria/gateway/smb
    ncalrpc dir = /run/stria/gateway/smb/ncalrpc
    log file = /var/log/stria/gateway-smb.log
    max log size = 10000
    # NT access lists and named streams are kept in extended attributes.
    vfs objects = acl_xattr streams_xattr
    ea support = yes
    store dos attributes = yes
    # Locks of SMB clients are locks of the file system, which all its clients see.
    posix locking = yes
    kernel share modes = no
    kernel oplocks = no
    use sendfile = no
    # A flush is fsync, and nothing less.
    strict sync = yes
    hostname lookups = yes
[all]
    path = /mnt/stria
    read only = no
    guest ok = no
    oplocks = no
    level2 oplocks = no
[team]
    path = /mnt/stria/team
    read only = yes
    hosts allow = 10.0.0.0/8 .site
    hosts deny = ALL
    valid users = ann @staff
    force user = svc
    guest ok = yes
    oplocks = yes
    level2 oplocks = yes
";
        assert_eq!(smb.config(&Places::new(Path::new("/"), "smb")), want);
    }

    #[test]
    fn an_address_and_the_sites_own_lines_are_in_it_and_guests_are_not_unless_a_share_takes_them() {
        let mut smb = smb(&["a=/a"]);
        smb.server =
            Server { port: 4455, bind: Some([127, 0, 0, 1].into()), include: Some("/etc/site.conf".into()) };
        let text = smb.config(&Places::new(Path::new("/"), "smb"));
        let lines =
            "    interfaces = 127.0.0.1\n    bind interfaces only = yes\n    include = /etc/site.conf\n[a]\n";
        assert!(text.contains(lines) && text.contains("    map to guest = never\n"), "{text}");
    }

    #[test]
    fn a_share_of_the_same_name_takes_the_place_of_the_old_one() {
        let mut smb = smb(&["a=/a", "b=/b"]);
        smb.put(vec![words::share("A=/c:ro", Path::new("/mnt/stria")).unwrap()]);
        let shown: Vec<_> = smb.shares.iter().map(|s| (s.name.as_str(), s.path.as_str())).collect();
        assert_eq!(shown, [("A", "/c"), ("b", "/b")]);
    }
}
