//! Numbers for ids, in the order in which they come.

use hashbrown::HashTable;
use hgnnc_dataset::VertexIds;
use xxhash_rust::xxh3::xxh3_64;

/// Ids of the vertices of a type, each with a number from 0. Every text is held once.
#[derive(Default)]
pub(crate) struct Keys {
    /// Text of id `i` is `text[ends[i - 1]..ends[i]]`.
    ends: Vec<u64>,
    text: String,
    table: HashTable<u32>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn text(&self, number: u32) -> &str {
        text(&self.ends, &self.text, number)
    }

    /// The number of an id that is known.
    pub fn get(&self, id: &str) -> Option<u32> {
        self.table.find(xxh3_64(id.as_bytes()), |&n| self.text(n) == id).copied()
    }

    /// [`Keys::get`] of many ids. Each step of a look-up reads a place in memory that is far from the one before; taken
    /// for all ids before the next step, these reads are in flight together, and several times as fast.
    pub fn get_all(&self, ids: &[&str]) -> Vec<Option<u32>> {
        let hashes: Vec<u64> = ids.iter().map(|id| xxh3_64(id.as_bytes())).collect();
        // The first entry whose tag in the table, a part of the hash, is equal: mostly it is the right one.
        let likely = |&hash: &u64| self.table.find(hash, |_| true).copied();
        let likely: Vec<Option<u32>> = hashes.iter().map(likely).collect();
        let texts: Vec<Option<&str>> = likely.iter().map(|likely| likely.map(|n| self.text(n))).collect();
        let chosen = |((&id, likely), text)| if text == Some(id) { likely } else { self.get(id) };
        ids.iter().zip(likely).zip(texts).map(chosen).collect()
    }

    /// The number of an id, and whether it is a new one. None if there are too many ids.
    pub fn add(&mut self, id: &str) -> Option<(u32, bool)> {
        let hash = xxh3_64(id.as_bytes());
        if let Some(&known) = self.table.find(hash, |&n| self.text(n) == id) {
            return Some((known, false));
        }
        // A type has at most 2^30 vertices.
        let number = u32::try_from(self.ends.len()).ok().filter(|&n| n < 1 << 30)?;
        self.text.push_str(id);
        self.ends.push(self.text.len() as u64);
        let (ends, all) = (&self.ends, &self.text);
        self.table.insert_unique(hash, number, |&n| xxh3_64(text(ends, all, n).as_bytes()));
        Some((number, true))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|n| self.text(n))
    }

    /// The numbers in the order of their texts: as integers if all are, which is what `2` before `10` needs.
    pub fn sorted(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        match self.integers() {
            Some(integers) => order.sort_by_key(|&n| integers[n as usize]),
            None => return self.by_text(),
        }
        order
    }

    /// The numbers in the order of their texts, byte by byte.
    pub fn by_text(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by(|&a, &b| self.text(a).cmp(self.text(b)));
        order
    }

    /// The ids of an order, with new numbers.
    pub fn taken(&self, order: &[u32]) -> Keys {
        let mut all = Keys::default();
        order.iter().for_each(|&n| {
            all.add(self.text(n));
        });
        all
    }

    /// The ids as integers, if every one is written as an integer is.
    fn integers(&self) -> Option<Vec<i64>> {
        self.iter().map(|id| id.parse::<i64>().ok().filter(|n| n.to_string() == id)).collect()
    }

    /// The ids as the format holds them.
    pub fn into_ids(self) -> VertexIds {
        if let Some(integers) = self.integers() {
            return VertexIds::Integer(integers);
        }
        let mut offsets = self.ends;
        offsets.insert(0, 0);
        VertexIds::Text { offsets, bytes: self.text }
    }
}

fn text<'a>(ends: &[u64], all: &'a str, number: u32) -> &'a str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &all[start as usize..ends[number] as usize]
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn ids_looked_up_together_are_found_as_one_by_one() {
        let mut keys = Keys::default();
        (0..5000).for_each(|n| {
            keys.add(&format!("user-{n}"));
        });
        let ids: Vec<String> = (0..10_000).map(|n| format!("user-{}", n * 7919 % 10_000)).collect();
        let ids: Vec<&str> = ids.iter().map(|id| &id[..]).chain([""]).collect();
        let one_by_one: Vec<Option<u32>> = ids.iter().map(|id| keys.get(id)).collect();
        assert_eq!(keys.get_all(&ids), one_by_one);
        assert_eq!(one_by_one.iter().flatten().count(), 5000);
    }
}
