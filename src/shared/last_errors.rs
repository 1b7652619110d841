//! The texts of the last errors of keys, for [`KeyState::last_error`](crate::KeyState::last_error). Workers note them if they
//! [keep errors](crate::WorkersBuilder::keep_errors), and clear that of a key whose run succeeds.
//!
//! A key is known by its hash, so that neither its clone nor its comparison runs under the lock, and no key stays for its text. If two of
//! 2⁶⁴ hashes were the same, a key would show the text of another, which is for people to read and decides nothing.

use super::Shared;
use crate::panics::contained;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::hash::Hash;

/// A text is cut off after this many bytes.
const LONGEST: usize = 1024;

pub(super) struct LastErrors {
    /// Whether there may be some. Written under the lock.
    any: AtomicBool,
    texts: Mutex<Texts>,
}

#[derive(Default)]
struct Texts {
    /// The number of texts that were noted, which says how old each is.
    noted: u64,
    by_hash: BTreeMap<u64, (u64, String)>,
    /// The hashes, the oldest text first.
    by_age: BTreeMap<u64, u64>,
}

impl Texts {
    fn take(&mut self, hash: u64) -> Option<String> {
        let (noted, text) = self.by_hash.remove(&hash)?;
        self.by_age.remove(&noted);
        Some(text)
    }
}

impl Default for LastErrors {
    fn default() -> Self {
        Self { any: AtomicBool::new(false), texts: Mutex::new(Texts::default()) }
    }
}

impl LastErrors {
    /// Keeps a text, and at most `most` in all, of which the oldest goes first.
    fn note(&self, hash: u64, text: String, most: usize) {
        let _dropped_after_the_lock = {
            let texts = &mut *self.texts.lock();
            texts.noted += 1;
            self.any.store(true, Ordering::Relaxed); // Relaxed, as in `clear`: see there
            let before = texts.take(hash);
            texts.by_hash.insert(hash, (texts.noted, text));
            texts.by_age.insert(texts.noted, hash);
            let oldest = texts.by_age.first_key_value().map(|(_, hash)| *hash);
            let oldest = oldest.filter(|_| texts.by_hash.len() > most);
            (before, oldest.and_then(|oldest| texts.take(oldest)))
        };
    }

    fn get(&self, hash: u64) -> Option<String> {
        self.texts.lock().by_hash.get(&hash).map(|(_, text)| text.clone())
    }

    /// Whether a success has to look for a text. The text of its own key was noted before the key was queued again, so it is seen.
    #[inline]
    fn may_have_some(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn clear(&self, hash: u64) {
        let _dropped_after_the_lock = {
            let texts = &mut *self.texts.lock();
            let text = texts.take(hash);
            self.any.store(!texts.by_hash.is_empty(), Ordering::Relaxed);
            text
        };
    }
}

/// The beginning of a text. It ends the formatting of one that is too long.
#[derive(Default)]
struct Short(String);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// Notes the text of an error. Returns whether user code has panicked, and then notes nothing.
    #[cold]
    pub(crate) fn note_error(&self, key: &K, error: &dyn fmt::Display, most: usize) -> bool {
        let noted = contained(|| {
            let mut text = Short::default();
            let _is_whole = write!(text, "{error}");
            self.last_errors.note(self.hasher.hash_one(key), text.0, most);
        });
        noted.is_none()
    }

    /// A run of a key has succeeded.
    #[inline]
    pub(crate) fn clear_error(&self, key: &K) {
        if self.last_errors.may_have_some() {
            self.last_errors.clear(self.hasher.hash_one(key));
        }
    }

    pub(super) fn last_error<Q: Hash + ?Sized>(&self, key: &Q) -> Option<String> {
        if self.last_errors.may_have_some() { self.last_errors.get(self.hasher.hash_one(key)) } else { None }
    }
}
