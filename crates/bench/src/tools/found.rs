//! Which outside programs are here, and their versions: asked once, for mdtest starts MPI to tell.

use std::collections::BTreeMap;

use crate::plan::Program;

/// Versions of the programs that were looked up so far.
#[derive(Debug, Default)]
pub struct Found(BTreeMap<Program, Option<String>>);

impl Found {
    /// Program and version as they are here, `fio 3.33`; `None` if it is not in the path.
    pub fn here(&mut self, program: Program) -> Option<&str> {
        self.0.entry(program).or_insert_with(|| super::found(program)).as_deref()
    }

    /// All that were asked for and are here.
    pub fn all(&self) -> impl Iterator<Item = (Program, &str)> {
        self.0.iter().filter_map(|(program, version)| Some((*program, version.as_deref()?)))
    }
}
