//! Times forward and backward passes of layers on ACM and IMDB: `layer_times DATA_FOLDER [THREADS]`.
//!
//! DATA_FOLDER has the datasets `acm` and `imdb`. Each layer runs twice: with the features of the dataset, which are
//! sparse, and with dense features that are given at each call and get a gradient. Shown is the median of the calls.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use hgnnc::layer::{Layer, LayerJob, Mode};
use hgnnc::{Device, Error, Silent};

const CALLS: u64 = 30;
const WARM_UP: u64 = 3;

const ACM: &str = "
schema Data {
    vertex Target from \"paper\" { x: f32[1902] sparse }
    vertex Author from \"author\" { x: f32[1902] sparse }
    vertex Subject from \"subject\" { x: f32[1902] sparse }
    relation one: Target -> Author from \"paper-author\"
    relation two: Target -> Subject from \"paper-subject\"
    metapath First = Target -one-> Author <-one- Target
    metapath Second = Target -two-> Subject <-two- Target
}
";

const IMDB: &str = "
schema Data {
    vertex Target from \"movie\" { x: f32[3066] sparse }
    vertex Director from \"director\" { x: f32[3066] sparse }
    vertex Actor from \"actor\" { x: f32[3066] sparse }
    relation one: Target -> Director from \"movie-director\"
    relation two: Target -> Actor from \"movie-actor\"
    metapath First = Target -one-> Director <-one- Target
    metapath Second = Target -two-> Actor <-two- Target
}
";

const LAYERS: &[(&str, &str, &str)] = &[
    ("HAN", "use std::han::HanConv", "HanConv(hidden: 8, heads: 8) over [First, Second] of Target.x"),
    ("GAT", "use std::gat::GatConv", "GatConv(hidden: 8, heads: 8) over First of Target.x"),
    ("RGCN", "use std::rgcn::RgcnConv", "RgcnConv(hidden: 64) over [relations, reverses] of features"),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: layer_times DATA_FOLDER [THREADS]");
        return ExitCode::from(2);
    };
    let threads = arguments.next().and_then(|threads| threads.parse().ok()).unwrap_or(0);
    println!("dataset  layer  features  forward ms  backward ms");
    for (name, schema) in [("acm", ACM), ("imdb", IMDB)] {
        for layer in LAYERS {
            for given in [false, true] {
                if let Err(error) = time(&Path::new(&folder).join(name), (name, schema), layer, given, threads) {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn time(
    folder: &Path,
    (dataset, schema): (&str, &str),
    &(name, uses, call): &(&str, &str, &str),
    given: bool,
    threads: usize,
) -> Result<(), Error> {
    let output = if call.ends_with("features") { "h.Target" } else { "h" };
    let text = format!(
        "{uses}\n{schema}\nmodel Net(schema: Data) {{\n    let h = {call}\n    output z: Target = {output}\n}}\n"
    );
    let mut job = LayerJob { device: Device::Cpu, threads, ..LayerJob::new(name, text.clone()) };
    if given {
        job.text = text.replacen(" sparse", "", 1);
        job.given = vec!["Target.x".into()];
    }
    let mut layer = Layer::load(&job, folder, &mut Silent)?;
    let params = layer.initial_params(0)?;
    let params: Vec<&[f32]> = params.iter().map(Vec::as_slice).collect();
    let inputs: Vec<Vec<f32>> = layer.inputs().map(|info| vec![0.01; info.num_elements()]).collect();
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let gradients: Vec<Vec<f32>> = layer.outputs().map(|info| vec![0.01; info.num_elements()]).collect();
    let gradients: Vec<Option<&[f32]>> = gradients.iter().map(|gradient| Some(&gradient[..])).collect();
    let (mut forward, mut backward) = (vec![], vec![]);
    for step in 1..=WARM_UP + CALLS {
        let start = Instant::now();
        let pass = layer.forward(&inputs, &params, Mode::Training { seed: 0, step })?;
        let middle = Instant::now();
        layer.backward(pass, &gradients)?;
        if step > WARM_UP {
            forward.push(1e3 * (middle - start).as_secs_f64());
            backward.push(1e3 * middle.elapsed().as_secs_f64());
        }
    }
    let features = if given { "given" } else { "dataset" };
    println!("{dataset:<7}  {name:<5}  {features:<8}  {:10.2}  {:11.2}", median(forward), median(backward));
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
