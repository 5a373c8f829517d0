//! The systemd units of a gateway: one for its server, and one for the mount if the gateway owns it. Pure.
//!
//! cli-GU1: a server never starts over a directory without its mount: it would serve the host's own disk.
//! cli-GU2: the mount has a unit of its own, so that it outlives the server. After a remount the server is restarted, since it holds files
//! of the old mount.

use std::path::Path;

use super::model::{Kind, Mount};
use super::places::Places;

/// The unit of the server of `kind`. `program` is the server's whole path, `stria` that of this program.
pub fn server<K: Kind>(kind: &K, at: &Places, program: &Path, stria: &Path) -> String {
    let (friends, foes) = kind.friends_and_foes();
    let point = kind.mount().point.as_path();
    let wants = [vec!["network-online.target"], friends].concat().join(" ");
    let mount = match kind.mount().source {
        Some(_) => {
            let unit = mount_unit_name(point);
            format!("# Started anew with its mount.\nRequires={unit}\nPartOf={unit}\nAfter={unit}\n")
        }
        None => format!("RequiresMountsFor={}\n", quoted(&point.display().to_string())),
    };
    let arguments: Vec<String> = K::daemon(at).foreground.iter().map(|a| quoted(a)).collect();
    format!(
        "\
# Written by `stria gateway {name} enable`, anew each time; `stria gateway {name} disable` removes it.
[Unit]
Description=Stria gateway: {server} over {point}
Documentation=man:stria-gateway-{name}(1) file:/usr/share/doc/stria/gateways.md
Wants={wants}
After={wants}
{mount}Conflicts={foes}
StartLimitIntervalSec=0

[Service]
Type=exec
RuntimeDirectory=stria/gateway/{name} {ncalrpc}
RuntimeDirectoryPreserve=yes
# Not over a directory whose mount is missing.
ExecStartPre=/usr/bin/findmnt --noheadings --types fuse.stria --mountpoint {quoted_point}
# Not over a directory that another user has replaced or may replace.
ExecStartPre={stria} gateway {name} check{base}
ExecStart={program} {arguments}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5s
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
",
        name = K::NAME,
        server = K::SERVER,
        point = plain(&point.display().to_string()),
        foes = foes.join(" "),
        ncalrpc = if K::NAME == "smb" { "stria/gateway/smb/ncalrpc" } else { "" },
        quoted_point = quoted(&point.display().to_string()),
        stria = quoted(&stria.display().to_string()),
        base = at.base_option().map(|base| format!(" --base {}", quoted(&base))).unwrap_or_default(),
        program = program.display(),
        arguments = arguments.join(" "),
    )
    .replace(" \n", "\n")
}

/// The unit of a mount that gateways own; `program` is `stria` itself.
pub fn mount(mount: &Mount, source: &str, program: &Path) -> String {
    let options: String = mount.options.iter().map(|o| format!(" -o {}", quoted(o))).collect();
    let point = mount.point.display().to_string();
    format!(
        "\
# Written by `stria gateway`: the mount that gateways of this host serve. It goes with the last of them.
[Unit]
Description=Stria mount {plain_point} of the gateways
Documentation=man:stria-mount(1) file:/usr/share/doc/stria/gateways.md
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
# It is started when the file system is mounted, and not before: the process goes into the background then.
Type=forking
ExecStart={program} mount {source} {point}{options}
TimeoutStartSec=330s
Restart=on-failure
RestartSec=1s
# 2: its source or an option is not right; trying again would not help.
RestartPreventExitStatus=2
TimeoutStopSec=60s
LimitNOFILE=65536
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
",
        plain_point = plain(&point),
        program = program.display(),
        source = quoted(source),
        point = quoted(&point),
    )
}

/// Names a unit after a path, as `systemd-escape --path` does.
pub fn mount_unit_name(point: &Path) -> String {
    let mut name = String::new();
    for (at, byte) in point.display().to_string().trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b':' => name.push(byte as char),
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    format!("stria-gateway-mount-{}.service", if name.is_empty() { "-" } else { &name })
}

/// Quotes a word of a command line in a unit: it stays one word, without variables and specifiers.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if escaped.contains([' ', '"', '\'', ';', '\\']) { format!("\"{escaped}\"") } else { escaped }
}

