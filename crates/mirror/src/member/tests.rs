//! A resync by chunks as the two members see it. Everything else is in `model`.

use super::*;
use crate::planted::without;
use crate::types::MemberState;
use MemberId::{A, B};

const NOW: u64 = 50_000;

fn standing(is_whole: bool, is_filling: bool) -> Standing {
    let map = Members { epoch: Epoch(4), primary: A, states: [MemberState::InSync, MemberState::Out] };
    Standing { map, is_whole, asked: None, is_filling }
}

fn history(entries: &[(u32, u64)]) -> History {
    let mut history = History::default();
    entries.iter().for_each(|(line, seq)| {
        history.append(Position { line: Line(*line), seq: MirrorSeq(*seq) });
    });
    history
}

/// A is alone and has forgotten its first line; B has this history.
fn members(of_b: History, is_filling: bool) -> [Member; 2] {
    let mut of_a = history(&[(1, 1), (2, 2), (4, 3)]);
    of_a.forget(MirrorSeq(2));
    let free = Ending::Clean { is_free: true };
    let mut a = Member::start(A, Incarnation(1), (standing(true, false), of_a), free, NOW, &mut Vec::new());
    let epoch = Members { epoch: Epoch(5), ..*a.map() };
    a.on_map(epoch, NOW, &mut Vec::new());
    assert_eq!(a.role(NOW), Role::Alone);
    let b = Member::start(B, Incarnation(1), (standing(false, is_filling), of_b), free, NOW, &mut Vec::new());
    [a, b]
}

/// Both tick, and all letters arrive. Returns the other effects of B, and the requests of A.
fn talk(members: &mut [Member; 2]) -> (Vec<Effect>, Vec<Request>) {
    let (mut of_b, mut requests) = (Vec::new(), Vec::new());
    let mut todo: Vec<(MemberId, Effect)> = Vec::new();
    let tell = |member: &mut Member, run: &dyn Fn(&mut Member, &mut Vec<Effect>), todo: &mut Vec<_>| {
        let mut out = Vec::new();
        run(member, &mut out);
        todo.extend(out.into_iter().map(|effect| (member.me, effect)));
    };
    for member in members.iter_mut() {
        tell(member, &|member, out| member.on_tick(NOW, out), &mut todo);
    }
    while !todo.is_empty() {
        match todo.remove(0) {
            (from, Effect::Send(letter)) => {
                let to = &mut members[from.other().index()];
                tell(to, &|member, out| member.on_letter(letter.clone(), NOW, out), &mut todo);
            }
            (A, Effect::Request(request)) => requests.push(request),
            (B, Effect::Request(_)) | (A, _) => {}
            (B, effect) => of_b.push(effect),
        }
    }
    (of_b, requests)
}

#[test]
fn member_is_filled_if_it_is_not_known_what_the_logs_share() {
    // A new device, a log from before what the primary still knows, and one that was being filled when its life ended.
    for (of_b, is_filling) in
        [(History::default(), false), (history(&[(1, 1)]), false), (history(&[(1, 1), (2, 2), (4, 3)]), true)]
    {
        let mut members = members(of_b, is_filling);
        let (effects, requests) = talk(&mut members);
        let record =
            effects.iter().position(|effect| *effect == Effect::Refill).expect("it is to be filled") - 1;
        assert_eq!(effects[record], Effect::Record, "mirror-F3: recorded before the old content goes");
        assert!(members[1].standing().is_filling && requests.is_empty(), "{requests:?}");
        assert_eq!((members[1].role(NOW), members[1].history()), (Role::Resyncing, members[0].history()));
        assert!(talk(&mut members).1.is_empty(), "as long as it is filled");

        let mut out = Vec::new();
        members[1].on_filled(MirrorSeq(3), &mut out);
        assert!(
            out.is_empty(),
            "mirror-F5: the history that it took over has the first entry of that filling"
        );
        members[1].on_filled(MirrorSeq(4), &mut out);
        assert_eq!(out[..2], [Effect::Flush, Effect::Record]);
        let Effect::Send(letter) = out.remove(2) else { panic!("{out:?}") };
        members[0].on_letter(letter, NOW, &mut Vec::new());
        let (_, requests) = talk(&mut members);
        assert!(requests.contains(&Request::InSync { epoch: Epoch(5) }), "{requests:?}");
    }
}

