//! Writes `ganesha.conf` for NFS-Ganesha 4.3 with FSAL VFS, and gives the command line of the server. Pure.

use std::fmt::Write;

use super::model::{Daemon, Export, LOCKS_PORT, MOUNTD_PORT, Nfs, Squash};
use super::places::Places;

pub fn daemon(at: &Places) -> Daemon {
    let files = [("-f", at.config()), ("-L", at.log()), ("-p", at.pid_file())];
    let background: Vec<String> = files
        .into_iter()
        .flat_map(|(option, path)| [option.to_owned(), path.display().to_string()])
        .collect();
    let foreground = [vec!["-F".to_owned()], background.clone()].concat();
    Daemon { program: "ganesha.nfsd", foreground, background }
}

pub fn config(nfs: &Nfs, at: &Places) -> String {
    let mut text = String::new();
    let protocols = nfs.protocols.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let bind = nfs.server.bind.map(|ip| format!("    Bind_addr = {ip};\n")).unwrap_or_default();
    let _ = write!(
        text,
        "\
# Written by `stria gateway nfs enable`, anew each time: what is changed here is lost. `stria gateway nfs list` shows the exports.
NFS_CORE_PARAM {{
    Protocols = {protocols};
    NFS_Port = {port};
    # Fixed, so that a firewall can let them through.
    MNT_Port = {MOUNTD_PORT};
    NLM_Port = {LOCKS_PORT};
    Enable_RQUOTA = false;
    Enable_UDP = false;
{bind}    # NFS 3 and 4 clients name an export alike.
    mount_path_pseudo = true;
    Clustered = false;
}}
NFSV4 {{
    RecoveryBackend = fs_ng;
    RecoveryRoot = \"{state}\";
    Only_Numeric_Owners = true;
    # What is delegated to a client, a Stria mount elsewhere could not call back.
    Delegations = false;
{grace}}}
NFS_KRB5 {{
    Active_krb5 = false;
}}
MDCACHE {{
    # Names that other clients of the file system make and remove are seen.
    Use_Getattr_Directory_Invalidation = true;
}}
EXPORT_DEFAULTS {{
    SecType = sys;
    # Nobody, as exports(5) has it.
    Anonymous_uid = 65534;
    Anonymous_gid = 65534;
    # Attributes are asked anew each time: other clients of the file system change them.
    Attr_Expiration_Time = 0;
}}
",
        port = nfs.server.port,
        grace = grace(nfs.grace_sec),
        state = at.state().display(),
    );
    nfs.exports.iter().for_each(|e| export(&mut text, nfs, e));
    if let Some(include) = &nfs.server.include {
        let _ = writeln!(text, "%include \"{}\"", include.display());
    }
    text
}

/// The lease time is shorter than the grace period, so that clients renew their leases in time.
fn grace(seconds: u32) -> String {
    match seconds {
        0 => "    Graceless = true;\n".to_owned(),
        _ => format!("    Grace_Period = {seconds};\n    Lease_Lifetime = {};\n", (seconds * 2 / 3).max(1)),
    }
}

fn export(text: &mut String, nfs: &Nfs, export: &Export) {
    let access = if export.read_only { "RO" } else { "RW" };
    let squash = match export.squash {
        Squash::Root => "root_squash",
        Squash::All => "all_squash",
        Squash::None => "no_root_squash",
    };
    let directory = super::model::directory(&nfs.mount.point, &export.path);
    let _ = writeln!(text, "EXPORT {{");
    let _ = writeln!(text, "    Export_Id = {};", export.id);
    let _ = writeln!(text, "    Path = \"{}\";", directory.display());
    let _ = writeln!(text, "    Pseudo = \"{}\";", export.path);
    let _ = writeln!(text, "    Access_Type = {};", if export.hosts.is_empty() { access } else { "None" });
    let _ = writeln!(text, "    Squash = {squash};");
    for (key, value) in [("Anonymous_uid", export.anonuid), ("Anonymous_gid", export.anongid)] {
        if let Some(value) = value {
            let _ = writeln!(text, "    {key} = {value};");
        }
    }
    if export.server_groups {
        let _ = writeln!(text, "    Manage_Gids = true;");
    }
    if !export.hosts.is_empty() {
        let _ =
            writeln!(text, "    CLIENT {{ Clients = {}; Access_Type = {access}; }}", export.hosts.join(", "));
    }
    // Clients distinguish file systems by this number, and their handles contain it. The default is the device number of the mount, which
    // another mount may get after a remount.
    let _ = writeln!(text, "    Filesystem_id = 1.{};", export.id);
    let _ = writeln!(text, "    FSAL {{ Name = VFS; fsid_type = Major64; }}\n}}");
}

