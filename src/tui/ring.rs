//! A list that forgets its oldest entries.

use std::collections::VecDeque;

/// The newest entries, up to a number of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring<T> {
    most: usize,
    entries: VecDeque<T>,
}

impl<T> Ring<T> {
    /// Keeps at most this many.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            entries: VecDeque::new(),
        }
    }

    /// Adds one.
    pub fn push(&mut self, entry: T) {
        if self.entries.len() >= self.most {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// From the oldest to the newest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.entries.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The newest.
    pub fn last(&self) -> Option<&T> {
        self.entries.back()
    }

    /// The newest, to be changed.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.entries.back_mut()
    }

    /// From the oldest to the newest, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.entries.iter_mut()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut ring = Ring::new(2);
        for n in 0..4 {
            ring.push(n);
        }
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((ring.len(), ring.last()), (2, Some(&3)));
    }
}
