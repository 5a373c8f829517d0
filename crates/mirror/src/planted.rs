//! Rules that the model can take away, one at a time, to show that it would find a member that breaks them.

/// A rule that may be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// mirror-O2: the primary answers after the other's acknowledgement.
    AnswerAfterAck,
    /// mirror-O3: the backup appends without gaps.
    NoGaps,
    /// mirror-O4: the flushed sequence is the smaller of both.
    SmallerFlushed,
    /// mirror-O5: acknowledgements of an earlier life are void.
    LivesAreTold,
    /// mirror-O6: a life with a number that was used before is told so.
    LowLivesAreTold,
    /// mirror-R1: at the primary a read waits for an entry in flight.
    ReadsWait,
    /// mirror-R2: the backup serves under a promise only.
    ServeUnderPromise,
    /// mirror-P1: a promise counts from the asking.
    CountFromAsking,
    /// mirror-P2: the survivor waits until its own promise has run out.
    OwnPromiseRunsOut,
    /// mirror-P3: a start counts as a promise.
    StartIsPromise,
    /// mirror-E1: a member that has asked is silent under that epoch.
    SilentAfterAsk,
    /// mirror-E1: also in its next life.
    AskIsRecorded,
    /// mirror-E2: a member flushes before it asks.
    FlushBeforeAsk,
    /// mirror-E3: after a loss of power a member is not whole.
    PowerLossTold,
    /// mirror-J1: the cut is after the last entry that both logs share by line.
    CutByLine,
    /// mirror-J2: the primary is bound to both before it has the other declared in sync.
    BoundBeforeInSync,
    /// mirror-J3: a member is in sync after it has flushed.
    FlushBeforeInSync,
    /// mirror-J4: a primary that lost power, or does not know the epoch, has nothing cut.
    SettledLeads,
    /// mirror-J6: a stream begins only if the primary's log has the next entry.
    LogHasNext,
    /// mirror-D1: the epoch is compared.
    EpochCompared,
    /// mirror-D2: a member that is not whole is not admitted beside one that may have more.
    WholeFirst,
    /// mirror-F1: a fill has the state as of its place in the order.
    /// The model `fill` breaks it by itself, as the target keeps it.
    #[cfg(test)]
    FillsAreOrdered,
    /// mirror-F2: the last entry of a filling comes last.
    /// The model `fill` breaks it by itself.
    #[cfg(test)]
    EndIsLast,
    /// mirror-F3: a filling is recorded until it is complete.
    /// The model `fill` breaks it by itself.
    #[cfg(test)]
    FillingRecorded,
    /// mirror-F5: a filling has all that it gave, or is not complete.
    FillingIsWhole,
    /// mirror-F6: a `Fill` that arrives late is void.
    LateFillsAreVoid,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn kept(_: Rule) -> bool {
    true
}

#[cfg(test)]
std::thread_local! {
    static GONE: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// False if a test has taken this rule away on this thread.
#[cfg(test)]
pub(crate) fn kept(rule: Rule) -> bool {
    GONE.with(|gone| gone.get() != Some(rule))
}

/// Runs something without a rule.
#[cfg(test)]
pub(crate) fn without<T>(rule: Rule, run: impl FnOnce() -> T) -> T {
    GONE.with(|gone| gone.set(Some(rule)));
    let result = run();
    GONE.with(|gone| gone.set(None));
    result
}
