//! `hgnnc check` and `hgnnc explain`.

use std::process::ExitCode;
use std::sync::Arc;

use hgnnc::artifact::{self, Artifact};
use hgnnc::{Meeting, Purpose};
use hgnnc_cpu::thread_pool;
use hgnnc_data::check_held_out;
use hgnnc_diag::{Code, SourceMap};
use hgnnc_driver::Analysis;

use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::output::{note, print};
use crate::serve;
use crate::source::Terminal;

/// Reports all diagnostics of a model.
pub fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let mut terminal = Terminal::default();
    if args.serve && artifact::is_one(&args.model) {
        let trained = Artifact::load(&args.model)?;
        if args.data.is_some() {
            return Err(Failure::input("an artifact meets data in `eval` and `infer`: leave `--data` out"));
        }
        print(&serve::text(trained.program(), &SourceMap::default()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut analysis = hgnnc::read(&args.model, &args.set.constants)?;
    if !args.serve && args.data.is_none() {
        analysis.accept_module();
    }
    hgnnc::accept(&analysis, &analysis.diagnostics, &mut terminal)?;
    if let Some(model) = analysis.model.as_ref().filter(|_| args.serve) {
        print(&serve::text(&model.flow, &analysis.sources))?;
    }
    if let Some(folder) = &args.data {
        let pool = thread_pool(0)?;
        let mut dataset = Arc::new(hgnnc::load(folder, &pool)?);
        let how = Meeting { split: args.split.as_deref(), ..Meeting::new(Purpose::Train) };
        let model = hgnnc::meet(&mut analysis, &mut dataset, how, &mut terminal, &pool)?;
        if let Some(train) = &model.train {
            let (flow, training) = (&model.flow, &train.training);
            pool.install(|| check_held_out(flow, training, &dataset, args.split.as_deref()))?;
        }
    }
    // Standard output is for `--serve`.
    note(&passed(args, &analysis));
    Ok(ExitCode::SUCCESS)
}

/// The line about a file without errors.
fn passed(args: &CheckArgs, analysis: &Analysis) -> String {
    let mut text = format!("{}: no errors", args.model.display());
    if let Some(data) = &args.data {
        text += &format!(", and it fits the dataset `{}`", data.display());
    } else if !analysis.declares_model() {
        text += ", and no model: other files can import from it";
    }
    text
}

/// Prints the explanation of a code; without one, lists all codes with their titles.
pub fn explain(code: Option<&str>) -> Result<ExitCode, Failure> {
    let Some(code) = code else {
        print(&Code::all().map(|code| format!("{code}  {}\n", code.title())).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    };
    match Code::find(code) {
        Some(code) => {
            print(code.explanation())?;
            Ok(ExitCode::SUCCESS)
        }
        None => Err(Failure::input(format!(
            "there is no diagnostic `{code}`; codes look like E0301 and stand in brackets behind `error` or `warning`; \
             `hgnnc explain` lists them"
        ))),
    }
}
