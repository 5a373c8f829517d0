use super::*;
use crate::testing::map;
use wire::params::LiveParam;

const FS: FsId = FsId(1);

fn change(targets: &str, name: &str, value: Option<u64>) -> KeptParam {
    KeptParam { fs: FS, targets: targets.into(), name: name.into(), value }
}

fn changed(map: &ClusterMap, changes: &[KeptParam]) -> ClusterMap {
    let request = ChangeParams { changes: changes.to_vec() };
    change_params(map, &request).unwrap().expect("a change")
}

fn rates(map: &ClusterMap) -> [Option<u64>; 3] {
    [11, 12, 13].map(|id| kept(map, TargetId(id), Param::ResyncRate))
}

/// mgmt-PA1 and mgmt-PA3.
#[test]
fn the_last_entry_that_matches_holds_and_hidden_ones_are_dropped() {
    let map = changed(&map(), &[change("home-OST0001", "resync.rate", Some(7))]);
    assert_eq!((map.version, rates(&map)), (6, [None, None, Some(7)]));
    let map = changed(&map, &[change("home-OST*", "resync.rate", Some(9))]);
    assert_eq!((map.params.len(), rates(&map)), (1, [None, Some(9), Some(9)]));
    let map = changed(&map, &[change("home-OST0000", "resync.rate", Some(1))]);
    assert_eq!((map.params.len(), rates(&map)), (2, [None, Some(1), Some(9)]));
    // Taken back for one target of a wider entry.
    let map = changed(&map, &[change("home-OST0001", "resync.rate", None)]);
    assert_eq!((map.params.len(), rates(&map)), (3, [None, Some(1), None]));
    let same = ChangeParams { changes: vec![change("home-OST0001", "resync.rate", None)] };
    assert_eq!(change_params(&map, &same), Ok(None));
    let map = changed(&map, &[change("*", "resync.rate", None)]);
    assert_eq!((map.params.len(), rates(&map)), (0, [None, None, None]));
}

/// mgmt-PA3.
#[test]
fn unknown_names_and_values_out_of_bounds_are_refused() {
    for (bad, why) in [
        (change("home-OST*", "resync.speed", Some(1)), "list-param"),
        (change("home-OST*", "commit.interval", Some(1)), "between 10ms and 60s"),
        (change("", "resync.rate", Some(1)), "no name of targets"),
        (KeptParam { fs: FsId(9), ..change("*", "resync.rate", Some(1)) }, "no file system 9"),
    ] {
        let fault = change_params(&map(), &ChangeParams { changes: vec![bad] }).unwrap_err();
        assert!(fault.code == Code::Invalid && fault.detail.contains(why), "{fault}");
    }
}

/// `STRIA_PARAMS=write cargo test -p stria-mgmt` writes the table anew.
#[test]
fn the_document_has_all_parameters() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parameters.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, _) = text.split_once("|---|---|---|---|\n").expect("the document has a table");
    let row = |def: &Def| {
        let at: Vec<_> = def.at.iter().map(|scope| scope.word()).collect();
        let live = if def.is_live { "" } else { "; with -P only" };
        format!("| `{}` | {} | {}{live} | {} |\n", def.name, at.join(", "), def.values(), def.text)
    };
    let wanted = format!("{head}|---|---|---|---|\n{}", DEFS.iter().map(row).collect::<String>());
    if std::env::var_os("STRIA_PARAMS").is_some() {
        return std::fs::write(path, &wanted).unwrap();
    }
    assert!(wanted == text, "docs/parameters.md: STRIA_PARAMS=write cargo test -p stria-mgmt writes it anew");
}

#[test]
fn the_text_of_a_value_gives_it_again() {
    for param in PARAMS {
        let def = param.def();
        for value in [def.least, def.most, (def.least + def.most) / 2] {
            assert_eq!(def.parse(&def.show(value)), Ok(value), "{}", def.name);
        }
        assert!(def.text.ends_with('.') && Param::named(def.name) == Some(*param), "{}", def.name);
    }
    let time = Param::CommitInterval.def();
    assert_eq!((time.parse("1m"), time.parse("7500ms")), (Ok(60_000), Ok(7500)));
    for bad in ["", "10", "s", "-1s", "99999999999999999999s", "9ms", "2m", "2h"] {
        assert!(time.parse(bad).is_err(), "{bad}");
    }
    assert!(Param::LogLevel.def().parse("loud").unwrap_err().contains("debug"));
    assert_eq!(Param::matching("resync.*").len(), 2);
}