impl Nfs {
    /// Adds exports. One with the path of an existing export replaces it and keeps its id.
    pub fn put(&mut self, exports: Vec<Export>) -> Result<(), String> {
        for mut new in exports {
            match self.exports.iter_mut().find(|old| old.path == new.path) {
                Some(old) => {
                    new.id = old.id;
                    *old = new;
                }
                None => {
                    // Not the lowest free id: a client may still hold handles of an earlier export with that id.
                    let last = self.exports.iter().map(|e| e.id).max().unwrap_or(0).max(self.last_id);
                    new.id = last
                        .checked_add(1)
                        .ok_or("65535 exports have been made; `disable` and `enable` begin anew")?;
                    self.last_id = new.id;
                    self.exports.push(new);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::model::{Kind, Mount, Server};
    use super::super::words;
    use super::*;

    fn nfs(exports: &[&str]) -> Nfs {
        let point = Path::new("/mnt/stria");
        let mut nfs = Nfs {
            protocols: vec![3, 4],
            last_id: 0,
            grace_sec: 90,
            mount: Mount { point: point.into(), source: None, options: vec![] },
            server: Server { port: 2049, bind: None, include: None },
            exports: vec![],
        };
        nfs.put(exports.iter().map(|e| words::export(e, point).unwrap()).collect()).unwrap();
        nfs
    }

    #[test]
    fn the_configuration_of_two_exports_is_this_text() {
        let nfs = nfs(&[
            "/",
            "/projects:ro,squash=all,anonuid=99,anongid=98,groups=server,hosts=10.0.0.0/8,hosts=*.site",
        ]);
        let want = "\
# Written by `stria gateway nfs enable`, anew each time: what is changed here is lost. `stria gateway nfs list` shows the exports.
NFS_CORE_PARAM {
    Protocols = 3, 4;
    NFS_Port = 2049;
    # Fixed, so that a firewall can let them through.
    MNT_Port = 20048;
    NLM_Port = 32803;
    Enable_RQUOTA = false;
    Enable_UDP = false;
    # NFS 3 and 4 clients name an export alike.
    mount_path_pseudo = true;
    Clustered = false;
}
NFSV4 {
    RecoveryBackend = fs_ng;
    RecoveryRoot = \"/var/lib/stria/gateway/nfs\";
    Only_Numeric_Owners = true;
    # What is delegated to a client, a Stria mount elsewhere could not call back.
    Delegations = false;
    Grace_Period = 90;
    Lease_Lifetime = 60;
}
NFS_KRB5 {
    Active_krb5 = false;
}
MDCACHE {
    # Names that other clients of the file system make and remove are seen.
    Use_Getattr_Directory_Invalidation = true;
}
EXPORT_DEFAULTS {
    SecType = sys;
    # Nobody, as exports(5) has it.
    Anonymous_uid = 65534;
    Anonymous_gid = 65534;
    # Attributes are asked anew each time: other clients of the file system change them.
    Attr_Expiration_Time = 0;
}
EXPORT {
    Export_Id = 1;
    Path = \"/mnt/stria\";
    Pseudo = \"/\";
    Access_Type = RW;
    Squash = root_squash;
    Filesystem_id = 1.1;
    FSAL { Name = VFS; fsid_type = Major64; }
}
EXPORT {
    Export_Id = 2;
    Path = \"/mnt/stria/projects\";
    Pseudo = \"/projects\";
    Access_Type = None;
    Squash = all_squash;
    Anonymous_uid = 99;
    Anonymous_gid = 98;
    Manage_Gids = true;
    CLIENT { Clients = 10.0.0.0/8, *.site; Access_Type = RO; }
    Filesystem_id = 1.2;
    FSAL { Name = VFS; fsid_type = Major64; }
}
";
        assert_eq!(nfs.config(&Places::new(Path::new("/"), "nfs")), want);
    }

    #[test]
    fn an_address_and_the_sites_own_lines_are_in_it() {
        let mut nfs = nfs(&["/a:squash=none"]);
        (nfs.protocols, nfs.grace_sec) = (vec![4], 0);
        nfs.server =
            Server { port: 3049, bind: Some([10, 0, 0, 7].into()), include: Some("/etc/site.conf".into()) };
        let text = nfs.config(&Places::new(Path::new("/b"), "nfs"));
        for line in [
            "    Protocols = 4;\n    NFS_Port = 3049;\n",
            "    Bind_addr = 10.0.0.7;\n",
            "    RecoveryRoot = \"/b/var/lib/stria/gateway/nfs\";\n",
            "    Squash = no_root_squash;\n",
            "    Delegations = false;\n    Graceless = true;\n}\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(text.ends_with("}\n%include \"/etc/site.conf\"\n"), "{text}");
    }

    #[test]
    fn an_export_keeps_its_id_when_it_changes_and_none_is_used_again() {
        let mut nfs = nfs(&["/a", "/b", "/c"]);
        let point = Path::new("/mnt/stria");
        nfs.put(vec![words::export("/b:ro", point).unwrap()]).unwrap();
        let ids =
            |nfs: &Nfs| nfs.exports.iter().map(|e| (e.path.clone(), e.id, e.read_only)).collect::<Vec<_>>();
        assert_eq!(ids(&nfs)[1], ("/b".into(), 2, true));
        nfs.exports.retain(|e| e.path != "/c");
        nfs.put(vec![words::export("/d", point).unwrap()]).unwrap();
        assert_eq!(ids(&nfs)[2], ("/d".into(), 4, false));
    }

    #[test]
    fn the_server_is_told_its_files_and_stays_in_the_foreground_under_systemd() {
        let daemon = daemon(&Places::new(Path::new("/"), "nfs"));
        let files = "-f /etc/stria/gateway/ganesha.conf -L /var/log/stria/gateway-nfs.log -p /run/stria/gateway/nfs/ganesha.pid";
        assert_eq!(daemon.background.join(" "), files);
        assert_eq!(daemon.foreground.join(" "), format!("-F {files}"));
    }
}
