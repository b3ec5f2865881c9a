//! Kernels that do the same with different data: the same code, with the table entries that it reads given by number.
//!
//! The semantic graphs of a stage mostly have the same operations on the same widths. Their kernels are one piece of code
//! in an entry, and each has a row of the table with its own addresses and sizes.

use std::collections::HashMap;
use std::fmt::Write;

use crate::Titled;

/// What the text of a kernel calls the beginning of its table.
const TABLE: &str = "[table+";

/// Code that several kernels may share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The code, in which `n` of `[table+n]` counts the entries that it reads.
    code: String,
    /// The kernels that it is, by position, each with the offsets of the entries that it reads.
    pub kernels: Vec<(usize, Vec<usize>)>,
}

/// Groups kernels whose code is the same, in the order of the first of each.
pub(crate) fn group(bodies: &[Titled]) -> Vec<Shared> {
    let mut groups: Vec<Shared> = vec![];
    let mut known: HashMap<String, usize> = HashMap::new();
    for (position, (_, body)) in bodies.iter().enumerate() {
        let (code, offsets) = numbered(body);
        // Comments name the data.
        let key: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let next = groups.len();
        let group = *known.entry(key).or_insert(next);
        if group == next {
            groups.push(Shared { code, kernels: vec![] });
        }
        groups[group].kernels.push((position, offsets));
    }
    groups
}

/// The code with the entries of its table numbered as it first reads them, and their offsets.
fn numbered(body: &str) -> (String, Vec<usize>) {
    let (mut code, mut offsets): (String, Vec<usize>) = (String::with_capacity(body.len()), vec![]);
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    let mut parts = body.split(TABLE);
    code.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(']').unwrap_or(part.len());
        let offset: usize = part[..end].parse().expect("entries have offsets");
        let number = *numbers.entry(offset).or_insert(offsets.len());
        if number == offsets.len() {
            offsets.push(offset);
        }
        write!(code, "{TABLE}{number}{}", &part[end..]).expect("strings can be written to");
    }
    (code, offsets)
}

impl Shared {
    /// The same, of kernels that come so many positions later.
    pub fn after(mut self, before: usize) -> Self {
        self.kernels.iter_mut().for_each(|(position, _)| *position += before);
        self
    }

    /// The code, with `address` for what stands in brackets at the entry with each number.
    pub fn text(&self, address: impl Fn(usize) -> String) -> String {
        let mut text = String::with_capacity(self.code.len());
        let mut parts = self.code.split(TABLE);
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(']').unwrap_or(part.len());
            let number: usize = part[..end].parse().expect("entries have numbers");
            write!(text, "[{}{}", address(number), &part[end..]).expect("strings can be written to");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_differ_in_their_data_are_one() {
        let body = |name: &str, offsets: [usize; 2]| {
            let [a, b] = offsets;
            let text = format!("// {name}\nld [table+{a}];\nld [table+{b}];\nst [table+{a}];\n");
            (name.to_owned(), text)
        };
        let other = ("other".to_owned(), "ld [table+8];\nst [table+16];\n".to_owned());
        let groups = group(&[body("first", [8, 16]), other, body("second", [24, 0])]);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].kernels, [(0, vec![8, 16]), (2, vec![24, 0])]);
        let text = groups[0].text(|number| format!("%row+{}", 8 * number));
        assert_eq!(text, "// first\nld [%row+0];\nld [%row+8];\nst [%row+0];\n");
    }
}