/// Quotes a text in a description.
fn plain(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::super::model::{Nfs, Server, Smb};
    use super::*;

    fn nfs(source: Option<&str>) -> Nfs {
        Nfs {
            protocols: vec![3, 4],
            last_id: 0,
            grace_sec: 90,
            mount: Mount {
                point: "/mnt/stria".into(),
                source: source.map(Into::into),
                options: vec!["nosuid".into()],
            },
            server: Server { port: 2049, bind: None, include: None },
            exports: vec![],
        }
    }

    #[test]
    fn the_unit_of_a_server_over_a_mount_that_it_owns_is_this_text() {
        let want = "\
# Written by `stria gateway nfs enable`, anew each time; `stria gateway nfs disable` removes it.
[Unit]
Description=Stria gateway: NFS-Ganesha over /mnt/stria
Documentation=man:stria-gateway-nfs(1) file:/usr/share/doc/stria/gateways.md
Wants=network-online.target rpcbind.service rpc-statd.service
After=network-online.target rpcbind.service rpc-statd.service
# Started anew with its mount.
Requires=stria-gateway-mount-mnt-stria.service
PartOf=stria-gateway-mount-mnt-stria.service
After=stria-gateway-mount-mnt-stria.service
Conflicts=nfs-ganesha.service nfs-server.service
StartLimitIntervalSec=0

[Service]
Type=exec
RuntimeDirectory=stria/gateway/nfs
RuntimeDirectoryPreserve=yes
# Not over a directory whose mount is missing.
ExecStartPre=/usr/bin/findmnt --noheadings --types fuse.stria --mountpoint /mnt/stria
# Not over a directory that another user has replaced or may replace.
ExecStartPre=/usr/bin/stria gateway nfs check
ExecStart=/usr/bin/ganesha.nfsd -F -f /etc/stria/gateway/ganesha.conf -L /var/log/stria/gateway-nfs.log -p /run/stria/gateway/nfs/ganesha.pid
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5s
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
";
        let at = Places::new(Path::new("/"), "nfs");
        let stria = Path::new("/usr/bin/stria");
        let text = server(&nfs(Some("10.0.0.5@tcp0:/stria")), &at, Path::new("/usr/bin/ganesha.nfsd"), stria);
        assert_eq!(text, want);
        let elsewhere = Places::new(Path::new("/b c"), "nfs");
        let text = server(&nfs(None), &elsewhere, Path::new("/usr/bin/ganesha.nfsd"), stria);
        assert!(text.contains("ExecStartPre=/usr/bin/stria gateway nfs check --base \"/b c\"\n"), "{text}");
    }

    #[test]
    fn a_mount_that_another_unit_makes_is_required_and_not_made() {
        let smb = Smb {
            workgroup: "W".into(),
            mount: Mount { point: "/mnt/a b".into(), source: None, options: vec![] },
            server: Server { port: 445, bind: None, include: None },
            shares: vec![],
        };
        let at = Places::new(Path::new("/"), "smb");
        let text = server(&smb, &at, Path::new("/usr/sbin/smbd"), Path::new("/usr/bin/stria"));
        for line in [
            "RequiresMountsFor=\"/mnt/a b\"\n",
            "RuntimeDirectory=stria/gateway/smb stria/gateway/smb/ncalrpc\n",
            "--mountpoint \"/mnt/a b\"\n",
            "ExecStart=/usr/sbin/smbd --foreground --no-process-group -s /etc/stria/gateway/smb.conf\n",
            "Conflicts=smbd.service samba-ad-dc.service\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("gateway-mount"), "{text}");
    }

    #[test]
    fn the_unit_of_the_mount_is_this_text() {
        let want = "\
# Written by `stria gateway`: the mount that gateways of this host serve. It goes with the last of them.
[Unit]
Description=Stria mount /mnt/stria of the gateways
Documentation=man:stria-mount(1) file:/usr/share/doc/stria/gateways.md
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
# It is started when the file system is mounted, and not before: the process goes into the background then.
Type=forking
ExecStart=/usr/bin/stria mount 10.0.0.5@tcp0:/stria /mnt/stria -o nosuid
TimeoutStartSec=330s
Restart=on-failure
RestartSec=1s
# 2: its source or an option is not right; trying again would not help.
RestartPreventExitStatus=2
TimeoutStopSec=60s
LimitNOFILE=65536
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
";
        let nfs = nfs(Some("10.0.0.5@tcp0:/stria"));
        assert_eq!(mount(&nfs.mount, "10.0.0.5@tcp0:/stria", Path::new("/usr/bin/stria")), want);
    }

    #[test]
    fn names_of_units_are_those_that_systemd_makes_of_paths() {
        for (path, name) in
            [("/mnt/stria", "mnt-stria"), ("/mnt/a-b c", "mnt-a\\x2db\\x20c"), ("/.x", "\\x2ex"), ("/", "-")]
        {
            assert_eq!(mount_unit_name(Path::new(path)), format!("stria-gateway-mount-{name}.service"));
        }
    }
}
