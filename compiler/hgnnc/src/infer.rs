//! Outputs of a trained model and their files.

use std::path::{Path, PathBuf};

use hgnnc_dataset::npy;
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_train::{FamilyOutputRows, OutputRows, weights};

use crate::outputs::write_file;
use crate::results::check_parquet;
use crate::{Error, Naming, Prepared};

/// The format of a file with outputs, which its ending chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultFormat {
    /// An array of numbers; also without an ending.
    Npy,
    /// A table of text ([`Naming::table`]).
    Csv,
    /// A table in a binary format; of builds with the feature `parquet`.
    Parquet,
}

impl ResultFormat {
    /// The format of a file of this name.
    ///
    /// # Errors
    /// An ending that stands for no format.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let ending = path.extension().map_or(String::new(), |ending| ending.to_string_lossy().to_lowercase());
        match &ending[..] {
            "" | "npy" => Ok(ResultFormat::Npy),
            "csv" => Ok(ResultFormat::Csv),
            "parquet" => Ok(ResultFormat::Parquet),
            _ => Err(Error::input(format!(
                "`{}` ends in `.{ending}`: outputs are written as `.npy`, `.csv` or `.parquet`",
                path.display()
            ))),
        }
    }

    /// Checks that this build writes the format, before there is something to write.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(self) -> Result<(), Error> {
        if self == ResultFormat::Parquet { check_parquet() } else { Ok(()) }
    }

    /// Checks that the format is one of scores of pairs.
    ///
    /// # Errors
    /// Tables have rows with ids, and pairs have none.
    pub fn check_scores(self) -> Result<(), Error> {
        match self {
            ResultFormat::Npy => Ok(()),
            ResultFormat::Csv | ResultFormat::Parquet => {
                Err(Error::input("scores of pairs are written as `.npy`, in the order of the pairs"))
            }
        }
    }
}

/// An output with the current parameters of a model.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The name of the output.
    pub output: String,
    /// Its numbers.
    pub values: OutputValues,
    /// Whether numbers of classes are probabilities.
    pub probabilities: bool,
    /// A line for each array with numbers that are not finite. The rest may be of use.
    pub warnings: Vec<String>,
}

/// The numbers of an output.
#[derive(Clone, Debug)]
pub enum OutputValues {
    /// A row for each vertex.
    Vertices(OutputRows),
    /// A row for each semantic graph, or for each of their edges.
    Family(FamilyOutputRows),
}

impl Prepared {
    /// The output of semantic graphs or of their edges of this name; without a name, the trained output, which is of
    /// vertices.
    fn family(&self, output: Option<&str>) -> Option<&FamilyOutput> {
        let asked = output.or(self.output.as_deref());
        self.trainer.families().iter().find(|family| Some(&family.name[..]) == asked)
    }

    /// The file beside `path` that [`Inferred::write`] writes the ends of edges to: an array has no columns for them.
    /// `None` for an output that is not of edges, and for a table.
    pub fn edges_file(&self, output: Option<&str>, path: &Path) -> Option<PathBuf> {
        let of_edges = self.family(output).is_some_and(|family| family.rows == FamilyRows::Edges);
        let is_array = ResultFormat::of(path).is_ok_and(|format| format == ResultFormat::Npy);
        (of_edges && is_array).then(|| edges_beside(path))
    }

    /// An output of vertices, semantic graphs or edges with the current parameters; without a name, the trained one or
    /// the only one ([`Prepared::infer`], [`Prepared::infer_family`]). `probabilities` asks for those of classes. Where several
    /// processes share the job, only the one that writes files has the rows of vertices.
    ///
    /// # Errors
    /// Those of `infer` and `infer_family`; `probabilities` of an output that predicts no classes.
    pub fn infer_output(&mut self, output: Option<&str>, probabilities: bool) -> Result<Inferred, Error> {
        if let Some(family) = self.family(output) {
            let name = family.name.clone();
            return self.family_output(name, probabilities);
        }
        let mut rows = self.infer_to_write(output)?;
        let asked = output.or(self.output.as_deref());
        let name = asked.or(self.naming.only_output()).unwrap_or("the output").to_owned();
        let warnings = not_finite(&name, &[rows.rows, rows.width], &rows.data).into_iter().collect();
        if probabilities {
            self.naming.probabilities(&name, &mut rows)?;
        }
        Ok(Inferred { output: name, values: OutputValues::Vertices(rows), probabilities, warnings })
    }