#[test]
fn member_is_filled_if_the_log_of_the_primary_does_not_have_its_next_entry() {
    let run = |first: u64| {
        let mut members = members(history(&[(1, 1), (2, 2)]), false);
        members[0].on_trimmed(MirrorSeq(first));
        talk(&mut members).0.contains(&Effect::Refill)
    };
    assert!(!run(3) && run(4));
    assert!(!without(Rule::LogHasNext, || run(4)), "mirror-J6 is what has it filled");
}

#[test]
fn member_that_is_behind_a_trimmed_log_is_filled_though_entries_had_begun() {
    let mut members = members(history(&[(1, 1), (2, 2)]), false);
    let mut out = Vec::new();
    let hello = |member: &Member| match member.hello() {
        Effect::Send(letter) => letter,
        effect => panic!("{effect:?}"),
    };
    let (of_a, of_b) = (hello(&members[0]), hello(&members[1]));
    members[1].on_letter(of_a, NOW, &mut Vec::new());
    members[0].on_letter(of_b, NOW, &mut Vec::new());
    let of_b = hello(&members[1]);
    members[0].on_letter(of_b, NOW, &mut out);
    for effect in out.drain(..) {
        if let Effect::Send(letter) = effect {
            members[1].on_letter(letter, NOW, &mut Vec::new());
        }
    }
    assert!(members[1].is_streaming());
    members[0].on_trimmed(MirrorSeq(4));
    assert!(talk(&mut members).0.contains(&Effect::Refill));
}

#[test]
fn time_until_which_a_member_serves_is_that_of_its_role() {
    let [a, b] = members(history(&[(1, 1)]), false);
    assert_eq!((a.serves_until_ms(NOW), b.serves_until_ms(NOW)), (u64::MAX, 0));
    assert_eq!((a.reads_until_ms(NOW), b.reads_until_ms(NOW)), (u64::MAX, 0));
}

#[test]
fn member_whose_log_is_known_is_not_filled() {
    let mut members = members(history(&[(1, 1), (2, 2), (3, 3)]), false);
    let (effects, _) = talk(&mut members);
    assert!(
        effects.contains(&Effect::Cut(MirrorSeq(2))) && !effects.contains(&Effect::Refill),
        "{effects:?}"
    );
}

#[test]
fn a_primary_that_lost_its_end_to_an_old_medium_does_not_cut_the_better_log() {
    let map = Members { epoch: Epoch(4), primary: A, states: [MemberState::InSync; 2] };
    let whole = Standing { map, is_whole: true, asked: None, is_filling: false };
    let less = history(&[(4, 1)]);
    let more = history(&[(4, 1), (4, 2), (4, 3)]);
    let free = Ending::Clean { is_free: true };
    let a = Member::start(A, Incarnation(1), (whole, less), free, NOW, &mut Vec::new());
    let b = Member::start(B, Incarnation(1), (whole, more.clone()), Ending::Killed, NOW, &mut Vec::new());
    let mut members = [a, b];
    let (of_b, requests) = talk(&mut members);
    let is_whole_asking = |request: &Request| matches!(request, Request::Ask { is_whole: true, .. });
    assert!(!requests.iter().any(is_whole_asking), "{requests:?}");
    assert!(!members[0].standing().is_whole && !members[0].role(NOW).orders());
    assert!(!of_b.iter().any(|effect| matches!(effect, Effect::Cut(_))), "{of_b:?}");
    assert_eq!(members[1].history(), &more);
}
