use super::*;

mod hammered;

fn prints_what_it_reads<C: Config + PartialEq + std::fmt::Debug>() {
    let example = C::example();
    let text = example.print();
    assert_eq!(parse::<C>(&text).as_ref(), Ok(&example), "{text}");
    let keys = text.lines().filter(|l| l.contains(" = ")).count();
    let comments = text.lines().filter(|l| l.starts_with("# ") && !l.contains(" = ")).count();
    assert_eq!(comments, keys + 1, "one comment per key, and the title:\n{text}");
}

#[test]
fn a_printed_configuration_reads_back() {
    prints_what_it_reads::<Mgs>();
    prints_what_it_reads::<Mds>();
    prints_what_it_reads::<Oss>();
    prints_what_it_reads::<Mount>();
    let sized = Oss { size: Some(Size(3 << 30)), ..Oss::example() };
    assert_eq!(parse::<Oss>(&sized.print()), Ok(sized));
    let direct = Oss { io: DataIo::Direct, io_timeout_sec: 5, ..Oss::example() };
    assert_eq!(parse::<Oss>(&direct.print()), Ok(direct));
}

#[test]
fn unknown_and_missing_keys_are_refused_by_name() {
    let misspelt = "mgs = [\"a\"]\nfs_name = \"x\"\ndevice = \"/d\"\n";
    assert!(parse::<Mds>(misspelt).unwrap_err().contains("fs_name"));
    assert!(parse::<Mds>("mgs = [\"a\"]\n").unwrap_err().contains("device"));
    assert!(parse::<Mgs>("dir = \"/d\"\nport = 1\n").unwrap_err().contains("port"));
    assert!(parse::<Mgs>("dir = \"/d\"\nnids = []\n").unwrap_err().contains("nids"), "it had no effect");
}

#[test]
fn values_that_cannot_be_meant_are_refused() {
    let base = "mgs = [\"a\"]\n";
    for (text, reason) in [
        (format!("{base}devices = []\n"), "lists none"),
        (format!("{base}devices = [\"/a\", \"/a\"]\n"), "listed twice"),
        (format!("{base}second_devices = [\"/a\"]\ndevices = [\"/a\"]\n"), "listed twice"),
        ("mgs = []\ndevices = [\"/a\"]\n".to_owned(), "no NID"),
        (format!("{base}devices = [\"/a\"]\nfsname = \"a/b\"\n"), "file system name"),
        (format!("{base}devices = [\"/a\"]\nsize = \"8X\"\n"), "not a size"),
        (format!("{base}devices = [\"/a\"]\nnids = [\"10.0.0.7\"]\n"), "the port is missing"),
        (format!("{base}devices = [\"/a\"]\nnids = [\"10.0.0.7:0@tcp0\"]\n"), "port 0"),
        (format!("{base}devices = [\"/a\"]\nlisten = \"10.0.0.7\"\n"), "`listen`"),
        (format!("{base}devices = [\"/a\"]\nio = \"fast\"\n"), "`cached`"),
        (format!("{base}devices = [\"/a\"]\nio_timeout_sec = 0\n"), "io_timeout_sec"),
        (format!("{base}devices = [\"/a\"]\nsmall_write_max = \"2M\"\n"), "small_write_max"),
        (format!("{base}devices = [\"/a\"]\nwrite_unit = \"48K\"\n"), "write_unit"),
    ] {
        let refused = parse::<Oss>(&text).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    // A server may hold second members only.
    let seconds = parse::<Oss>(&format!("{base}second_devices = [\"/a\"]\n")).unwrap();
    assert_eq!((seconds.devices.len(), seconds.second_devices.len()), (0, 1));
    assert!(parse::<Mds>(&format!("{base}device = \"/a\"\nsecond = true\n")).unwrap().second);
    let hasty = "mgs = [\"a\"]\nmountpoint = \"/m\"\nop_timeout_sec = 0\n";
    assert!(parse::<Mount>(hasty).unwrap_err().contains("op_timeout_sec"));
}

#[test]
fn short_nids_are_filled_up() {
    for (short, full) in [
        ("10.0.0.5", "10.0.0.5:7010@tcp0"),
        ("10.0.0.5@tcp", "10.0.0.5:7010@tcp0"),
        ("10.0.0.5@tcp1", "10.0.0.5:7010@tcp1"),
        ("10.0.0.5:99", "10.0.0.5:99@tcp0"),
        ("mgs.site:99@tcp1", "mgs.site:99@tcp1"),
        ("fe80::1", "[fe80::1]:7010@tcp0"),
        ("[fe80::1]:99", "[fe80::1]:99@tcp0"),
        ("unix:/d/run/s.sock", "unix:/d/run/s.sock@local0"),
        ("unix:/d@x/s.sock@local0", "unix:/d@x/s.sock@local0"),
    ] {
        assert_eq!(normal_nid(short).as_deref(), Ok(full));
    }
    assert!(normal_nid("@tcp0").is_err() && normal_nid("a@").is_err());
}

#[test]
fn a_nid_that_nothing_can_reach_is_refused_with_what_is_known() {
    for (text, why) in [
        ("10.0.0.5@o2ib", "net o2ib is not supported, known: tcp"),
        ("10.0.0.5@tcp:19010", "write 10.0.0.5:19010@tcp"),
        ("10.0.0.5@tcpip", "net tcpip is not supported"),
        ("10.0.0.5:0@tcp", "port 0"),
        ("10.0.0.5:99999@tcp", "no number from 1 to 65535"),
        ("unix:/d/s.sock@tcp", "local0"),
    ] {
        let refused = normal_nid(text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn no_network_is_reached_unless_the_configuration_says_so() {
    for listen in [Mgs::example().listen, Mds::example().listen, Oss::example().listen] {
        let [listen] = &listen.0[..] else { panic!("one address: {listen:?}") };
        let address: std::net::SocketAddr = listen.parse().unwrap();
        assert!(address.ip().is_loopback(), "{listen}");
    }
}
