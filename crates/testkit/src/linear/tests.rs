use super::*;

/// Asserts the verdict on a history, and that its text form parses back.
fn check(what: &str, is_good: bool, text: &str) {
    let history = History::parse(text).unwrap();
    let judged = history.judge();
    assert_eq!(judged.is_ok(), is_good, "{what}\n{}", judged.err().map_or(String::new(), |r| r.to_string()));
    assert_eq!(History::parse(&history.to_string()).unwrap(), history, "{what}: as text and back");
}

#[test]
fn calls_at_the_same_time_may_have_happened_in_any_order() {
    check("nothing", true, "");
    check(
        "one after the other",
        true,
        "0 1 2 create d/a = 16x1\n0 3 4 unlink d/a = ok\n0 5 6 stat d/a = NotFound",
    );
    check("the looker was first", true, "0 1 4 create d/a = 16x1\n1 2 3 stat d/a = NotFound");
    check("the looker was second", true, "0 1 4 create d/a = 16x1\n1 2 3 stat d/a = 16x1");
    check("one of two makers", true, "0 1 4 create d/a = Exists\n1 2 3 create d/a = 16x1");
    let text = "0 1 2 create d/a = 16x1\n0 3 9 rename d/a e/b = ok\n1 4 5 list d = a:16\n1 6 7 list e = b:16";
    check("the rename was between the lists", true, text);
    let text =
        "0 1 2 create d/a = 16x1\n0 3 4 link 16 e/c = 16x2\n0 5 6 rename d/a e/c = ok\n0 7 8 list d = a:16";
    check("a rename to another name of the file does nothing", true, text);
}

#[test]
fn a_call_that_never_ended_happened_or_did_not() {
    for said in ["NotFound", "16x1"] {
        let text = format!("0 1 - create d/a\n1 2 3 stat d/a = NotFound\n1 4 5 stat d/a = {said}");
        check("it may happen late", true, &text);
    }
    let text = "0 1 2 create d/a = 16x1\n1 3 - unlink d/a\n0 4 5 stat d/a = 16x1\n0 6 7 create d/a = 17x1";
    check("the unlink was before the second making", true, text);
    let text = "0 1 - create d/a\n1 2 - rename d/a e/b\n2 3 4 stat e/b = 16x1\n2 5 6 look 16 = 16x1";
    check("both happened", true, text);
}

/// The checker must refuse histories that are not linearizable.
#[test]
fn what_no_order_explains_is_refused() {
    let bad = [
        ("a stale look", "0 1 2 create d/a = 16x1\n1 3 4 stat d/a = NotFound"),
        ("two makers of one name", "0 1 4 create d/a = 16x1\n1 2 3 create d/a = 17x1"),
        ("two removers of one name", "0 1 2 create d/a = 16x1\n0 3 6 unlink d/a = ok\n1 4 5 unlink d/a = ok"),
        ("a refusal without a cause", "0 1 2 create d/a = Exists"),
        ("an acknowledged making is lost", "0 1 2 create d/a = 16x1\n0 3 4 list d = nothing"),
        (
            "a rename that shows neither name",
            "0 1 2 create d/a = 16x1\n0 3 6 rename d/a d/b = ok\n1 4 5 list d = nothing",
        ),
        (
            "a rename that shows both names",
            "0 1 2 create d/a = 16x1\n0 3 6 rename d/a d/b = ok\n1 4 5 list d = a:16 b:16",
        ),
        (
            "a link that is not counted",
            "0 1 2 create d/a = 16x1\n0 3 4 link 16 d/b = 16x2\n1 5 6 stat d/a = 16x1",
        ),
        (
            "time runs backwards between lookers",
            "0 1 9 create d/a = 16x1\n1 2 3 stat d/a = 16x1\n2 4 5 stat d/a = NotFound",
        ),
        (
            "a call that never ended happens twice",
            "0 1 - create d/a\n1 2 3 stat d/a = 16x1\n1 4 5 unlink d/a = ok\n1 6 7 stat d/a = 17x1",
        ),
        (
            "and once more under its old number",
            "0 1 - create d/a\n1 2 3 stat d/a = 16x1\n1 4 5 unlink d/a = ok\n1 6 7 stat d/a = 16x1",
        ),
        (
            "a name leads elsewhere after a rename",
            "0 1 2 create d/a = 16x1\n0 3 4 rename d/a e/a = ok\n0 5 6 stat e/a = 17x1",
        ),
        (
            "a file that was removed is linked",
            "0 1 2 create d/a = 16x1\n0 3 4 unlink d/a = ok\n0 5 6 link 16 d/a = 16x1",
        ),
        (
            "a move over a name that is there",
            "0 1 2 create d/a = 16x1\n0 3 4 create d/b = 17x1\n0 5 6 move d/a d/b = ok",
        ),
        ("one number for two files", "0 1 2 create d/a = 16x1\n0 3 4 create d/b = 16x1"),
        (
            "two lookers see two renames in two orders",
            "0 1 2 create d/a = 16x1\n0 3 4 create d/b = 17x1\n0 5 20 rename d/a e/a = ok\n1 6 21 rename d/b e/b = ok\n\
             2 7 8 list e = a:16\n3 9 10 list e = b:17",
        ),
        ("an error that the call does not have", "0 1 2 create d/a = Io"),
    ];
    bad.iter().for_each(|(what, text)| check(what, false, text));
}

