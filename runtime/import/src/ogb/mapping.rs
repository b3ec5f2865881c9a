//! The folder `mapping`: original ids of vertices, and names of classes.

use std::path::{Path, PathBuf};

use hgnnc_dataset::VertexIds;

use super::items::Cx;
use super::scan::Graph;
use crate::error::shown;
use crate::files::{Rows, Style};
use crate::keys::Keys;

/// Files in the folder `mapping` by what they map.
pub(super) struct Mapping {
    folder: PathBuf,
    files: Vec<String>,
}

impl Mapping {
    pub fn new(root: &Path) -> Mapping {
        let folder = root.join("mapping");
        let names = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        files.sort();
        Mapping { folder, files }
    }

    fn file(&self, starts: &str) -> Option<PathBuf> {
        let is_table = |name: &&String| name.ends_with(".csv.gz") || name.ends_with(".csv");
        let found = self.files.iter().filter(is_table).find(|name| name.starts_with(starts))?;
        Some(self.folder.join(found))
    }

    /// The original ids of a vertex type: `author_entidx2name.csv.gz`, of a graph of one type `nodeidx2….csv.gz`.
    pub fn ids(&self, graph: &Graph, ty: usize, cx: &mut Cx<'_>) -> Option<VertexIds> {
        let ty = &graph.types[ty];
        let starts = if graph.hetero { format!("{}_entidx2name", ty.name) } else { "nodeidx2".into() };
        let file = self.file(&starts)?;
        let names = self.names(&file, Some(ty.count), cx)?;
        let mut keys = Keys::default();
        let wrong = names.iter().find(|name| name.is_empty() || !keys.add(name).is_some_and(|(_, new)| new));
        if let Some(name) = wrong {
            let name = shown(name);
            cx.progress.note(format!(
                "ids of `{}` are not taken: `{name}` in `{}` is empty or there twice",
                ty.name,
                file.display()
            ));
            return None;
        }
        Some(keys.into_ids())
    }

    /// Names of classes: `labelidx2….csv.gz`.
    pub fn classes(&self, cx: &mut Cx<'_>) -> Option<Vec<String>> {
        self.names(&self.file("labelidx2")?, None, cx)
    }

    /// The second column of a table with a header, in the order of the numbers in the first one, which are 0, 1, ….
    /// Otherwise it is not taken, which is noted.
    fn names(&self, file: &Path, count: Option<usize>, cx: &mut Cx<'_>) -> Option<Vec<String>> {
        // The first line is a header, whatever it says.
        let columns = ["index", "name"].map(String::from);
        let style = Style { separator: b',', quotes: true, columns: Some(&columns), ragged: true };
        let mut rows = Rows::open(file, &style, cx.progress, &mut cx.faults)?;
        rows.next(&mut cx.faults)?;
        let mut pairs: Vec<(usize, String)> = Vec::new();
        let note = |why: String| {
            cx.progress.note(format!("`{}` is not taken: {why}", file.display()));
        };
        while let Some(line) = rows.next(&mut cx.faults) {
            let index = rows.field(0, line, &mut cx.faults)?.parse::<usize>();
            let name = rows.field(1, line, &mut cx.faults)?.to_owned();
            match index {
                Ok(index) => pairs.push((index, name)),
                Err(_) => {
                    note(format!("line {line} does not begin with a number"));
                    return None;
                }
            }
        }
        pairs.sort_by_key(|&(index, _)| index);
        let in_order = pairs.iter().map(|&(index, _)| index).eq(0..pairs.len());
        if !in_order || count.is_some_and(|count| count != pairs.len()) {
            let of = count.map(|count| format!(" for {count} vertices")).unwrap_or_default();
            note(format!("it has {} numbers{of}, which are not each of 0, 1, … once", pairs.len()));
            return None;
        }
        Some(pairs.into_iter().map(|(_, name)| name).collect())
    }
}