    fn family_output(&mut self, name: String, probabilities: bool) -> Result<Inferred, Error> {
        if probabilities {
            return Err(Error::input(format!(
                "`{name}` has no probabilities: they are of the output that is trained on classes"
            )));
        }
        let missing = || Error::Machine(format!("internal error: no output `{name}`"));
        let found = self.infer_family(&name)?.ok_or_else(missing)?;
        let graphs = found.graphs.iter();
        let warnings = graphs.filter_map(|graph| {
            let rows = graph.data.len() / found.width.max(1);
            not_finite(&format!("{name} of {}", graph.name), &[rows, found.width], &graph.data)
        });
        let warnings = warnings.collect();
        Ok(Inferred { output: name, values: OutputValues::Family(found), probabilities, warnings })
    }
}

impl Inferred {
    /// Writes the output to a file, in the format of its ending ([`ResultFormat::of`]): `f32[rows, width]` or a table.
    /// An array of edges has their ends in a file beside it ([`Prepared::edges_file`]): `i64[3, rows]` of sources,
    /// positions of semantic graphs, and destinations. Atomic.
    ///
    /// # Errors
    /// An ending that stands for no format, or a file that cannot be written; an old one is then unchanged.
    pub fn write(&self, naming: &Naming, path: &Path) -> Result<(), Error> {
        let Inferred { output, values, probabilities, .. } = self;
        let bytes = match (ResultFormat::of(path)?, values) {
            (ResultFormat::Csv, OutputValues::Vertices(rows)) => naming.csv(output, rows, *probabilities)?,
            (ResultFormat::Csv, OutputValues::Family(found)) => naming.family_csv(output, found)?,
            (ResultFormat::Parquet, OutputValues::Vertices(rows)) => {
                naming.table(output, rows, *probabilities).parquet()?
            }
            (ResultFormat::Parquet, OutputValues::Family(found)) => naming.family_parquet(output, found)?,
            (ResultFormat::Npy, OutputValues::Vertices(rows)) => array(path, &[rows.rows, rows.width], &rows.data)?,
            (ResultFormat::Npy, OutputValues::Family(found)) => {
                if found.rows == FamilyRows::Edges {
                    let (count, ends) = ends(found);
                    write_file(&edges_beside(path), &array(path, &[3, count], &ends)?)?;
                }
                let all: Vec<f32> = found.graphs.iter().flat_map(|graph| graph.data.iter().copied()).collect();
                array(path, &[all.len() / found.width.max(1), found.width], &all)?
            }
        };
        write_file(path, &bytes)
    }
}

/// The number of edges, and their sources, positions of semantic graphs, and destinations.
fn ends(found: &FamilyOutputRows) -> (usize, Vec<i64>) {
    let edges = || found.graphs.iter().enumerate().flat_map(|(at, of)| of.edges.iter().map(move |edge| (at, edge)));
    let sources = edges().map(|(_, &(src, _))| i64::from(src));
    let graphs = edges().map(|(graph, _)| graph as i64);
    let destinations = edges().map(|(_, &(_, dst))| i64::from(dst));
    (edges().count(), sources.chain(graphs).chain(destinations).collect())
}

fn array<T: npy::Element>(path: &Path, shape: &[usize], numbers: &[T]) -> Result<Vec<u8>, Error> {
    npy::to_bytes(shape, numbers).map_err(|error| Error::write(path, &error))
}

fn edges_beside(path: &Path) -> PathBuf {
    path.with_extension("edges.npy")
}

/// A line about the results of a shape that are not finite, if there are some.
pub fn not_finite(name: &str, shape: &[usize], numbers: &[f32]) -> Option<String> {
    weights::not_finite(name, shape, numbers).map(|found| format!("not all results are finite: {found}"))
}