/// mgmt-PA1 and mgmt-PA2.
#[test]
fn the_option_of_a_mount_holds_against_a_kept_value() {
    let read_ahead = Param::MountReadAhead;
    let jobid = Param::MountJobId;
    let given = Params::of_mount(&[(jobid, 9)]);
    let plain = Params::of_mount(&[]);
    assert_eq!((given.get(jobid), plain.get(jobid)), (Some(9), None));
    let wide = change("*", read_ahead.def().name, Some(8));
    let own = change("home-client", jobid.def().name, Some(1));
    let map = changed(&map(), &[wide, own, change("home-OST*", "mount.dead_after", Some(500))]);
    assert_eq!(kept(&map, TargetId(12), read_ahead), None, "an OST has none");
    for params in [&given, &plain] {
        params.follow_for_mount(&map, FS);
        assert_eq!((params.get(read_ahead), params.get(Param::MountDeadAfter)), (Some(8), None));
    }
    assert_eq!((given.get(jobid), plain.get(jobid)), (Some(9), Some(1)));
    let shown = given.shown(Scope::Client, |_| 5);
    let of_job = shown.iter().find(|shown| shown.param == jobid).unwrap();
    let wanted = Shown { param: jobid, value: 9, base: 5, given: Some(9), kept: Some(1), live: None };
    assert_eq!(*of_job, wanted);
    assert!(shown.iter().all(|shown| shown.param.is_at(Scope::Client)));
    // A live value holds against the option, until a new one is kept.
    let live = LiveParam { name: jobid.def().name.into(), value: Some(3) };
    assert!(given.set(&[LiveParam { value: Some(9), ..live.clone() }], Scope::Client).is_err());
    given.set(&[live], Scope::Client).unwrap();
    assert_eq!(given.get(jobid), Some(3));
    given.follow_for_mount(&changed(&map, &[change("*", jobid.def().name, Some(2))]), FS);
    assert_eq!(given.get(jobid), Some(9));
}

/// mgmt-PA1 and mgmt-PA2.
#[test]
fn a_live_value_holds_until_a_new_kept_one_comes() {
    let (params, map) = (Params::default(), map());
    let (seen, me) = (Arc::new(AtomicU64::new(0)), TargetId(12));
    let count = seen.clone();
    params.on_change(move |params| {
        count.store(params.get(Param::ResyncRate).unwrap_or(0), Ordering::Relaxed);
        true
    });
    let cell = params.cell(Param::ResyncRate, 5);
    assert_eq!(cell.load(Ordering::Relaxed), 5);
    let live = |value| LiveParam { name: "resync.rate".into(), value };
    params.set(&[live(Some(3))], Scope::Ost).unwrap();
    assert_eq!((params.get(Param::ResyncRate), seen.load(Ordering::Relaxed)), (Some(3), 3));
    params.follow(&map, me);
    assert_eq!(params.get(Param::ResyncRate), Some(3), "another change of the map");
    let kept = changed(&map, &[change("*", "resync.rate", Some(9))]);
    params.follow(&kept, me);
    assert_eq!((params.get(Param::ResyncRate), seen.load(Ordering::Relaxed)), (Some(9), 9));
    assert_eq!(cell.load(Ordering::Relaxed), 9);
    params.set(&[live(Some(4))], Scope::Ost).unwrap();
    params.follow(&map, me);
    assert_eq!(params.get(Param::ResyncRate), Some(4), "an older map");
    let list = params.list(Scope::Ost, |_| 11);
    let line = list.params.iter().find(|line| line.name == "resync.rate").unwrap();
    assert_eq!((line.value, line.base, line.kept, line.live), (4, 11, Some(9), Some(4)));
    assert!(list.params.iter().all(|line| line.name != "record.memory"), "an OST has none");
    params.set(&[live(None)], Scope::Ost).unwrap();
    assert_eq!(params.get(Param::ResyncRate), Some(9));
    let memory = LiveParam { name: "record.memory".into(), value: Some(1 << 30) };
    let refused = params.set(&[live(Some(1)), memory.clone()], Scope::Ost).unwrap_err();
    assert!(refused.detail.contains("record.memory"), "{refused}");
    assert_eq!(params.get(Param::ResyncRate), Some(9), "nothing is changed");
    assert!(params.set(&[LiveParam { value: Some(1), ..memory }], Scope::Mdt).is_err());
}
