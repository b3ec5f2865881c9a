//! `hgnnc build`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use hgnnc_driver::{Analyzed, LowerOptions, SizeInfo, format, lower};
use hgnnc_ir::print::print as ir_text;

use crate::args::{BuildArgs, Level};
use crate::data;
use crate::failure::Failure;
use crate::model;
use crate::run::bind_sizes;
use crate::source;

/// Compiles a model and shows the levels asked for.
pub fn build(args: &BuildArgs) -> Result<ExitCode, Failure> {
    let mut analysis = source::read(&args.model)?;
    source::report(&analysis, &analysis.diagnostics, true)?;
    let (checked, sizes) = match (&args.data, &args.stats) {
        (Some(folder), _) => {
            let dataset = data::load(folder)?;
            let model = source::meet(&mut analysis, &dataset, None, true)?;
            let (_, sizes) = bind_sizes(&model, &dataset, None, None)?;
            (model, Some(sizes))
        }
        (None, stats) => {
            // Errors were reported, and ended the command.
            let Some(model) = analysis.model.take() else { return Err(Failure::Input(None)) };
            let sizes = stats.as_ref().map(|file| read_stats(file, &model)).transpose()?;
            (model, sizes)
        }
    };
    let checked = &checked;
    let options = LowerOptions { disabled: args.disable_pass.clone(), sizes };
    let lowered = lower(checked, &options).map_err(|error| Failure::input(error.to_string()))?;
    if args.explain {
        for line in &lowered.explanations {
            model::print(line);
        }
    }
    let mut levels = args.emit.clone();
    if levels.is_empty() && args.out.is_some() {
        levels = vec![Level::Ast, Level::Model, Level::Dataflow, Level::Joint, Level::Optimized, Level::Infer];
    }
    if levels.is_empty() && !args.explain {
        let program = lowered.artifact.train.as_ref().unwrap_or(&lowered.artifact.infer);
        model::print(&format!(
            "{}: {} operations, {} parameters; `--emit LEVEL` shows a level",
            checked.name,
            program.values.len(),
            program.params.len()
        ));
    }
    for level in levels {
        let no_training =
            || Failure::input(format!("model `{}` has no train block, so nothing is differentiated", checked.name));
        let text = match level {
            Level::Ast => format(&analysis.module, &analysis.sources.files()[0].text),
            Level::Model => model::text(checked),
            Level::Dataflow => ir_text(&lowered.dataflow),
            Level::Joint if lowered.joint.is_none() && args.emit.is_empty() => continue,
            Level::Optimized if lowered.artifact.train.is_none() && args.emit.is_empty() => continue,
            Level::Joint => ir_text(lowered.joint.as_ref().ok_or_else(no_training)?),
            Level::Optimized => ir_text(lowered.artifact.train.as_ref().ok_or_else(no_training)?),
            Level::Infer => ir_text(&lowered.artifact.infer),
        };
        match &args.out {
            None => model::print(&text),
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|error| Failure::write(folder, &error))?;
                let path = folder.join(level.file_name());
                hgnnc_exec::weights::write_atomically(&path, text.as_bytes())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sizes by name, for a dataset that is not at hand.
fn read_stats(path: &Path, model: &Analyzed) -> Result<SizeInfo, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, &error))?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Failure::input(std::format!("`{}` is not JSON: {error}", path.display())))?;
    let table = |key: &str| -> BTreeMap<String, u64> {
        let object = json.get(key).and_then(|v| v.as_object());
        object.into_iter().flatten().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect()
    };
    let (vertices, edges) = (table("vertices"), table("edges"));
    let find = |table: &BTreeMap<String, u64>, key: &str, name: &str| {
        table
            .get(name)
            .copied()
            .ok_or_else(|| Failure::input(std::format!("`{}` has no number for `{name}` in `{key}`", path.display())))
    };
    Ok(SizeInfo {
        vertices: model
            .flow
            .vertex_types
            .iter()
            .map(|v| find(&vertices, "vertices", &v.name))
            .collect::<Result<_, _>>()?,
        edges: model.flow.graphs.iter().map(|g| find(&edges, "edges", &g.name)).collect::<Result<_, _>>()?,
    })
}
