//! `info.dat`: names of types, relations and classes.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

/// Contents of `info.dat`, keyed by the numbers in the other files.
#[derive(Default)]
pub(super) struct Info {
    pub types: BTreeMap<u32, String>,
    pub links: BTreeMap<u32, LinkInfo>,
    /// Names of the classes of a vertex type.
    pub classes: BTreeMap<u32, BTreeMap<u32, String>>,
}

/// A relation in `info.dat`.
pub(super) struct LinkInfo {
    pub start: u32,
    pub end: u32,
    /// Such as `paper-cite-paper` or `paper-author`.
    pub meaning: String,
}

impl Info {
    /// Reads JSON, or tables with the headers `TYPE MEANING`, `LINK START END MEANING` and `TYPE CLASS MEANING`.
    pub fn parse(text: &str) -> Result<Info, String> {
        if text.trim_start().starts_with('{') {
            let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
            return Ok(Info::from_json(&value));
        }
        Ok(Info::from_tables(text))
    }

    fn from_json(value: &Value) -> Info {
        let mut info = Info::default();
        let entries = |of: &Value| -> Vec<(u32, Value)> {
            let entries = of.as_object().into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.parse().ok()?, value.clone()))).collect()
        };
        let number = |of: &Value| match of {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_u64().and_then(|n| u32::try_from(n).ok()),
        };
        for (ty, name) in entries(&value["node.dat"]["node type"]) {
            name.as_str().into_iter().for_each(|name| drop(info.types.insert(ty, name.to_owned())));
        }
        for (relation, of) in entries(&value["link.dat"]["link type"]) {
            let meaning = of["meaning"].as_str().unwrap_or_default().to_owned();
            if let (Some(start), Some(end)) = (number(&of["start"]), number(&of["end"])) {
                info.links.insert(relation, LinkInfo { start, end, meaning });
            }
        }
        for (ty, classes) in entries(&value["label.dat"]["node type"]) {
            let names = entries(&classes).into_iter();
            let names = names.filter_map(|(class, name)| Some((class, name.as_str()?.to_owned())));
            info.classes.insert(ty, names.collect());
        }
        info
    }

    fn from_tables(text: &str) -> Info {
        let mut info = Info::default();
        let mut header = Vec::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').map(str::trim).filter(|field| !field.is_empty()).collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
            match (&header[..], &fields[..]) {
                (_, ["TYPE" | "LINK", .., "MEANING"]) => header = fields,
                (["TYPE", "MEANING"], [_, name]) => {
                    number(0).into_iter().for_each(|ty| drop(info.types.insert(ty, (*name).to_owned())));
                }
                (["LINK", "START", "END", "MEANING"], [_, _, _, meaning]) => {
                    if let (Some(relation), Some(start), Some(end)) = (number(0), number(1), number(2)) {
                        info.links.insert(relation, LinkInfo { start, end, meaning: (*meaning).to_owned() });
                    }
                }
                (["TYPE", "CLASS", "MEANING"], [_, _, name]) => {
                    if let (Some(ty), Some(class)) = (number(0), number(1)) {
                        info.classes.entry(ty).or_default().insert(class, (*name).to_owned());
                    }
                }
                _ => header = Vec::new(),
            }
        }
        info
    }

    /// Names of the vertex types with these numbers: their own where they differ.
    pub fn type_names(&self, numbers: &[u32]) -> Vec<String> {
        let own = numbers.iter().map(|n| self.types.get(n).map_or("", |name| name.trim()).to_owned()).collect();
        distinct(vec![own], numbers, "type")
    }

    /// Names of the relations with these numbers and ends: the middle of `paper-cite-paper`, or all of it where that is
    /// not the name of one relation alone.
    pub fn relation_names(&self, numbers: &[u32], ends: &[(u32, u32)]) -> Vec<String> {
        let meaning = |n: &u32| self.links.get(n).map_or("", |of| of.meaning.trim()).to_owned();
        let middle = |(n, (src, dst)): (&u32, &(u32, u32))| {
            let name = meaning(n);
            let of_ends = self.types.get(src).zip(self.types.get(dst));
            let stripped = of_ends.and_then(|(src, dst)| {
                name.strip_prefix(src)?.strip_prefix('-')?.strip_suffix(dst)?.strip_suffix('-').map(str::to_owned)
            });
            stripped.filter(|middle| !middle.is_empty()).unwrap_or(name)
        };
        let choices =
            vec![numbers.iter().zip(ends).map(middle).collect(), numbers.iter().map(meaning).collect::<Vec<_>>()];
        distinct(choices, numbers, "relation")
    }
}

/// The first of several names of each number that no other number has; `word` and the number without one.
fn distinct(choices: Vec<Vec<String>>, numbers: &[u32], word: &str) -> Vec<String> {
    let mut names: Vec<Option<String>> = vec![None; numbers.len()];
    let mut taken = HashSet::new();
    for choice in &choices {
        let known = |name: &str| choice.iter().filter(|other| *other == name).count();
        for (name, chosen) in choice.iter().zip(&mut names).filter(|(_, chosen)| chosen.is_none()) {
            if !name.is_empty() && known(name) == 1 && taken.insert(name.clone()) {
                *chosen = Some(name.clone());
            }
        }
    }
    let own = |(name, number): (Option<String>, &u32)| {
        name.unwrap_or_else(|| {
            let mut name = format!("{word}{number}");
            // The file may call another one so.
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            name
        })
    };
    names.into_iter().zip(numbers).map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_json_and_of_tables() {
        let json = r#"{"node.dat": {"node type": {"0": "paper", "1": "author"}},
            "link.dat": {"link type": {"0": {"start": "0", "end": 1, "meaning": "paper-author"},
                                       "1": {"start": 0, "end": 0, "meaning": "paper-cite-paper"}}},
            "label.dat": {"node type": {"0": {"0": "a", "1": "b"}}}}"#;
        let tables = "node.dat\n\nTYPE\tMEANING\n0\t\tpaper\n1\t\tauthor\n\nAttribute Dimension: 0\n\nLINK\tSTART\tEND\tMEANING\n\
            0\t\t0\t\t1\tpaper-author\n1\t\t0\t\t0\tpaper-cite-paper\n\nTYPE\tCLASS\tMEANING\n0\t\t0\t\ta\n0\t\t1\t\tb\n";
        for text in [json, tables] {
            let info = Info::parse(text).unwrap();
            assert_eq!(info.type_names(&[0, 1, 2]), ["paper", "author", "type2"]);
            assert_eq!(info.relation_names(&[0, 1], &[(0, 1), (0, 0)]), ["paper-author", "cite"]);
            assert_eq!(info.classes[&0].values().collect::<Vec<_>>(), ["a", "b"]);
        }
        assert!(Info::parse("{").is_err());
    }

    #[test]
    fn a_middle_that_several_relations_have_is_no_name() {
        let tables = "TYPE\tMEANING\n0\tBOOK\n1\tFILM\n\nLINK\tSTART\tEND\tMEANING\n0\t0\t0\tBOOK-and-BOOK\n\
            1\t1\t1\tFILM-and-FILM\n2\t0\t1\tBOOK-to-FILM\n3\t0\t1\tBOOK-to-FILM\n";
        let info = Info::parse(tables).unwrap();
        let names = info.relation_names(&[0, 1, 2, 3], &[(0, 0), (1, 1), (0, 1), (0, 1)]);
        assert_eq!(names, ["BOOK-and-BOOK", "FILM-and-FILM", "relation2", "relation3"]);
    }
}
