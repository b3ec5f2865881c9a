//! Metric counts computed on the device: an evaluation downloads counts instead of outputs.

use hgnnc_data::metrics::Tally;
use hgnnc_data::{BoundData, Result, Target};
use hgnnc_executable::gpu::GpuCompiler;
use hgnnc_executable::gpu::counts::{self, Labels, PARTS};
use hgnnc_ir::training::Task;

use crate::{ALIGN_BYTES, Device, F32, Launch, Sequence};

/// Compares one output of a program with the labels.
#[derive(Debug)]
pub(super) struct Counter {
    sequences: [usize; PARTS],
    /// Address of the counts of each part.
    places: [u64; PARTS],
    width: usize,
    words: Vec<u32>,
}

/// Label encoding for outputs of this width. `None` if the task has no counts.
fn labels(task: Task, width: usize, target: Option<&Target>) -> Option<Labels> {
    match (target?, task) {
        (Target::Classes(_), Task::Classify { .. }) if width > 0 => Some(Labels::Classes),
        (Target::Rows(_), Task::MultiLabel { labels }) if labels == width => Some(Labels::Several),
        _ => None,
    }
}

/// Device bytes needed for counting.
pub(super) fn bytes(data: &BoundData) -> u64 {
    let labels = match data.labels() {
        None => return 0,
        Some(Target::Classes(labels)) => labels.len(),
        Some(Target::Rows(numbers)) => numbers.len(),
    };
    let rows: usize = data.truths.first().map_or(0, |truth| truth.parts.iter().map(Vec::len).sum());
    (F32 * (labels + rows) + PARTS * ALIGN_BYTES) as u64
}

impl Counter {
    /// Uploads labels and rows, and prepares to compare them with the outputs at address `outputs`. `None` if the
    /// task has no counts.
    pub fn new(
        (device, compiler): (&mut dyn Device, &dyn GpuCompiler),
        data: &BoundData,
        (outputs, width): (u64, usize),
        task: Task,
    ) -> Result<Option<Self>> {
        let Some(kind) = labels(task, width, data.labels()) else { return Ok(None) };
        let parts = &data.truths[0].parts;
        let copy = |device: &mut dyn Device, what: &str, bytes: &[u8]| -> Result<u64> {
            let at = device.alloc(what, bytes.len().max(ALIGN_BYTES))?;
            device.upload(at, bytes)?;
            Ok(at)
        };
        let labels: &[u8] = match data.labels() {
            Some(Target::Classes(labels)) => bytemuck::cast_slice(labels),
            Some(Target::Rows(numbers)) => bytemuck::cast_slice(numbers),
            None => &[],
        };
        let mut table = vec![outputs, copy(device, "labels", labels)?, width as u64];
        let mut places = [0; PARTS];
        for (place, rows) in places.iter_mut().zip(parts) {
            *place = device.alloc("counts", (F32 * counts::words(width)).max(ALIGN_BYTES))?;
            table.extend([copy(device, "a part of the split", bytemuck::cast_slice(rows))?, rows.len() as u64, *place]);
        }
        let module = device.load(&compiler.counts(device.target(), kind))?;
        device.set_table(module, &table)?;
        let mut sequences = [0; PARTS];
        for (part, sequence) in sequences.iter_mut().enumerate() {
            let rows = parts[part].len();
            let launch = Launch {
                name: counts::name(part),
                what: format!("{rows} rows of {width} outputs"),
                blocks: counts::blocks(rows),
                shared: 0,
            };
            *sequence = device.prepare(Sequence { module, launches: vec![launch] })?;
        }
        Ok(Some(Self { sequences, places, width, words: vec![0; counts::words(width)] }))
    }

    /// Counts over the rows of a part.
    pub fn count(&mut self, device: &mut dyn Device, part: usize, tally: &mut Tally) -> Result<()> {
        device.clear(self.places[part], F32 * self.words.len())?;
        device.run(self.sequences[part])?;
        device.download(self.places[part], bytemuck::cast_slice_mut(&mut self.words))?;
        let (of_outputs, right) = self.words.split_at(3 * self.width);
        tally.set(of_outputs, u64::from(right[0]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interpreter;
    use hgnnc_data::GroundTruth;
    use hgnnc_data::metrics::Predictions;

    /// Values with ties and NaN.
    fn number(seed: usize) -> f32 {
        match seed.wrapping_mul(2_654_435_761) >> 7 & 0xf {
            0 => f32::NAN,
            1 => f32::NEG_INFINITY,
            2 => f32::INFINITY,
            3 => -0.0,
            n => (n / 3) as f32 - 2.0,
        }
    }

    /// Compares the counts of each part on the device and on the CPU.
    fn check(outputs: &[f32], width: usize, target: Target, parts: [Vec<u32>; 3], task: Task) {
        let truths = vec![GroundTruth { vertex: None, labels: Some(target), parts }];
        let data = BoundData { truths, ..BoundData::default() };
        let mut device = Interpreter::new();
        let at = device.alloc("outputs", (F32 * outputs.len()).max(ALIGN_BYTES)).expect("there is room");
        device.upload(at, bytemuck::cast_slice(outputs)).expect("it fits");
        let counter =
            Counter::new((&mut device, &hgnnc_ptx::PtxCompiler), &data, (at, width), task).expect("it is prepared");
        let mut counter = counter.expect("it is counted");
        for part in [0, 1, 2, 0] {
            let (mut found, mut expected) = (Tally::default(), Tally::default());
            counter.count(&mut device, part, &mut found).expect("it is executed");
            let target = data.labels().expect("there are some");
            let rows = &data.truths[0].parts[part];
            Predictions { outputs, width, row_loss: None, target, rows, task }.tally(&mut expected);
            assert_eq!(found, expected, "part {part}, {width} outputs");
        }
    }

    fn parts(rows: u32) -> [Vec<u32>; 3] {
        [(0..rows).collect(), vec![], (0..rows).rev().step_by(3).collect()]
    }

    #[test]
    fn classes_are_counted_as_by_the_processor() {
        for (rows, width) in [(1usize, 1usize), (7, 2), (100, 3), (40, 31), (40, 32), (40, 33), (50, 100)] {
            let outputs: Vec<f32> = (0..rows * width).map(|i| number(i + width)).collect();
            let labels = (0..rows).map(|row| (row * 7 % (width + 1)) as i32 - 1).collect();
            check(&outputs, width, Target::Classes(labels), parts(rows as u32), Task::Classify { classes: width });
        }
        // More rows than warps of all blocks.
        let rows = 9000;
        let outputs: Vec<f32> = (0..rows * 2).map(number).collect();
        let labels = (0..rows).map(|row| (row % 2) as i32).collect();
        check(&outputs, 2, Target::Classes(labels), parts(rows as u32), Task::Classify { classes: 2 });
    }

    #[test]
    fn several_labels_are_counted_as_by_the_processor() {
        for (rows, width) in [(1usize, 1usize), (60, 5), (20, 32), (20, 70)] {
            let outputs: Vec<f32> = (0..rows * width).map(|i| number(i + width)).collect();
            // Some rows are entirely right.
            let wanted = |(i, &output): (usize, &f32)| f32::from(u8::from((output > 0.0) != (i / width % 3 == 0)));
            let labels = outputs.iter().enumerate().map(wanted).collect();
            check(&outputs, width, Target::Rows(labels), parts(rows as u32), Task::MultiLabel { labels: width });
        }
    }
}
