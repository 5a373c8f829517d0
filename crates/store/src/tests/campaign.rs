//! The crash campaign: generated lives on recorded media, cut at every write and flush, in every way that power can fail. After each cut
//! the store opens, holds exactly a state that was, no older than the last flush nor than what the crash left whole; and so it stays
//! when power fails in the middle of that recovery, right after it, and again.

use std::cell::Cell;

use disk::{Event, Outage, Playback, Side, SplitMix};

use super::life::{Life, Memory, Told, draw_crash, each_seed, is_long};
use super::ops::Reach;
use super::world::{World, compare};
use super::*;

const RECOVERIES: u64 = 2_000;
const RECOVERIES_LONG: u64 = 100_000;
/// Operations of one life; with those of its checkpoints and restarts, a few hundred events of the medium.
const STEPS: u64 = 90;
/// One cut in so many is followed through crashes of the recovery itself, and into a life after it.
const DEEP_EVERY: u64 = 16;

/// How the process or the machine ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Power(Outage),
    /// Nothing is lost yet, and what was not flushed may be lost by the next crash.
    Kill,
}

/// A cut of a life that recovery has to answer for.
struct Cut<'a> {
    life: &'a Life,
    events: usize,
    end: End,
    /// The least that has to be there.
    floor: Seq,
    recoveries: &'a Cell<u64>,
}

#[test]
fn every_cut_of_generated_lives_leaves_a_state_that_was() {
    let wanted = if is_long() { RECOVERIES_LONG } else { RECOVERIES };
    let (recoveries, counts) = (Cell::new(0), Cell::new(Counts::default()));
    each_seed(
        "every_cut_of_generated_lives",
        |_| recoveries.get() >= wanted,
        |seed| {
            counts.set(cut_everywhere(seed, &recoveries, counts.get()));
        },
    );
    let Counts { lives, on_two, cuts, between } = counts.get();
    let of_two = format!("{on_two} of them with a log medium, {between} cuts between the flushes of both");
    println!("       {} recoveries after {cuts} cuts of {lives} lives; {of_two}", recoveries.get());
    assert!(std::env::var_os("STRIA_SEED").is_some() || between > cuts / 100, "{of_two}");
}

#[derive(Clone, Copy, Default)]
struct Counts {
    lives: u64,
    /// Of the lives, those whose log has a medium of its own.
    on_two: u64,
    cuts: u64,
    /// Of the cuts, those when the data's medium was flushed and the log's was to be next.
    between: u64,
}

/// One life, cut at every event; adds to what was counted before.
fn cut_everywhere(seed: u64, recoveries: &Cell<u64>, mut counts: Counts) -> Counts {
    let mut life = Life::new(seed, Memory::All);
    life.live(STEPS);
    let recording = life.medium.take_recording().unwrap();
    let mut playback = recording.play();
    let mut rng = SplitMix::new(seed ^ 0x0c0f_fee0);
    for events in 0..=recording.events.len() {
        playback.go_to(events);
        // A panic in here is told with where it was.
        let end = if rng.below(8) == 0 { End::Kill } else { End::Power(draw_crash(&mut rng)) };
        let is_deep = rng.below(DEEP_EVERY) == 0;
        let told = Told(format!("cut at event {events} of {}, {end:?}", recording.events.len()));
        cut(&life, &playback, events, end, recoveries, is_deep.then_some(&mut rng));
        drop(told);
    }
    let flushes = [Event::FlushSide(Side::First), Event::FlushSide(Side::Second)];
    counts.lives += 1;
    counts.on_two += u64::from(life.medium.second_at().is_some());
    counts.cuts += recording.events.len() as u64 + 1;
    counts.between += recording.events.windows(2).filter(|pair| *pair == flushes).count() as u64;
    counts
}

fn cut(
    life: &Life,
    playback: &Playback<'_>,
    events: usize,
    end: End,
    recoveries: &Cell<u64>,
    deep: Option<&mut SplitMix>,
) {
    let (medium, lost) = match end {
        End::Power(crash) => playback.crash(crash),
        End::Kill => (playback.medium(), None),
    };
    // Everything acknowledged before the first write that was lost lies whole on the medium, and so does all before it.
    let whole = life.acknowledged_at(lost.unwrap_or(events));
    let floor = life.flushed_at(events).max(whole);
    let cut = Cut { life, events, end, floor, recoveries };
    let medium = Arc::new(medium);
    match deep {
        None => drop(cut.recover(&medium)),
        Some(rng) => cut.recover_again_and_again(medium, rng),
    }
}

impl Cut<'_> {
    /// Opens, and checks all that a recovery owes.
    fn recover(&self, medium: &Arc<SimDisk>) -> (Engine, Seq) {
        let store = Engine::open(medium.media()).unwrap();
        self.recoveries.set(self.recoveries.get() + 1);
        let last = store.vol.last_seq();
        assert!(last >= self.floor, "{:?} was promised, {last:?} is the last", self.floor);
        compare(&store, self.life.world_at(last)).unwrap_or_else(|e| panic!("after {last:?}: {e}"));
        self.life.check_numbers(self.events, &store);
        (store, last)
    }

    /// The state that one recovery has shown stands.
    fn recover_same(&self, medium: &Arc<SimDisk>, shown: Seq) {
        let (_, last) = self.recover(medium);
        assert_eq!(last, shown, "what a recovery has shown is not what the next one shows");
    }

    fn recover_again_and_again(&self, medium: Arc<SimDisk>, rng: &mut SplitMix) {
        // 1. The recovery, on record.
        medium.record_with_unflushed();
        let (store, last) = self.recover(&medium);
        let recording = medium.take_recording().unwrap();
        drop(store);
        // 2. Power fails in the midst of it. If the process was only killed before, that takes what was not flushed.
        let mut playback = recording.play();
        for at in 0..=recording.events.len() {
            playback.go_to(at);
            let crash = draw_crash(rng);
            let _told = Told(format!("then {crash:?} at event {at} of the recovery"));
            let again = Arc::new(playback.crash(crash).0);
            match self.end {
                End::Power(_) => self.recover_same(&again, last),
                End::Kill => {
                    let floor = self.life.flushed_at(self.events);
                    drop(Cut { floor, ..*self }.recover(&again));
                }
            }
        }
        // 3. Right after it, twice; and two openings with nothing done.
        let once = Arc::new(medium.crash(Crash::DropAll));
        self.recover_same(&once, last);
        let twice = Arc::new(once.crash(draw_crash(rng)));
        self.recover_same(&twice, last);
        self.recover_same(&twice, last);
        // 4. Life goes on: what was cut away does not come back, and what is new stays.
        let world: World = self.life.world_at(last).clone();
        let reach = Reach { ..self.life.reach };
        let mut after = Life::begin(twice, SplitMix::new(rng.next_u64()), reach, Memory::SinceFlush, world);
        for _ in 0..2 {
            after.live(6);
            after.crash(draw_crash(rng));
            self.recoveries.set(self.recoveries.get() + 1);
        }
    }
}