/// Two mounts give a file the same new name at once. The second kernel finds both names to be one file, if its looks are on both sides of the first
/// rename.
#[test]
fn a_kernel_may_find_both_names_of_a_rename_to_be_one_file() {
    let judged = |text: &str| {
        let history = History::parse(text).unwrap();
        (history.judge().is_ok(), history.judge_of_kernels(2).is_ok())
    };
    let made = "0 1 2 create d/a = 16x1";
    let both = format!("{made}\n0 3 6 rename d/a e/b = ok\n1 4 7 rename d/a e/b = ok");
    assert_eq!(judged(&both), (false, true));
    assert_eq!(judged(&format!("{both}\n0 8 9 list e = b:16\n0 10 11 list d = nothing")), (false, true));
    // The looks of a call are not before its begin, and it has done nothing.
    let later = format!("{made}\n0 3 4 rename d/a e/b = ok\n1 5 7 rename d/a e/b = ok");
    assert_eq!(judged(&later), (false, false));
    assert_eq!(judged(&format!("{both}\n0 8 9 list e = nothing")), (false, false));
    // A kernel that is told not to replace finds a name that is taken.
    let moved = format!("{made}\n0 3 6 move d/a e/b = ok\n1 4 7 move d/a e/b = ok");
    assert_eq!(judged(&moved), (false, false));
    let other = format!("{both}\n0 8 9 create d/a = 17x1\n0 10 11 stat e/b = 17x1");
    assert_eq!(judged(&other), (false, false));
}

/// Another mount has seen a new file, and a program beside its maker looks at its name.
#[test]
fn a_mount_may_see_old_names_while_its_own_change_has_no_answer() {
    let judged = |text: &str| {
        let history = History::parse(text).unwrap();
        (history.judge().is_ok(), history.judge_of_kernels(2).is_ok())
    };
    // Clients 1 and 3 are of one mount, client 0 is of the other.
    let made = "3 1 9 create d/a = 16x1\n0 2 3 stat d/a = 16x1";
    assert_eq!(judged(&format!("{made}\n1 4 5 stat d/a = NotFound")), (false, true));
    assert_eq!(judged(&format!("{made}\n2 4 5 stat d/a = NotFound")), (false, false));
    assert_eq!(judged(&format!("{made}\n1 10 11 stat d/a = NotFound")), (false, false));
    assert_eq!(judged(&format!("{made}\n1 4 5 stat d/b = 16x1")), (false, false));
    let moved = "0 1 2 create d/a = 16x1\n3 3 9 rename d/a d/b = ok\n0 4 5 stat d/b = 16x1";
    assert_eq!(judged(&format!("{moved}\n1 6 7 stat d/a = 16x1\n1 7 8 stat d/b = NotFound")), (false, true));
    assert_eq!(judged(&format!("{moved}\n1 6 7 stat d/a = 17x1")), (false, false));
    let gone =
        "0 1 2 create d/a = 16x1\n3 3 9 unlink d/a = ok\n0 4 5 stat d/a = NotFound\n1 6 7 stat d/a = 16x1";
    assert_eq!(judged(gone), (false, true));
    // The maker began anew after the removal. Programs saw that with a killed MDT.
    let twice = "3 1 9 create d/a = 17x1\n2 4 5 unlink d/a = ok\n0 10 11 stat d/a = 17x1";
    assert_eq!(judged(twice), (false, false));
}

/// 40 calls without an end, and no order fits: the set of visited configurations bounds the work until the refusal.
#[test]
fn a_long_history_of_calls_that_never_ended_is_judged_at_once() {
    let makers: String =
        (0..40).map(|n| format!("{n} {n} - create d/{}\n", ['a', 'b', 'c'][n % 3])).collect();
    let bad = "50 90 91 stat d/a = 16x1\n50 92 93 stat d/a = NotFound\n";
    assert!(History::parse(&format!("{makers}{bad}")).unwrap().judge().is_err());
}

#[test]
fn a_line_that_is_no_call_is_named() {
    for line in ["0 1 2 create d/a", "0 1 - create d/a = ok", "0 1 2 eat d/a = ok", "x 1 2 list d = ok"] {
        assert!(History::parse(line).unwrap_err().contains(line), "{line}");
    }
}
