//! Whether the files of a config have changed, by looking once in a while.
//!
//! Looking costs one stat per file; contents are hashed only after a stat changed. What counts is
//! what the last load really read, so a file that changes while it is loaded is not missed. Values
//! of environment variables cannot change under a running process and are not watched.

use super::{Reading, source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// SHA-256 of each file's content; `None` where it cannot be read.
pub type Contents = BTreeMap<PathBuf, Option<[u8; 32]>>;

/// What a stat tells: inode, size and time of change in nanoseconds; `None` where there is no file.
pub type Marks = BTreeMap<PathBuf, Option<(u64, u64, i128)>>;

/// The files of a config, as they were when it was read.
#[derive(Debug)]
pub struct Watch {
    read: Contents,
    globs: Vec<PathBuf>,
    /// Marks known to belong to what was read.
    settled: Option<Marks>,
    /// Marks of the last look, when they were new.
    pending: Option<Marks>,
}

impl Watch {
    /// Watches what a reading depended on, sound or not.
    #[must_use]
    pub fn new(reading: &Reading) -> Self {
        let (read, globs) = (reading.contents.clone(), reading.globs.clone());
        Self { read, globs, settled: None, pending: None }
    }

    /// Looks at the files. True once two looks in a row agree that something changed; then the
    /// config is to be read again and a new watch made of that reading.
    pub fn changed(&mut self) -> bool {
        let marks = self.look();
        self.decide(marks, |files| files.map(|path| (path.clone(), content(path))).collect())
    }

    /// The decision alone: `hash` is asked only when two looks agree on new marks.
    pub fn decide(
        &mut self,
        marks: Marks,
        hash: impl FnOnce(&mut dyn Iterator<Item = &PathBuf>) -> Contents,
    ) -> bool {
        if self.settled.as_ref() == Some(&marks) {
            self.pending = None;
            return false;
        }
        if self.pending.as_ref() != Some(&marks) {
            self.pending = Some(marks);
            return false;
        }
        let now = hash(&mut marks.keys());
        let changed = now != self.read;
        self.read = now;
        self.settled = self.pending.take();
        changed
    }

    fn look(&self) -> Marks {
        let mut files: BTreeSet<PathBuf> = self.read.keys().cloned().collect();
        files.extend(self.globs.iter().flat_map(|glob| source::expand(glob)));
        files.into_iter().map(|path| (mark(&path), path)).map(|(mark, path)| (path, mark)).collect()
    }
}

fn mark(path: &Path) -> Option<(u64, u64, i128)> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(path).ok()?;
    let changed = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    Some((meta.ino(), meta.len(), changed))
}

fn content(path: &Path) -> Option<[u8; 32]> {
    source::read(path).ok().map(|text| crate::access::hash(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "weir.toml";

    fn watch(hash: u8) -> Watch {
        let read = Contents::from([(FILE.into(), Some([hash; 32]))]);
        Watch { read, globs: Vec::new(), settled: None, pending: None }
    }

    fn marks(files: &[(&str, i128)]) -> Marks {
        files.iter().map(|(name, time)| (name.into(), Some((1, 1, *time)))).collect()
    }

    /// One look at these marks, all files having this content.
    fn look(watch: &mut Watch, files: &[(&str, i128)], hash: u8) -> bool {
        watch.decide(marks(files), |names| names.map(|n| (n.clone(), Some([hash; 32]))).collect())
    }

    #[test]
    fn a_change_counts_once_two_looks_agree() {
        let mut w = watch(1);
        assert!(!look(&mut w, &[(FILE, 1)], 1) && !look(&mut w, &[(FILE, 1)], 1), "as it was read");
        assert!(!look(&mut w, &[(FILE, 2)], 2), "one look");
        assert!(!look(&mut w, &[(FILE, 3)], 3), "still being written");
        assert!(look(&mut w, &[(FILE, 3)], 3), "two looks agree");
        assert!(!look(&mut w, &[(FILE, 3)], 3), "told once");
    }

    #[test]
    fn a_touched_file_is_no_change() {
        let mut w = watch(1);
        for time in [1, 1, 2, 2, 2] {
            assert!(!look(&mut w, &[(FILE, time)], 1));
        }
    }

    #[test]
    fn a_file_that_changed_while_it_was_read_is_seen() {
        let mut w = watch(1);
        assert!(!look(&mut w, &[(FILE, 9)], 2));
        assert!(look(&mut w, &[(FILE, 9)], 2), "what was read is not what is there");
    }

    #[test]
    fn a_new_file_and_a_removed_one_are_changes() {
        let mut w = watch(1);
        assert!(!look(&mut w, &[(FILE, 1), ("b.toml", 1)], 1));
        assert!(look(&mut w, &[(FILE, 1), ("b.toml", 1)], 1));
        let gone = Marks::from([(FILE.into(), None)]);
        let hash = |_: &mut dyn Iterator<Item = &PathBuf>| Contents::from([(FILE.into(), None)]);
        assert!(!w.decide(gone.clone(), hash));
        assert!(w.decide(gone, hash));
    }
}
