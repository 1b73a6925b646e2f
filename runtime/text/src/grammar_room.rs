//! How much memory the grammars of all requests hold together.
//!
//! A compiled grammar may hold much, each answer that follows it begins with a copy of its tables, and
//! these grow with what the answer says. So the bytes are counted: beyond the room a large grammar is
//! not taken, and an answer whose own tables are large ends. Small ones are always taken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A grammar or an answer's tables that take at most this part of the room are never refused.
const SMALL_PART: usize = 128;

pub struct Room {
    most: usize,
    held: AtomicUsize,
}

impl Room {
    pub fn new(most: usize) -> Arc<Room> {
        Arc::new(Room { most, held: AtomicUsize::new(0) })
    }

    /// What all hold now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one grammar or one answer's tables hold; it is given back with this.
pub struct Held {
    room: Arc<Room>,
    bytes: usize,
}

impl Held {
    pub fn new(room: &Arc<Room>, bytes: usize) -> Held {
        room.held.fetch_add(bytes, Ordering::Relaxed);
        Held { room: room.clone(), bytes }
    }

    /// None: there is no room for so many bytes more.
    pub fn take(room: &Arc<Room>, bytes: usize) -> Option<Held> {
        let held = Held::new(room, bytes);
        held.fits().then_some(held)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// It holds so many bytes more (or fewer) than before.
    pub fn change(&mut self, grown: i64) {
        let bytes = usize::try_from(grown.saturating_add(self.bytes as i64)).unwrap_or(0);
        // Both wrap alike, so the sum is right.
        self.room.held.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Whether it is small, or all together are within the room.
    pub fn fits(&self) -> bool {
        self.bytes <= self.room.most / SMALL_PART || self.room.held() <= self.room.most
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_is_large_is_refused_beyond_the_room_and_what_is_small_never() {
        let room = Room::new(100 * MIB);
        let first = Held::take(&room, 60 * MIB).expect("room");
        assert!(Held::take(&room, 60 * MIB).is_none());
        assert_eq!(room.held(), 60 * MIB, "what was refused is not counted");
        let little = 100 * MIB / SMALL_PART;
        let small: Vec<Held> =
            (0..60).map(|_| Held::take(&room, little).expect("it is small")).collect();
        assert_eq!(room.held(), 60 * MIB + 60 * little);
        assert!(room.held() > 100 * MIB);
        drop(small);
        drop(first);
        assert_eq!(room.held(), 0);
        assert!(Held::take(&room, 60 * MIB).is_some());
    }

    #[test]
    fn what_grows_beyond_the_room_no_longer_fits() {
        let room = Room::new(100 * MIB);
        let mut grown = Held::take(&room, 10 * MIB).expect("room");
        let _other = Held::take(&room, 80 * MIB).expect("room");
        grown.change(10 * MIB as i64);
        assert!(grown.fits());
        grown.change(1);
        assert!(!grown.fits());
        grown.change(-(18 * MIB as i64));
        assert!(grown.fits());
        assert_eq!(room.held(), 82 * MIB + 1);
        grown.change(i64::MIN);
        assert_eq!(room.held(), 80 * MIB, "it holds nothing, and no less");
    }
}
