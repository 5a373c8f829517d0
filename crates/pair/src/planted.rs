//! Rules of the seat that a test can take away, to show that a story finds a seat that breaks them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// pair-S2: notes are kept.
    NotesAreKept,
    /// pair-S3: a new line is noted.
    LinesAreNoted,
    /// pair-S4: an entry is answered when it is answerable.
    CommitWaits,
    /// pair-S6: the target is asked whether it can append.
    TargetIsAsked,
    /// pair-S8: the flushed seq does not fall when a member joins.
    FlushedHolds,
    /// pair-S10: pages are taken from a member that is in sync only.
    PagesAreOfBoth,
    /// pair-S9: the entry that ends a filling comes last. The target of the tests breaks it.
    FillingIsWhole,
    /// pair-S11: a target that has failed ends its member's life.
    FailuresEndLives,
    /// pair-S12: a member that cannot read a part of its content goes on while the other one is not in contact.
    LastCopyStays,
    /// pair-S14: a member with a doubt in its note is filled.
    DoubtIsNoted,
    /// pair-S15: the other member hears of a life that ends by a fault.
    FaultsAreTold,
    /// pair-S13: a target that was taken out of the mirror is not heard.
    SenderIsMember,
}
