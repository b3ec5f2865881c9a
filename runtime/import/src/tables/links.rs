//! Links that are held out, from tables.

use hgnnc_dataset::{LinkSplitData, Links};

use super::Import;
use super::config::{self, OneOrMore};
use super::rows::{Row, TableOf};
use crate::error::shown;

impl<'a> Import<'a> {
    /// Checks what does not need the tables.
    pub(super) fn check_link_splits(&mut self) {
        for (at, of) in self.config.link_split.iter().enumerate() {
            let name = shown(&of.name);
            let before = self.config.link_split[..at].iter().map(|other| &other.name[..]);
            let of_links = self.config.relation.iter().filter(|of| of.label.list().is_empty());
            let of_relations = of_links.flat_map(|of| of.split.list()).map(config::Split::name);
            if of.name.is_empty() || before.chain(of_relations).any(|other| other == of.name) {
                self.wrong(format!("link splits have names that differ, and two are called `{name}`"));
            }
            if of.relation.is_some() == of.column.is_some() {
                self.wrong(format!("link split `{name}` has a `relation`, or a `column` that names that of each link"));
            }
            if let Some(relation) = of.relation.as_ref().filter(|relation| self.relation_named(relation).is_none()) {
                self.wrong(format!("link split `{name}`: there is no relation `{}`", shown(relation)));
            }
            if of.val.is_none() && of.test.is_none() {
                self.wrong(format!("link split `{name}` has files of links: `val`, `test` or both"));
            }
        }
    }

    fn relation_named(&self, name: &str) -> Option<usize> {
        self.config.relation.iter().position(|of| of.name == name)
    }

    pub(super) fn link_split(&mut self, of: &'a config::LinkSplit) -> LinkSplitData {
        let mut part = |files: Option<&'a OneOrMore>| match files {
            Some(files) => self.links_of(of, files),
            None => Links::default(),
        };
        LinkSplitData { name: of.name.clone(), val: part(of.val.as_ref()), test: part(of.test.as_ref()) }
    }

    fn links_of(&mut self, of: &'a config::LinkSplit, files: &'a OneOrMore) -> Links {
        let (src_key, dst_key) = (of.src_key.list(), of.dst_key.list());
        let keys = src_key.len() + dst_key.len();
        let wanted = [src_key, dst_key, of.column.as_slice()].concat();
        let mut links = Links::default();
        let table = TableOf { files, separator: of.separator, format: of.format, columns: of.columns.as_deref() };
        self.rows(&table, &wanted, |import, row| {
            let name = match &of.relation {
                Some(name) => Some(&name[..]),
                None => row.fields[keys],
            };
            let Some(relation) = name.and_then(|name| import.relation_named(name)) else {
                let message = match name {
                    Some(name) => format!("there is no relation `{}`", shown(name)),
                    None => format!("column `{}` has no value, but names a relation", shown(&wanted[keys])),
                };
                return import.faults.add(row.path, Some(row.line), message);
            };
            let ends = &import.config.relation[relation];
            let src = import.known(row, 0, src_key, &ends.src);
            let dst = import.known(row, src_key.len(), dst_key, &ends.dst);
            if let (Some(src), Some(dst)) = (src, dst) {
                links.src.push(src);
                links.relation.push(relation as u32);
                links.dst.push(dst);
            }
        });
        links
    }

    /// The vertex that a key names, which has to be there.
    fn known(&mut self, row: &Row<'_>, at: usize, columns: &[String], of: &str) -> Option<u32> {
        let key = self.key(row, at, columns)?;
        let ty = self.type_named(of)?;
        let found = self.vertices[ty].find(&key);
        // Of a type whose table could not be read nothing is said.
        if found.is_none() && !self.unread.contains(&ty) {
            let message = format!("there is no vertex of type `{}` with the id `{}`", shown(of), shown(&key));
            self.faults.add(row.path, Some(row.line), message);
        }
        found
    }
}
